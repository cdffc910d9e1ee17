"""From a place to a store: the only module above the engines that knows which there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import errors
from hermes.store.engine import Engine
from hermes.store.sqlite.engine import SqliteEngine
from hermes.store.values import Repair

if TYPE_CHECKING:
    from hermes.store.findings import Diagnosis

SCHEMA_VERSION = 11
"""The documented version of the tables that other programs read."""

DURABILITY = {"full": "FULL", "normal": "NORMAL"}


def open_engine(path: Path, *, read_only: bool = False, durability: str = "full", **figures: Any) -> Engine:
    """`figures` are the documented constants of the write path, passed on to the engine."""
    if durability not in DURABILITY:
        raise errors.raised(errors.InvalidArgument, f"durability is 'full' or 'normal', not {durability!r}")
    return SqliteEngine(path, read_only=read_only, synchronous=DURABILITY[durability], **figures)


def repair_file(path: Path, *, check_only: bool = False, keep_backup: bool = True) -> Repair:
    from hermes.store.sqlite import salvage

    return salvage.repair_file(path, check_only=check_only, keep_backup=keep_backup)


def restore_file(path: Path, source: Path) -> None:
    from hermes.store.sqlite.restore import restore

    restore(path, source)


def diagnose_file(path: Path, *, deep: bool = False) -> Diagnosis:
    from hermes.store.sqlite.diagnosis import diagnose

    return diagnose(path, deep=deep)
