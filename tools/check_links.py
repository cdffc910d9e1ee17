"""Checks the relative links, anchors and pictures of every Markdown page.

    python -m tools.check_links [FOLDER]

The site builder checks links between pages of docs/. This program also checks pictures, and pages outside
docs/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[[^]]*\]\((?P<target>[^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+)$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z]+:")


def list_pages(root: Path) -> list[Path]:
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def find_broken_links(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each broken link."""
    for page in list_pages(root):
        text = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
        for link in LINK.finditer(text):
            path, _, anchor = link["target"].partition("#")
            target = page if not path else page.parent / path
            if ELSEWHERE.match(link["target"]):
                continue
            if not target.exists():
                yield f"{page.relative_to(root)}: {link['target']} does not exist"
            elif anchor and anchor not in list_anchors(target):
                yield f"{page.relative_to(root)}: {link['target']}: there is no such heading"


def list_anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page. They are derived from the headings in the same way as by GitHub and the
    site builder."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return frozenset(make_anchor(heading["text"]) for heading in HEADING.finditer(text))


def make_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    broken = list(find_broken_links(root))
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
