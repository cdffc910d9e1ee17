"""Requests from commands to the running gateway, as files in `<home>/gateway/requests/`.

A command writes the name of an action to `<id>.request`. The gateway runs the action and writes its result to
`<id>.answer`. Files also work from another container that shares the home, where signals do not. A gateway of an
older version ignores them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets as random_ids
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes import clock, errors, home, secrets
from hermes.atomic_files import replace_file
from hermes.gateway.ops.status_file import gateway_folder, read_status

log = logging.getLogger(__name__)

FOLDER = "requests"
REQUEST, ANSWER = ".request", ".answer"
LOOK_EVERY_S = 0.5
PATIENCE_S = 90.0
"""How long a command waits for the answer, in seconds. It is long because a reload may wait for running deliveries
and requests."""
LEFT_S = 2 * PATIENCE_S
"""The age in seconds after which a file is removed. Such a file was left by a command that was killed."""

Answer = dict[str, Any]
Handlers = Mapping[str, Callable[[], Awaitable[Answer]]]


def get_folder() -> Path:
    return gateway_folder() / FOLDER


# ---------------------------------------------------------------- the gateway


async def serve_requests(handlers: Handlers) -> None:
    """Look for request files of commands in an endless loop, and answer them one after the other. `handlers` maps
    the name of an action to the function that runs it."""
    folder = get_folder()
    home.make_private_folder(folder)
    while True:
        with suppress(OSError):  # a full disk, or a removed folder
            for file in await asyncio.to_thread(_list_requests, folder):
                await _answer(file, handlers)
        await asyncio.sleep(LOOK_EVERY_S)


async def _answer(file: Path, handlers: Handlers) -> None:
    try:
        action = json.loads(file.read_bytes())["action"]
    except (OSError, ValueError, TypeError, KeyError):
        file.unlink(missing_ok=True)
        return
    handler = handlers.get(action)
    try:
        answer = {"error": f"unknown action {action!r}"} if handler is None else await handler()
    except Exception as problem:
        is_expected = isinstance(problem, errors.HermesError)
        why = secrets.redact(str(problem) if is_expected else repr(problem))
        if not is_expected:  # an expected error is logged where it occurs
            log.error("%s failed: %s", action, why, exc_info=True)
        answer = {"error": why}
    if file.exists():  # otherwise the command was cancelled, and nobody reads the answer
        replace_file(file.with_suffix(ANSWER), json.dumps(answer).encode())
        file.unlink(missing_ok=True)


def _list_requests(folder: Path) -> list[Path]:
    """Return the paths of the request files in `folder`, oldest first. Files that were left there more than
    `LEFT_S` seconds ago are removed."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            changed = entry.stat().st_mtime
            if clock.now() - changed > LEFT_S:
                Path(entry.path).unlink(missing_ok=True)
            elif entry.name.endswith(REQUEST):
                found.append((changed, Path(entry.path)))
    return [path for _, path in sorted(found)]


# ---------------------------------------------------------------- commands


def is_gateway_running() -> bool:
    status = read_status()
    return status is not None and status.is_running


def ask_gateway(action: str, patience_s: float = PATIENCE_S) -> Answer | None:
    """Request an action from the running gateway and return its answer. Return None if no gateway is running.
    Raise `HermesError` if the gateway reports an error or does not answer within `patience_s` seconds.
    """
    if not is_gateway_running():
        return None
    folder = get_folder()
    home.make_private_folder(folder)
    request = folder / f"{random_ids.token_hex(8)}{REQUEST}"
    answer = request.with_suffix(ANSWER)
    replace_file(request, json.dumps({"action": action}).encode())
    deadline = time.monotonic() + patience_s
    try:
        while not answer.exists():
            if not is_gateway_running() and not answer.exists():
                return None
            if time.monotonic() > deadline:
                raise errors.HermesError(f"the gateway did not answer within {patience_s:g} seconds")
            time.sleep(0.05)
        content: Answer = json.loads(answer.read_bytes())
    finally:
        request.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    if content.get("error"):
        raise errors.HermesError(str(content["error"]))
    return content
