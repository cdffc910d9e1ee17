"""The documentation site is complete and needs no network. The build fails on broken links and missing
docstrings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import api_reference
from tools.check_links import find_broken_links, make_anchor

ROOT = Path(__file__).parent.parent
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"?(https?:[^\" >]+)|<link[^>]* href=\"?(https?:[^\" >]+)"
)


class Handle:
    # ---------------------------------------------------------------- sessions

    def __init__(self, path: str = "here", *, read_only: bool = False) -> None:
        """Open the store."""

    def documented(self, name: str, /, *rest: int, limit: int = 20, **more: str) -> list[str]:
        """Return nothing.

        Ever.
        """
        return []

    def undocumented(self) -> None:
        return

    def _private(self) -> None:
        return


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("zensical")
    return subprocess.run(
        [str(program), "build", "--clean", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    built = build(tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    pages = {path.relative_to(site) for path in site.rglob("*.html")} - {Path("404.html")}
    assert pages == {
        path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")
    }
    for page in pages:
        assert LOADED.findall((site / page).read_text(encoding="utf-8")) == [], page


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "Two pages"\n')
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# First\n\n[second](second.md#heading)\n")
    (docs / "second.md").write_text("# Second\n\n## Heading\n")
    assert build(tmp_path).returncode == 0
    assert list(find_broken_links(tmp_path)) == []
    (docs / "second.md").write_text("# Second\n\n## Other heading\n")
    assert build(tmp_path).returncode != 0
    assert list(find_broken_links(tmp_path)) == ["docs/index.md: second.md#heading: there is no such heading"]


def test_every_page_is_in_the_navigation() -> None:
    navigation = set(re.findall(r"= \"([\w/-]+\.md)\"", (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    assert navigation == {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}


def test_every_link_leads_somewhere() -> None:
    assert list(find_broken_links()) == []


def test_a_missing_picture_is_found(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "![x](a.svg) `[code](b.md)` [y](https://example.org)\n```\n[z](c.md)\n```\n"
    )
    assert list(find_broken_links(tmp_path)) == ["README.md: a.svg does not exist"]


def test_anchors_are_made_as_code_hosts_make_them() -> None:
    assert make_anchor("A message's way to the answer") == "a-messages-way-to-the-answer"
    assert make_anchor("`append_message`") == "append_message"


def test_the_reference_is_current() -> None:
    """If this test fails, run `python -m tools.api_reference`."""
    verbs = api_reference.list_verbs()
    assert api_reference.list_undocumented(verbs) == []
    assert api_reference.PAGE.read_text(encoding="utf-8") == api_reference.make_page(verbs)


def test_a_verb_without_a_docstring_is_found() -> None:
    verbs = api_reference.list_verbs(Handle)
    assert [verb.name for verb in verbs] == ["__init__", "documented", "undocumented"]
    assert api_reference.list_undocumented(verbs) == ["undocumented"]
    page = api_reference.make_page(verbs)
    assert 'SessionDB(path: str = "here", *, read_only: bool = False)\n' in page
    assert "\ndocumented(name: str, *rest: int, limit: int = 20, **more: str) -> list[str]\n```\n" in page
    assert "\n\nReturn nothing.\n\nEver.\n" in page


def test_the_command_fails_on_a_verb_without_a_docstring(tmp_path: Path) -> None:
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    verbs = tmp_path / "src" / "hermes" / "db" / "session_db.py"
    text = verbs.read_text(encoding="utf-8")
    verbs.write_text(
        text.replace(
            "    def close(self)", "    def forgotten(self) -> None:\n        return\n\n    def close(self)"
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "tools.api_reference", "--check"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "verbs of SessionDB without a docstring: forgotten\n"
