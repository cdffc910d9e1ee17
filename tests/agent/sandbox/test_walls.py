"""What a command in a sandbox can and cannot access. Tested with real processes and the real kernel."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hermes.agent.sandbox.child_environment import make_child_environment
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.sandbox import (
    PROFILE_NETWORK,
    Sandbox,
    choose_sandbox,
    explain_no_landlock,
    make_seatbelt_profile,
    make_shell_command,
)
from tests.agent.sandbox.conftest import Run

PYTHON = sys.executable


def test_the_workspace_and_the_temporary_folder_can_be_read_and_written(run: Run, workspace: Path) -> None:
    done = run("cat a.txt; echo new > b.txt; mkdir -p c && echo x > c/d; echo t > $TMPDIR/t; cat $TMPDIR/t")
    assert (done.stdout, done.stderr, done.returncode) == ("mine\nt\n", "", 0)
    assert (workspace / "b.txt").read_text() == "new\n"


def test_programs_of_the_system_run(run: Run) -> None:
    assert run(f"git --version && {PYTHON} -c 'print(6 * 7)'").stdout.endswith("42\n")


def test_no_secret_can_be_read_by_any_way(run: Run, secrets: dict[str, Path], workspace: Path) -> None:
    (workspace / "link").symlink_to(secrets["ssh"])
    (workspace / "folder").symlink_to(secrets["keys"].parent)
    names = " ".join(f"'{path}'" for path in secrets.values())
    ways = [
        f"cat {names} link folder/.env",
        "grep -r hunter2 / --include=.env --include=id_ed25519 -s",
        f"cp {names} .",
        f"ln {secrets['ssh']} hard && cat hard",
        f"{PYTHON} -c \"print(open('/proc/1/root{secrets['ssh']}').read())\"",
        "cat /proc/*/root" + str(secrets["keys"]),
        "find / -name .env -exec cat {} +",
    ]
    for way in ways:
        done = run(way)
        assert "hunter2" not in done.stdout + done.stderr, way
    files = [path for path in workspace.iterdir() if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if "hunter2" in path.read_text()]


def test_nothing_outside_the_workspace_can_be_written(
    run: Run, secrets: dict[str, Path], tmp_path: Path
) -> None:
    before = {path: path.read_text() for path in secrets.values()}
    for path in secrets.values():
        run(f"echo owned > '{path}'; rm -f '{path}'; truncate -s 0 '{path}'; mv a.txt '{path}'")
    targets = [Path.home() / ".bashrc", tmp_path / "planted", Path("/etc/planted")]
    for path in targets:
        run(f"echo owned > '{path}'")
    assert {path: path.read_text() for path in secrets.values()} == before
    assert not [path for path in targets if path.exists()]


def test_other_processes_cannot_be_read_or_ended(run: Run) -> None:
    victim = subprocess.Popen(["sleep", "60"], env={"TOKEN": "hunter2", "PATH": os.environ["PATH"]})
    try:
        done = run(f"kill -9 {victim.pid}; cat /proc/*/environ | tr '\\0' '\\n'; kill -9 $PPID; kill -9 -1")
        assert "hunter2" not in done.stdout
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_the_network_can_be_switched_off(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('reached')"
        assert run(f'{PYTHON} -c "{program}"').stdout == "reached\n"
        assert run(f'{PYTHON} -c "{program}"', network=False).stdout == ""


@pytest.mark.parametrize("family", ["AF_UNIX", "AF_INET", "AF_INET6"])
def test_without_network_no_kind_of_socket_reaches_anybody(run: Run, tmp_path: Path, family: str) -> None:
    with (
        socket.socket(socket.AF_UNIX) as path_server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        path_server.bind(str(tmp_path / "s"))
        path_server.listen()
        abstract.bind(f"\0{tmp_path}")
        abstract.listen()
        datagrams.bind(("127.0.0.1", 0))
        datagrams.settimeout(0.5)
        port = datagrams.getsockname()[1]
        attempts = {
            "AF_UNIX": f"socket.socket(socket.AF_UNIX).connect('{tmp_path}/s')",
            "AF_INET": f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
            "AF_INET6": "socket.socket(socket.AF_INET6).connect(('::1', 9))",
        }
        run(f'{PYTHON} -c "import socket; {attempts[family]}"', network=False)
        hidden = f"socket.socket(socket.AF_UNIX).connect('\\\\0{tmp_path}')"
        done = run(f'{PYTHON} -c "import socket; {hidden}; print(1)"')
        assert done.stdout == ""
        with pytest.raises(TimeoutError):
            datagrams.recv(1)
        path_server.setblocking(False)
        with pytest.raises(BlockingIOError):
            path_server.accept()


def test_a_setuid_program_gives_no_rights(run: Run) -> None:
    assert re.search(r"NoNewPrivs:\s+1", run("cat /proc/self/status").stdout)


# ---------------------------------------------------------------- git


def test_no_setting_of_the_kernel_can_be_opened_for_writing(run: Run) -> None:
    """Even root cannot open these files for writing in a sandbox. Outside, root needs no capability for that.
    The test opens each file for appending, which changes nothing."""
    program = """
import os
for folder in ("/proc/sys/kernel", "/proc/sys/vm", "/proc/sys/fs", "/proc/pressure", "/proc"):
    for entry in os.scandir(folder):
        if entry.is_file(follow_symlinks=False):
            try:
                os.close(os.open(entry.path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))
                print(entry.path)
            except OSError:
                pass
"""
    done = run(f"{PYTHON} -I -c '{program}'")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.fixture
def repository(workspace: Path) -> Path:
    subprocess.run(["git", "init", "-q", workspace], check=True)
    return workspace


def test_git_works(run: Run, repository: Path) -> None:
    identity = "-c user.name=me -c user.email=me@example.org"
    done = run(f"git add -A && git {identity} commit -qm first && git log --format=%s")
    assert (done.stdout, done.stderr) == ("first\n", "")


@pytest.mark.parametrize(
    "attack",
    [
        "printf '#!/bin/sh\\nid' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        "git config core.fsmonitor ./evil; printf '[core]\\n\\tpager = evil\\n' >> .git/config",
        "rm -rf .git/hooks; mkdir -p .git/hooks; echo evil > .git/hooks/post-checkout",
        "mv .git/hooks .git/h; ln -s /tmp/evil .git/hooks",
        "cp -r .git .copy; echo evil > .copy/config; mv .git .old; mv .copy .git",
        "mv .git .old; mkdir .git; echo evil > .git/config",
        "mv .git .old; ln -s /etc .git",
        "mkdir evil; echo evil > evil/config; echo ../evil > .git/commondir",
        "echo evil > .git/config.worktree; mkdir -p .git/info; ln -s /etc .git/info/attributes",
    ],
)
def test_a_command_cannot_make_git_start_programs_later(run: Run, repository: Path, attack: str) -> None:
    git = repository / ".git"

    def settings() -> dict[str, bytes]:
        names = ("config", "config.worktree", "commondir", "info/attributes")
        files = [*(git / name for name in names if (git / name).exists()), *sorted((git / "hooks").iterdir())]
        return {str(path): path.read_bytes() for path in files}

    before = settings()
    run(attack)
    assert settings() == before
    assert not git.is_symlink()
    assert (git / "HEAD").exists()


def test_a_repository_without_hooks_gets_none(run: Run, repository: Path) -> None:
    shutil.rmtree(repository / ".git" / "hooks")
    run("mkdir .git/hooks; echo evil > .git/hooks/pre-commit")
    assert not [*(repository / ".git").glob("hooks/*")]


def test_a_planted_setting_of_git_is_removed_while_the_command_runs(run: Run, repository: Path) -> None:
    done = run("echo ../evil > .git/commondir; while test -e .git/commondir; do :; done; echo gone")
    assert done.stdout == "gone\n"


# Landlock cannot protect a file in such a folder
@pytest.mark.parametrize("box", ["bubblewrap"], indirect=True)
def test_the_settings_of_a_submodule_cannot_be_changed_in_bubblewrap(box: Sandbox, repository: Path) -> None:
    module = repository / ".git" / "modules" / "x"
    subprocess.run(["git", "init", "-q", "--bare", module], check=True)
    before = (module / "config").read_bytes()
    for attack in ("echo x >> .git/modules/x/config", "mv .git/modules .git/m; mkdir -p .git/modules/x"):
        view = View(repository, box.view.temporary)
        subprocess.run(
            box._replace(view=view).start(make_shell_command(attack), repository), capture_output=True
        )
        assert (module / "config").read_bytes() == before


@pytest.mark.parametrize("place", [".venv", "src/hermes"])
def test_this_program_installed_in_the_workspace_cannot_be_changed(
    box: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (workspace / place).mkdir(parents=True)
    (workspace / place / "launcher.py").write_text("ours")
    monkeypatch.setattr(sys, "prefix", str(workspace / place))
    view = View(workspace, box.view.temporary)
    assert not view.can_write(workspace / place / "launcher.py")
    assert view.can_write(workspace / "a.txt")
    if box.kind == "landlock":
        assert "contains this program" in (explain_no_landlock(view) or "")
        return
    for attack in (f"echo x > {place}/launcher.py", f"mv {place.partition('/')[0]} old; mkdir -p {place}"):
        command = box._replace(view=view).start(make_shell_command(attack), workspace)
        subprocess.run(command, cwd=workspace, capture_output=True)
        assert (workspace / place / "launcher.py").read_text() == "ours"


@pytest.mark.parametrize("name", [".git", ".git/info/attributes", ".git/config.worktree", ".git/hooks"])
def test_a_link_that_a_command_left_in_git_opens_nothing_later(
    box: Sandbox, workspace: Path, secrets: dict[str, Path], name: str
) -> None:
    link = workspace / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(Path.home())
    later = box._replace(view=View(workspace, box.view.temporary))
    for path in (secrets["ssh"], secrets["other project"]):
        command = later.start(make_shell_command(f"cat '{path}'; echo x >> '{path}'"), workspace)
        done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, timeout=60)
        assert "hunter2" not in done.stdout
        assert path.read_text() == "hunter2\n"


def test_a_linked_worktree_can_be_committed_in_and_a_forged_one_opens_nothing(
    repository: Path, temporary: Path, tmp_path: Path
) -> None:
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run(["git", *identity, "commit", "-qm", "x", "--allow-empty"], cwd=repository, check=True)
    tree = tmp_path / "tree"
    subprocess.run(["git", "worktree", "add", "-q", tree], cwd=repository, check=True, capture_output=True)
    view = View(tree, temporary)
    assert view.shared_git_folder == repository / ".git"
    assert repository / ".git" / "hooks" in view.protected
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {repository}/.git/worktrees/tree\n")
    assert View(forged, temporary).shared_git_folder is None
    (forged / ".git").write_text(f"gitdir: {Path.home()}/.ssh\n")
    assert View(forged, temporary).shared_git_folder is None


# ---------------------------------------------------------------- workspaces that contain too much


def test_a_workspace_that_contains_the_agents_home_does_not_expose_it(
    box: Sandbox, home: Path, tmp_path: Path, temporary: Path, secrets: dict[str, Path]
) -> None:
    """Bubblewrap hides the home. Landlock cannot hide a folder inside the workspace, so such a workspace gets
    no Landlock sandbox."""
    view = View(tmp_path, temporary)
    assert view.has_hidden_files
    if box.kind == "landlock":
        assert "which Landlock cannot mask" in (explain_no_landlock(view) or "")
        return
    wide = Sandbox(view, box.kind)
    command = wide.start(["/bin/sh", "-c", f"cat {home}/.env {home}/state.db; ls -A {home}"], tmp_path)
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize("folder", [".", "..", "/"])
def test_in_the_persons_home_or_above_it_everything_needs_approval(
    temporary: Path, secrets: dict[str, Path], folder: str
) -> None:
    view = View(Path.home() / folder, temporary)
    assert view.writable == [temporary]
    assert not any(view.can_read(path) for path in secrets.values())
    assert not view.can_read(Path.home() / "notes.txt")
    chosen = choose_sandbox(view)
    assert not chosen.is_there
    assert "start in the folder of a project" in chosen.reason


def test_a_home_that_is_a_git_repository_is_not_the_project_of_its_folders(temporary: Path) -> None:
    folder = Path.home() / "notes"
    folder.mkdir()
    (Path.home() / ".git").mkdir()
    assert View(folder, temporary).workspace == folder
    (folder / ".git").mkdir()
    (folder / "sub").mkdir()
    assert View(folder / "sub", temporary).workspace == folder


def test_tmp_is_the_private_folder_unless_a_file_is_only_in_the_shared_one(
    workspace: Path, temporary: Path
) -> None:
    view = View(workspace, temporary)
    assert view.locate(Path("/tmp/not-there")) == temporary / "not-there"
    (temporary / "made").write_text("x")
    assert view.locate(Path("/tmp/made")) == temporary / "made"
    with tempfile.NamedTemporaryFile(dir="/tmp") as shared:
        assert view.locate(Path(shared.name)) == Path(shared.name)
        assert not view.can_read(Path(shared.name))


def test_inside_the_agents_home_there_is_no_sandbox(home: Path, temporary: Path) -> None:
    folder = home / "skills" / "x"
    folder.mkdir(parents=True)
    chosen = choose_sandbox(View(folder, temporary))
    assert not chosen.is_there
    assert "belongs to the agent" in chosen.reason


def test_a_folder_that_the_person_shows_is_readable_wherever_it_lies(
    box: Sandbox, workspace: Path, temporary: Path
) -> None:
    """A folder below /tmp is readable too, although /tmp is the private folder in the sandbox."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        (Path(name) / "data").write_text("shown\n")
        view = View(workspace, temporary, readable=[Path(name)])
        program = Sandbox(view, box.kind).start(make_shell_command(f"cat {name}/data"), workspace)
        done = subprocess.run(program, env=make_child_environment(temporary), capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("shown\n", "")


# ---------------------------------------------------------------- macOS


def test_the_profile_of_macos_allows_the_view_and_denies_what_is_hidden_last(
    workspace: Path, temporary: Path, secrets: dict[str, Path], repository: Path
) -> None:
    view = View(workspace, temporary)
    lines = make_seatbelt_profile(view, network=False).splitlines()
    assert "(deny default)" in lines
    writable = [line for line in lines if line.startswith("(allow file-write* (subpath")]
    assert writable == [f'(allow file-write* (subpath "{path}"))' for path in view.writable]
    last_allowed = max(number for number, line in enumerate(lines) if line.startswith("(allow"))
    for path in (secrets["keys"].parent, secrets["ssh"].parent):
        denied = f'(deny file-read* file-write* (subpath "{path}"))'
        assert lines.index(denied) > last_allowed
    assert f'(deny file-write* (subpath "{repository / ".git" / "hooks"}"))' in lines
    assert "network" not in "\n".join(lines)
    assert PROFILE_NETWORK in make_seatbelt_profile(view, network=True)
    assert _writes(view, read_only=True) == [f'(allow file-write* (subpath "{temporary}"))']


def _writes(view: View, *, read_only: bool) -> list[str]:
    profile = make_seatbelt_profile(view, network=False, read_only=read_only)
    return [line for line in profile.splitlines() if line.startswith("(allow file-write* (subpath")]


def test_a_name_with_a_quote_cannot_end_its_place_in_the_profile(tmp_path: Path, temporary: Path) -> None:
    odd = tmp_path / 'a") (allow default) ("'
    odd.mkdir()
    assert "(allow default)" not in [
        line.strip() for line in make_seatbelt_profile(View(odd, temporary), network=False).splitlines()
    ]
    assert 'a\\") (allow default) (\\"' in make_seatbelt_profile(View(odd, temporary), network=False)
