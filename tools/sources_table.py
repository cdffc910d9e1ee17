"""Writes the table of sources in docs/sources.md.

    python -m tools.sources_table [--check]

The table is generated from `hermes.cli.sources`. With `--check`, nothing is written, and an outdated page is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from hermes.cli.sources import list_sources

PAGE = Path(__file__).parents[1] / "docs" / "sources.md"
BLOCK = re.compile(r"(?<=<!-- sources -->\n).*?(?=<!-- end of sources -->)", re.DOTALL)


def update_page(text: str) -> str:
    """Return the page with the table regenerated."""
    return BLOCK.sub(lambda _: "".join(f"{line}\n" for line in _format_table()), text)


def _format_table() -> Iterator[str]:
    yield "| source | command | session key | id | kind | in lists | retention |"
    yield "|---|---|---|---|---|---|---|"
    for source in list_sources().values():
        cells = (
            f"`{source.name}`",
            f"`{source.command}`",
            f"`{source.key_form}`" if source.key_form else "none",
            " or ".join(f"`{form}`" for form in source.id_forms),
            f"`{source.kind}`",
            "shown" if source.is_listed else "hidden",
            source.retention,
        )
        yield f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    text = PAGE.read_text(encoding="utf-8")
    fresh = update_page(text)
    if fresh != text and "--check" in arguments:
        print("sources.md is not up to date; run `python -m tools.sources_table`", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
