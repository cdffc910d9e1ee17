"""Hosted CI and commit hooks run the same commands as contributors, and download no other tools."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent


def load(path: str) -> Any:
    return YAML(typ="safe").load((ROOT / path).read_text("utf-8"))


def test_hosted_ci_only_calls_the_script_with_every_supported_python() -> None:
    (job,) = load(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = [line.rpartition(" :: ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert job["strategy"]["matrix"] == {"python": versions}
    assert project["requires-python"] == f">={versions[0]}"


def test_hooks_run_the_tools_of_the_virtual_environment() -> None:
    (source,) = load(".pre-commit-config.yaml")["repos"]
    assert source["repo"] == "local"
    assert {hook["language"] for hook in source["hooks"]} == {"system"}
    commands = [hook["entry"].split()[0] for hook in source["hooks"]]
    assert commands == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/lint-imports"]


def test_issue_forms_have_fields() -> None:
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        fields = load(str(form.relative_to(ROOT)))
        assert {"name", "description", "body"} <= fields.keys()
        ids = [field["id"] for field in fields["body"] if field["type"] != "markdown"]
        assert len(set(ids)) == len(ids) >= 3, form.name
