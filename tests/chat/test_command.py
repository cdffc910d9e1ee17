"""The chat as part of the `hermes` command: names of several words without shell quotes, single questions,
errors and exit codes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.cli.io.command_line import insert_chat_command
from hermes.cli.main import COMMANDS
from hermes_state import SessionDB
from tests import warm_command
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-W", "error", "-m", "tests.chat.echo")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hermes() -> Run:
    def run(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return warm_command.run(
            words, stdin=stdin, environment=environment, cwd=ROOT, module="tests.chat.echo"
        )

    return run


# Names without quotes


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("", "chat"),
        ("-c", "chat -c"),
        ("--continue", "chat --continue"),
        ("-c Pokemon Agent Dev", "chat|--continue=Pokemon Agent Dev"),
        ("chat -c my project --model x", "chat|--continue=my project|--model|x"),
        ("-r 20250305_091523", "chat|--resume=20250305_091523"),
        ("--resume refactoring auth -q what", "chat|--resume=refactoring auth|-q|what"),
        ("-c my project chat", "chat|--continue=my project"),
        ("-c chat", "chat -c"),
        ("-q hello", "chat -q hello"),
        ("sessions list -c", "sessions list -c"),
        ("-c my sessions list", "sessions|list|--continue=my"),
        ("--version", "--version"),
        ("--help", "--help"),
        ("nonsense -c x", "chat|nonsense|--continue=x"),
        ("-c my project -- what next", "chat|--continue=my project|--|what|next"),
    ],
)
def test_words_behind_a_flag_are_one_name(typed: str, read: str) -> None:
    assert insert_chat_command(typed.split(), COMMANDS) == (read.split("|") if "|" in read else read.split())


words = st.text(alphabet="abcXYZ09_", min_size=1, max_size=6).filter(lambda word: word not in COMMANDS)


@given(st.sampled_from(["-c", "--continue", "-r", "--resume"]), st.lists(words, min_size=1), st.booleans())
def test_a_name_is_whole_until_a_flag(flag: str, name: list[str], with_command: bool) -> None:
    long = "--continue" if flag in ("-c", "--continue") else "--resume"
    typed = [*(["chat"] if with_command else []), flag, *name, "--model", "m"]
    assert insert_chat_command(typed, COMMANDS) == ["chat", f"{long}={' '.join(name)}", "--model", "m"]


# Single questions


def test_the_answer_is_all_that_goes_to_stdout(hermes: Run, db: SessionDB) -> None:
    done = hermes("-q", "use shout hello")
    assert (done.returncode, done.stdout) == (0, "the tool said: HELLO\n")
    (row,) = db.search_sessions()
    assert done.stderr == f"hermes: shout hello\nsession_id: {row['id']}\n"
    assert (row["source"], row["end_reason"], row["message_count"]) == ("cli", "cli_close", 4)


def test_the_json_output_has_the_session_and_the_usage(hermes: Run, db: SessionDB) -> None:
    done = hermes("chat", "-q", "hello", "--json", "--source", "tool", "--model", "big")
    (row,) = db.search_sessions()
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told.pop("usage") == {
        "input_tokens": 2,
        "output_tokens": 3,
        "cache_read_tokens": None,
        "cache_write_tokens": None,
        "reasoning_tokens": None,
        "cost_usd": 0.01,
    }
    assert told == {"answer": "you said: hello", "session_id": row["id"], "model": "big"}
    assert (row["source"], row["model"]) == ("tool", "big")


def test_piped_text_follows_the_question(hermes: Run) -> None:
    assert hermes("-q", "sum up", stdin="a\nb\n").stdout == "you said: sum up\n\na\nb\n"
    assert hermes(stdin="only piped\n").stdout == "you said: only piped\n"


def test_only_a_flag_attaches_a_file_to_a_question(hermes: Run, db: SessionDB, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk")
    (tmp_path / "link").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "a.bin").write_bytes(b"\0")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    here = ("--in", str(tmp_path))
    for words in (("-q", "see @notes.txt"), ("see @notes.txt",)):
        done = hermes(*here, *words)
        assert done.stdout == "you said: see @notes.txt\n"
        assert "hermes: Not attached: @notes.txt. Use -a FILE to attach a file.\n" in done.stderr
    names = [str(tmp_path / name) for name in ("notes.txt", "link", "cat.png")]
    done = hermes("-q", "see", "-a", names[0], "--attach", names[1], "-a", names[2])
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "Attached" in line] == [
        f"hermes: Attached {names[0]} (1 line, 4 bytes).",
        f"hermes: Attached {names[1]} (1 line, 4 bytes).",
        f"hermes: Attached {names[2]} (PNG picture, 8 bytes).",
    ]
    (row,) = db.list_sessions_rich(limit=1)
    text, picture = db.get_messages(row["id"])[0]["content"]
    assert text["text"].startswith(f"see\n\n[file {names[0]}]\n```\nmilk\n```\n\n[file {names[1]}]")
    assert picture["type"] == "image_url"
    assert row["preview"] == "see"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("note.txt", "there is no file '{0}/note.txt'; did you mean '{0}/notes.txt'?"),
        ("", "{0}/ is a folder, so it cannot be attached"),
        ("a.bin", "{0}/a.bin is not a text file (2 bytes), so it cannot be attached"),
    ],
)
def test_a_file_that_cannot_be_attached_to_a_question_is_refused(
    hermes: Run, db: SessionDB, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "notes.txt").write_text("milk")
    (tmp_path / "a.bin").write_bytes(b"\0\0")
    done = hermes("-q", "see", "-a", f"{tmp_path}/{name}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hermes: {why.format(tmp_path)}\n"
    assert db.search_sessions() == []


@pytest.mark.parametrize(
    ("words", "piped", "question"),
    [
        (("what is this?",), "", "what is this?"),
        (("explain", "this", "error"), "", "explain this error"),
        (("what", "is", "that"), "", "what is that"),
        (("sum up",), "a\nb\n", "sum up\n\na\nb"),
        (("why?",), "", "why?"),
        (("桂林在哪里",), "", "桂林在哪里"),
        (("hello there", "--model", "big"), "", "hello there"),
        (("--incognito", "hello there"), "", "hello there"),
        (("chat", "hello"), "", "hello"),
        (("--", "sessions"), "", "sessions"),
        (("-q", "-"), "from stdin\n", "from stdin"),
        (("-",), "from stdin\n", "from stdin"),
    ],
)
def test_a_question_needs_no_flag(hermes: Run, words: tuple[str, ...], piped: str, question: str) -> None:
    done = hermes(*words, stdin=piped)
    assert (done.returncode, done.stdout) == (0, f"you said: {question}\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("sesions",), "; did you mean 'sessions'? To ask the agent, use: hermes -q sesions"),
        (("sesions", "list"), "; did you mean 'sessions'? To ask the agent, put the question in quotes"),
        (("serach", "retry", "budget"), "; did you mean 'search'?"),
        (("Doctor", "--deep"), "; did you mean 'doctor'?"),
        (("list",), "; did you mean 'sessions list'?"),
        (("delete", "my", "project"), "; did you mean 'sessions delete'?"),
        (("hello",), ". To ask the agent, use: hermes -q hello"),
    ],
)
def test_a_mistyped_command_is_not_a_question(
    hermes: Run, home: Path, words: tuple[str, ...], meant: str
) -> None:
    done = hermes(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hermes: there is no command '{words[0]}'{meant}")
    assert done.stderr.count("\n") == 1
    assert not home.exists()


def test_flags_before_a_command_are_not_a_question(hermes: Run) -> None:
    done = hermes("-m", "big", "sessions", "list")
    assert done.returncode == 2
    assert "must follow the command: hermes sessions list" in done.stderr


def test_in_a_terminal_a_question_opens_the_chat(home: Path) -> None:
    with Terminal([*COMMAND, "what is this?"]) as terminal:
        terminal.answer()
        terminal.sees("❯ what is this?", "you said: what is this?")
        terminal.sees_behind("you said", "❯ ")
        terminal.types("again\r")
        terminal.sees("you said: again")
        terminal.types("\x04")
        assert terminal.ends() == 0
    with SessionDB(home / "state.db") as store:
        (row,) = store.search_sessions()
        assert row["message_count"] == 4


def test_a_question_that_is_too_large_is_one_line_and_exit_1(hermes: Run, db: SessionDB) -> None:
    done = hermes("-q", "sum up", stdin="word " * 150_000)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("hermes: the message is too large: about 187,5")
    assert (
        "not sent. Save it as a file and ask about the file, shorten it, or use -m with a model with" in line
    )
    assert db.search_sessions() == []


def test_a_silent_pipe_is_reported_and_waited_for(home: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "-q", "sum up"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as asking:
        assert asking.stdin
        assert asking.stdout
        assert asking.stderr
        assert asking.stderr.readline().startswith("hermes: waiting for stdin")
        asking.stdin.write("late")
        asking.stdin.close()
        assert asking.stdout.read() == "you said: sum up\n\nlate\n"


def test_a_question_can_continue_a_conversation(hermes: Run, db: SessionDB) -> None:
    first = hermes("-q", "one")
    (row,) = db.search_sessions()
    db.set_session_title(row["id"], "my project")
    for words in (
        ("-c",),
        ("-c", "my", "project"),
        ("-r", "latest"),
        ("-r", row["id"][:-2]),
        ("chat", "-c", "my proj"),
    ):
        assert hermes(*words, "-q", "context").returncode == 0
    assert hermes("-c", "-q", "context").stdout == "14 messages\n"
    assert len(db.search_sessions()) == 1
    assert first.returncode == 0


def test_a_failure_is_one_line_and_exit_1(hermes: Run, db: SessionDB) -> None:
    done = hermes("-q", "fail")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "hermes: nobody answers at http://localhost:1"
    assert hermes("-q", "x", "--model", "missing").stderr == "hermes: there is no model 'missing'\n"
    assert [message["content"] for message in db.get_messages(db.search_sessions()[0]["id"])] == ["fail"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("-c",), "No previous CLI session found to continue."),
        (("--continue",), "No previous CLI session found to continue."),
        (("-c", "my", "project"), "No session found matching 'my project'."),
        (("-r", "20250305_091523_a1b2c3d4"), "Session not found: 20250305_091523_a1b2c3d4"),
        (("--in", "/no/such/place"), "there is no directory '/no/such/place'"),
    ],
)
def test_a_missing_conversation_is_one_line_and_exit_1(
    hermes: Run, typed: tuple[str, ...], told: str
) -> None:
    done = hermes(*typed, "-q", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == f"hermes: {told}"


@pytest.mark.parametrize("asked", [("-q", "hello"), ()])
def test_an_ambiguous_name_lists_the_conversations(
    hermes: Run, db: SessionDB, asked: tuple[str, ...]
) -> None:
    for name in ("alpha", "alpine"):
        db.create_session(f"id_{name}", "cli")
        db.append_message(f"id_{name}", "user", "x")
        db.set_session_title(f"id_{name}", name)
    done = hermes("-c", "alp", *asked)
    assert done.returncode == 1
    first, *candidates = done.stderr.splitlines()
    assert first == "hermes: 'alp' could be any of these:"
    assert sorted(line.split()[0] for line in candidates) == ["id_alpha", "id_alpine"]


def test_here_is_the_last_conversation_of_this_project(hermes: Run, db: SessionDB, tmp_path: Path) -> None:
    inside = tmp_path / "project" / "sub"
    inside.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    hermes("--in", str(inside), "-q", "in the project")
    hermes("--in", str(tmp_path), "-q", "elsewhere")
    done = hermes("-c", "--here", "--in", str(tmp_path / "project"), "-q", "again", "--json")
    session = db.get_session(json.loads(done.stdout)["session_id"])
    assert session is not None
    assert (session["workspace"], session["cwd"]) == (str(tmp_path / "project"), str(tmp_path / "project"))
    assert db.get_messages(session["id"])[0]["content"] == "in the project"
    (tmp_path / "nothing").mkdir()
    assert hermes("-c", "--here", "--in", str(tmp_path / "nothing"), "-q", "x").returncode == 1


@pytest.mark.parametrize(
    "typed",
    [
        ("--here", "-q", "x"),
        ("-c", "name", "--here", "-q", "x"),
        ("--incognito", "-c", "-q", "x"),
        ("-c", "one", "-r", "other", "-q", "x"),
        ("-r", "other", "-c", "-q", "x"),
        ("--json",),
        ("-q", " "),
        ("",),
        ("-q", "-"),
        ("a question", "-q", "another"),
        ("-m",),
    ],
)
def test_wrong_usage_is_exit_2(hermes: Run, typed: tuple[str, ...]) -> None:
    done = hermes(*typed)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hermes: ")


def test_without_a_terminal_the_chat_says_what_to_do(hermes: Run, home: Path) -> None:
    done = hermes("chat")
    assert (done.returncode, done.stdout) == (1, "")
    assert "use -q to ask one question" in done.stderr
    assert not home.exists()


def test_a_conversation_in_use_is_not_changed(hermes: Run, db: SessionDB) -> None:
    db.create_session("shared", "cli")
    db.append_message("shared", "user", "x")
    lease = db.leases.acquire("shared", "terminal")
    done = hermes("-r", "shared", "-q", "hello")
    assert done.returncode == 1
    assert f"terminal (process {os.getpid()} on" in done.stderr
    assert db.message_count("shared") == 1
    db.leases.release(lease)


@pytest.mark.parametrize("with_store", [True, False])
def test_an_incognito_question_writes_nothing(hermes: Run, home: Path, with_store: bool) -> None:
    if with_store:
        with SessionDB() as store:
            store.create_session("one", "cli")

    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}

    before = everything()
    done = hermes("--incognito", "-q", "hello secret", "--json")
    assert json.loads(done.stdout)["answer"] == "you said: hello secret"
    assert json.loads(done.stdout)["session_id"] is None
    assert everything() == before


# Starting


def test_slow_modules_are_not_imported_before_the_first_prompt() -> None:
    program = (
        "import sys, hermes.cli.chat, hermes.chat.terminal_loop, hermes.chat.input.prompt_line,"
        " hermes.chat.view.screen, hermes.chat.input.prompt_line, hermes.conversation.local_conversation,"
        " hermes.agent.factory\n"
        "hermes.agent.factory.make_standard_components()\n"
        "print({'openai', 'httpx2', 'pydantic', 'rich.markdown', 'markdown_it'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_shell_completes_names_behind_the_flags(hermes: Run, db: SessionDB) -> None:
    db.create_session("20250305_091523_a1b2c3d4", "cli")
    db.set_session_title("20250305_091523_a1b2c3d4", "my project")
    for typed in (("-c", "my"), ("chat", "-r", "2025"), ("-q", "x", "--resume", "my")):
        assert "20250305_091523_a1b2c3d4" in hermes("completion", "words", "--", *typed).stdout
    assert "--incognito" in hermes("completion", "words", "--", "chat", "--inc").stdout
