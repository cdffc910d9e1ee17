"""In CI, a skipped test is a failure unless it is listed, both with and without xdist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skip_policy import allowed_patterns

POLICY = Path(__file__).with_name("skip_policy.py")
CONFTEST = """
from pathlib import Path
from tests.skip_policy import SkipPolicy

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipPolicy(Path(__file__).with_name("allowed_skips.txt")))
"""
SKIPPING = """
import pytest

def test_runs(): pass

@pytest.mark.skip(reason="no moon tonight")
def test_skips(): pass

@pytest.mark.xfail(reason="known")
def test_expected_to_fail(): raise AssertionError
"""


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("listing", "module", "code"),
    [
        ("", "def test_runs(): pass", 0),
        ("", SKIPPING, 1),
        ("tests/test_it.py::test_skips  # the moon is not ours\n", SKIPPING, 0),
        ("no moon*  # the moon is not ours\n", SKIPPING, 0),
        ("", "import pytest\npytest.importorskip('no_such_package')\ndef test_runs(): pass", 1),
    ],
)
def test_a_skip_fails_the_run_unless_listed(
    tmp_path: Path, listing: str, module: str, code: int, workers: tuple[str, ...]
) -> None:
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "skip_policy.py": POLICY.read_text(encoding="utf-8"),
        "conftest.py": CONFTEST,
        "allowed_skips.txt": listing,
        "test_it.py": module,
        "test_other.py": "def test_runs(): pass",
    }.items():
        (project / "tests" / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *workers],
        cwd=project,
        capture_output=True,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        timeout=100,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("SKIPPED IN CI: tests/test_it.py" in done.stdout) == (code == 1)


def test_a_listed_skip_needs_a_reason() -> None:
    assert allowed_patterns("# a comment\n\na*  # why\n") == ["a*"]
    with pytest.raises(pytest.UsageError, match="line 1: say why"):
        allowed_patterns("tests/test_it.py::test_skips\n")
