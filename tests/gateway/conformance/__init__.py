"""One set of scenarios for every platform, against the whole product: its command, its SDKs, a model behind HTTP."""
