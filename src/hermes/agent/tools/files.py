"""File access for tools: path resolution, checked opening and atomic replacement."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hermes.agent.approvals.policy import Policy, Refused
from hermes.agent.sandbox.file_view import View
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.atomic_files import PARTIAL, clear_partials

LONGEST_PATH = 4_000
LARGEST_EDIT = 10_000_000
"""The size limit of a file that is changed or replaced, in bytes."""
EDITING = threading.Lock()
"""A lock that allows only one edit at a time. The calls of one answer run concurrently, and two edits of the
same file must not overwrite each other."""


def locate(path: str, context: ToolContext, policy: Policy) -> Path:
    """Return the real path of `path`, which can be relative to the working directory. The file need not
    exist."""
    if "\0" in path:
        raise ToolFailed("the path contains a NUL character")
    try:
        found = policy.locate(context.cwd / Path(path.strip()).expanduser())
        found.stat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as problem:
        raise ToolFailed(f"the path cannot be resolved: {problem.strerror or problem}") from problem
    except RuntimeError as problem:  # circular links, or an unknown user after `~`
        raise ToolFailed(f"the path cannot be resolved: {problem}") from problem
    return found


async def check_read(path: Path, policy: Policy, context: ToolContext) -> None:
    """Raise `ToolFailed` if the tool must not read this file."""
    try:
        await policy.check_read(path, context.approve)
    except Refused as refusal:
        raise ToolFailed(str(refusal)) from None


async def check_edit(path: Path, diff: str, policy: Policy, context: ToolContext) -> None:
    """Raise `ToolFailed` if the tool must not change this file."""
    try:
        await policy.check_edit(path, diff, context.approve)
    except Refused as refusal:
        raise ToolFailed(str(refusal)) from None


@contextmanager
def open_checked(path: Path, view: View) -> Iterator[BinaryIO]:
    """Open a file whose real path was checked, and verify that the opened file is the one at that path.

    A background command could replace the file by a link between the check and the opening.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        _refuse_irregular(path, found)
        if view.is_hard_link_to_hidden(found):
            raise ToolFailed(f"{path} is a hard link to a file with keys or private data")
        if _find_opened_path(descriptor, path) != path:
            raise ToolFailed(f"{path} was replaced while it was opened; try again")
        yield file


def _find_opened_path(descriptor: int, path: Path) -> Path:
    """Return the real path of an open file. If the system does not provide it, resolve `path` again."""
    link = Path(f"/proc/self/fd/{descriptor}")
    try:
        return link.readlink() if link.exists() else path.resolve()
    except OSError:
        return path.resolve()


def check_regular_file(path: Path) -> os.stat_result:
    """Return the status of a file. Raise `ToolFailed` if it does not exist or is not a regular file.

    Devices and pipes are refused, because reading them might never end.
    """
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


def read_text_to_edit(path: Path, view: View) -> str:
    size = check_regular_file(path).st_size
    if size > LARGEST_EDIT:
        raise ToolFailed(f"{path} has {size:,} bytes; the limit for edits is {LARGEST_EDIT:,}")
    try:
        with open_checked(path, view) as file:
            return file.read().decode()
    except UnicodeDecodeError as problem:
        raise ToolFailed(f"{path} is not UTF-8 text, so it is not changed") from problem
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem


def replace_text(path: Path, text: str) -> None:
    """Replace the whole text of a file by `text` atomically. The mode of the file is kept, and missing folders are
    created."""
    replace_content(path, text.encode())


def replace_content(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace the content of a file atomically. Missing folders are created. If `mode` is None, the file
    keeps its mode.

    `path` was checked as a real path, but a background command can replace a folder by a link at any moment.
    The folder is therefore opened without following links, and all further steps use its descriptor.
    """
    try:
        folder = _open_folder(path.parent)
        try:
            clear_partials(path.parent)
            _replace_in_folder(folder, path, content, mode)
        finally:
            os.close(folder)
    except OSError as problem:
        raise ToolFailed(f"{path} could not be written: {problem.strerror or problem}") from problem


def delete_file(path: Path, folders: Iterable[str] = ()) -> None:
    """Delete a file. Then delete those of `folders` that are empty; the caller lists the deepest folder first. Links
    are not followed."""
    try:
        _remove_entry(path, os.unlink)
    except OSError as problem:
        raise ToolFailed(f"{path} could not be deleted: {problem.strerror or problem}") from problem
    for folder in folders:
        with suppress(OSError, ToolFailed):
            _remove_entry(Path(folder), os.rmdir)


def _remove_entry(path: Path, remove: Callable[..., None]) -> None:
    folder = _open_folder(path.parent, create=False)
    try:
        remove(path.name, dir_fd=folder)
    finally:
        os.close(folder)


def _open_folder(path: Path, *, create: bool = True) -> int:
    """Return a descriptor of a folder by its real path. With `create`, create missing folders."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(path.anchor, flags)
    for name in path.parts[1:]:
        try:
            if create:
                with suppress(OSError):  # the open below reports the error
                    os.mkdir(name, dir_fd=opened)
            below = os.open(name, flags, dir_fd=opened)
        except OSError as problem:
            if _is_link(name, opened):
                raise ToolFailed(f"{path} was replaced by a link meanwhile; try again") from problem
            raise
        finally:
            os.close(opened)
        opened = below
    return opened


def _replace_in_folder(folder: int, path: Path, content: bytes, mode: int | None) -> None:
    if _is_link(path.name, folder):
        raise ToolFailed(f"{path} was replaced by a link meanwhile; try again")
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        _refuse_irregular(path, found)
        kept = stat.S_IMODE(found.st_mode)
    except FileNotFoundError:
        kept = 0o666 & ~_get_umask()
    partial = f".{path.name[:40]}.{os.urandom(6).hex()}{PARTIAL}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as fresh:
            with suppress(OSError):  # the file system does not support locks
                fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fresh.write(content)
            fresh.flush()
            os.fchmod(fresh.fileno(), kept if mode is None else mode)
            os.fsync(fresh.fileno())
            os.rename(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(OSError):
            os.unlink(partial, dir_fd=folder)
    with suppress(PermissionError):  # the folder is writable but not listable
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(listed)
        finally:
            os.close(listed)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def format_path(path: Path, context: ToolContext) -> str:
    try:
        return str(path.relative_to(context.cwd.resolve()))
    except ValueError:
        return str(path)


def _get_umask() -> int:
    """Return the umask of this process.

    The function reads it from /proc if possible. The system call cannot read the umask without setting a new
    one.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError, IndexError):
        pass
    current = os.umask(0o022)
    os.umask(current)
    return current
