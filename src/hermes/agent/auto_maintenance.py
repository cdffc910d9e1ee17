"""Maintenance of the store and the edit journal when a program starts. It runs after the first prompt is
displayed.

The size and age limits of the edit journal are always enforced. Old sessions are removed only if the setting
`sessions.auto_prune` is on. A notice of one line tells the person what was removed.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes import errors
from hermes.agent.edit_journal import locate_folder, remove_excess

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB


async def tidy_in_thread(db: SessionDB) -> str | None:
    """Run `tidy` in a daemon thread and return its result. The program can exit without waiting for the
    thread.

    The thread may be interrupted at any point, because each step of the maintenance is atomic.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str | None] = loop.create_future()

    def report(notice: str | None) -> None:
        if not done.cancelled():
            done.set_result(notice)

    def work() -> None:
        notice = tidy(db)
        with suppress(RuntimeError):  # the program has ended
            loop.call_soon_threadsafe(report, notice)

    threading.Thread(target=work, name="maintenance", daemon=True).start()
    return await done


def tidy(db: SessionDB) -> str | None:
    """Remove old edits from the edit journal. If `sessions.auto_prune` is on and enough time has passed since the
    last time, also remove old sessions. Return a notice for the person; None if there is nothing to report."""
    from hermes.config.settings import read_settings

    remove_excess(locate_folder(db))
    try:
        settings = read_settings().sessions
    except errors.HermesError as problem:
        return f"Maintenance did not run: {problem}"
    if not settings.auto_prune:
        return None
    return format_outcome(
        db.maybe_auto_prune_and_vacuum(
            settings.retention_days,
            settings.min_interval_hours,
            settings.vacuum_after_prune,
            db.db_path.parent / "sessions",
            trash_days=settings.trash_days,
            thin_days=settings.thin_days,
        )
    )


def format_outcome(done: dict[str, Any]) -> str | None:
    if "error" in done:
        return f"Maintenance failed: {done['error']}"
    notices = []
    if done["pruned"]:
        notices.append(f"removed {done['pruned']} old session{'' if done['pruned'] == 1 else 's'}")
    if done.get("thinned"):
        notices.append(f"cut {done['thinned']:,} bytes of old tool output")
    if done.get("emptied"):
        notices.append(
            f"deleted {done['emptied']} session{'' if done['emptied'] == 1 else 's'} from the trash"
        )
    return f"Maintenance (sessions.auto_prune): {', '.join(notices)}." if notices else None
