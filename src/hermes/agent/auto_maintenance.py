"""Opt-in maintenance (`sessions.auto_prune`), once the first prompt is shown. It says in one line what it did."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes import errors

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


async def tidied(db: SessionDB) -> str | None:
    """`tidy` in a thread that nobody waits for on leaving: each of its steps is whole, or not done."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()

    def tell(told: str | None) -> None:
        if not done.cancelled():
            done.set_result(told)

    def work() -> None:
        told = tidy(db)
        with suppress(RuntimeError):  # the program has ended
            loop.call_soon_threadsafe(tell, told)

    threading.Thread(target=work, name="maintenance", daemon=True).start()
    return await done


def tidy(db: SessionDB) -> str | None:
    """Do it if it was asked for and is due; what a person should know about it."""
    from hermes.config.settings import read_settings

    try:
        wanted = read_settings().sessions
    except errors.HermesError as problem:
        return f"Maintenance did not run: {problem}"
    if not wanted.auto_prune:
        return None
    return said(
        db.maybe_auto_prune_and_vacuum(
            wanted.retention_days,
            wanted.min_interval_hours,
            wanted.vacuum_after_prune,
            db.db_path.parent / "sessions",
            trash_days=wanted.trash_days,
            thin_days=wanted.thin_days,
        )
    )


def said(done: dict[str, Any]) -> str | None:
    if "error" in done:
        return f"Maintenance failed: {done['error']}"
    told = []
    if done["pruned"]:
        told.append(f"removed {done['pruned']} old session{'' if done['pruned'] == 1 else 's'}")
    if done.get("thinned"):
        told.append(f"cut {done['thinned']:,} bytes of old tool output")
    if done.get("emptied"):
        told.append(f"emptied {done['emptied']} from the trash")
    return f"Maintenance (sessions.auto_prune): {', '.join(told)}." if told else None
