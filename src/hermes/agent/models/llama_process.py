"""The separate process in which llama.cpp serves the local model.

It is started by its file path and imports nothing from this package. It reads the options from the first line
of its input. It writes one line to its output, with the address of the server. It ends when its input is
closed, so it never outlives the program that started it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ASLEEP_AFTER_S = 60
"""The idle time after which the weights are unloaded from memory, until the next request."""
MOST_TOKENS = 1024
"""The maximum length of an answer, in tokens, if the request sets no limit."""


def main() -> None:
    # Redirect the output of the library to stderr, so that stdout contains only our line.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    options = json.loads(sys.stdin.readline())
    sys.path.append(options["library"])
    try:
        server = serve(options)
        answer = {"address": server.listening_address}
    except Exception as problem:  # noqa: BLE001 - every error is reported to the parent
        answer = {"error": str(problem) or type(problem).__name__}
    print(json.dumps(answer), file=output, flush=True)
    if "address" in answer:
        sys.stdin.read()


def serve(options: dict[str, Any]) -> Any:
    """Start the server of the local model on the loopback interface, on a free port, and return it. `options` are the
    options that the program sent. The server accepts only requests that contain the key in `options`."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [options["key"]]
    params.model.path, params.model_alias = options["weights"], {options["name"]}
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.n_ctx, params.n_parallel, params.n_predict = options["window"], 1, MOST_TOKENS
    params.sampling.temp, params.sampling.top_p = 0.2, 0.9  # as recommended for the model
    # Without this penalty the model repeats itself.
    params.sampling.dry_multiplier, params.sampling.dry_allowed_length = 0.8, 6
    params.sleep_idle_seconds = ASLEEP_AFTER_S
    # A quantised cache halves the memory of the context. Earlier prompts are not cached.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_Q8_0
    params.cache_ram_mib = 0
    params.warmup = params.ui = params.endpoint_slots = False
    params.offline, params.verbosity = True, -1
    return xllamacpp.Server(params)


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)  # do not wait for the library's threads
