"""The disk is full, write permission is missing, or the file system does not support write-ahead logs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes.store.engine_choice import diagnose_file
from hermes.store.sqlite.wal import journal_choice
from hermes_state import SessionDB
from tests.survival.processes import Refused, Worker, check_said

SMALL = 300_000


# --- a full disk


@pytest.mark.parametrize("size", [2_000, 40_000], ids=["rows", "overflow-pages"])
def test_a_full_disk_refuses_clearly_and_writing_resumes(home: Path, size: int) -> None:
    path = home / "state.db"
    with Worker() as worker, Worker() as sibling:
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["before the disk was full"])
        worker.ask("limit_files", size=SMALL)
        stored, refused = _fill(worker, size)
        assert {"StoreFull", "StoreError", "OperationalError"} <= set(refused.kinds)
        assert str(path) in refused.message
        assert "no room left" in refused.message
        assert "\n" not in refused.message

        for _ in range(5):  # the disk is still full: the error is the same, and reading still works
            with pytest.raises(Refused):
                worker.ask("append_only", session="s", texts=["word " * (SMALL // 4)])
        assert worker.ask("contents", session="s")[1:] == stored
        assert len(worker.ask("found", query="stored")) == len(stored)
        sibling.ask("open_store", path=str(path))
        assert sibling.ask("contents", session="s")[1:] == stored

        worker.ask("limit_files", size=None)
        worker.ask("append_only", session="s", texts=["room again"])
        assert worker.ask("contents", session="s")[1:] == [*stored, "room again"]
        assert worker.ask("health") == []
        worker.ask("close")
    with SessionDB(path) as db:
        assert [row["content"] for row in db.get_messages("s")][1:] == [*stored, "room again"]
        session = db.get_session("s")
        assert session is not None
        assert session["message_count"] == len(stored) + 2
        assert len(db.search_messages("stored", limit=1000)) == len(stored)
        assert db.verify().ok


def test_a_full_disk_while_killed_loses_nothing(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["before the disk was full"])
        worker.ask("limit_files", size=SMALL)
        stored, _refused = _fill(worker, 5_000)
        worker.kill()
    with SessionDB(path) as db:
        assert [row["content"] for row in db.get_messages("s")][1:] == stored
        assert db.verify().ok


def test_a_store_that_cannot_be_created_leaves_no_file(home: Path) -> None:
    path = home / "state.db"
    with Worker() as worker:
        worker.ask("limit_files", size=20_000)
        with pytest.raises(Refused) as refused:
            worker.ask("open_store", path=str(path))
        assert "StoreError" in refused.value.kinds
        assert not path.exists()  # an empty file would look like a lost history
        worker.ask("limit_files", size=None)
        worker.ask("open_store", path=str(path))
        worker.ask("append", session="s", texts=["now"])
    assert [file.name for file in home.iterdir() if ".new-" in file.name] == []


def test_a_device_without_room_says_so(home: Path) -> None:
    """Causes ENOSPC on a small file system, if one can be mounted. The test is skipped otherwise; the tests
    above use a limit of the file size instead."""
    home.mkdir(mode=0o700)
    program = home.parent / "fill.py"
    program.write_text(FILL_A_SMALL_DEVICE, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    mount = 'mount -t tmpfs -o size=6m,mode=700 none "$1" 2>/dev/null || exit 77; exec "$2" "$3" "$1"'
    try:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", mount, "sh", str(home), sys.executable, str(program)],
            capture_output=True,
            text=True,
            env=environment,
        )
    except FileNotFoundError:
        pytest.skip("no unshare here to mount a small device with")
    if done.returncode != 0 and "Traceback" not in done.stderr:
        pytest.skip("no right to mount a small device here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["StoreFull", "True", "True", "1", "True"]


FILL_A_SMALL_DEVICE = """
import sys
from pathlib import Path
from hermes import errors
from hermes_state import SessionDB

home = Path(sys.argv[1])
ballast = home / "ballast"
ballast.write_bytes(b"x" * 3_000_000)
db = SessionDB(home / "state.db")
db.create_session("s", "cli")
n = 0
try:
    while n < 10_000:
        db.append_message("s", "user", f"row {n} " + "x" * 3000)
        n += 1
except errors.StoreFull as full:
    print("StoreFull", "no room left" in str(full))
assert [row["content"].split()[1] for row in db.get_messages("s")] == [str(i) for i in range(n)]
ballast.unlink()
db.append_message("s", "user", "room again")
print(n > 10, len(db.search_messages("room")), db.verify().ok)
db.close()
"""


def _fill(worker: Worker, size: int) -> tuple[list[str], Refused]:
    """Append until a write is refused. Return (acknowledged messages, error)."""
    stored: list[str] = []
    while True:
        text = f"stored {len(stored)} " + "x" * size
        try:
            worker.ask("append_only", session="s", texts=[text])
        except Refused as refused:
            return stored, refused
        stored.append(text)
        assert len(stored) < 5000


# --- no write permission


def _open_and_append(worker: Worker, path: Path) -> None:
    worker.ask("open_store", path=str(path))
    worker.ask("append", session="s", texts=["three"])


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Create a folder that an unprivileged user can reach, unlike the folders of the test run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "shared").mkdir(mode=0o755)
        yield folder / "shared"


@pytest.mark.parametrize("left", ["closed", "killed", "open"])
def test_a_read_only_folder_is_refused_for_writing_and_read(reachable: Path, left: str) -> None:
    path = reachable / "state.db"
    with ExitStack() as stack:
        writer, reader = stack.enter_context(Worker()), stack.enter_context(Worker())
        writer.ask("open_store", path=str(path))
        writer.ask("append", session="s", texts=["one", "two"])
        if left == "closed":
            writer.ask("close")
        elif left == "killed":
            writer.kill()
        for file in reachable.iterdir():
            file.chmod(0o444)
        reachable.chmod(0o555)
        try:
            reader.ask("become_nobody", folder=str(reachable))
            with pytest.raises(Refused) as refused:
                _open_and_append(reader, path)
            assert {"StoreError", "OperationalError"} <= set(refused.value.kinds)
            assert str(path) in refused.value.message
            assert "\n" not in refused.value.message
            reader.ask("open_store", path=str(path), name="read", read_only=True)
            assert reader.ask("contents", session="s", name="read") == ["one", "two"]
            assert len(reader.ask("found", query="two", name="read")) == 1
            assert reader.ask("health", name="read") == []
            assert reader.ask("diagnosed", name="read") == []
            with tempfile.TemporaryDirectory() as elsewhere:
                Path(elsewhere).chmod(0o777)
                assert reader.ask("back_up", target=f"{elsewhere}/copy.db", name="read") == 2
            with pytest.raises(Refused) as refused:
                reader.ask("append_only", session="s", texts=["three"], name="read")
            assert "StoreReadOnly" in refused.value.kinds
        finally:
            reachable.chmod(0o755)
            for file in reachable.iterdir():
                file.chmod(0o600)
    with SessionDB(path) as db:
        assert [row["content"] for row in db.get_messages("s")] == ["one", "two"]


@pytest.fixture
def unprivileged(reachable: Path) -> Iterator[Worker]:
    """Run a process without privileges and with its own folder."""
    if os.getuid() == 0:
        os.chown(reachable, 65534, 65534)
    with Worker() as worker:
        worker.ask("become_nobody", folder=str(reachable))
        yield worker


@pytest.mark.parametrize("ends", ["close", "kill"])
@pytest.mark.parametrize("first", ["read", "refused"])
def test_a_store_that_was_read_only_for_a_while_can_be_written_again(
    reachable: Path, unprivileged: Worker, first: str, ends: str
) -> None:
    path = reachable / "state.db"
    unprivileged.ask("visit", path=str(path), session="s", texts=["one"])
    unprivileged.ask("change_mode", path=str(path), mode=0o400)
    with Worker() as second:
        second.ask("become_nobody", folder=str(reachable))
        if first == "refused":
            with pytest.raises(Refused, match="StoreReadOnly"):
                _open_and_append(second, path)
        second.ask("open_store", path=str(path), name="read", read_only=True)
        assert second.ask("contents", session="s", name="read") == ["one"]
        if ends == "close":
            second.ask("close", name="read")
        second.kill()
    unprivileged.ask("change_mode", path=str(path), mode=0o600)
    assert [f.what for f in diagnose_file(path).findings if f.level != "ok" and "written" in f.what] == []
    unprivileged.ask("visit", path=str(path), session="s", texts=["two"])
    unprivileged.ask("open_store", path=str(path))
    assert unprivileged.ask("contents", session="s") == ["one", "two"]


@pytest.mark.parametrize("endings", [["-shm"], ["-wal", "-shm"]])
def test_a_read_only_index_is_reported_and_made_writable(
    reachable: Path, unprivileged: Worker, endings: list[str]
) -> None:
    """The write-ahead log or its index is read-only. The diagnosis names the files, and opening the store
    makes them writable again."""
    path = reachable / "state.db"
    unprivileged.ask("open_store", path=str(path))
    unprivileged.ask("append", session="s", texts=["one"])
    unprivileged.kill()
    for ending in endings:
        os.chmod(f"{path}{ending}", 0o400)
    (finding,) = [f for f in diagnose_file(path).findings if "cannot be written" in f.what]
    assert finding.level == "warning"
    assert all(f"{path}{ending}" in finding.advice for ending in endings)
    with Worker() as worker:
        worker.ask("become_nobody", folder=str(reachable))
        _open_and_append(worker, path)
        assert worker.ask("contents", session="s") == ["one", "three"]
    assert [f for f in diagnose_file(path).findings if "cannot be written" in f.what] == []


def test_verify_names_an_index_that_another_user_left_read_only(home: Path) -> None:
    path = home / "state.db"
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        os.chmod(f"{path}-shm", 0o400)
        report = db.verify()
        assert report.ok
        assert any("chmod u+w" in line and "-shm" in line for line in report.lines())


# --- no write-ahead log

MOUNTS = """
22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 28 0:44 / /mnt/nas rw,relatime shared:300 - nfs4 server:/export rw,vers=4.2
41 28 0:45 / /mnt/with\\040space rw,relatime - cifs //server/share rw
42 28 0:46 / /home/me/remote rw,nosuid - fuse.sshfs me@host: rw,user_id=0
43 28 0:47 / /mnt/c rw,noatime - 9p drvfs rw
44 40 0:48 / /mnt/nas/local rw - xfs /dev/vdb rw
46 28 0:50 / /mnt/données rw,relatime - nfs server:/export rw
45 28 0:49 / /run/user rw optional:1 master:2 - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me", "ext4"),
        ("/mnt/nas", "nfs4"),
        ("/mnt/nas/deep/inside", "nfs4"),
        ("/mnt/nasty", "ext4"),
        ("/mnt/with space/x", "cifs"),
        ("/home/me/remote/x", "fuse.sshfs"),
        ("/mnt/c/Users", "9p"),
        ("/mnt/nas/local/x", "xfs"),
        ("/run/user/1000", "tmpfs"),
        ("/mnt/données/x", "nfs"),
    ],
)
def test_the_file_system_of_a_folder(folder: str, kind: str) -> None:
    assert journal_choice.kind_from_mountinfo(MOUNTS, 1, 1, folder) == kind


def test_the_file_system_is_that_of_the_real_folder(tmp_path: Path) -> None:
    """If the home is a link to a folder on another file system, that file system counts."""
    link = tmp_path / "link"
    link.symlink_to("/dev/shm" if Path("/dev/shm").is_dir() else "/")
    assert journal_choice.journal_for(link / "state.db") == journal_choice.journal_for(
        link.resolve() / "state.db"
    )


def _unfit(stack: ExitStack, home: Path) -> Worker:
    worker = stack.enter_context(Worker())
    assert worker.ask("write_ahead_log_unfit", folder=str(home))
    return worker


def test_without_a_log_the_store_is_slower_and_equally_safe(home: Path) -> None:
    path, rng = home / "state.db", random.Random(2)
    home.mkdir(mode=0o700)
    acknowledged: dict[str, dict[int, int]] = {}
    with ExitStack() as stack:
        first, *workers = [_unfit(stack, home) for _ in range(5)]
        first.ask("open_store", path=str(path))
        first.ask("open_store", path=str(path), name="again")
        assert first.ask("journal_mode") == "delete"
        warned = first.ask("logged")
        assert len(warned) == 1
        assert "rollback journal" in warned[0]
        for n, worker in enumerate(workers):
            worker.start("keep_appending", path=str(path), session=f"s{n}", tag=f"w{n}", search_every=9)
        for n, worker in enumerate(workers):
            known = acknowledged[f"{n}"] = {}
            while len(known) < rng.randrange(3, 25):
                line = worker.line()
                if "n" in line:
                    known[line["n"]] = line["id"]
            first.ask("append", session="first", texts=[f"beside{n}"])
            worker.kill()
            for line in worker.lines():
                if "n" in line:
                    known[line["n"]] = line["id"]
        assert first.ask("contents", session="first") == [f"beside{n}" for n in range(4)]
        assert first.ask("health") == []
        assert not Path(f"{path}-wal").exists()
        last = _unfit(stack, home)
        last.ask("open_store", path=str(path))
        for n in range(4):
            assert len(last.ask("contents", session=f"s{n}")) >= len(acknowledged[f"{n}"])
        first.kill()
        last.kill()
    with SessionDB(path) as db:  # this file system can use a log again
        for me, known in acknowledged.items():
            check_said(db.get_messages(f"s{me}"), known, f"w{me}")
            assert [hit["id"] for hit in db.search_messages(f"w{me}n0")] == [known[0]]
        assert db.verify().ok
