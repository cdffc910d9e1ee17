"""A command gets only the environment variables on an allowlist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.sandbox.child_environment import (
    ALLOWED,
    list_key_names,
    make_child_environment,
    make_loader_environment,
)
from hermes.agent.sandbox.sandbox import Sandbox, make_shell_command

TEMPORARY = Path("/tmp/x")


@given(names=st.sets(st.from_regex(r"[A-Z][A-Z_]{0,15}(KEY|TOKEN|SECRET|PASSWORD|URL)", fullmatch=True)))
def test_no_variable_gets_through_that_is_not_listed(names: set[str]) -> None:
    made = make_child_environment(TEMPORARY, environment=dict.fromkeys(names, "secret") | {"PATH": "/bin"})
    assert "secret" not in made.values()
    assert made["PATH"] == "/bin"


@given(withheld=st.sets(st.sampled_from(sorted(ALLOWED))))
def test_variables_that_the_configuration_reads_keys_from_are_withheld(withheld: set[str]) -> None:
    made = make_child_environment(
        TEMPORARY, environment=dict.fromkeys(ALLOWED, "value"), withheld=withheld, extra=["HOME"]
    )
    assert not withheld & made.keys()


def test_a_person_can_let_more_through() -> None:
    made = make_child_environment(TEMPORARY, environment={"MY_FLAG": "1"}, extra=["MY_FLAG"])
    assert made["MY_FLAG"] == "1"
    assert made["HERMES_TOOL_CALL"] == "1"
    assert made["TMPDIR"] == str(TEMPORARY)


@pytest.mark.parametrize(
    ("proxy", "passes"),
    [
        ("http://proxy:3128", True),
        ("proxy:3128", True),
        ("http://me:pw@proxy:3128", False),
        ("me:pw@proxy", False),
        ("http://[", False),
    ],
)
def test_a_proxy_with_a_password_is_not_passed_on(proxy: str, passes: bool) -> None:
    assert ("https_proxy" in make_child_environment(TEMPORARY, environment={"https_proxy": proxy})) is passes


def test_every_variable_that_the_configuration_uses_is_known() -> None:
    settings = {
        "model": {"key_env": "MINE", "base_url": "https://${HOST}/v1"},
        "platforms": {"api-server": {"keys": [{"key": "${A}"}, "x${B}y"]}},
    }
    assert list_key_names(settings) == {"MINE", "HOST", "A", "B"}


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux")
def test_other_processes_cannot_read_the_memory_of_the_agent(home: Path) -> None:
    program = """if True:
        import ctypes
        from hermes.agent.factory import StandardFactory
        StandardFactory().make_tools(False)
        print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


def test_libraries_of_the_workspace_are_loaded_inside_the_sandbox_only(box: Sandbox, workspace: Path) -> None:
    """An empty entry in LD_LIBRARY_PATH means the working directory. `$LD_LIBRARY_PATH:/x` has an empty entry
    if the variable was not set."""
    given = {"LD_LIBRARY_PATH": ":/x", "LD_PRELOAD": "./evil.so", "PATH": "/usr/bin:/bin"}
    environment = make_child_environment(TEMPORARY, environment=given, extra=["LD_LIBRARY_PATH"])
    assert not {"LD_LIBRARY_PATH", "LD_PRELOAD"} & environment.keys()
    inside = make_shell_command(
        "echo $LD_LIBRARY_PATH-$LD_PRELOAD", make_loader_environment(environment=given)
    )
    (workspace / "libc.so.6").write_text("evil")  # if the launcher loaded this library, it could not start
    done = subprocess.run(
        box.start(inside, workspace), cwd=workspace, env=environment, capture_output=True, text=True
    )
    assert "sandbox could not be created" not in done.stderr
    assert make_loader_environment(environment=given) == {"LD_LIBRARY_PATH": ":/x"}
    assert make_loader_environment(environment=given, extra=["LD_PRELOAD"]) == {
        "LD_LIBRARY_PATH": ":/x",
        "LD_PRELOAD": "./evil.so",
    }
    (workspace / "libc.so.6").unlink()
    done = subprocess.run(
        box.start(inside, workspace), cwd=workspace, env=environment, capture_output=True, text=True
    )
    assert done.stdout == ":/x-\n"
