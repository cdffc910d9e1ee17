"""What came with a message: its files, fetched and kept until it is in the conversation, and what the agent is told."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from hermes import errors, home
from hermes.gateway.adapter import AdapterError
from hermes.gateway.inbound_events import Attachment, Event, Offered
from hermes.recall.tool.prompt_safety import close_fence, fence_text, make_label
from hermes.recall.tool.prompt_safety import make_name as one_line
from hermes.store.engine_choice import sealed_files

MB = 1_000_000
LONGEST_QUOTE = 500
LONGEST_TEXT_FILE = 100_000
FETCH_S = 60.0
"""How long all files of a message may take: whoever speaks after it on that platform waits meanwhile."""
_JOINT = "\n\n"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def folder() -> Path:
    return home.get_hermes_home() / "gateway" / "incoming"


async def fetched(offered: Sequence[Offered], largest_mb: float) -> tuple[tuple[Attachment, ...], list[str]]:
    """The files, kept; and what could not be had, a line each."""
    kept: list[Attachment] = []
    missing: list[str] = []
    until = asyncio.get_running_loop().time() + FETCH_S
    for one in offered:
        name = make_label(one.name, 100)
        if one.size is not None and one.size > largest_mb * MB:
            missing.append(f"[{one.kind} {name}: larger than {largest_mb:g} MB, not fetched]")
            continue
        try:
            async with asyncio.timeout_at(until):
                content = await one.fetch()
        except (AdapterError, TimeoutError, OSError) as problem:
            missing.append(f"[{one.kind} {name}: could not be fetched ({type(problem).__name__})]")
            continue
        if len(content) > largest_mb * MB:
            missing.append(f"[{one.kind} {name}: larger than {largest_mb:g} MB, not kept]")
            continue
        try:
            path = await asyncio.to_thread(_keep, content)
        except BaseException:  # the message comes again, with all its files
            await asyncio.to_thread(_forget, kept)
            raise
        kept.append(Attachment(one.kind, one.name, one.media_type, len(content), str(path)))
    return tuple(kept), missing


def _keep(content: bytes) -> Path:
    where = folder()
    home.make_private_folder(where)
    path = where / f"{sha256(content).hexdigest()[:32]}-{os.urandom(4).hex()}"
    sealed_files().write(path, content)
    return path


def tidy(needed: Iterable[Event], before: float) -> None:
    """Remove what a killed process left behind: files older than that which belong to no message that waits."""
    kept = {one.path for event in needed for one in event.attachments}
    if folder().is_dir():
        for path in folder().iterdir():
            with suppress(OSError):
                if str(path) not in kept and path.stat().st_mtime < before:
                    path.unlink()


def content_of(event: Event, mark: str = "") -> Any:
    """What is said to the agent: text, or text and pictures.

    `mark` says who speaks, where several do; then the text must be `speech` already. What others wrote (a quoted
    message, a file) stands in fences.
    """
    told = [event.text.strip()] if event.text.strip() else []
    if event.reply_to:
        told.insert(0, f"[in reply to]\n{fence_text(one_line(event.reply_to, LONGEST_QUOTE))}")
    pictures = []
    for one in event.attachments:
        if one.media_type in IMAGES and (url := _data_url(one)) is not None:
            pictures.append({"type": "image_url", "image_url": {"url": url}})
        else:
            told.append(_told(one))
    if len(told) > 1:
        told = [close_fence(part) for part in told]
    text = f"{mark}{_JOINT.join(told)}"
    if not pictures:
        return text
    return [{"type": "text", "text": text or "[picture]"}, *pictures]


def forget(event: Event) -> None:
    """What is in the conversation need not be kept beside it."""
    _forget(event.attachments)


def _forget(attachments: Iterable[Attachment]) -> None:
    for one in attachments:
        path = Path(one.path)
        if path.parent == folder():
            path.unlink(missing_ok=True)


def _data_url(one: Attachment) -> str | None:
    try:
        content = sealed_files().read(Path(one.path))
    except (OSError, errors.HermesError):
        return None
    return f"data:{one.media_type};base64,{base64.b64encode(content).decode()}"


def _told(one: Attachment) -> str:
    """A text file is told in full, if it is not too long; of anything else, that it came."""
    name = make_label(one.name, 100)
    if one.media_type.startswith("text/") and one.size <= LONGEST_TEXT_FILE:
        try:
            text = sealed_files().read(Path(one.path)).decode("utf-8")
            return f"[file {name}]\n{fence_text(text)}"
        except (OSError, UnicodeDecodeError, errors.HermesError):
            pass
    return f"[{one.kind} {name}, {make_label(one.media_type, 60)}, {one.size:,} bytes; I cannot look into it]"
