"""Files as the tools see them: where a path leads, and text that is whole or not there at all."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hermes.agent.approvals.policy import Policy, Refused
from hermes.agent.sandbox.view import View
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.partial import clear_partials, partial_file, sync_folder

LONGEST_PATH = 4_000
LARGEST_EDIT = 10_000_000
"""Bytes of a file that is changed or replaced as a whole."""
EDITING = threading.Lock()
"""Calls of one answer run at once: two changes of one file must not undo each other."""


def locate(path: str, context: ToolContext, view: View) -> Path:
    """Where a path leads, seen from the working directory, every link followed; nothing need be there."""
    if "\0" in path:
        raise ToolFailed("the path holds a NUL character")
    try:
        found = view.locate(context.cwd / Path(path.strip()).expanduser())
        found.stat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as problem:
        raise ToolFailed(f"the path cannot be followed: {problem.strerror or problem}") from problem
    except RuntimeError as problem:  # links in a circle, or the home of nobody
        raise ToolFailed(f"the path cannot be followed: {problem}") from problem
    return found


async def check_read(path: Path, policy: Policy, context: ToolContext) -> None:
    """The tool may read this, or `ToolFailed`."""
    try:
        await policy.check_read(path, context.approve)
    except Refused as refusal:
        raise ToolFailed(str(refusal)) from None


async def check_edit(path: Path, diff: str, policy: Policy, context: ToolContext) -> None:
    """The tool may change this, or `ToolFailed`."""
    try:
        await policy.check_edit(path, diff, context.approve)
    except Refused as refusal:
        raise ToolFailed(str(refusal)) from None


@contextmanager
def open_checked(path: Path, view: View) -> Iterator[BinaryIO]:
    """Open a file that was checked by its real path, and make sure that it still is that file.

    A command in the background may put a link in its place between the two.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _refuse_irregular(path, found)
        if view.is_hard_link_to_hidden(found):
            raise ToolFailed(f"{path} is another name of a file that holds keys or private data")
        if _opened_path(descriptor, path) != path:
            raise ToolFailed(f"{path} was replaced while it was opened; try again")
        yield file


def _opened_path(descriptor: int, path: Path) -> Path:
    """The real path of an open file; where the system does not tell, the path resolved once more."""
    link = Path(f"/proc/self/fd/{descriptor}")
    try:
        return link.readlink() if link.exists() else path.resolve()
    except OSError:
        return path.resolve()


def regular_file(path: Path) -> os.stat_result:
    """That there is such a file, and no device or pipe that would never end."""
    try:
        found = path.stat()
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem
    _refuse_irregular(path, found)
    return found


def _refuse_irregular(path: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ToolFailed(f"{path} is a folder; search_files lists what is in it")
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed(f"{path} is not a regular file")


def text_to_edit(path: Path, view: View) -> str:
    size = regular_file(path).st_size
    if size > LARGEST_EDIT:
        raise ToolFailed(f"{path} has {size:,} bytes; {LARGEST_EDIT:,} are the most that can be edited")
    try:
        with open_checked(path, view) as file:
            return file.read().decode()
    except UnicodeDecodeError as problem:
        raise ToolFailed(f"{path} is not UTF-8 text, so it is not changed") from problem
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem


def put(path: Path, text: str) -> None:
    """Give the file this text, at once or not at all. Its mode stays; missing folders are made.

    The path was checked as a real one: if a folder in it has become a link since, nothing is written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.resolve() != path.parent or path.is_symlink():
            raise ToolFailed(f"{path} was replaced by a link meanwhile; try again")
        mode = stat.S_IMODE(regular_file(path).st_mode) if path.exists() else 0o666 & ~_umask()
        clear_partials(path.parent)
        with partial_file(path.parent, path.name[:40]) as (partial, descriptor):
            with os.fdopen(os.dup(descriptor), "wb") as fresh:
                fresh.write(text.encode())
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            partial.replace(path)
        sync_folder(path.parent)
    except OSError as problem:
        raise ToolFailed(f"{path} could not be written: {problem.strerror or problem}") from problem


def shown_path(path: Path, context: ToolContext) -> str:
    try:
        return str(path.relative_to(context.cwd.resolve()))
    except ValueError:
        return str(path)


def _umask() -> int:
    """Of this process; there is no way to ask without setting it, so the file that says it comes first."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError, IndexError):
        pass
    current = os.umask(0o022)
    os.umask(current)
    return current
