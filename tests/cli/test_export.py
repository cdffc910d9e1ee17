"""`hermes sessions export` as a command in a separate process."""

from __future__ import annotations

import json
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_state import SessionDB
from tests.cli.conftest import COMMAND, Hermes
from tests.terminal import read_output

T = 1_780_000_000.0
SECRET = "sk-ant-api03-" + "Zq7" * 31

# An interrupt during an import leaves a file open. The interpreter may warn about it.
UNWARNED = [word for word in COMMAND if word not in ("-W", "error")]


@pytest.fixture
def stored(home: Path) -> None:
    """Create a compressed conversation with a branch and a subagent, a job, an archived chat, and a trashed
    conversation."""
    with SessionDB() as db:
        db.create_session("talk1", "cli", started_at=T, model="vendor/big-model")
        said = [db.append_message("talk1", "user", f"hello {n}", timestamp=T + n) for n in range(3)]
        db.set_session_title("talk1", "日本語 plans")
        db.begin_continuation("talk1", "the summary", said[1:], session_id="talk2", started_at=T + 10)
        db.append_message("talk2", "assistant", f"the key is {SECRET}", timestamp=T + 11)
        branch = db.branch("talk2", session_id="branch", end_parent=False, started_at=T + 20)
        db.append_message(branch, "user", "another way", timestamp=T + 21)
        child = db.delegate("talk2", session_id="helper", started_at=T + 30)
        db.append_message(child, "user", "look it up", timestamp=T + 31)
        for session_id, source, at in (("job", "cron", 40), ("old", "telegram", -9e6), ("gone", "cli", 50)):
            db.create_session(session_id, source, started_at=T + at)
            db.append_message(session_id, "user", f"said in {session_id}", timestamp=T + at + 1)
        db.set_session_archived("old", True)
        db.trash_session("gone")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def ids(path: Path) -> list[str]:
    return [session["id"] for session in lines(path)]


@pytest.mark.usefixtures("stored")
class TestWhat:
    def test_all_is_every_kind_and_the_archive_but_not_the_trash(
        self, hermes: Hermes, tmp_path: Path
    ) -> None:
        out = tmp_path / "all.jsonl"
        result = hermes("sessions", "export", str(out))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == f"Exported 6 sessions to {out}\n"
        assert ids(out) == ["job", "helper", "branch", "talk1", "talk2", "old"]
        assert out.stat().st_mode & 0o777 == 0o600

    def test_an_object_is_the_session_with_all_its_messages(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "all.jsonl"
        hermes("sessions", "export", str(out), "--session-id", "talk1")
        first, second = lines(out)
        assert (first["source"], first["title"], first["model"]) == (
            "cli",
            "日本語 plans",
            "vendor/big-model",
        )
        assert [row["content"] for row in first["messages"]] == ["hello 0", "hello 1", "hello 2"]
        assert [part["count"] for part in second["context"]] == [1, 2]
        assert "日本語" in out.read_text(encoding="utf-8")

    @pytest.mark.parametrize("name", ["talk1", "talk2", "tal", "日本語 plans", "日本語 plans #2"])
    def test_a_session_means_its_conversation(self, hermes: Hermes, tmp_path: Path, name: str) -> None:
        out = tmp_path / "one.jsonl"
        result = hermes("sessions", "export", str(out), "--session-id", name)
        if name == "tal":
            assert result.returncode == 1
            assert "could be any of these" in result.stderr
            return
        assert result.stdout == f"Exported 2 sessions to {out}\n"
        assert ids(out) == ["talk1", "talk2"]

    def test_a_segment_is_one_session(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "one.jsonl"
        result = hermes("sessions", "export", str(out), "--session-id", "talk1", "--segment")
        assert result.stdout == f"Exported 1 session to {out}\n"
        assert ids(out) == ["talk1"]

    def test_a_lineage_is_the_whole_family(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "family.jsonl"
        assert hermes("sessions", "export", str(out), "--session-id", "branch", "--lineage").returncode == 0
        assert sorted(ids(out)) == ["branch", "helper", "talk1", "talk2"]

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            (["--source", "cron"], ["job"]),
            (["--source", "cron", "--source", "telegram"], ["job", "old"]),
            (["--title", "PLANS"], ["branch", "talk1", "talk2"]),
            (["--model", "big", "--min-messages", "5"], ["talk1", "talk2"]),
            (["--max-messages", "1", "--source", "cli"], ["helper", "branch"]),
            (["--since", "2026-05"], ["job", "helper", "branch", "talk1", "talk2"]),
            (["--until", "2026-04"], ["old"]),
            (["--source", "slack"], []),
        ],
    )
    def test_filters(self, hermes: Hermes, tmp_path: Path, flags: list[str], expected: list[str]) -> None:
        out = tmp_path / "some.jsonl"
        assert hermes("sessions", "export", str(out), *flags).returncode == 0
        assert ids(out) == expected

    def test_older_than_goes_by_last_activity(self, hermes: Hermes, tmp_path: Path) -> None:
        days = (time.time() - T) / 86400 + 30
        out = tmp_path / "some.jsonl"
        assert hermes("sessions", "export", str(out), "--older-than", str(days)).returncode == 0
        assert ids(out) == ["old"]

    def test_only_messages_of_people(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "prompts.jsonl"
        assert (
            hermes(
                "sessions", "export", str(out), "--session-id", "talk2", "--only", "user-prompts"
            ).returncode
            == 0
        )
        (session,) = lines(out)
        assert [row["content"] for row in session["messages"]] == ["hello 0", "hello 1", "hello 2"]
        for form in ("md", "html", "trace"):
            result = hermes(
                "sessions", "export", "-", "--session-id", "talk2", "--only", "user-prompts", "--format", form
            )
            assert "hello 2" in result.stdout
            assert "the summary" not in result.stdout

    def test_redact_reports_its_patterns_and_what_it_masked(self, hermes: Hermes, tmp_path: Path) -> None:
        said = {
            "cards": "my password is hunter2, the card is 4539 5787 6362 1486",
            "none": "my password is wrong",
        }
        with SessionDB() as db:
            for name, text in said.items():
                db.create_session(name, "cli")
                db.append_message(name, "user", text)
        file = tmp_path / "out.md"
        done = hermes("sessions", "export", str(file), "--session-id", "cards", "--redact")
        assert done.stdout.splitlines()[1] == "Masked 2 secrets: 1 × card number, 1 × password"
        assert "my password is [redacted password], the card is [redacted card number]" in file.read_text()
        done = hermes("sessions", "export", str(file), "--session-id", "none", "--redact")
        assert done.stdout.splitlines()[-1] == "Masked no secrets: none of the known kinds was found"
        known = " ".join(hermes("sessions", "export", "--help").stdout.split())
        assert "--redact knows: private key," in known
        assert "card number." in known

    @pytest.mark.parametrize("form", ["jsonl", "md", "html"])
    def test_a_preview_contains_no_part_of_a_secret(self, hermes: Hermes, form: str) -> None:
        with SessionDB() as db:
            for number, secret in enumerate(("4111 1111 1111 1111", "sk-ant-api03-" + "aB3" * 20)):
                db.create_session(f"cut{number}", "cli")
                db.append_message(f"cut{number}", "user", f"{'please keep this for me ' * 2} {secret} thanks")
                assert secret[:5] in db.list_sessions_rich(limit=1)[0]["preview"]
        masked = hermes("sessions", "export", "-", "--format", form, "--redact").stdout
        assert "please keep this for me" in masked
        assert "4111" not in masked
        assert "sk-ant" not in masked

    @pytest.mark.parametrize("form", ["jsonl", "md", "html", "trace"])
    def test_secrets_are_masked_when_asked(self, hermes: Hermes, form: str) -> None:
        with SessionDB() as db:
            db.set_session_title("talk2", f"use {SECRET[:80]}")
        plain = hermes("sessions", "export", "-", "--format", form)
        assert SECRET in plain.stdout
        masked = hermes("sessions", "export", "-", "--format", form, "--redact")
        assert masked.returncode == 0
        assert SECRET[:60] not in masked.stdout
        assert "hello 0" in masked.stdout

    @pytest.mark.parametrize(
        "flags",
        [
            ["--segment"],
            ["--session-id", "talk1", "--source", "cli"],
            ["--session-id", "talk1", "--since", "2w"],
            ["--session-id", "talk1", "--segment", "--lineage"],
            ["--format", "pdf"],
            ["--only", "answers"],
        ],
    )
    def test_contradictory_options_are_wrong_usage(
        self, hermes: Hermes, tmp_path: Path, flags: list[str]
    ) -> None:
        out = tmp_path / "x.jsonl"
        result = hermes("sessions", "export", str(out), *flags)
        assert (result.returncode, result.stdout) == (2, "")
        assert not out.exists()

    def test_an_unknown_session_is_refused(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "x.jsonl"
        result = hermes("sessions", "export", str(out), "--session-id", "nobody")
        assert (result.returncode, result.stderr) == (1, "hermes: Session 'nobody' not found.\n")
        assert not out.exists()


@pytest.mark.usefixtures("stored")
class TestWhere:
    def test_stdout_contains_only_the_export(self, hermes: Hermes) -> None:
        result = hermes("sessions", "export", "-", "--session-id", "job")
        assert result.stderr == ""
        assert json.loads(result.stdout)["id"] == "job"

    @pytest.mark.parametrize(
        ("name", "start"),
        [("a.md", "# "), ("a.MARKDOWN", "# "), ("a.html", "<!doctype html>"), ("a.v1.2", "{"), ("a", "{")],
    )
    def test_the_ending_chooses_the_format(
        self, hermes: Hermes, tmp_path: Path, name: str, start: str
    ) -> None:
        assert hermes("sessions", "export", str(tmp_path / name)).returncode == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)

    @pytest.mark.parametrize("name", ["a.txt", "a.json", "a.jsonl.gz"])
    def test_an_ending_without_a_format_is_refused_unless_a_format_is_named(
        self, hermes: Hermes, tmp_path: Path, name: str
    ) -> None:
        refused = hermes("sessions", "export", str(tmp_path / name))
        assert refused.returncode == 2
        assert refused.stderr.startswith("hermes: no format has the suffix '.")
        assert refused.stderr.count("\n") == 1
        assert list(tmp_path.glob("a.*")) == []
        assert hermes("sessions", "export", str(tmp_path / name), "--format", "jsonl").returncode == 0
        (tmp_path / "folder.d").mkdir()
        assert hermes("sessions", "export", str(tmp_path / "folder.d")).returncode == 0

    def test_the_named_format_wins(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "a.md"
        assert hermes("sessions", "export", str(out), "--format", "trace").returncode == 0
        assert "parentUuid" in lines(out)[0]

    def test_a_file_is_replaced_only_when_forced(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "taken.jsonl"
        out.write_text("mine")
        refused = hermes("sessions", "export", str(out))
        assert refused.returncode == 1
        assert "--force" in refused.stderr
        assert out.read_text() == "mine"
        assert hermes("sessions", "export", str(out), "--force").returncode == 0
        assert len(lines(out)) == 6
        assert out.stat().st_mode & 0o777 == 0o600

    def test_the_store_is_never_replaced(self, hermes: Hermes, home: Path) -> None:
        result = hermes("sessions", "export", str(home / "state.db"), "--force")
        assert result.returncode == 1
        assert "the store itself" in result.stderr
        assert hermes("sessions", "verify").returncode == 0

    def test_devices_and_pipes_are_written_to_and_not_replaced(self, hermes: Hermes, tmp_path: Path) -> None:
        assert hermes("sessions", "export", "/dev/null", "--force").returncode == 0
        assert Path("/dev/null").is_char_device()
        result = hermes("sessions", "export", "/dev/stdout")
        assert (result.returncode, len(result.stdout.splitlines())) == (0, 7)

    def test_a_link_in_a_folder_is_not_followed_either(self, hermes: Hermes, tmp_path: Path) -> None:
        folder, victim = tmp_path / "out", tmp_path / "victim"
        folder.mkdir()
        victim.write_text("mine")
        (folder / "job.jsonl").symlink_to(victim)
        result = hermes("sessions", "export", str(folder), "--session-id", "job", "--force")
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert "symbolic link" in result.stderr
        assert victim.read_text() == "mine"

    @pytest.mark.parametrize(
        ("form", "name"), [("jsonl", "job.jsonl"), ("html", "job.html"), ("md", "job.md")]
    )
    def test_a_folder_gets_a_file_named_for_the_session(
        self, hermes: Hermes, tmp_path: Path, form: str, name: str
    ) -> None:
        folder = tmp_path / "out"
        folder.mkdir()
        result = hermes("sessions", "export", str(folder), "--session-id", "job", "--format", form)
        assert result.stdout == f"Exported 1 session to {folder / name}\n"
        assert [path.name for path in folder.iterdir()] == [name]

    def test_a_folder_gets_one_file_for_many_and_markdown_one_each(
        self, hermes: Hermes, tmp_path: Path
    ) -> None:
        folder, notes = tmp_path / "out", tmp_path / "notes"
        folder.mkdir()
        assert hermes("sessions", "export", str(folder)).returncode == 0
        (made,) = folder.iterdir()
        assert made.name.startswith("sessions_20")
        result = hermes("sessions", "export", f"{notes}/", "--format", "md")
        assert result.stdout == f"Exported 6 sessions to {notes}/\n"
        names = {path.name for path in notes.iterdir()}
        assert names == {
            "job.md",
            "helper.md",
            "old.md",
            "日本語-plans-2-talk2.md",
            "日本語-plans-2-2-branch.md",
        }
        again = hermes("sessions", "export", f"{notes}/", "--format", "md")
        assert again.stdout.splitlines()[1] == "Kept 5 previous exports, with ~ after their names"
        assert {path.name for path in notes.iterdir()} == names | {f"{name}~" for name in names}

    def test_a_title_cannot_leave_the_folder(self, hermes: Hermes, tmp_path: Path) -> None:
        with SessionDB() as db:
            db.create_session("../../../evil", "cli")
            db.set_session_title("../../../evil", "../../../../etc/passwd \x00 | rm -rf ~")
            db.append_message("../../../evil", "user", "x")
        folder = tmp_path / "a" / "b"
        folder.mkdir(parents=True)
        assert (
            hermes("sessions", "export", str(folder), "--format", "md", "--title", "passwd").returncode == 0
        )
        assert [path.name for path in folder.iterdir()] == ["etc-passwd-rm-rf-evil.md"]

    def test_a_folder_that_is_not_there_is_refused(self, hermes: Hermes, tmp_path: Path) -> None:
        result = hermes("sessions", "export", str(tmp_path / "no" / "x.jsonl"))
        assert (result.returncode, result.stderr) == (1, f"hermes: there is no folder {tmp_path / 'no'}\n")

    def test_a_dry_run_reports_and_writes_nothing(self, hermes: Hermes, tmp_path: Path) -> None:
        out = tmp_path / "all.jsonl"
        dry = hermes("sessions", "export", str(out), "--dry-run")
        assert dry.returncode == 0
        assert not out.exists()
        hermes("sessions", "export", str(out))
        size = f"{out.stat().st_size / 1000:.1f} kB"
        told = f"Would export 5 conversations (6 sessions, 9 messages), about {size}, to {out}\n"
        assert dry.stdout == told


def test_pictures_of_markdown_are_text_unless_they_are_asked_for(hermes: Hermes, db: SessionDB) -> None:
    picture = "![cat](https://x.example/cat.png)"
    db.create_session("a", "cli", started_at=T)
    db.append_message("a", "assistant", f"{picture} [click](javascript:alert(1))", timestamp=T)
    usual = hermes("sessions", "export", "-", "--format", "md").stdout
    assert "!&#91;cat&#93;(https://x.example/cat.png) &#91;click&#93;(javascript:alert(1))" in usual
    asked = hermes("sessions", "export", "-", "--format", "md", "--remote-images").stdout
    assert f"{picture} &#91;click&#93;(javascript" in asked
    wrong = hermes("sessions", "export", "-", "--remote-images")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--format md" in wrong.stderr


def test_without_a_store_there_is_nothing_to_export(hermes: Hermes, home: Path, tmp_path: Path) -> None:
    result = hermes("sessions", "export", str(tmp_path / "x.jsonl"))
    assert result.returncode == 1
    assert result.stderr.startswith("hermes: there is no store at ")
    assert not home.exists()


def test_a_line_is_a_line_for_every_program(hermes: Hermes, home: Path) -> None:
    with SessionDB() as db:
        db.create_session("a", "cli")
        db.append_message("a", "user", "a\u2028b\u2029c\x85d\x1ce\0f\ufeff\x9b31m")
    result = hermes("sessions", "export", "-")
    assert len(result.stdout.splitlines()) == 1
    assert json.loads(result.stdout)["messages"][0]["content"] == "a\u2028b\u2029c\x85d\x1ce\0f\ufeff\x9b31m"
    assert not set(result.stdout) & set("\x9b\x1b\0\ufeff")


@pytest.fixture
def large(home: Path) -> None:
    """Create so many sessions that an export takes long enough to be interrupted."""
    with SessionDB(durability="normal") as db:
        for number in range(25):
            db.create_session(f"s{number}", "cli", started_at=T + number)
            db.append_message(f"s{number}", "tool", f"{number} " + "x" * 1_000_000, timestamp=T + number)


@pytest.mark.usefixtures("large")
class TestBrokenOff:
    @pytest.mark.parametrize("output", ["all.jsonl", "notes/"])
    def test_an_interrupt_leaves_nothing_behind(self, tmp_path: Path, output: str) -> None:
        folder = tmp_path / "out"
        folder.mkdir()
        (folder / "notes").mkdir()
        out = f"{folder}/{output}"

        def files() -> list[Path]:
            return [path for path in folder.rglob("*") if path.is_file()]

        for _ in range(5):
            child = subprocess.Popen(
                [*UNWARNED, "sessions", "export", out, "--format", "md", "--force"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
            while child.poll() is None and not files():
                time.sleep(0.001)
            child.send_signal(signal.SIGINT)
            said, complained = child.communicate(timeout=30)
            # The interpreter ignores an interrupt that arrives while it cleans up after an import. The export
            # may also have ended before the interrupt.
            if child.returncode != 0 and "Exception ignored in" not in complained:
                break
            for path in files():
                path.unlink()
        assert (child.returncode, said, complained) == (130, "", "hermes: interrupted\n")
        assert files() == []

    def test_a_kill_leaves_the_earlier_export_and_the_next_one_replaces_it(
        self, hermes: Hermes, tmp_path: Path
    ) -> None:
        out = tmp_path / "out" / "all.jsonl"
        out.parent.mkdir()
        assert hermes("sessions", "export", str(out), "--session-id", "s1").returncode == 0
        before = out.read_bytes()

        def partials() -> list[Path]:
            return [path for path in out.parent.iterdir() if path != out and path.stat().st_size]

        child = subprocess.Popen([*COMMAND, "sessions", "export", str(out)])
        while child.poll() is None and not partials():
            time.sleep(0.001)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        assert out.read_bytes() == before
        assert hermes("sessions", "export", str(out)).returncode == 0
        assert len(ids(out)) == 25
        assert (tmp_path / "out" / "all.jsonl~").read_bytes() == before
        assert len(list(out.parent.iterdir())) == 2

    def test_a_full_disk_leaves_the_old_file(self, tmp_path: Path) -> None:
        out = tmp_path / "out" / "all.jsonl"
        out.parent.mkdir()
        out.write_text("old")

        def small_files_only() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))

        result = subprocess.run(
            [*COMMAND, "sessions", "export", str(out), "--force"],
            preexec_fn=small_files_only,
            capture_output=True,
            encoding="utf-8",
        )
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1
        assert out.read_text() == "old"
        assert [path.name for path in out.parent.iterdir()] == ["all.jsonl"]

    def test_a_closed_pipe_is_not_an_error(self) -> None:
        command = " ".join(COMMAND)
        result = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command} sessions export - | head -c 10"],
            capture_output=True,
            encoding="utf-8",
        )
        assert (result.returncode, result.stdout, result.stderr) == (0, '{"id":"s24', "")

    def test_memory_does_not_grow_with_the_store(self, tmp_path: Path) -> None:
        program = (  # getrusage includes the memory of the parent process
            "import sys; from hermes.cli.main import main; code = main(sys.argv[1:]);"
            "print(code, *[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
        )
        for form in ("jsonl", "md", "html", "trace"):
            command = [
                sys.executable,
                "-c",
                program,
                "sessions",
                "export",
                str(tmp_path / form),
                "--format",
                form,
            ]
            done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
            code, peak = done.stdout.splitlines()[-1].split()
            assert code == "0"
            assert (tmp_path / form).stat().st_size > 25_000_000
            assert int(peak) < 75_000  # in kB: the interpreter, and a session of 1 MB in several forms

    def test_progress_is_shown_on_a_terminal_and_removed(self, tmp_path: Path) -> None:
        ours, theirs = pty.openpty()
        words = ["sessions", "export", str(tmp_path / "x.html")]
        with subprocess.Popen(
            [*COMMAND, *words], stderr=theirs, stdout=subprocess.PIPE, encoding="utf-8"
        ) as child:
            shown = read_output(child, ours, theirs).decode()
            assert child.stdout is not None
            assert child.stdout.read() == f"Exported 25 sessions to {tmp_path / 'x.html'}\n"
        assert "Exporting █" in shown
        assert shown.endswith(" \r")
