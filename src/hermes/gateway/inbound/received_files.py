"""Files of received messages: fetch them, store them until the message is in the conversation, and build the
content for the agent from them."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from hermes import errors, home
from hermes.gateway.adapter import AdapterError, FetchesFiles, RateLimited, Undeliverable, Unreachable
from hermes.gateway.inbound_events import Attachment, Event, OfferedFile
from hermes.recall.tool.prompt_safety import close_fence, fence_text, make_label, to_one_line
from hermes.store.engine_choice import sealed_files

MB = 1_000_000
LONGEST_QUOTE = 500
LONGEST_TEXT_FILE = 100_000
FETCH_S = 60.0
"""Time limit for fetching all files of one message, in seconds. Later messages of the chat wait meanwhile."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
_JOINT = "\n\n"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def incoming_folder() -> Path:
    return home.get_hermes_home() / "gateway" / "incoming"


async def fetch_files(
    offered: Sequence[OfferedFile], largest_mb: float
) -> tuple[tuple[Attachment, ...], list[str]]:
    """Fetch the `offered` files of a message and store them in the home. Return two values: the stored files, and
    one line of text for each file that was not stored."""
    attachments: list[Attachment] = []
    missing: list[str] = []
    until = asyncio.get_running_loop().time() + FETCH_S
    for file in offered:
        name = make_label(file.name, 100)
        if file.size is not None and file.size > largest_mb * MB:
            missing.append(f"[{file.kind} {name}: larger than {largest_mb:g} MB, not fetched]")
            continue
        try:
            async with asyncio.timeout_at(until):
                content = await file.fetch()
        except (AdapterError, TimeoutError, OSError) as problem:
            missing.append(f"[{file.kind} {name}: could not be fetched ({type(problem).__name__})]")
            continue
        if len(content) > largest_mb * MB:
            missing.append(f"[{file.kind} {name}: larger than {largest_mb:g} MB, not kept]")
            continue
        try:
            path = await asyncio.to_thread(_store_file, content)
        except BaseException:  # the message will be delivered again, with all its files
            await asyncio.to_thread(_remove_attachments, attachments)
            raise
        attachments.append(Attachment(file.kind, file.name, file.media_type, len(content), str(path)))
    return tuple(attachments), missing


async def fetch_remote(event: Event, adapter: object, largest_mb: float) -> Event:
    """Fetch the files of a message that are still on the platform. Return the message with these files as
    attachments. For each file that cannot be fetched, a line is added to the text of the message. While the
    platform cannot be reached, fetching is retried for up to `FETCH_S` seconds."""
    if not event.files:
        return event
    offered = [
        OfferedFile(*file[:4], partial(_fetch_patiently, adapter, file.reference)) for file in event.files
    ]
    attachments, missing = await fetch_files(offered, largest_mb)
    return event._replace(
        text="\n\n".join((event.text, *missing)).strip(),
        attachments=(*event.attachments, *attachments),
        files=(),
    )


async def _fetch_patiently(adapter: object, reference: Mapping[str, Any]) -> bytes:
    if not isinstance(adapter, FetchesFiles):
        raise Undeliverable("the platform of the file is not connected")
    pause = FIRST_PAUSE_S
    while True:
        try:
            return await adapter.fetch(reference)
        except RateLimited as problem:
            await asyncio.sleep(problem.seconds)
        except Unreachable:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _store_file(content: bytes) -> Path:
    where = incoming_folder()
    home.make_private_folder(where)
    path = where / f"{sha256(content).hexdigest()[:32]}-{os.urandom(4).hex()}"
    sealed_files().write(path, content)
    return path


def has_files() -> bool:
    """Return whether any file of a received message is stored."""
    folder = incoming_folder()
    return folder.is_dir() and any(folder.iterdir())


def remove_leftovers(needed: Iterable[Event], before: float) -> None:
    """Remove stored files of received messages that a killed process left behind. These are the files that were
    written before the time `before` and belong to none of the messages in `needed`."""
    needed_paths = {attachment.path for event in needed for attachment in event.attachments}
    if incoming_folder().is_dir():
        for path in incoming_folder().iterdir():
            with suppress(OSError):
                if str(path) not in needed_paths and path.stat().st_mtime < before:
                    path.unlink()


def build_content(event: Event, mark: str = "") -> Any:
    """Return the content of a message for the agent: a text, or a text and images.

    In a shared chat, `mark` is the prefix that names the speaker (see `format_speaker`). It is put before the text.
    The caller must have applied `neutralise_speech` to the text. Text that the speaker did not write (a quoted
    message, a file) is fenced.
    """
    parts = [event.text.strip()] if event.text.strip() else []
    if event.reply_to:
        parts.insert(0, f"[in reply to]\n{fence_text(to_one_line(event.reply_to, LONGEST_QUOTE))}")
    pictures = []
    for attachment in event.attachments:
        if attachment.media_type in IMAGES and (url := _data_url(attachment)) is not None:
            pictures.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append(_describe_file(attachment))
    if len(parts) > 1:
        parts = [close_fence(part) for part in parts]
    text = f"{mark}{_JOINT.join(parts)}"
    if not pictures:
        return text
    return [{"type": "text", "text": text or "[picture]"}, *pictures]


async def discard_files(event: Event) -> None:
    """Call `remove_files` in a thread if the message has attachments."""
    if event.attachments:
        await asyncio.to_thread(remove_files, event)


async def make_content(event: Event, mark: str = "") -> Any:
    """Call `build_content`, in a thread if the message has attachments."""
    if not event.attachments:
        return build_content(event, mark)
    return await asyncio.to_thread(build_content, event, mark)


def remove_files(event: Event) -> None:
    """Remove the stored files of a message. Called when they are no longer needed, for example because the
    message is in the conversation."""
    _remove_attachments(event.attachments)


def _remove_attachments(attachments: Iterable[Attachment]) -> None:
    for attachment in attachments:
        path = Path(attachment.path)
        if path.parent == incoming_folder():
            path.unlink(missing_ok=True)


def _data_url(attachment: Attachment) -> str | None:
    try:
        content = sealed_files().read(Path(attachment.path))
    except (OSError, errors.HermesError):
        return None
    return f"data:{attachment.media_type};base64,{base64.b64encode(content).decode()}"


def _describe_file(attachment: Attachment) -> str:
    """Return a line that describes an attachment for the agent. For a short text file, its content follows."""
    name = make_label(attachment.name, 100)
    if attachment.media_type.startswith("text/") and attachment.size <= LONGEST_TEXT_FILE:
        try:
            text = sealed_files().read(Path(attachment.path)).decode("utf-8")
            return f"[file {name}]\n{fence_text(text)}"
        except (OSError, UnicodeDecodeError, errors.HermesError):
            pass
    media_type = make_label(attachment.media_type, 60)
    return f"[{attachment.kind} {name}, {media_type}, {attachment.size:,} bytes; its content cannot be read]"
