"""The licences of all dependencies and vendored files are compatible with this project."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.check_licences import Checker, is_allowed

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TABLE: dict[str, Any] = tomllib.loads((ROOT / "tools" / "licences.toml").read_text())
SOURCES = ROOT / "src" / "hermes"
MODULES = {
    "agent-client-protocol": "acp",
    "apsw-sqlite3mc": "apsw",
    "markdown-it-py": "markdown_it",
    "matrix-nio": "nio",
    "python-telegram-bot": "telegram",
}
"""Modules whose name differs from the name of their distribution."""
VENDORED = sorted(file for file in SOURCES.rglob("vendored/*") if file.suffix != ".txt")


def problems(dependencies: list[str] | None = None, **extras: list[str]) -> list[str]:
    project = {"name": "p", "dependencies": dependencies or [], "optional-dependencies": extras}
    return [one for one in Checker(project, TABLE).check()[1] if "no extra leads to it" not in one]


def test_every_extra_has_a_compatible_licence() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "tools/check_licences.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_only_the_dev_extra_installs_the_homeserver() -> None:
    assert problems(dev=["matrix-synapse"]) == []
    (found,) = problems(matrix=["matrix-synapse"])
    assert found.startswith("matrix -> matrix-synapse: AGPL-3.0-or-later")
    assert problems(["matrix-synapse"]), "nor by the core"
    assert problems(all=["p[dev]"], dev=["matrix-synapse"]), "nor by way of dev"


def test_licences_of_indirect_dependencies_are_checked() -> None:
    """`matrix-synapse` requires `matrix-common`, so the licence of `matrix-common` is checked as well."""
    table = {**TABLE, "allowed": ["AGPL-3.0-or-later"], "exceptions": {}, "dev": {}}
    project = {"name": "p", "optional-dependencies": {"x": ["matrix-synapse"]}}
    found = Checker(project, table).check()[1]
    assert any(one.startswith("x -> matrix-synapse -> matrix-common: Apache-2.0") for one in found)


def test_an_unknown_distribution_is_refused() -> None:
    (found,) = problems(x=["no-such-distribution>=1"])
    assert found == "x -> no-such-distribution: its licence is not known; add it to licences.toml"


def test_the_table_gives_the_licences_of_distributions_that_are_not_installed() -> None:
    row = {"licence": "GPL-3.0-only"}
    table = {
        **TABLE,
        "exceptions": {},
        "dev": {},
        "not_installed": {"a": {"licence": "MIT", "requires": ["b"]}, "b": row},
    }
    found = Checker({"name": "p", "optional-dependencies": {"x": ["a"]}}, table).check()[1]
    assert found == ["x -> a -> b: GPL-3.0-only is not allowed here"]


def test_an_unused_exception_is_reported() -> None:
    unused = {**TABLE, "exceptions": {"long-gone": {"licence": "LGPL-3.0-only"}}, "dev": {}}
    found = Checker({"name": "p"}, unused).check()[1]
    assert found == ["licences.toml: [exceptions] long-gone: no extra leads to it"]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT AND (Apache-2.0 OR GPL-3.0-only)", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("(MIT", False),
        ("MIT)", False),
        ("MIT MIT", False),
        ("", False),
    ],
)
def test_spdx_expressions(expression: str, allowed: bool) -> None:
    assert is_allowed(expression, frozenset(("MIT", "Apache-2.0"))) is allowed


def test_running_needs_no_development_tools() -> None:
    """`make setup` installs only these packages. `make test` adds the packages that tests need."""
    makefile = (ROOT / "Makefile").read_text()
    (wanted,) = re.findall(r"\$\(READY\): .*?-e '\.\[([a-z,]+)\]'", makefile, re.DOTALL)
    assert set(wanted.split(",")) <= set(PROJECT["optional-dependencies"]) - {"dev"}
    assert re.search(r"^run: setup ", makefile, re.MULTILINE)
    assert re.search(r"^test: setup-dev ", makefile, re.MULTILINE)


def test_every_extra_has_a_module_that_imports_what_it_brings() -> None:
    """An extra exists only if a module imports its packages. Extras for development are exempt, because they
    install programs instead of modules."""
    imported = set()
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    for extra, texts in PROJECT["optional-dependencies"].items():
        names = {canonicalize_name(Requirement(text).name) for text in texts} - {PROJECT["name"]}
        modules = {MODULES.get(name, name.replace("-", "_")) for name in names}
        assert extra in ("dev", "docs") or modules <= imported, extra


@pytest.mark.parametrize("file", VENDORED, ids=lambda file: file.name)
def test_vendored_files_are_named_beside_the_text_of_their_licence(file: Path) -> None:
    texts = [one.read_text() for one in file.parent.glob("*.txt")]
    assert [
        text for text in texts if file.name in text and "Copyright (c)" in text and "WARRANT" in text.upper()
    ]


def test_the_package_contains_the_texts_of_the_licences() -> None:
    texts = {str(file.relative_to(ROOT)) for file in SOURCES.rglob("vendored/*.txt")}
    assert texts <= set(PROJECT["license-files"])
    assert VENDORED


def test_third_party_files_are_in_the_vendored_folder() -> None:
    ours = [
        file
        for file in SOURCES.rglob("*")
        if file.suffix in (".js", ".css", ".html") and file not in VENDORED
    ]
    assert ours
    for file in ours:
        text = file.read_text()
        assert not re.search(r"@licen[cs]e|copyright|/\*!", text, re.IGNORECASE), file
        assert max(map(len, text.splitlines())) < 500, f"{file} looks like the output of a tool"
