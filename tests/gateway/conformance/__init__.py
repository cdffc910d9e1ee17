"""Scenarios that every platform must pass, with the real command, the real SDKs and a model server over HTTP."""
