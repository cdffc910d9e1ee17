"""The choice of the journal mode by file system.

A write-ahead log needs shared memory that every process sees. Network file systems and file systems shared
with a virtual machine do not provide it reliably, although they accept the call. They are recognised by name.
On them, the rollback journal is used, which is slower but safe.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Literal

Journal = Literal["wal", "delete"]

UNFIT_FOR_WAL = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "afpfs", "ncpfs", "coda", "davfs", "webdav"),
        *("9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs"),
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "ocfs2", "gfs2"),
    }
)


def journal_for(path: Path) -> tuple[Journal, str]:
    """Return the journal mode for a database at this path, and the file system's name ('' if unknown)."""
    folder = str(path.parent)
    try:
        kind = _kind_of_device(os.stat(folder).st_dev, folder)
    except OSError:
        return "wal", ""
    unfit = kind in UNFIT_FOR_WAL or kind.startswith("fuse.")
    return ("delete" if unfit else "wal"), kind


@cache
def _kind_of_device(device: int, folder: str) -> str:
    folder = os.path.realpath(folder)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            return kind_from_mountinfo(mounts.read(), os.major(device), os.minor(device), folder)
    except OSError:
        return ""  # not Linux: SQLite reports an error itself if it cannot use WAL


def kind_from_mountinfo(text: str, major: int, minor: int, folder: str) -> str:
    """Return the type of the file system that contains `folder`, from the kernel's mount table."""
    best, found = -1, ""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        mounted = _unescaped(fields[4])
        if fields[2] == f"{major}:{minor}" and best < 0:
            best, found = 0, right.split()[0]
        inside = folder == mounted or folder.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= best:
            best, found = len(mounted), right.split()[0]
    return found


def _unescaped(written: str) -> str:
    """Decode a path of the mount table, in which space, tab, newline and backslash are octal escapes."""
    if "\\" not in written:
        return written
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), written)
