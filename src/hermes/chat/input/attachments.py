"""Attaches files that a message mentions as `@file`. A text file is quoted below the message. A picture
becomes a part of the message.

A message is sent even if a mentioned file cannot be attached, because an `@` can have another meaning. The
person is shown which files were attached and which were not.

Only mentions that the person typed are attached. Pasted text, and the question on a command line, can come
from somebody else. Nobody else must be able to choose a file that is sent to a model.
"""

from __future__ import annotations

import base64
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hermes import errors
from hermes.agent.models.model import Model, takes_pictures
from hermes.agent.tool import MOST_OUTPUT, shorten_middle
from hermes.message_content import detect_picture_type, list_parts
from hermes.recall.tool.prompt_safety import close_fence, fence_text, to_one_line
from hermes.text import format_count, format_size, make_printable

MOST_FILES = 20
MOST_EXAMINED = 1_000
"""The maximum number of mentions that are checked for the note about pasted file names. The note lists the
files that only pasted text mentions, because they are not attached."""
LONGEST_NAME = 500
LARGEST_TEXT = 20_000_000
"""The maximum size of a text file, in bytes. If the text is long, only its beginning and its end are sent."""
LARGEST_PICTURE = 5_000_000
"""The maximum size of a picture, in bytes. All providers accept pictures of this size."""

_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|(\S+))")


class PictureRefused(errors.HermesError):
    """The model does not accept pictures."""


class FileRefused(errors.HermesError):
    """A file that the command line names cannot be attached."""


class File(NamedTuple):
    name: str
    note: str = ""
    """The line for the person. Empty if there is no such file."""
    text: str = ""
    """The text for the model. Empty if the model gets nothing from this file."""
    picture: dict[str, Any] | None = None
    problem: str = ""
    """Why the content of the file is not attached. Empty if it is attached or if there is no such file."""


class Message(NamedTuple):
    content: Any
    """The text with the attached files, or a list of parts if there are pictures."""
    notes: list[str]
    """Notes about which files were attached and which were not."""


def attach_files(
    text: str,
    cwd: Path,
    *,
    pasted: Iterable[str] = (),
    files: Sequence[File] = (),
    quoted: Sequence[str] = (),
    advice: str = "A file is attached only if you type its name here",
) -> Message:
    """Return the message of the person with everything that is sent with it. After `text` come the content of
    each file that `text` mentions, the content of `files`, and the texts `quoted`.

    `cwd` is the folder in which mentioned files are looked up. `pasted` contains the parts of `text` that the
    person did not type. A file that only these parts mention is not attached, and the note about it ends with
    `advice`.
    """
    mentions, untyped = (
        Counter(_list_mentions(text)),
        Counter(name for part in pasted for name in _list_mentions(part)),
    )
    names = [name for name, count in mentions.items() if count > untyped[name]]
    mentioned = [_read_file(name, cwd) for name in names[:MOST_FILES]]
    notes = [file.note for file in (*files, *mentioned) if file.note]
    if missing := [file for file in mentioned if not file.note]:
        notes.append(_describe_missing(missing, cwd))
    if len(names) > MOST_FILES:
        notes.append(f"Only the first {MOST_FILES} files are attached.")
    untyped_names = [name for name in islice(mentions, MOST_EXAMINED) if mentions[name] <= untyped[name]]
    if ignored := [name for name in untyped_names if _is_file(name, cwd)]:
        notes.append(_describe_ignored(ignored, advice))
    parts = [*(file.text for file in (*files, *mentioned) if file.text), *quoted]
    content = "\n\n".join([close_fence(text), *parts]) if parts else text
    pictures = [file.picture for file in (*files, *mentioned) if file.picture is not None]
    return Message([{"type": "text", "text": content}, *pictures] if pictures else content, notes)


def read_named_file(name: str, cwd: Path) -> File:
    """Read a file that the command line names. Raise `FileRefused` if it cannot be attached."""
    file = _read_file(name, cwd, through_links=True)
    if not file.note:
        near = _find_near(name, cwd)
        hint = f"; did you mean '{make_printable(near[0])}'?" if near else ""
        raise FileRefused(f"there is no file '{make_printable(name)}'{hint}")
    if file.problem:
        raise FileRefused(f"{file.problem}, so it cannot be attached")
    return file


def has_pictures(content: object) -> bool:
    return any(part.kind == "picture" for part in list_parts(content))


def require_eyes(model: Model) -> None:
    """Raise `PictureRefused` if the model is known not to accept pictures."""
    if not takes_pictures(model):
        raise PictureRefused(
            f"{make_printable(model.name)} takes no pictures, so the message was not sent. Choose a model that does"
            " with `/model NAME`, or with `-m NAME` on the command line"
        )


def _list_mentions(text: str) -> list[str]:
    names = (mention[1] or mention[2].rstrip(".,;:!?)") for mention in _MENTION.finditer(text))
    return [name for name in names if name]


def _is_file(name: str, cwd: Path) -> bool:
    try:
        return (cwd / Path(name).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):  # no valid name
        return False


def _read_file(name: str, cwd: Path, *, through_links: bool = False) -> File:
    shown = make_printable(name)
    try:
        path = cwd / Path(name).expanduser()
        if path.is_dir():
            return _refuse(name, f"{shown} is a folder", "a folder")
        if not path.exists():
            return File(name)
        if not path.is_file():
            return _refuse(name, f"{shown} is not a file", "not a file")
        real = path.resolve()
        if not through_links and not real.is_relative_to(_spell_folder(path, cwd)):
            target = make_printable(str(real))
            mention = f'@"{target}"' if " " in target else f"@{target}"
            return _refuse(
                name,
                f"{shown} leads through a link to {target}",
                "a link to a file elsewhere",
                f" To attach it, type {mention}.",
            )
        size = real.stat().st_size
        if size > LARGEST_TEXT:
            limit = format_size(LARGEST_TEXT)
            return _refuse(
                name,
                f"{shown} is too large to attach ({format_size(size)}, at most {limit})",
                f"{format_size(size)}, too large to attach",
            )
        data = real.read_bytes()
    except (ValueError, RuntimeError):  # no valid name
        return File(name)
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        if isinstance(problem, FileNotFoundError) or reason == "File name too long":
            return File(name)
        return _refuse(name, f"{shown} cannot be read: {reason}", "cannot be read")
    media_type = detect_picture_type(data)
    return _quote_text(name, data) if media_type is None else _make_picture(name, data, media_type)


def _spell_folder(path: Path, cwd: Path) -> Path:
    """Return the folder of `path` as typed, without resolving links that the person typed. Links are resolved
    only at the start of the path: in the working directory, in the home folder, or in a top folder such as
    `/tmp` on macOS."""
    spelled = Path(os.path.normpath(path)).parent
    starts = (cwd, Path(os.environ.get("HOME") or cwd), Path(*spelled.parts[:2]))
    start = next(folder for folder in starts if spelled.is_relative_to(folder))
    return start.resolve() / spelled.relative_to(start)


def _quote_text(name: str, data: bytes) -> File:
    shown, size = make_printable(name), format_size(len(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return _refuse(name, f"{shown} is not a text file ({size})", f"binary, {size}")
    note = f"Attached {shown} ({format_count(text.count(chr(10)) + (not text.endswith(chr(10))), 'line')}, {size})."
    if len(text) > MOST_OUTPUT:
        note = f"{note[:-1]}; its middle is left out, {MOST_OUTPUT:,} of {len(text):,} characters are sent."
    return File(name, note, f"[file {_label(name)}]\n{fence_text(shorten_middle(text))}")


def _make_picture(name: str, data: bytes, media_type: str) -> File:
    shown, size = make_printable(name), format_size(len(data))
    if len(data) > LARGEST_PICTURE:
        limit = format_size(LARGEST_PICTURE)
        return _refuse(
            name,
            f"{shown} is too large for a picture ({size}, at most {limit})",
            f"a picture of {size}, too large",
        )
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    kind = media_type.removeprefix("image/").upper()
    return File(
        name,
        f"Attached {shown} ({kind} picture, {size}).",
        f"[picture {_label(name)}]",
        {"type": "image_url", "image_url": {"url": url}},
    )


def _refuse(name: str, problem: str, reason: str, advice: str = "") -> File:
    """Return a `File` that cannot be attached: only its name is sent to the model, not its content. `problem`
    tells the person why and is followed by `advice`; `reason` tells the model why."""
    return File(
        name,
        f"{problem}; only its name is sent.{advice}",
        f"[file {_label(name)}: {reason}; not attached]",
        problem=problem,
    )


def _label(name: str) -> str:
    return to_one_line(name, LONGEST_NAME)


def _describe_missing(files: Sequence[File], cwd: Path) -> str:
    named = ", ".join(f"@{make_printable(file.name, width_limit=60)}" for file in files)
    near = list(dict.fromkeys(name for file in files for name in _find_near(file.name, cwd)))
    hint = f" Did you mean {', '.join(f'@{make_printable(name)}' for name in near)}?" if near else ""
    are, them = ("is not a file", "it") if len(files) == 1 else ("are not files", "them")
    return f"{named} {are} in {make_printable(str(cwd))}, so nothing is attached for {them}.{hint}"


def _describe_ignored(names: Sequence[str], advice: str) -> str:
    listed = ", ".join(f"@{make_printable(name, width_limit=60)}" for name in names[:MOST_FILES])
    return f"Not attached: {listed}. {advice}."


def _find_near(name: str, cwd: Path) -> list[str]:
    """Return the files whose names are similar to `name` and that are in the folder in which `name` was looked
    up."""
    folder, _, base = name.rpartition("/")
    prefix = f"{folder}/" if folder or name.startswith("/") else ""
    try:
        present = [path.name for path in (cwd / Path(prefix or ".").expanduser()).iterdir()]
    except (OSError, ValueError, RuntimeError):
        return []
    return [f"{prefix}{found}" for found in get_close_matches(base, present, 2, 0.7)]
