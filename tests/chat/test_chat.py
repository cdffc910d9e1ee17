"""The chat in an invisible terminal: its input, its output and the sessions that it stores."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from hermes.agent.agent import Agent
from hermes.agent.events import Event, Moved
from hermes.agent.models.finish_reasons import CUT_AT_LENGTH, NO_ANSWER_WITHIN_LENGTH, NOTHING_BUT_REASONING
from hermes.agent.models.model import NoSuchModel, Used
from hermes.agent.tool import ToolContext
from hermes.agent.transcript import Record
from hermes.chat import lease_conflict
from hermes.chat.commands.table import load_commands
from hermes.config import config_file
from hermes.conversation.commands.wording import format_cost
from hermes.db.session_db import AnyStore
from hermes.export.export_recognition import MARKDOWN_MARK
from hermes.logs import get_logger
from hermes.store.reports.usage import UsageLine
from hermes_state import SessionDB
from tests.chat.conftest import DOWN, ENTER, INTERRUPT, LEAVE, NEW_LINE, SEEN, Typing
from tests.chat.echo import PARTS, EchoModel, make_roomy
from tests.survival.processes import impatient
from tests.survival.test_spool import locked

Row = dict[str, Any]
YES, ALWAYS, NO = SEEN + "y", SEEN + "a", SEEN + "n"


def sessions(db: SessionDB) -> list[Row]:
    return db.search_sessions()


def only(db: SessionDB) -> Row:
    (row,) = sessions(db)
    return row


def said(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id) if row["role"] == "user"]


def live(db: SessionDB, session_id: str) -> list[Any]:
    return [row["content"] for row in db.get_context(session_id) if row["role"] == "user"]


# Beginning and leaving


async def test_a_conversation_is_stored_and_leaving_shows_how_to_resume_it(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    shown = await typing("hello", "again")
    row = only(db)
    assert said(db, row["id"]) == ["hello", "again"]
    assert (row["source"], row["model"], row["end_reason"]) == ("cli", "echo", "cli_close")
    session = db.get_session(row["id"])
    assert session is not None
    assert (session["cwd"], session["workspace"], session["system_prompt"]) == (
        str(tmp_path),
        str(tmp_path),
        "Repeat.",
    )
    assert json.loads(session["process"])["pid"] > 0
    assert "you said: hello\n" in shown
    assert "echo · 2 in · 3 out · $0.01" in shown
    assert f"Resume this session with:\n  hermes --resume {row['id']}\n\nSession:  {row['id']}\n" in shown
    assert "Messages: 4 (2 user, 0 tool calls)" in shown
    assert db.leases.find_holder(row["id"]) is None


async def test_a_conversation_without_messages_is_not_stored(db: SessionDB, typing: Typing) -> None:
    shown = await typing(
        "", "/title a name", "/status", "/help", "/model", "/history", "/retry", "/undo", "/branch"
    )
    assert sessions(db) == []
    assert "Goodbye." in shown


async def test_two_interrupts_at_an_empty_prompt_leave(db: SessionDB, typing: Typing) -> None:
    shown = await typing("hello", keys=f"typed{INTERRUPT}{INTERRUPT}{INTERRUPT}never said{ENTER}")
    assert "Press Ctrl-C again" in shown
    assert said(db, only(db)["id"]) == ["hello"]


async def test_several_lines_are_one_message(db: SessionDB, typing: Typing) -> None:
    await typing(f"one{NEW_LINE}two")
    assert said(db, only(db)["id"]) == ["one\ntwo"]


async def test_a_pasted_megabyte_is_one_message(db: SessionDB, typing: Typing) -> None:
    long = "\n".join(["word " * 20] * 10_000)
    await typing(f"see \x1b[200~{long}\x1b[201~ and tell", parts=make_roomy(1_000_000))
    assert said(db, only(db)["id"]) == [f"see {long} and tell"]


async def test_the_input_history_is_private(db: SessionDB, typing: Typing, home: Path) -> None:
    await typing("hello")
    file = home / "chat_history"
    assert "hello" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    await typing("\x1b[A\x1b[A")
    assert said(db, sessions(db)[0]["id"]) == ["hello"]


async def test_an_unknown_command_is_not_sent_to_the_model(db: SessionDB, typing: Typing) -> None:
    shown = await typing("/nonsense", "/re")
    assert "There is no /nonsense. /help lists the commands." in shown
    assert "There is no /re. Did you mean /reset, /resume, /redo, /rewind, /retry" in shown
    assert sessions(db) == []


async def test_a_tool_call_is_shown_with_its_arguments(typing: Typing) -> None:
    shown = await typing("use shout good day", "use shout break")
    assert "✓ shout good day  0.0s" in shown
    assert "the tool said: GOOD DAY" in shown
    assert "✗ shout break  0.0s\n  │ error: it would not" in shown


async def test_a_tool_that_asks_waits_for_the_person(typing: Typing) -> None:
    shown = await typing(
        "use shout may I",
        keys=f"{YES}use shout may I{ENTER}{NO}",
    )
    assert [line for line in shown.splitlines() if line.startswith("the tool")] == [
        "the tool said: allowed",
        "the tool said: refused",
    ]
    assert shown.count("rm -rf /\n") == 2


async def test_an_approval_question_shows_the_whole_command(typing: Typing) -> None:
    paste = "\x1b[200~use shout may I \x1b]0;; rm -rf ~ #\x07\x1b[201~"
    shown = await typing(paste, keys=YES)
    assert "\nrm -rf / ⟨U+001B⟩]0;; rm -rf ~ #⟨U+0007⟩\n" in shown


async def test_a_failure_is_reported_and_the_message_is_kept(db: SessionDB, typing: Typing) -> None:
    shown = await typing("fail", "hello")
    assert "✗ nobody answers at http://localhost:1" in shown
    assert said(db, only(db)["id"]) == ["fail", "hello"]


async def test_an_internal_error_does_not_end_the_conversation(db: SessionDB, typing: Typing) -> None:
    shown = await typing("break", "hello")
    assert "unexpected ZeroDivisionError: a mistake of ours" in shown
    assert said(db, only(db)["id"]) == ["break", "hello"]


async def test_without_a_model_the_reason_is_shown_and_nothing_is_stored(
    db: SessionDB, typing: Typing
) -> None:
    def no_model(*_: object) -> Any:
        from hermes.agent.models.model import NotAuthorized

        raise NotAuthorized("no key is set")

    shown = await typing("hello", keys=INTERRUPT, parts=PARTS._replace(make_model=no_model))
    assert "no key is set" in shown
    assert sessions(db) == []


# Titles


async def test_a_title_before_the_first_message_is_queued_and_applied(db: SessionDB, typing: Typing) -> None:
    shown = await typing("/title my research", "/title", "hello", "/title")
    assert "Session title queued: my research (will be saved on first message)" in shown
    assert "Session title set: my research" in shown
    assert only(db)["title"] == "my research"
    assert 'hermes -c "my research"' in shown


async def test_a_title_is_set_changed_and_unique(db: SessionDB, typing: Typing) -> None:
    db.create_session("other", "cli")
    db.set_session_title("other", "taken")
    shown = await typing("/title taken", "hello", "/title mine", "/title taken", "/title " + "x" * 101)
    assert shown.count("Title 'taken' is already in use by session other") == 2
    assert "Title too long (101 chars, max 100)" in shown
    assert db.get_session_title(sessions(db)[0]["id"]) == "mine"


async def test_an_automatic_title_is_made_once_after_the_first_exchange(
    db: SessionDB, typing: Typing
) -> None:
    asked: list[str] = []

    async def make_title(store: AnyStore, session_id: str) -> str | None:
        asked.append(session_id)
        return store.set_auto_title_if_empty(session_id, "A good title")

    await typing("hello", "slow 1", "slow 1", parts=PARTS._replace(make_title=make_title))
    row = only(db)
    assert asked == [row["id"]]
    assert row["title"] == "A good title"


# Switching conversations


async def test_new_ends_the_old_one_and_titles_the_next(db: SessionDB, typing: Typing) -> None:
    await typing("one", "/new second", keys=f"{YES}two{ENTER}")
    second, first = sessions(db)
    assert (first["end_reason"], second["end_reason"], second["title"]) == (
        "new_session",
        "cli_close",
        "second",
    )
    assert said(db, second["id"]) == ["two"]


async def test_new_can_be_cancelled(db: SessionDB, typing: Typing) -> None:
    await typing("one", "/reset", keys=f"{NO}two{ENTER}")
    assert said(db, only(db)["id"]) == ["one", "two"]


async def test_the_answer_always_is_stored_as_a_setting(db: SessionDB, typing: Typing, home: Path) -> None:
    parts = PARTS._replace(keep_setting=config_file.change)
    await typing("one", "/clear", keys=f"{ALWAYS}two{ENTER}/new{ENTER}three{ENTER}", parts=parts)
    assert len(sessions(db)) == 3
    assert "destructive_slash_confirm: false" in (home / "config.yaml").read_text()


async def test_memory_is_saved_before_a_conversation_ends(db: SessionDB, typing: Typing) -> None:
    saved: list[str] = []

    async def save(agent: Agent, least: int = 1) -> bool:
        saved.append(agent.record.session_id)
        return True

    await typing("/new", "one", "/new", keys=f"{YES}slow 1{ENTER}", parts=PARTS._replace(save=save))
    assert saved == [sessions(db)[-1]["id"]]


async def test_resume_by_title_by_number_and_by_any_id(db: SessionDB, typing: Typing) -> None:
    for name in ("alpha", "beta"):
        db.create_session(f"id_{name}", "cli", started_at=1000.0)
        db.append_message(f"id_{name}", "user", f"about {name}", timestamp=1000.0)
        db.set_session_title(f"id_{name}", name)
        db.end_session(f"id_{name}", "cli_close")
    shown = await typing(
        "mine", "/resume alpha", "in alpha", "/resume id_al", "/sessions about b", "/resume 1", "in beta"
    )
    assert said(db, "id_alpha") == ["about alpha", "in alpha"]
    assert said(db, "id_beta") == ["about beta", "in beta"]
    assert "Already on that session." in shown
    assert '↻ Resumed session id_alpha "alpha" (1 user message, 1 total messages)' in shown
    assert "● You: about alpha" in shown
    ended = {row["id"]: row["end_reason"] for row in sessions(db)}
    assert ended.pop("id_alpha") == "resumed_other"
    assert ended.pop("id_beta") == "cli_close"
    assert list(ended.values()) == ["resumed_other"]


async def test_resume_latest_is_a_conversation_of_this_terminal(db: SessionDB, typing: Typing) -> None:
    for name, source in (("mine", "cli"), ("somebodys", "telegram")):
        db.create_session(name, source)
        db.append_message(name, "user", f"hello from {source}")
    shown = await typing("/resume latest")
    assert "Resumed session mine" in shown


async def test_resume_offers_similar_conversations(db: SessionDB, typing: Typing) -> None:
    for name in ("alpha", "alpine"):
        db.create_session(f"id_{name}", "cli")
        db.append_message(f"id_{name}", "user", "hello")
        db.set_session_title(f"id_{name}", name)
    shown = await typing("/resume alp", keys=f"{SEEN}{ENTER}/status{ENTER}/resume nothing{ENTER}")
    assert "Resumed session id_al" in shown
    assert "There is no such conversation. /sessions shows yours." in shown


async def test_viewing_a_conversation_changes_nothing(db: SessionDB, typing: Typing) -> None:
    db.create_session("one", "cli")
    db.append_message("one", "user", "hello", timestamp=1000.0)
    db.end_session("one", "branched")
    before = db.get_session("one")
    await typing("/history", "/status", resuming="one")
    assert {**(before or {}), "lease_epoch": 0} == {**(db.get_session("one") or {}), "lease_epoch": 0}
    row = only(db)
    assert (row["end_reason"], row["last_active"]) == ("branched", 1000.0)


async def test_a_branch_copies_nothing_and_leaves_the_old_one(db: SessionDB, typing: Typing) -> None:
    shown = await typing("/title trunk", "one", "/branch twig", "two", "context")
    twig, trunk = sessions(db)
    assert (trunk["title"], trunk["end_reason"], twig["title"]) == ("trunk", "branched", "twig")
    assert said(db, trunk["id"]) == ["one"]
    assert said(db, twig["id"]) == ["two", "context"]
    assert live(db, twig["id"]) == ["one", "two", "context"]
    assert "6 messages" in shown


# Undo and redo


async def test_undo_is_stored_fills_the_prompt_and_can_be_redone(db: SessionDB, typing: Typing) -> None:
    shown = await typing("one", "two", "/undo", keys=f"{YES}{LEAVE}{INTERRUPT}")
    row = only(db)
    assert live(db, row["id"]) == ["one"]
    assert " (2 messages). /redo brings it back." in shown
    await typing("/rewind undo", resuming=row["id"])
    assert live(db, row["id"]) == ["one", "two"]


async def test_an_undone_message_can_be_sent_again(db: SessionDB, typing: Typing) -> None:
    await typing("one", "two", "/undo", keys=f"{YES} more{ENTER}")
    assert live(db, only(db)["id"]) == ["one", "two more"]


async def test_an_undo_of_several_exchanges_is_redone_at_once(db: SessionDB, typing: Typing) -> None:
    await typing(
        "one", "two", "three", "/undo 2", keys=f"{YES}{INTERRUPT}/undo{ENTER}{YES}{INTERRUPT}/history{ENTER}"
    )
    row = only(db)
    assert live(db, row["id"]) == []
    await typing("/rewind undo", resuming=row["id"])
    assert live(db, row["id"]) == ["one", "two", "three"]


async def test_redo_restores_only_the_last_undo(db: SessionDB, typing: Typing) -> None:
    keys = f"{YES}{INTERRUPT}three{ENTER}/undo{ENTER}{YES}{INTERRUPT}/redo{ENTER}"
    await typing("one", "two", "/undo", keys=keys)
    assert live(db, only(db)["id"]) == ["one", "three"]


async def test_a_new_start_can_be_undone_before_the_first_message(db: SessionDB, typing: Typing) -> None:
    shown = await typing("one", "/new other", keys=f"{YES}/undo{ENTER}two{ENTER}")
    assert "The new start is undone." in shown
    row = only(db)
    assert live(db, row["id"]) == ["one", "two"]
    assert (row["title"], row["end_reason"]) == (None, "cli_close")


async def test_a_new_start_is_undone_while_the_old_conversation_is_still_being_saved(
    db: SessionDB, typing: Typing
) -> None:
    async def save(agent: Agent, least: int = 1) -> bool:
        await asyncio.sleep(60)
        return True

    keys = f"{YES}/undo{ENTER}two{ENTER}slow 1{ENTER}"
    await typing("one", "/new", keys=keys, parts=PARTS._replace(save=save))
    row = only(db)
    assert live(db, row["id"]) == ["one", "two", "slow 1"]
    assert db.leases.find_holder(row["id"]) is None


async def test_a_new_start_is_linked_to_the_previous_conversation(db: SessionDB, typing: Typing) -> None:
    await typing("/title Rome", "one", "/new Rome", keys=f"{YES}two{ENTER}")
    second, first = (db.get_session(row["id"]) for row in sessions(db))
    assert first is not None
    assert second is not None
    assert (second["relation"], second["parent_session_id"]) == ("reset", first["id"])
    assert (second["title"], second["cwd"]) == ("Rome (2)", first["cwd"])


async def test_the_last_answer_is_shown_again(typing: Typing) -> None:
    assert (await typing("one", "/resend")).count("you said: one") == 2


async def test_redo_is_not_possible_after_another_message(db: SessionDB, typing: Typing) -> None:
    shown = await typing("one", "two", "/undo", keys=f"{YES}{INTERRUPT}three{ENTER}/rewind undo{ENTER}")
    assert live(db, only(db)["id"]) == ["one", "three"]
    assert "There is nothing to bring back" in shown


async def test_rewind_to_a_message_that_is_chosen(db: SessionDB, typing: Typing) -> None:
    await typing("one", "two", "three", "/rewind", keys=f"{SEEN}{DOWN}{ENTER}{INTERRUPT}")
    assert live(db, only(db)["id"]) == ["one"]
    await typing("/rewind undo", "/rewind 3", keys=f"{YES}{INTERRUPT}", resuming=only(db)["id"])
    assert live(db, only(db)["id"]) == []


async def test_retry_asks_again_and_keeps_what_was_answered_before(db: SessionDB, typing: Typing) -> None:
    await typing("one", "/retry")
    row = only(db)
    assert live(db, row["id"]) == ["one"]
    assert db.message_count(row["id"]) == 2
    assert [message["content"] for message in db.get_context(row["id"])] == ["one", "you said: one"]


async def test_retry_of_an_unanswered_message_stores_it_once(db: SessionDB, typing: Typing) -> None:
    db.create_session("one", "cli")
    db.append_message("one", "user", "hello")
    shown = await typing("/retry", resuming="one")
    assert "you said: hello" in shown
    assert said(db, "one") == ["hello"]


class InterruptedInTheMiddle(SessionDB):
    """A store that simulates Ctrl-C immediately after it has recorded the request for a handoff."""

    def request_handoff(self, session_id: str, platform: str) -> bool:
        done = super().request_handoff(session_id, platform)
        os.kill(os.getpid(), signal.SIGINT)
        return done


async def test_a_handoff_can_be_cancelled_as_soon_as_it_is_requested(db: SessionDB, typing: Typing) -> None:
    parts = PARTS._replace(platforms=lambda: ["telegram"])
    with InterruptedInTheMiddle(db.db_path) as store:
        shown = await typing("one", "/handoff telegram", "two", store=store, parts=parts)
    assert "Not handed over: cancelled at the terminal" in shown
    assert said(db, only(db)["id"]) == ["one", "two"]


async def test_an_interrupt_with_nothing_to_stop_does_not_end_the_conversation(
    db: SessionDB, typing: Typing
) -> None:
    """The answer can end just before the person presses Ctrl-C. There is then nothing to stop."""

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    shown = await typing("one", "/handoff telegram", "two", parts=PARTS._replace(platforms=interrupted))
    assert "Nothing to stop here; the third Ctrl-C exits." in shown
    assert said(db, only(db)["id"]) == ["one", "two"]


# Inspection


async def test_the_help_names_every_command(typing: Typing) -> None:
    shown = await typing("/help")
    assert [name for name in load_commands() if f"/{name}" not in shown] == []
    wanted = (
        "help new clear handoff title resume sessions search branch rewind undo redo retry resend compress history"
        " save status usage insights model memory skills agents stop quit output reasoning diff"
    )
    assert sorted(load_commands()) == sorted(wanted.split())


async def test_the_help_of_one_command(typing: Typing) -> None:
    shown = await typing("/help insights", "/help /undo")
    assert re.search(r"/insights .*\n +usage of the last 30 days", shown)
    assert re.search(r"/undo \[n\]  take back the last exchange", shown)
    assert "/redo " not in shown


async def test_the_help_of_an_unknown_command_is_a_suggestion(typing: Typing) -> None:
    shown = await typing("/help undoo", "/help nonsense")
    assert "There is no /undoo. Did you mean /undo? /help lists the commands." in shown
    assert "There is no /nonsense. /help lists the commands." in shown
    assert "take back the last exchange" not in shown


async def test_commands_that_only_show_something(typing: Typing) -> None:
    shown = await typing(
        *("use shout hi", "/history", "/status", "/usage", "/insights", "/search shout", "/sessions s"),
        *("/memory", "/skills", "/stop", "/handoff telegram", "/compress", "/model"),
    )
    for told in (
        "  [1 tool call: shout]",
        "  ⚙ shout: 2 characters",
        "Messages:  4 in the context",
        "echo   2",
        "Hermes Insights",
        ">>>shout<<<",
        "(here)",
        "Nothing is remembered yet.",
        "There are no skills yet.",
        "Nothing is running.",
        "No gateway runs for this home; `hermes gateway` starts it.",
        "Compression is not available here.",
        "echo (test)",
    ):
        assert told in shown


def test_an_unknown_cost_is_not_shown_as_zero() -> None:
    assert format_cost(UsageLine(calls=1, input_tokens=5)) == ""
    assert format_cost(UsageLine(calls=1, actual_cost_usd=0.0)) == "$0.00"
    assert format_cost(UsageLine(calls=1, estimated_cost_usd=0.25)) == "~$0.25"


async def test_a_conversation_is_saved_to_a_file_once(typing: Typing, tmp_path: Path) -> None:
    shown = await typing("hello", "/save talk.md", "/save talk.md", "/save talk.json")
    written = (tmp_path / "talk.md").read_text()
    assert re.search(r"## User · [^\n]+\n\nhello\n\n## Assistant · [^\n]+\n\nyou said: hello\n\Z", written)
    assert json.loads((tmp_path / "talk.json").read_text())["messages"][0]["content"] == "hello"
    assert "talk.md' exists; name another file" in " ".join(shown.split())


async def test_a_saved_conversation_is_private_and_contains_no_active_content(
    typing: Typing, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "link.md").symlink_to(victim)
    said = "![x](http://x.example/p.png) [y](javascript:z) <img src=q>"
    shown = await typing(said, "/save talk.md", "/save link.md")
    text = (tmp_path / "talk.md").read_text()
    assert (tmp_path / "talk.md").stat().st_mode & 0o777 == 0o600
    tokens = MarkdownIt("commonmark", {"html": True}).parse(text.replace(MARKDOWN_MARK, "", 1))
    kinds = {one.type for token in tokens for one in (token, *(token.children or ()))}
    assert not kinds & {"html_block", "html_inline", "image", "link_open"}
    assert "exists; name another file" in " ".join(shown.split())
    assert not victim.exists()


async def test_nothing_is_saved_under_a_name_that_the_program_uses(typing: Typing, home: Path) -> None:
    shown = await typing("hello", f"/save {home}/config.yaml", f"/save {home}/state.db-journal")
    assert " ".join(shown.split()).count("; name another file") == 2
    assert not (home / "config.yaml").exists()
    assert not (home / "state.db-journal").exists()


async def test_another_model_answers_and_is_remembered(db: SessionDB, typing: Typing) -> None:
    shown = await typing("/model other", "hello", "/model missing", "/model third")
    assert "there is no model 'missing'" in shown
    row = only(db)
    assert row["model"] == "third"
    shown = await typing("/model", resuming=row["id"])
    assert "Using the model third, as before." in shown
    assert "third (test)" in shown


async def test_a_resumed_conversation_reports_its_folder_and_model(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    db.create_session("one", "cli", model="third", cwd=str(tmp_path / "gone"))
    db.append_message("one", "user", "hello")
    shown = await typing("again", resuming="one")
    told = " ".join(shown.split("╭")[0].split())
    assert told.endswith(f"{tmp_path / 'gone'} is gone; working in {tmp_path}.")
    assert shown.count("Using the model third, as before.") == 1


async def test_a_conversation_without_a_usable_model_is_reported_once(db: SessionDB, typing: Typing) -> None:
    def refuse(_wish: object) -> EchoModel:
        raise NoSuchModel("no model is chosen")

    db.create_session("one", "cli", model="third")
    db.append_message("one", "user", "hello")
    parts = PARTS._replace(make_model=refuse)
    shown = await typing("again", keys=INTERRUPT, resuming="one", parts=parts)
    assert "no model is chosen" in shown
    assert "third" not in shown


async def test_a_missing_model_is_replaced_with_a_notice(db: SessionDB, typing: Typing) -> None:
    db.create_session("one", "cli", model="missing")
    db.append_message("one", "user", "hello")
    shown = await typing("again", resuming="one")
    assert "missing is not available (there is no model 'missing'); the default model answers." in shown
    assert "you said: hello\n\nagain" in shown


async def test_a_model_that_no_longer_answers_is_replaced_in_the_same_turn(
    db: SessionDB, typing: Typing
) -> None:
    db.create_session("one", "cli", model="silent")
    db.append_message("one", "user", "hello")
    shown = await typing("again", resuming="one")
    assert "silent no longer answers; echo answers from now on." in shown
    assert "you said: hello\n\nagain" in shown
    assert [row["content"] for row in db.get_messages("one")][:2] == ["hello", "again"]


async def test_a_missing_directory_is_replaced_with_a_notice(
    db: SessionDB, typing: Typing, tmp_path: Path
) -> None:
    db.create_session("one", "cli", cwd=str(tmp_path / "gone"))
    db.append_message("one", "user", "hello")
    shown = await typing("here", resuming="one")
    assert f"{tmp_path / 'gone'} is gone; working in {tmp_path}." in shown.replace("\n", " ").replace(
        "  ", " "
    )
    row = db.get_session("one")
    assert row is not None
    assert row["cwd"] == str(tmp_path)


async def test_the_recap_can_be_turned_off(db: SessionDB, typing: Typing, home: Path) -> None:
    db.create_session("one", "cli")
    db.append_message("one", "user", "hello")
    (home / "config.yaml").write_text("display:\n  resume_display: minimal\n")
    shown = await typing(resuming="one")
    assert "↻ Resumed session one (1 user message, 1 total messages)" in shown
    assert "Previous Conversation" not in shown


# Compression


class Compressing:
    """A compressor that replaces the context by a summary when the person asks for a compression."""

    def __init__(self, record: Record) -> None:
        self.record = record

    async def is_due(self, _rows: Sequence[Row], _used: Used | None) -> bool:
        return False

    def fit_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows

    def compress(self, *, overflow: bool) -> AsyncIterator[Event]:
        return self.compress_by_hand(str(overflow))

    async def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]:
        last = (await self.record.context())[-1]["id"]
        await self.record.continue_with(f"a summary of {focus}", head=[], carried=[last], prompt="Repeat.")
        yield Moved(self.record.session_id, 4, 2)


async def test_the_chat_continues_in_the_continuation_after_a_compression(
    db: SessionDB, typing: Typing
) -> None:
    parts = PARTS._replace(make_compressor=lambda record, _working: Compressing(record))
    shown = await typing("/title long", "one", "two", "/compress the goal", "three", parts=parts)
    tip = db.tip("long")
    assert tip is not None
    assert f"continues as {tip}, 4 → 2 messages" in shown
    assert db.get_session_title(tip) == "long #2"
    assert said(db, tip) == ["three"]
    assert db.get_context(tip)[0]["content"] == "a summary of the goal"
    assert f"hermes --resume {tip}" in shown


# Maintenance and incognito


async def test_requested_maintenance_runs_once_and_reports_its_result(
    db: SessionDB, typing: Typing, home: Path
) -> None:
    db.create_session("old", "cli", started_at=1000.0)
    db.append_message("old", "user", "hello", timestamp=1000.0)
    db.end_session("old", "cli_close")
    await typing("slow 3")
    assert db.get_session("old") is not None
    (home / "config.yaml").write_text("sessions:\n  auto_prune: true\n  retention_days: 30\n")
    shown = await typing("slow 3")
    assert db.get_session("old") is None
    assert "Maintenance (sessions.auto_prune): removed 1 old session." in shown
    assert "Maintenance" not in await typing("slow 3")


async def test_nothing_of_an_incognito_conversation_is_stored(
    db: SessionDB, typing: Typing, home: Path
) -> None:
    db.create_session("one", "cli")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    shown = await typing("hello secret", "/title x", "/status", "use shout hi", incognito=True)
    assert "Incognito: nothing of this conversation is written anywhere, unless you /save it." in shown
    assert "you said: hello secret" in shown
    assert "Nothing of this was kept." in shown
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


# A second terminal


@contextmanager
def other_terminal(db: SessionDB, session_id: str, verb: str = "acquire") -> Iterator[int]:
    """Start another process that works in the conversation. Return its pid."""
    program = (
        "import sys; from hermes_state import SessionDB; db = SessionDB(sys.argv[1]);"
        "getattr(db.leases, sys.argv[3])(sys.argv[2], 'terminal'); print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(db.db_path), session_id, verb]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


@pytest.mark.parametrize(("choice", "own", "theirs"), [("2", 0, 2), ("3", 1, 1), ("4", 0, 1)])
async def test_a_second_terminal_can_take_over_or_branch(
    db: SessionDB, typing: Typing, choice: str, own: int, theirs: int
) -> None:
    db.create_session("shared", "cli")
    db.append_message("shared", "user", "hello")
    with other_terminal(db, "shared") as pid:
        shown = await typing(keys=f"{SEEN}{choice}{ENTER}mine{ENTER}", resuming="shared")
    assert f"Another terminal (process {pid} on" in shown
    assert "has been in this conversation since" in shown.replace("\n", " ")
    assert len(said(db, "shared")) == theirs
    branches = [row for row in sessions(db) if row["id"] != "shared"]
    assert [said(db, row["id"]) for row in branches] == [["mine"]] * own


async def test_a_follower_sees_the_messages_and_the_end(db: SessionDB) -> None:
    db.create_session("shared", "cli")
    before = db.append_message("shared", "user", "hello")
    seen: list[Any] = []
    with other_terminal(db, "shared"):
        following = asyncio.create_task(
            lease_conflict.follow(db, "shared", before, seen.append, asyncio.Event())
        )
        db.append_message("shared", "assistant", "good day")
        while not seen:
            await asyncio.sleep(0.01)
    assert [row["content"] for row in seen] == ["good day"]
    assert await following == "The conversation is no longer in use."


def test_a_follower_sees_the_commands_that_are_run() -> None:
    call = {"id": "1", "function": {"name": "terminal", "arguments": '{"command": "make\\nmake install"}'}}
    row = {"role": "assistant", "content": "Building.", "tool_calls": [call]}
    assert lease_conflict.format_followed(row) == ("◆ Hermes", "Building.\n→ terminal make ⏎ make install")


@pytest.mark.parametrize(
    ("content", "reason", "told"),
    [
        ("<think>a plan", "length", NO_ANSWER_WITHIN_LENGTH),
        ("<think>a plan</think>", "stop", NOTHING_BUT_REASONING),
        ("half an", "length", f"half an\n{CUT_AT_LENGTH}"),
        ("whole", "stop", "whole"),
    ],
)
def test_a_follower_sees_that_an_answer_was_truncated(content: str, reason: str, told: str) -> None:
    row = {"role": "assistant", "content": content, "finish_reason": reason}
    assert lease_conflict.format_followed(row) == ("◆ Hermes", told)


async def test_losing_the_lease_loses_no_typed_text(db: SessionDB, typing: Typing) -> None:
    with ExitStack() as others:

        class Overtaken(EchoModel):
            """Another terminal takes over the conversation after the first answer. The size of the context is
            read before each message is stored."""

            taken = False

            @property
            def context_window(self) -> int:
                if not self.taken and db.message_count() == 2:
                    self.taken = True
                    others.enter_context(other_terminal(db, only(db)["id"], "take_over"))
                return 100_000

            @context_window.setter
            def context_window(self, _window: int) -> None: ...

        parts = PARTS._replace(make_model=lambda _wish: Overtaken())
        shown = await typing("one", "two", keys=f"{SEEN}2{ENTER}{ENTER}", parts=parts)
    assert "another process has taken over" in shown
    assert said(db, only(db)["id"]) == ["one", "two"]


# A store that cannot be written


async def test_a_message_that_cannot_be_stored_is_reported_and_stored_later(
    home: Path, typing: Typing
) -> None:
    with SessionDB(spool=True) as store, ExitStack() as lock:
        impatient(store, 0.05)
        store.create_session("one", "cli", system_prompt="Repeat.")
        store.append_message("one", "user", "hello")

        def make_model(*_: object) -> EchoModel:
            # from now on, another process has a transaction open
            lock.enter_context(locked(store.db_path))
            return EchoModel()

        parts = PARTS._replace(make_model=make_model)
        shown = await typing("are you there", resuming="one", store=store, parts=parts)
    assert "NOT STORED: what you said:" in shown
    assert f"Itiskeptin{home / 'spool'}/" in "".join(shown.split())
    assert "you said: hello\n\nare you there" in shown
    with SessionDB() as again:
        assert said(again, "one") == ["hello", "are you there"]
        assert len(again.get_messages("one")) == 3


async def test_a_locked_store_can_still_be_read(home: Path, typing: Typing) -> None:
    with SessionDB(spool=True) as store, ExitStack() as lock:
        impatient(store, 0.05)
        store.create_session("one", "cli", system_prompt="Repeat.")
        store.append_message("one", "user", "hello")
        lock.enter_context(locked(store.db_path))
        shown = await typing("are you there", resuming="one", store=store)
    assert "The store cannot be written now: " in shown
    assert "NOT STORED: what you said:" in shown
    assert "you said: hello\n\nare you there" in shown
    with SessionDB() as again:
        assert said(again, "one") == ["hello", "are you there"]


async def test_warnings_of_the_log_stand_on_the_screen_each_once(typing: Typing) -> None:
    """The chat prints log warnings itself. The default handler of Python would print them into the middle of
    the screen."""

    class Warn:
        name, description = "warn", "Warns from threads of its own."
        parameters: Mapping[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}

        async def run(self, _arguments: dict[str, Any], _context: ToolContext) -> str:
            for _ in range(3):
                await asyncio.to_thread(
                    get_logger("hermes.anything").warning, "it could not be %s", "summarised"
                )
            return "done"

    shown = await typing("use warn x", parts=PARTS._replace(make_tools=lambda _: [Warn()]))
    assert shown.count("it could not be summarised") == 1
    assert shown.index("it could not be summarised") < shown.index("the tool said: done")
