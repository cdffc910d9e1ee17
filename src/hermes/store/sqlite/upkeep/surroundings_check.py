"""Checks of the surroundings of a store: libraries, file system, processes, permissions, spool and cache.

They read only names, sizes and modes of files, because opening and closing the live file would drop SQLite's
locks.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from hermes import clock, home
from hermes.atomic_files import DAMAGE_MARK, KEY_NOTE
from hermes.store.findings import Finding
from hermes.store.spool.spool import FOLDER, REFUSED, Spool
from hermes.store.sqlite.connection import upkeep_command
from hermes.store.sqlite.copies.backup import backup_folder, list_backups
from hermes.store.sqlite.upkeep import copy_cache
from hermes.store.sqlite.wal import sidecars
from hermes.store.sqlite.wal.sidecars import SIDECARS
from hermes.text import format_count

WAL_RESET_FIXED = (3, 51, 3)
LEAST_ROOM = 1_000_000_000
MOST_SHOWN = 10
MOST_NAMED = 3

# The bytes that a writer locks: in -shm, and in a file without a log.
_WRITE_LOCK, _RESERVED = (120, 0x40000001)


class Holder(NamedTuple):
    pid: int
    name: str
    writing: bool
    replaced: bool
    """Whether the process has a former file of the store open, which was deleted or replaced since."""


def check_programs() -> Iterator[Finding]:
    yield check_sqlite_version(apsw.sqlite_lib_version())
    yield Finding("ok", f"Python: {platform.python_version()} on {platform.system()} {platform.release()}")


def check_sqlite_version(version: str) -> Finding:
    sentence = f"SQLite: {version} (apsw {apsw.apsw_version()})"
    if tuple(int(part) for part in version.split(".")) >= WAL_RESET_FIXED:
        return Finding("ok", f"{sentence}, with the fix of the WAL-reset corruption")
    return Finding(
        "warning",
        f"{sentence} can corrupt a file when its write-ahead log is reset; fixed in 3.51.3",
        "update it: `python -m pip install --upgrade apsw`",
    )


def check_room(path: Path) -> Iterator[Finding]:
    used = sum(_get_size(f"{path}{ending}") or 0 for ending in ("", *SIDECARS))
    yield describe_room(path, shutil.disk_usage(_find_existing(path.parent)).free, used)


def describe_room(path: Path, free: int, used: int) -> Finding:
    sentence = f"Disk: {free / 1e9:.1f} GB free"
    if free >= LEAST_ROOM and free >= 2 * used:
        return Finding("ok", sentence)
    why = "less than twice the store's size" if free >= LEAST_ROOM else "less than 1 GB"
    see = f"`df -h {shlex.quote(str(path.parent))}` shows the disk"
    return Finding(
        "warning",
        f"{sentence}, {why}",
        f"free some space: {see}, `{upkeep_command(path, 'optimize')}` shrinks the store",
    )


def _find_existing(folder: Path) -> Path:
    return next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))


# -------------------------------------------------------------------- permissions


def check_permissions(path: Path) -> Iterator[Finding]:
    backups, spool = backup_folder(path), path.parent / FOLDER
    folders = [folder for folder in (backups, spool, spool / REFUSED) if folder.is_dir()]
    files = [Path(f"{path}{ending}") for ending in ("", *SIDECARS, KEY_NOTE)]
    files += [file for folder in folders for file in sorted(folder.iterdir()) if file.is_file()]
    if path.parent == home.get_hermes_home():
        folders.insert(0, path.parent)
    loose_folders = [folder for folder in folders if home.is_loose(str(folder))]
    loose_files = [file for file in files if home.is_loose(str(file))]
    for mode, loose in (("700", loose_folders), ("600", loose_files)):
        if loose:
            names = " ".join(shlex.quote(str(each)) for each in loose)
            listed = ", ".join(str(each) for each in loose[:MOST_SHOWN]) + _count_more(loose)
            yield Finding("warning", f"Permissions: others can access {listed}", f"`chmod {mode} {names}`")
    if not loose_folders and not loose_files:
        yield Finding("ok", "Permissions: only you can read the store, its backups and its spool")
    if blocked := sidecars.find_read_only(path):
        names = ", ".join(os.path.basename(name) for name in blocked)
        yield Finding(
            "warning",
            f"Permissions: {names} cannot be written, so the store cannot be written either",
            sidecars.format_chmod(blocked),
        )
    if path.exists() and not os.access(path, os.W_OK):
        yield Finding(
            "warning",
            f"Permissions: this user may not write {path.name}",
            _suggest_access(path, os.stat(path)),
        )


def _suggest_access(path: Path, found: os.stat_result) -> str:
    name = shlex.quote(str(path))
    if found.st_uid != os.geteuid():
        return f"become its owner: `sudo chown $(id -u) {name}`"
    if not found.st_mode & stat.S_IWUSR:
        return f"allow yourself to write it: `chmod u+w {name}`"
    return f"you own it, but its disk is not writable: `df {name}` names the disk"


# -------------------------------------------------------------------- programs that have it open


def find_holders(path: Path) -> list[Holder]:
    """Return the processes that have the file open, as far as this user may see them.

    Without /proc, return an empty list.
    """
    real_path = os.path.realpath(path)
    writing = _find_writers(real_path)
    found = []
    for name in _names_in("/proc"):
        if name.isdecimal():
            links = {_read_link(f"/proc/{name}/fd/{each}") for each in _names_in(f"/proc/{name}/fd")}
            replaced = f"{real_path} (deleted)" in links
            if replaced or real_path in links:
                found.append(Holder(int(name), _name_of(name), int(name) in writing, replaced))
    return sorted(found)


def describe_holders(path: Path, found: list[Holder]) -> Iterator[Finding]:
    if not os.path.isdir("/proc/self/fd"):
        see = f"`lsof {shlex.quote(str(path))}`"
        yield Finding("ok", f"Open in: unknown on this system; {see} may show it")
        return
    names = [
        f"{holder.name} ({holder.pid}{', this process' if holder.pid == os.getpid() else ''}"
        f"{', writing now' if holder.writing else ''})"
        for holder in found
        if not holder.replaced
    ]
    yield Finding("ok", "Open in: " + (", ".join(names) if names else "no program"))
    for holder in found:
        if holder.replaced:
            yield Finding(
                "error",
                f"Open in: {holder.name} ({holder.pid}) has a file open that is no longer the store: its writes are"
                " lost",
                f"end it and start it again: `kill {holder.pid}`",
            )


def _find_writers(real_path: str) -> set[int]:
    """Return the processes that hold SQLite's write lock, from the kernel's lock table."""
    places = {}
    for name, byte in ((f"{real_path}-shm", _WRITE_LOCK), (real_path, _RESERVED)):
        try:
            status = os.stat(name)
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            places[f"{device}:{status.st_ino}"] = byte
        except OSError:
            continue
    found = set()
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            for line in locks:
                fields = line.split()
                if len(fields) == 8 and fields[3] == "WRITE" and fields[5] in places:
                    first, last = int(fields[6]), fields[7]
                    byte = places[fields[5]]
                    if first <= byte and (last == "EOF" or byte <= int(last)):
                        found.add(int(fields[4]))
    except (OSError, ValueError):
        pass
    return found


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read_link(name: str) -> str:
    try:
        return os.readlink(name)
    except OSError:
        return ""


def _name_of(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read().strip()
    except OSError:
        return "?"


# -------------------------------------------------------------------- files beside it


def check_damage_mark(path: Path) -> Iterator[Finding]:
    try:
        with open(f"{path}{DAMAGE_MARK}", encoding="utf-8", errors="replace") as mark:
            damage = " ".join(mark.read().split()) or "damage"
    except FileNotFoundError:
        return
    yield Finding(
        "error",
        f"Damage: found before ({damage}); nothing is written until it is repaired",
        advise_repair(path),
    )


def check_plain_files(path: Path) -> Iterator[Finding]:
    """Report files beside an encrypted store of the home that are not encrypted."""
    from hermes.store.sqlite.upkeep import conversion

    if not conversion.is_of_home(path):
        return
    for problem in conversion.list_broken_files(path):
        yield Finding(
            "warning",
            f"Sealed files: {problem}",
            "the file is ignored and left unchanged until this is solved",
        )
    harmless = []
    for kind in conversion.list_plain_files(path, copies=True):
        kind_text = f"{kind.what} ({len(kind.files)})" if kind.files else kind.what
        if not kind.tells:
            harmless.append(kind_text)
            continue
        names = ", ".join(str(file.relative_to(path.parent)) for file in kind.files[:MOST_NAMED])
        more = f" and {len(kind.files) - MOST_NAMED} more" if len(kind.files) > MOST_NAMED else ""
        yield Finding("note", f"Plain files: {kind_text}: {names}{more}", kind.advice)
    if harmless:
        yield Finding("ok", f"Plain files without conversations: {', '.join(harmless)}")


def check_readable_copies(path: Path) -> Iterator[Finding]:
    """Report copies in the cache of the home that were made to read stores of other versions."""
    copies = copy_cache.list_copies()
    if not copies:
        return
    megabytes = sum(copy.size for copy in copies) / 1e6
    names = ", ".join(str(copy.original or copy.path) for copy in copies[:MOST_NAMED])
    more = f" and {len(copies) - MOST_NAMED} more" if len(copies) > MOST_NAMED else ""
    outdated = sum(not copy.is_current for copy in copies)
    detail = f", {outdated} of them outdated" if outdated else ""
    yield Finding(
        "note",
        f"Cache: {format_count(len(copies), 'copy', 'copies')} of conversations, made to read other stores"
        f" ({megabytes:.1f} MB{detail}): {names}{more}",
        f"remove them: `{upkeep_command(path, 'optimize')}`",
    )


def advise_repair(path: Path) -> str:
    """Return a text that tells the user how to repair the damaged store at `path` or, if it has a backup, how
    to restore that.
    """
    advice = f"save what can be saved: `{upkeep_command(path, 'repair')}`"
    newest = next(iter(list_backups(path)), None)
    if newest is not None:
        advice += (
            f", or restore the newest backup: `{upkeep_command(path, 'restore')} {shlex.quote(str(newest))}`"
        )
    return advice


def check_spool(path: Path) -> Iterator[Finding]:
    spool = Spool(path)
    status = spool.status()
    if status.entries:
        since = f", the oldest {clock.format_relative(status.oldest, clock.now())}"
        yield Finding(
            "warning",
            f"Spool: {format_count(status.entries, 'write')} waiting to be stored{since}",
            f"they are stored when the store is next opened for writing: `{upkeep_command(path, 'list')}`",
        )
    aside = {spool.folder / REFUSED: status.refused, spool.folder: len(spool.list_torn())}
    for (folder, count), why in zip(
        aside.items(), ("that could never be stored", "cut off by a crash"), strict=True
    ):
        if count:
            name = shlex.quote(str(folder))
            yield Finding(
                "warning",
                f"Spool: {format_count(count, 'write')} {why}",
                f"look at them, then remove them: `ls -l {name}`",
            )
    if not status.entries and not any(aside.values()):
        yield Finding("ok", "Spool: empty")


def _count_more(names: list[Path]) -> str:
    return f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""


def _get_size(name: str) -> int | None:
    try:
        return os.stat(name).st_size
    except OSError:
        return None
