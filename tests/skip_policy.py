"""In CI a skipped test is a failure, unless `allowed_skips.txt` names it with a reason.

A test that skips itself on the machine that decides tests nothing, and nobody sees it. Each line of
the list is a pattern (`*` and `?`) for a test's node id or for the reason it gives, then two spaces and
`#` with why that is all right. Skips are seen where the reports arrive, so it holds under xdist too.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest


def allowed_patterns(listing: str) -> list[str]:
    """The patterns of the list. A line without a reason is refused."""
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
    """A pytest plugin: collects what was skipped and decides at the end."""

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
