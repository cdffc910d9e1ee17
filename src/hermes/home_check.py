"""Check that the home is safe: owned by this user and not writable by others.

Keys and conversations are stored in the home. A home is refused if another user owns it, can write to it or
can replace it. Root has access to everything, so root must use its own home, unless `HERMES_FOREIGN_HOME=1`
allows another one (a container with a mounted home).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hermes import errors, home

FOREIGN = "HERMES_FOREIGN_HOME"
MOST_LINKS = 40
OTHERS_WRITE, GROUP_WRITES = 0o002, 0o020


def check_home() -> None:
    """Raise `UnsafeHome` with a remedy if the home is not safe. If the home does not exist, the folder above
    it is checked instead."""
    folder = home.get_hermes_home().absolute()
    for parent, name, found in _walk_entries(folder):
        _check_entry(folder, parent, name, found)
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    except OSError as problem:
        raise errors.UnsafeHome(f"the home {folder} cannot be used: {problem.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise errors.UnsafeHome(f"the home {folder} is not a folder")
    _check_owner(folder, found)
    if _is_writable_by_others(found):
        raise errors.UnsafeHome(f"other users can write to the home {folder}; run: chmod go-w '{folder}'")


def _check_owner(folder: Path, found: os.stat_result) -> None:
    user = os.geteuid()
    if found.st_uid == user:
        return
    owner = _get_user_name(found.st_uid)
    if user != 0:
        raise errors.UnsafeHome(
            f"the home {folder} belongs to {owner}; set HERMES_HOME to a folder of your own"
        )
    if os.environ.get(FOREIGN, "").strip() != "1":
        raise errors.UnsafeHome(
            f"the home {folder} belongs to {owner}, and you are root; run the command as"
            f" {owner}, or set {FOREIGN}=1 to use this home as root"
        )


def _check_entry(folder: Path, parent: Path, name: str, found: os.stat_result | None) -> None:
    """Raise `UnsafeHome` if another user can replace the entry `name` of the folder `parent`. The entry is on
    the path to the home `folder`: a folder above the home, the home itself, or a link."""
    above = os.stat(parent)
    trusted = _list_trusted_users(folder)
    if above.st_uid not in trusted:
        raise errors.UnsafeHome(
            f"the home {folder} is not safe: {parent} belongs to {_get_user_name(above.st_uid)},"
            f" who can replace {name}; set HERMES_HOME to another folder"
        )
    if not _is_writable_by_others(above):
        return
    is_sticky = bool(above.st_mode & stat.S_ISVTX)
    if is_sticky and (found is None or found.st_uid in trusted):  # as in /tmp: only the owner can rename it
        return
    raise errors.UnsafeHome(
        f"the home {folder} is not safe: other users can write to {parent} and replace {name};"
        f" run: chmod go-w '{parent}', or set HERMES_HOME to another folder"
    )


def _list_trusted_users(folder: Path) -> set[int]:
    """Return the users who may own the folders above the home: root, this user and, if root uses a foreign
    home, the owner of that home."""
    users = {0, os.geteuid(), *_find_unmapped_user()}
    if os.geteuid() == 0 and os.environ.get(FOREIGN, "").strip() == "1":
        try:
            users.add(folder.stat().st_uid)
        except OSError:
            pass
    return users


def _walk_entries(folder: Path) -> Iterator[tuple[Path, str, os.stat_result | None]]:
    """Yield (real parent folder, name, `lstat` result) for each name on the path to `folder`. Links on the path
    are followed.

    If a name does not exist, its result is None, and the iteration ends.
    """
    at, links = Path("/"), 0
    names = list(reversed(folder.parts[1:]))
    while names:
        name = names.pop()
        if name == "..":
            at = at.parent
            continue
        try:
            found = os.lstat(at / name)
        except FileNotFoundError:
            yield at, name, None
            return
        except OSError as problem:
            raise errors.UnsafeHome(f"the home {folder} cannot be used: {problem.strerror}") from None
        yield at, name, found
        if not stat.S_ISLNK(found.st_mode):
            at /= name
            continue
        links += 1
        if links > MOST_LINKS:
            raise errors.UnsafeHome(f"the home {folder} cannot be used: too many symbolic links")
        target = Path(os.readlink(at / name))
        if target.is_absolute():
            at = Path("/")
        names += [part for part in reversed(target.parts) if part != "/"]


def _is_writable_by_others(found: os.stat_result) -> bool:
    """Return whether anyone except the owner can write to the folder. A group whose only member is the owner
    is ignored."""
    if found.st_mode & OTHERS_WRITE:
        return True
    return bool(found.st_mode & GROUP_WRITES) and not _is_private_group(found)


def _is_private_group(found: os.stat_result) -> bool:
    """Return whether the group is the private group that many systems create for each user."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    is_own = owner.pw_gid == group.gr_gid and owner.pw_name == group.gr_name
    return is_own and not set(group.gr_mem) - {owner.pw_name}


def _find_unmapped_user() -> set[int]:
    """Return a set with the user id that represents unmapped users in a user namespace. No process inside the
    namespace can act as that user. Return an empty set if this process is not in a user namespace."""
    try:
        first = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
        if first == ["0", "0", "4294967295"]:
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))}
    except (OSError, ValueError):
        return set()


def _get_user_name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
