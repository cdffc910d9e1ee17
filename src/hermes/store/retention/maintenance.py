"""Opt-in maintenance: cleanup, pruning and vacuum, at most once per interval across all processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes import clock, errors
from hermes.logs import get_logger
from hermes.store import meta
from hermes.store.arguments import check_optional_path
from hermes.store.engine import Engine, Writer
from hermes.store.retention.deletion import Retention
from hermes.store.retention.purge import Purge
from hermes.store.retention.thinning import Thinner
from hermes.store.retention.trash import KEPT_DAYS, Trash
from hermes.store.sessions.blobs import Blobs

log = get_logger(__name__)

LAST_RUN = "last_auto_prune"


class Maintenance:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def maybe_auto_prune_and_vacuum(
        self,
        retention_days: float = 90,
        min_interval_hours: float = 24,
        vacuum: bool = True,
        sessions_dir: Path | str | None = None,
        trash_days: float = KEPT_DAYS,
        thin_days: float | None = None,
    ) -> dict[str, Any]:
        """Run the maintenance if it is due. Failures are not raised: `error` in the result describes them.

        Old tool output is thinned only if `thin_days` is given. A session that is open when the maintenance
        starts is not deleted. If the maintenance closes a session, its retention time begins then.

        The result contains `emptied` (sessions deleted from the trash) and `thinned` (bytes) only if they are
        not zero.
        """
        result: dict[str, Any] = {"skipped": False, "pruned": 0, "vacuumed": False}
        try:
            limits = {"retention_days": retention_days, "trash_days": trash_days, "thin_days": thin_days or 0}
            for name, days in limits.items():
                if not days >= 0:
                    raise errors.InvalidArgument(f"{name} must be a number of 0 or more, got {days!r:.40}")
            folder = check_optional_path("sessions_dir", sessions_dir)
            if not self._claim_run(min_interval_hours * clock.HOUR):
                result["skipped"] = True
                return result
            retention, began = Retention(self._engine), clock.now()
            result["pruned"] = retention.prune_empty_ghost_sessions(folder, ended_by=began)
            result["pruned"] += retention.prune(retention_days, sessions_dir=folder, ended_by=began)
            closed = retention.close_orphaned_cli()
            closed += retention.finalize_orphaned_compression_sessions(spare_running=True)
            if emptied := Trash(self._engine).empty(retention, trash_days, sessions_dir=folder):
                result["emptied"] = emptied
            if thin_days is not None:
                thinned = Thinner(self._engine).thin(thin_days, spare_running=True)
                result |= {"thinned": thinned.bytes} if thinned.bytes else {}
            collected = Blobs(self._engine).collect().blobs  # blobs that other programs left behind
            if vacuum and (collected or result["pruned"] or "emptied" in result or "thinned" in result):
                self._engine.shrink()
                result["vacuumed"] = True
            Purge(self._engine, folder).finish()  # a purge that was interrupted
            log.info("maintenance: %s sessions closed, then %s", closed, result)
        except Exception as problem:  # noqa: BLE001 - this runs at start-up, which must not fail
            log.warning("maintenance failed: %s", problem)
            result["error"] = str(problem)
        return result

    def _claim_run(self, interval: float) -> bool:
        """Return whether this process should do the maintenance now. This is so if the last maintenance began
        at least `interval` seconds ago. The current time is then recorded in the same transaction as the check,
        so that only one process does the maintenance."""
        stamps: list[str] = []

        def work(writer: Writer) -> bool:
            last = writer.value(meta.GET, LAST_RUN)
            if writer.repeating and last in stamps:
                return True
            # Read the clock under the lock. If it were read earlier, the time that another process has just
            # recorded could seem to be in the future.
            now = clock.now()
            if 0 <= now - _parse_time(last) < interval:
                return False
            stamps.append(repr(now))
            writer.run(meta.SET, LAST_RUN, stamps[-1])
            return True

        return self._engine.write(work, share=False)


def _parse_time(text: str | None) -> float:
    """Convert the stored time of the last maintenance to a number. Return minus infinity if it is missing or
    invalid."""
    try:
        return float(text) if text is not None else float("-inf")
    except ValueError:
        return float("-inf")
