"""In CI a skipped test is a failure, unless `allowed_skips.txt` lists it with a reason.

Otherwise, a test that skips itself in CI would test nothing, and nobody would notice. Each line of the list
is a pattern (`*` and `?`) for the node id of a test or for its skip reason, followed by two spaces, `#` and
the reason why the skip is allowed. The plugin reads the test reports, so it also works under xdist.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest


def allowed_patterns(listing: str) -> list[str]:
    """Return the patterns of the list `listing`. Raise an error for a line that gives no reason."""
    patterns: list[str] = []
    for number, line in enumerate(listing.splitlines(), start=1):
        pattern, _, why = line.partition("  #")
        pattern = pattern.strip()
        if not pattern or pattern.startswith("#"):
            continue
        if not why.strip():
            raise pytest.UsageError(f"allowed_skips.txt, line {number}: say why after two spaces and '#'")
        patterns.append(pattern)
    return patterns


class SkipPolicy:
    """A pytest plugin that collects skipped tests. At the end, it fails the run if a skip is not allowed."""

    def __init__(self, listing: Path) -> None:
        self._patterns = allowed_patterns(listing.read_text(encoding="utf-8"))
        self._refused: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):
            self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, reason in sorted(self._refused.items()):
            terminalreporter.write_line(
                f"SKIPPED IN CI: {test} ({reason}); let it run, or list it in allowed_skips.txt", red=True
            )

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        detail = report.longrepr
        reason = detail[2] if isinstance(detail, tuple) else str(detail)
        reason = reason.removeprefix("Skipped: ")
        if not any(fnmatchcase(report.nodeid, p) or fnmatchcase(reason, p) for p in self._patterns):
            self._refused[report.nodeid] = reason
