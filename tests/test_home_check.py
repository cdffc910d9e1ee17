"""A home that other users own or can write to is refused. Files in a home are never opened through a symbolic
link."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes import audit_log, errors
from hermes import home as homes
from hermes.append_files import lock_file
from hermes.atomic_files import lock_private_folder
from hermes.chat.input.input_history import open_history_file
from hermes.config import config_file, dotenv
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.ops.status_file import lock_gateway
from hermes.home_check import _is_writable_by_others, check_home
from hermes.server.conversations.history_index import HistoryIndex
from hermes_state import SessionDB

STRANGER = 12_345
KEY = "made-up-key-for-this-test"


def hermes(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "hermes.cli.main", *words],
        capture_output=True,
        text=True,
        input="",
        env={**os.environ, **environ},
    )


def refusal(*words: str, **environ: str) -> str:
    done = hermes(*(words or ("config", "set", "OPENAI_API_KEY", KEY)), **environ)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a folder that another user owns."""
    if os.geteuid() != 0:
        return Path("/usr")
    folder = tmp_path / "foreign"
    folder.mkdir(mode=0o700)
    os.chown(folder, STRANGER, STRANGER)
    return folder


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_home_that_others_can_write_to_is_refused(home: Path, mode: int) -> None:
    home.mkdir()
    home.chmod(mode)
    assert f"run: chmod go-w '{home}'" in refusal()
    assert "other users can write" in refusal("config", "list")
    assert list(home.iterdir()) == []
    with pytest.raises(errors.UnsafeHome):
        SessionDB()
    home.chmod(0o755)
    assert hermes("config", "set", "OPENAI_API_KEY", KEY).returncode == 0


def test_a_home_is_writable_by_others_if_its_group_has_other_members() -> None:
    def made(mode: int, user: int, group: int) -> os.stat_result:
        return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, user, group, 0, 0, 0, 0))

    assert _is_writable_by_others(made(0o770, os.geteuid(), STRANGER))
    assert not _is_writable_by_others(made(0o750, os.geteuid(), STRANGER))
    assert not _is_writable_by_others(made(0o770, 0, 0))
    assert _is_writable_by_others(made(0o772, 0, 0))


def test_a_home_of_another_user_is_refused(foreign: Path) -> None:
    line = refusal(HERMES_HOME=str(foreign))
    assert f"the home {foreign} belongs to" in line
    assert not (foreign / ".env").exists()


def test_only_root_can_use_a_foreign_home_and_only_on_request(foreign: Path) -> None:
    done = hermes("config", "list", HERMES_HOME=str(foreign), HERMES_FOREIGN_HOME="1")
    assert done.returncode == (0 if os.geteuid() == 0 else 1)


def test_a_home_that_another_user_could_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    home = shared / "deep" / "home"
    monkeypatch.setenv("HERMES_HOME", str(home))
    check_home()
    for exists in (False, True):
        if exists:
            home.mkdir(parents=True)
        shared.chmod(0o777)
        with pytest.raises(errors.UnsafeHome, match="replace deep"):
            check_home()
        shared.chmod(0o1777)  # like /tmp
        check_home()
    if os.geteuid() == 0:
        os.chown(shared / "deep", STRANGER, STRANGER)
        with pytest.raises(errors.UnsafeHome):
            check_home()


def test_a_link_to_the_home_is_followed_if_nobody_else_can_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    link = shared / "link"
    link.symlink_to("../real")
    monkeypatch.setenv("HERMES_HOME", str(link))
    check_home()
    shared.chmod(0o777)
    with pytest.raises(errors.UnsafeHome, match="replace link"):
        check_home()
    shared.chmod(0o755)
    link.unlink()
    link.symlink_to("link")
    with pytest.raises(errors.UnsafeHome, match="too many symbolic links"):
        check_home()


def test_help_needs_no_home(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    assert hermes("--help").returncode == 0


def test_control_characters_in_the_name_of_a_home_are_escaped(tmp_path: Path) -> None:
    hostile = tmp_path / "a\x1b[31mb"
    hostile.mkdir()
    hostile.chmod(0o777)
    assert "\x1b" not in refusal(HERMES_HOME=str(hostile))


# ---------------------------------------------------------------- planted links


def lock_pairings(home: Path) -> None:
    Pairings(home / "gateway").make_code()


def run_gateway(home: Path) -> None:
    with lock_gateway(home / "gateway"):
        pass


def lock_folder(home: Path) -> None:
    with lock_private_folder(home / "memories"):
        pass


def put_mark(home: Path) -> None:
    known = HistoryIndex(home / "conversations.jsonl")
    known.put("a", "b")


def lock_spool_file(home: Path) -> None:
    with lock_file(home / "spool" / "1.jsonl"):
        pass


OPENED: list[tuple[str, Callable[[Path], object]]] = [
    ("state.db.lock", lambda home: SessionDB(home / "state.db")),
    ("gateway/.lock", lock_pairings),
    ("gateway/running.lock", run_gateway),
    ("memories/.lock", lock_folder),
    ("conversations.jsonl", put_mark),
    ("spool/1.jsonl", lock_spool_file),
    ("chat_history", lambda home: open_history_file()),
    ("audit.log", lambda home: audit_log.record("x")),
    ("seal.key", lock_pairings),
]


@pytest.mark.parametrize(("name", "use"), OPENED, ids=[name for name, _ in OPENED])
def test_a_planted_link_is_not_followed(
    home: Path, tmp_path: Path, name: str, use: Callable[[Path], object]
) -> None:
    check_planted_link(home, tmp_path, name, use)


def check_planted_link(home: Path, tmp_path: Path, name: str, use: Callable[[Path], object]) -> None:
    """Check that `use` refuses to follow a symbolic link named `name` in a home, and that it does not change
    the target of the link."""
    target = tmp_path / "precious"
    target.write_text("mine")
    target.chmod(0o644)
    (home / name).parent.mkdir(parents=True)
    (home / name).symlink_to(target)
    text = "symbolic link"
    try:
        use(home)
    except (errors.HermesError, OSError) as problem:
        text = str(problem)
    assert "symbolic link" in text
    assert target.read_text() == "mine"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    missing = tmp_path / "missing"
    (home / name).unlink()
    (home / name).symlink_to(missing)
    try:
        use(home)
    except (errors.HermesError, OSError):
        pass
    assert not missing.exists()


def test_a_file_of_another_user_is_refused_and_a_readable_one_made_private(home: Path) -> None:
    home.mkdir()
    file = home / "x.lock"
    file.touch()
    file.chmod(0o666)
    os.close(homes.open_private_file(file, os.O_RDWR))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    if os.geteuid() == 0:
        os.chown(file, STRANGER, STRANGER)
        with pytest.raises(PermissionError, match="belongs to another user"):
            homes.open_private_file(file, os.O_RDWR)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(PermissionError, match="not a regular file"):
        homes.open_private_file(file, os.O_RDWR)


def test_a_store_that_its_owner_keeps_elsewhere_works(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.mkdir()
    (home / "state.db").symlink_to(elsewhere / "real.db")
    SessionDB(elsewhere / "real.db").close()
    with SessionDB() as db:
        db.create_session("a", "cli")
    with SessionDB(elsewhere / "real.db") as db:
        assert db.get_session("a") is not None


def test_settings_that_are_written_are_private(home: Path) -> None:
    home.mkdir()
    for file in (config_file.get_path(), dotenv.get_path()):
        file.touch()
        file.chmod(0o644)
    config_file.change("agent.max_steps", 9)
    dotenv.change("OPENAI_API_KEY", KEY)
    for file in (config_file.get_path(), dotenv.get_path()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
