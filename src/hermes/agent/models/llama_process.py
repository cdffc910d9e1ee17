"""The program of its own in which llama.cpp serves the local model. Run by its path: it needs nothing of ours.

The first line of its input says what to serve, the one line of its output where. It lives for as long as its input is
open, so that it ends with the program that started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ASLEEP_AFTER_S = 60
"""Then the weights leave the memory, until the next request."""
MOST_TOKENS = 1024
"""Of an answer whose length nobody limits."""


def main() -> None:
    # Whatever the library prints goes where its log goes, and not into our one line.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    options = json.loads(sys.stdin.readline())
    sys.path.append(options["library"])
    try:
        server = serve(options)
        answer = {"address": server.listening_address}
    except Exception as problem:  # noqa: BLE001 - whatever it is, the one who waits is told
        answer = {"error": str(problem) or type(problem).__name__}
    print(json.dumps(answer), file=output, flush=True)
    if "address" in answer:
        sys.stdin.read()


def serve(options: dict[str, Any]) -> Any:
    """A server that answers: on loopback, on a port that is free, and only those who have the key."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [options["key"]]
    params.model.path, params.model_alias = options["weights"], {options["name"]}
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.n_ctx, params.n_parallel, params.n_predict = options["window"], 1, MOST_TOKENS
    params.sampling.temp, params.sampling.top_p = 0.2, 0.9  # as its makers recommend
    # Without this penalty the model falls into repeating itself.
    params.sampling.dry_multiplier, params.sampling.dry_allowed_length = 0.8, 6
    params.sleep_idle_seconds = ASLEEP_AFTER_S
    # Memory: half as much for the context, none for prompts of before.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_Q8_0
    params.cache_ram_mib = 0
    params.warmup = params.ui = params.endpoint_slots = False
    params.offline, params.verbosity = True, -1
    return xllamacpp.Server(params)


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)  # the library's threads are not waited for
