"""`make release`: its checks, the packages that it builds, the tag that it creates, and the single version
number."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hermes import __version__
from tools.release import check_changelog, find_problems, make_tag_name, read_version

ROOT = Path(__file__).parent.parent
CORE = ("apsw", "markdown-it-py", "mdurl", "msgspec", "ruamel.yaml")
"""The dependencies of the package, including indirect ones."""
TAG = make_tag_name(__version__)


def git(repository: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=repository, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with one commit that contains only the release program and the package's
    version."""
    root = tmp_path / "repository"
    (root / "src" / "hermes").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "hermes" / "__init__.py", root / "src" / "hermes")
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} (2026-05-02)\n\n- One change.\n")
    (root / ".gitignore").write_text("dist/\n__pycache__/\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


@pytest.fixture
def project(repository: Path) -> Path:
    """Return the repository with the whole package, and with wheels of all its dependencies."""
    for name in ("LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, repository)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", repository / "src", ignore=ignored, dirs_exist_ok=True)
    commit(repository)
    (repository.parent / "wheels").mkdir()
    for name in CORE:
        pack_installed(name, repository.parent / "wheels")
    return repository


@pytest.fixture
def clean_environment(project: Path) -> Path:
    """Build the wheel and install it, without extras, into a new virtual environment."""
    options = ["--no-isolation", "--wheel", "--outdir", str(project / "dist")]
    build = [sys.executable, "-m", "build", *options, str(project)]
    subprocess.run(build, check=True, capture_output=True)
    environment = project.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (wheel,) = (project / "dist").glob("*.whl")
    install_into(environment, project.parent / "wheels", str(wheel))
    return environment


def install_into(environment: Path, wheels: Path, *wanted: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-index", "--find-links", str(wheels), *wanted], check=True, capture_output=True
    )


def list_packages(*extras: str) -> set[str]:
    """Return the names of the packages that these extras install, including indirect dependencies."""
    packages: set[str] = set()
    waiting = [Requirement(f"hermes-sessions[{','.join(extras)}]")]
    done: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        packages.add(requirement.name)
        contexts = [{"extra": extra} for extra in (*requirement.extras, "")]
        waiting += [
            needed
            for needed in map(Requirement, distribution(requirement.name).requires or ())
            if needed.marker is None or any(map(needed.marker.evaluate, contexts))
        ]
    return packages - {"hermes-sessions"}


def commit(repository: Path) -> None:
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "Change")


def pack_installed(name: str, folder: Path) -> None:
    """Build a wheel from an installed distribution, so that the test needs no network."""
    installed = distribution(name)
    tags = re.findall(r"^Tag: (.+?)-(.+?)-(.+?)\s*$", installed.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(sorted(set(kind))) for kind in zip(*tags, strict=True))
    stem = f"{re.sub('[-.]+', '_', name)}-{installed.version}-{tag}"
    with zipfile.ZipFile(folder / f"{stem}.whl", "w") as wheel:
        for file in installed.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                wheel.write(str(file.locate()), str(file))


# ---------------------------------------------------------------- the version


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hermes.__version__"}
    assert read_version(ROOT) == __version__
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").glob("*.py")]:
        texts = [
            node.value for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Constant)
        ]
        assert (__version__ in texts) == (file == ROOT / "src" / "hermes" / "__init__.py"), file


# ---------------------------------------------------------------- the checks


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("## 1.2.0 (2026-05-02)\n\n- A change.\n", None),
        ("## 1.2.0 (2026-05-02)\n\n### Theme\n- A change.\n\n## 1.1.0 (2026-01-01)\n", None),
        ("## 1.2.0 (unreleased)\n\n- A change.\n", "has no date"),
        ("## 1.2.0\n\n- A change.\n", "has no date"),
        ("## 1.2.0 (2026-05-02)\n\n## 1.1.0 (2026-01-01)\n- A change.\n", "lists no change"),
        ("## 1.2.01 (2026-05-02)\n\n- A change.\n", "has 0 sections"),
        ("## 1.2.0 (2026-05-02)\n- A.\n\n## 1.2.0 (2026-05-03)\n- B.\n", "has 2 sections"),
        ("", "has 0 sections"),
    ],
)
def test_the_changelog_needs_a_dated_section_with_changes(text: str, problem: str | None) -> None:
    found = check_changelog(f"# Changelog\n\n{text}", "1.2.0")
    assert found is None if problem is None else problem in (found or "")


def test_a_clean_tree_with_a_new_version_can_be_released(repository: Path) -> None:
    assert find_problems(repository, __version__) == []


def test_every_problem_is_reported(repository: Path) -> None:
    git(repository, "tag", TAG)
    (repository / "CHANGELOG.md").write_text("# Changelog\n")
    (repository / "new.txt").touch()
    changelog, tree, tag = find_problems(repository, __version__)
    assert f"0 sections for {__version__}" in changelog
    assert "2 changed or untracked files" in tree
    assert f"the tag {TAG} exists" in tag


# ---------------------------------------------------------------- the release


def run_release(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(repository.parent / "wheels"),
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
    }
    return subprocess.run(
        [sys.executable, "-m", "tools.release", *words],
        cwd=repository,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_a_problem_prevents_the_release(repository: Path) -> None:
    (repository / "new.txt").touch()
    done = run_release(repository)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("release: the working tree is not clean")
    assert not (repository / "dist").exists()
    assert git(repository, "tag") == ""


@pytest.mark.full
def test_a_release_builds_tests_and_tags(project: Path) -> None:
    done = run_release(project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"Tagged {TAG}. Publish it: git push origin {TAG}\n")
    with tarfile.open(project / "dist" / f"hermes_sessions-{__version__}.tar.gz") as sdist:
        assert f"hermes_sessions-{__version__}/CHANGELOG.md" in sdist.getnames()
    assert git(project, "cat-file", "-t", TAG) == "tag"
    assert git(project, "rev-parse", f"{TAG}^{{commit}}") == git(project, "rev-parse", "HEAD")
    assert f"the tag {TAG} exists" in run_release(project).stderr


@pytest.mark.full
def test_a_dry_run_continues_after_a_problem_and_detects_a_broken_wheel(project: Path) -> None:
    for schema in (project / "src").rglob("*.sql"):
        schema.unlink()
    commit(project)
    (project / "src" / "hermes" / "uncommitted.py").touch()
    done = run_release(project, "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith("release: the working tree is not clean")
    assert done.stdout.startswith("Built ")
    assert "-W error -c` failed" in done.stderr
    assert git(project, "tag") == ""
    with zipfile.ZipFile(project / "dist" / f"hermes_sessions-{__version__}-py3-none-any.whl") as wheel:
        assert "hermes/__init__.py" in wheel.namelist()
        assert "hermes/uncommitted.py" not in wheel.namelist()


# ---------------------------------------------------------------- the wheel in a clean environment


@pytest.mark.full
def test_the_wheel_without_extras_says_how_to_install_them(clean_environment: Path, home: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(clean_environment / "bin" / "hermes"), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    python = clean_environment / "bin" / "python"
    how = f"install it with: uv pip install --python {python} 'hermes-sessions[{{}}]'\n"
    assert run("--version").stdout == f"hermes {__version__}\n"
    chat = run()
    assert (chat.returncode, chat.stdout) == (1, "")
    assert chat.stderr == f"hermes: the chat is not installed; {how.format('chat,tui')}"
    gateway = run("gateway")
    assert (gateway.returncode, gateway.stdout) == (1, "")
    assert gateway.stderr == f"hermes: the gateway is not installed; {how.format('gateway')}"
    assert not home.exists()
    tour = run("demo")
    assert (tour.returncode, tour.stderr) == (0, "")
    assert "Hermes Insights" in tour.stdout
    asked = run("-q", "help", "-m", "offline")
    assert asked.returncode == 0, asked.stderr
    assert "I am the offline model" in asked.stdout


@pytest.mark.full
def test_the_wheel_with_chat_and_tui_shows_the_whole_tour(clean_environment: Path) -> None:
    wheels = clean_environment.parent / "wheels"
    for name in list_packages("chat", "tui") - set(CORE):
        pack_installed(name, wheels)
    install_into(clean_environment, wheels, "hermes-sessions[chat,tui]")
    done = subprocess.run(
        [str(clean_environment / "bin" / "hermes"), "demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for seen in ("From your conversations:", "↻ Resumed session", "Type to search titles and messages"):
        assert seen in done.stdout


def test_running_needs_few_packages() -> None:
    """These are the packages that `make setup` installs. `make test` and `make lint` add test servers and
    linters."""
    assert len(list_packages("chat", "tui")) <= 30
