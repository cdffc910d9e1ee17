"""Builds, tests and tags a release.

    python -m tools.release [--dry-run]

The version is `hermes.__version__`. A release needs a dated section of that version in CHANGELOG.md, a clean
working tree, and a tag name that does not exist yet. The wheel and the sdist are built from HEAD into
`dist/`. The wheel is installed into a new virtual environment, where a session is stored and read back. Then
HEAD is tagged. Nothing is pushed or uploaded.

With `--dry-run`, no tag is created, and the build and the test of the wheel run even if there are problems.
The exit code is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = "dist"
SMOKE_TEST = """
from hermes_state import SessionDB

with SessionDB() as db:
    db.create_session("smoke", source="cli")
    db.append_message("smoke", role="user", content="a message of the smoke test")
with SessionDB() as db:
    assert [message["content"] for message in db.get_messages("smoke")] == ["a message of the smoke test"]
"""
"""The test program of the wheel. It runs in the new environment, so it imports the package from the wheel."""


class ReleaseError(Exception):
    """A step of the release failed."""


def read_version(root: Path) -> str:
    """Return the value of `__version__` without importing the package."""
    for node in ast.parse((root / "src" / "hermes" / "__init__.py").read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__version__")], value=ast.Constant(value=str(version))):
                return version
    raise ReleaseError("src/hermes/__init__.py does not define __version__ as a string")


def find_problems(root: Path, version: str) -> list[str]:
    """Return the reasons why this version cannot be released from this working tree."""
    problems = []
    if (problem := check_changelog((root / "CHANGELOG.md").read_text("utf-8"), version)) is not None:
        problems.append(problem)
    if changes := _run_git(root, "status", "--porcelain").splitlines():
        problems.append(
            f"the working tree is not clean: {len(changes)} changed or untracked files; commit them first"
        )
    if _run_git(root, "tag", "--list", make_tag_name(version)):
        problems.append(
            f"the tag {make_tag_name(version)} exists; raise __version__ in src/hermes/__init__.py"
        )
    return problems


def check_changelog(text: str, version: str) -> str | None:
    """Return the problem with the section of this version; None if there is no problem."""
    sections = re.findall(r"^## (\S+)[ \t]*(.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    entries = [(note, body) for name, note, body in sections if name == version]
    if len(entries) != 1:
        return f"CHANGELOG.md has {len(entries)} sections for {version}; it needs one"
    ((note, body),) = entries
    if not re.fullmatch(r"\(\d{4}-\d\d-\d\d\)", note):
        return f"CHANGELOG.md: the heading of {version} has no date; write `## {version} (YYYY-MM-DD)`"
    if not re.search(r"^- ", body, re.MULTILINE):
        return f"CHANGELOG.md: the section of {version} lists no change"
    return None


def make_tag_name(version: str) -> str:
    return f"v{version}"


def build_packages(root: Path, version: str) -> Path:
    """Build the sdist and the wheel of HEAD into `dist/`. Return the path of the wheel."""
    out = root / DIST
    with tempfile.TemporaryDirectory(prefix="hermes-release-") as work:
        # Build from a copy of the commit, so that files of the working tree and of earlier builds are not
        # included.
        with tarfile.open(fileobj=io.BytesIO(_run(["git", "archive", "HEAD"], root))) as archive:
            archive.extractall(work, filter="data")
        _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), work], root)
    wheel = out / f"hermes_sessions-{version}-py3-none-any.whl"
    for package in (wheel, out / f"hermes_sessions-{version}.tar.gz"):
        if not package.exists():
            raise ReleaseError(f"the build made no {package.name}; does HEAD have another version?")
    return wheel


def check_wheel(wheel: Path, version: str, constraints: Path) -> None:
    """Install the wheel into a new environment, store a session there and read it back."""
    with tempfile.TemporaryDirectory(prefix="hermes-smoke-") as work:
        _run([sys.executable, "-m", "venv", "--without-pip", f"{work}/venv"], Path(work))
        python, hermes = f"{work}/venv/bin/python", f"{work}/venv/bin/hermes"
        pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check"]
        _run([*pip, "install", "-c", str(constraints), str(wheel)], Path(work))
        answer = _run([hermes, "--version"], Path(work)).decode().strip()
        if answer != f"hermes {version}":
            raise ReleaseError(f"`hermes --version` of the wheel prints {answer!r}, not {version}")
        _run([python, "-W", "error", "-c", SMOKE_TEST], Path(work))
        transcript = _run([hermes, "sessions", "show", "smoke"], Path(work)).decode()
        if "a message of the smoke test" not in transcript:
            raise ReleaseError("`hermes sessions show` of the wheel does not show the stored message")


def tag_head(root: Path, version: str) -> str:
    name = make_tag_name(version)
    _run_git(root, "tag", "--annotate", name, "--message", f"Hermes Sessions {version}")
    return name


def _run_git(root: Path, *words: str) -> str:
    return _run(["git", *words], root).decode().strip()


def _run(command: list[str], folder: Path) -> bytes:
    """Run a command and return its standard output. The command gets a home below `folder` and cannot import
    packages from elsewhere."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["HERMES_HOME"] = str(folder / "home")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True)
    if done.returncode:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ReleaseError(f"`{' '.join(command[:4])}` failed:\n{output}")
    return done.stdout


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="release", description="Build, test and tag a release.")
    parser.add_argument("--dry-run", action="store_true", help="check, build and test, but make no tag")
    is_dry_run = parser.parse_args(words).dry_run
    try:
        version = read_version(ROOT)
        problems = find_problems(ROOT, version)
        for problem in problems:
            print(f"release: {problem}", file=sys.stderr)
        if problems and not is_dry_run:
            return 1
        wheel = build_packages(ROOT, version)
        print(f"Built {wheel.relative_to(ROOT)} and its sdist.")
        check_wheel(wheel, version, ROOT / "constraints.txt")
        print("The wheel works in a new environment.")
        if is_dry_run:
            print(f"Dry run: {make_tag_name(version)} was not tagged.")
            return 1 if problems else 0
        name = tag_head(ROOT, version)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"Tagged {name}. Publish it: git push origin {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
