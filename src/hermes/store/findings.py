"""Results of a diagnosis of the store, independent of the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal, NamedTuple

from hermes.text import format_count

Level = Literal["ok", "note", "warning", "error"]

WRONG: tuple[Level, ...] = ("error", "warning")


class Finding(NamedTuple):
    level: Level
    what: str
    advice: str = ""
    """What to do, with the command. Empty if nothing has to be done."""


class Diagnosis(NamedTuple):
    path: Path
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Return whether the diagnosis found no warning and no error. It may have found things that are only
        worth a note."""
        return not any(finding.level in WRONG for finding in self.findings)

    def lines(self) -> list[str]:
        lines = [str(self.path)]
        for level, what, advice in self.findings:
            lines.append(f"{level:<8} {what}")
            if advice:
                lines.append(f"{'':8}   -> {advice}")
        counts = Counter(finding.level for finding in self.findings)
        wrong = [format_count(counts[level], level) for level in WRONG if counts[level]]
        lines.append(", ".join(wrong) if wrong else "Nothing is wrong.")
        return lines
