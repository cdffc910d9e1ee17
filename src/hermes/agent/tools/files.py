"""Files as the tools see them: where a path leads, which are not theirs, and text that is whole or not there at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from hermes import home
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.partial import clear_partials, partial_file, sync_folder
from hermes.store.sealed_files import is_sealed_file

LONGEST_PATH = 4_000
LARGEST_EDIT = 10_000_000
"""Bytes of a file that is changed or replaced as a whole."""
SETTINGS = (".env", "config.yaml")
EDITING = threading.Lock()
"""Calls of one answer run at once: two changes of one file must not undo each other."""

# What starts programs or lets people in, and what the system is made of: the person is asked.
SHELLS = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".config/fish",
)
KEYS = (".ssh", ".gnupg", ".gitconfig", ".config/git")
JOBS = (".config/autostart", ".config/systemd", "Library/LaunchAgents")
OF_THE_PERSON = (*SHELLS, *KEYS, *JOBS)
OF_THE_SYSTEM = ("/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/dev", "/System", "/Library")


def place(path: str, context: ToolContext) -> Path:
    """Where a path leads, seen from the working directory, every link followed; nothing need be there."""
    if "\0" in path:
        raise ToolFailed("the path holds a NUL character")
    try:
        found = (context.cwd / Path(path.strip()).expanduser()).resolve()
        found.stat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as problem:
        raise ToolFailed(f"the path cannot be followed: {problem.strerror or problem}") from problem
    except RuntimeError as problem:  # links in a circle, or the home of nobody
        raise ToolFailed(f"the path cannot be followed: {problem}") from problem
    return found


def store_of(context: ToolContext) -> Path:
    """The file of the store; a handle of one person does not say which, and has the usual one."""
    return Path(getattr(context.db, "db_path", home.default_db_path())).resolve()


def is_store(path: Path, context: ToolContext) -> bool:
    """Whether it is the session store or one of the files beside it. Opening it as bytes would drop its locks."""
    stores = {store_of(context), home.default_db_path().resolve()}
    for store in stores:
        if path.parent == store.parent and path.name.startswith(store.name):
            return True
        if _same(path, store) or store.parent / "spool" in path.parents:
            return True
    return False


def is_setting(path: Path, name: str) -> bool:
    """Whether it is the file of that name in the home of this program, under whatever name it was reached."""
    homes = {home.get_hermes_home().resolve(), home.get_default_hermes_root().resolve()}
    return any(path == folder / name or _same(path, folder / name) for folder in homes)


def refuse_to_read(path: Path, context: ToolContext) -> None:
    if is_store(path, context):
        raise ToolFailed("that is the session store; use session_search to read earlier conversations")
    if is_setting(path, ".env"):
        raise ToolFailed("that file holds the person's keys, which are not for you")
    refuse_sealed(path)


def refuse_sealed(path: Path) -> None:
    """A file that is encrypted with the store: its bytes mean nothing, and to replace them would unseal it."""
    if path.is_file() and is_sealed_file(path):
        raise ToolFailed(
            "that file is encrypted with the session store; use memory, skill_view or skill_manage"
        )


def refuse_to_write(path: Path, context: ToolContext) -> None:
    if is_store(path, context):
        raise ToolFailed("that is the session store, which only the program itself writes")
    for name in SETTINGS:
        if is_setting(path, name):
            raise ToolFailed(
                f"{name} of the program's home is the person's; ask them to change it (`hermes config`)"
            )
    refuse_sealed(path)


async def ask_to_write(path: Path, context: ToolContext) -> None:
    """The person agrees to a change of what their account or machine depends on, or `ToolFailed`."""
    person = Path.home().resolve()
    guarded = [*(person / name for name in OF_THE_PERSON), *(Path(name).resolve() for name in OF_THE_SYSTEM)]
    is_hook = ".git" in path.parts and ("hooks" in path.parts or path.name == "config")
    if not is_hook and not any(path.is_relative_to(place) for place in guarded):
        return
    if not await context.approve(f"write {path}", "changes what the account or the machine depends on"):
        raise ToolFailed(f"the person did not allow a change of {path}; find another way, or ask")


def regular_file(path: Path) -> os.stat_result:
    """That there is such a file, and no device or pipe that would never end."""
    try:
        found = path.stat()
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem
    if stat.S_ISDIR(found.st_mode):
        raise ToolFailed(f"{path} is a folder; search_files lists what is in it")
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed(f"{path} is not a regular file")
    return found


def text_to_edit(path: Path) -> str:
    found = regular_file(path)
    if found.st_size > LARGEST_EDIT:
        raise ToolFailed(
            f"{path} has {found.st_size:,} bytes; {LARGEST_EDIT:,} are the most that can be edited"
        )
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as problem:
        raise ToolFailed(f"{path} is not UTF-8 text, so it is not changed") from problem
    except OSError as problem:
        raise ToolFailed(f"{path}: {problem.strerror or problem}") from problem


def put(path: Path, text: str) -> None:
    """Give the file this text, at once or not at all. Its mode stays; missing folders are made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


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
