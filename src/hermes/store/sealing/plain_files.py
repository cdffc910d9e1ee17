"""Files that remain readable in a home whose store is encrypted. Lists them and, on request, removes copies
of stored data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hermes import errors
from hermes.atomic_files import BACKUPS, DAMAGE_MARK, LOCK, PARTIAL
from hermes.store.file_walk import find_files
from hermes.store.sealing.sealed_files import is_sealed_file, wipe
from hermes.store.sealing.sealed_home import HISTORY, SEALED_FOLDERS, find_links, is_program
from hermes.store.values import PlainFiles

MIRRORS, INDEX, MARKS = "sessions", "sessions.json", ".transcripts.json"
"""The folder with the gateway's mirror files (readable copies of stored transcripts and routes), and the
names of two of these files."""
ROUTING_TAKEN_OVER = "gateway:older_routing"
"""The key in `state_meta` that is set once the gateway has read an older `sessions.json` as a source. From
then on, the file is only a copy of the routes in the store."""
EDITING = ".editing-"
"""The prefix of the folder in which a person edits a sealed file."""
FOLDERS = {"spool": "spool", "cron": "jobs", "gateway": "gateway", "whatsapp": "gateway", "logs": "logs"}
SETTINGS = (".env", "config.yaml", "config.yaml.edited", "active_profile")

Is = Callable[[Path], bool]


class Kind(NamedTuple):
    name: str
    tells: bool
    """Whether files of this kind can contain text of conversations."""
    advice: str = ""


COPIES = "copies of the store"
KINDS = {
    "key": Kind("the key of the store", True, "keep it away from the store"),
    "copies": Kind(COPIES, True, "remove those that you do not need"),
    "words": Kind("memories, skills, waiting attachments", True, "`hermes store encrypt` seals them"),
    "typed": Kind("the input history of chats", True, "`hermes store encrypt` seals it"),
    "mirrors": Kind(
        "transcripts and sessions.json, copies of what is in the store",
        True,
        "`hermes store encrypt --remove-plain` removes those whose session is stored",
    ),
    "saved": Kind("saved conversations and request dumps", True, "remove those that you do not need"),
    "spool": Kind("spooled messages", True, "they are stored when the store is next opened for writing"),
    "jobs": Kind("scheduled jobs and their results", True, "remove those that you do not need"),
    "edited": Kind(
        "files of an editor that is open or crashed", True, "copy what you need, then remove the folder"
    ),
    "other": Kind("other files, such as exports", True, "check whether you still need them"),
    "links": Kind("symbolic links in sealed folders", True, "their targets are not sealed"),
    "programs": Kind("programs of skills, which a shell has to start", False),
    "settings": Kind("settings and keys", False),
    "gateway": Kind("state of the gateway, with its logins", False),
    "logs": Kind("logs", False),
}


def find_plain_files(
    root: Path, store: Path, is_plain_database: Is, key_file: Path | None = None
) -> tuple[PlainFiles, ...]:
    """Return the readable files below a home by kind. Kinds that can contain text of conversations come first."""
    by_kind: dict[str, list[Path]] = {}
    below = find_files(root)
    for file in below.files:
        is_key = key_file is not None and file.resolve() == key_file
        kind = "key" if is_key else _find_kind(root, store, file, is_plain_database)
        if kind is not None:
            by_kind.setdefault(kind, []).append(file)
    if links := find_links(root):
        by_kind["links"] = links
    listed = [
        PlainFiles(each.name, tuple(by_kind[name]), each.tells, each.advice)
        for name, each in KINDS.items()
        if name in by_kind
    ]
    if not below.complete:
        listed.append(PlainFiles("files beyond the limit of this check", (), True))
    return tuple(listed)


def _find_kind(root: Path, store: Path, file: Path, is_plain_database: Is) -> str | None:
    """Return the kind of a readable file in a home, as a key of `KINDS`. None if the file is encrypted or
    empty, or is not reported for another reason."""
    parts = file.relative_to(root).parts
    first = parts[0]
    if first.startswith(store.name):
        is_copy = first.startswith(tuple(store.name + end for end in (BACKUPS, f"{DAMAGE_MARK}-", ".new-")))
        return "copies" if is_copy and not file.name.endswith(".json") and is_plain_database(file) else None
    if file.name == LOCK or file.name.endswith(PARTIAL) or _is_empty(file) or is_sealed_file(file):
        return None
    if any(parts[: name.count("/") + 1] == tuple(name.split("/")) for name in SEALED_FOLDERS):
        return "programs" if is_program(root, file) else "words"
    if first.startswith(EDITING):
        return "edited"
    if len(parts) == 1:
        return _find_kind_in_home(file, is_plain_database)
    if first == MIRRORS:
        return "mirrors" if _is_mirror(parts) else "saved"
    return FOLDERS.get(first, "other")


def _find_kind_in_home(file: Path, is_plain_database: Is) -> str | None:
    if file.name == HISTORY:
        return "typed"
    if file.name in SETTINGS:
        return "settings"
    if file.suffix == ".log":
        return "logs"
    if file.suffix == ".db":
        return "copies" if is_plain_database(file) else None
    return "other"


def _is_mirror(parts: tuple[str, ...]) -> bool:
    return len(parts) == 2 and (parts[1].endswith(".jsonl") or parts[1] in (INDEX, MARKS))


def _is_empty(file: Path) -> bool:
    try:
        return not file.stat().st_size
    except OSError:
        return True


def remove_mirrors(
    root: Path, is_stored: Callable[[str], bool], *, routing_stored: bool
) -> tuple[list[Path], list[str]]:
    """Remove the gateway's mirror files: `sessions.json`, `.transcripts.json` and the transcripts of stored
    sessions. Return (removed files, reasons why mirror files remain).

    Without `routing_stored`, `sessions.json` is kept, because the gateway still has to read it.
    """
    removed: list[Path] = []
    left: list[str] = []
    files = sorted(find_files(root / MIRRORS).files)
    for file in files:
        parts = file.relative_to(root).parts
        if not _is_mirror(parts):
            continue
        if file.suffix == ".jsonl" and not is_stored(file.stem):
            left.append(f"not removed: {file} (its session is not in the store)")
        elif file.name == INDEX and not routing_stored:
            left.append(f"not removed: {file} (the gateway has not read it yet)")
        else:
            try:
                remove_and_wipe(file)
                removed.append(file)
            except (OSError, errors.HermesError) as problem:
                left.append(f"not removed: {file} ({problem})")
    return removed, left


def remove_and_wipe(file: Path) -> None:
    """Remove a file, and overwrite its content on the disk with zeros. If the file has another hard link, the
    content is kept."""
    with file.open("r+b", buffering=0) as opened:
        file.unlink()
        wipe(opened.fileno())
