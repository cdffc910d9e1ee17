"""The preview shows the transcript at the match. It reads the transcript in pieces."""

from __future__ import annotations

from hermes.browser.source import MOST_HELD, Transcript
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.browser.conftest import AddSession, Browsing


async def test_the_transcript_is_scrolled_to_the_match(browsing: Browsing, add_session: AddSession) -> None:
    texts = [f"message {number} about nothing" for number in range(300)]
    texts[100] = "here the zebra crosses"
    add_session("a", *texts)
    async with browsing() as screen:
        assert "message 299 about nothing" in screen.text
        await screen.type("zebra")
        assert "here the zebra crosses" in screen.text
        assert "message 99 about" in screen.text
        assert "message 299" not in screen.text


async def test_scrolling_reads_more_in_both_directions(browsing: Browsing, add_session: AddSession) -> None:
    texts = [f"message {number} " + "x" * 200 for number in range(300)]
    texts[150] = "zebra"
    add_session("a", *texts)
    async with browsing(size=(100, 120)) as screen:
        await screen.type("zebra")
        await screen.press("tab")
        assert screen.app.preview.has_focus
        assert len(screen.app.preview._parts) < 200
        while "message 100 " not in screen.text:
            await screen.press("pageup")
        while "message 220 " not in screen.text:
            await screen.press("pagedown")
        await screen.press("home")
        assert "message 0 " in screen.text
        await screen.press("end")
        assert "message 299 " in screen.text
        await screen.press("escape")
        assert screen.app.search.has_focus


async def test_only_a_limited_part_of_the_transcript_is_kept(add_session: AddSession, db: SessionDB) -> None:
    add_session("a", *[f"{number} " + "x" * 5_000 for number in range(60)])
    transcript = Transcript(db)
    assert transcript.open_at_end("a")
    seen = {part.message.text.piece.split()[0] for part in transcript.parts}
    while transcript.has_before:
        seen |= {part.message.text.piece.split()[0] for part in transcript.read_before()}
        assert sum(part.message.length for part in transcript.parts) <= MOST_HELD + 12_000
    assert seen == {str(number) for number in range(60)}
    back: list[str] = []
    while new := transcript.read_after():
        back += [part.message.text.piece.split()[0] for part in new]
    assert back[-1] == "59"


async def test_a_huge_message_is_cut_and_says_so(browsing: Browsing, add_session: AddSession) -> None:
    add_session("a", "needle " + "hay " * 100_000)
    async with browsing() as screen:
        await screen.type("needle")
        assert "needle hay hay" in screen.text
        await screen.press("tab", "end")
        assert "more characters …]" in screen.text


async def test_tools_are_folded_to_a_line_each(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", "list them")
    call = {"id": "1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
    db.append_message("a", "assistant", None, tool_calls=[call])
    db.append_message("a", "tool", "first line\nsecond line\n" + "x\n" * 500, tool_name="terminal")
    async with browsing(size=(140, 30)) as screen:
        assert '▸ terminal({"command": "ls"})' in screen.text
        assert "◂ terminal  first line second line" in screen.text
        assert "1,023 characters" in screen.text


async def test_a_long_command_can_be_read_to_its_end(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", "do it")
    arguments = '{"command": "echo ' + "word " * 50 + '; theend"}'
    names = [
        {"id": str(number), "function": {"name": "terminal", "arguments": arguments}} for number in range(6)
    ]
    db.append_message("a", "assistant", None, tool_calls=names)
    async with browsing(size=(140, 50)) as screen:
        text = " ".join(screen.text.split())
        assert text.count("theend") == 6


async def test_the_preview_of_a_compressed_conversation_includes_earlier_segments(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("root", "how it began")
    db.begin_continuation("root", "a summary", session_id="tip")
    db.append_message("tip", "user", "how it went on")
    async with browsing() as screen:
        assert "how it began" in screen.text
        assert "continued after compression" in screen.text
        assert "how it went on" in screen.text


async def test_a_conversation_deleted_elsewhere_is_gone_without_an_error(
    browsing: Browsing, add_session: AddSession, db: SessionDB
) -> None:
    add_session("a", age=1)
    add_session("b", age=2)
    async with browsing() as screen:
        with SessionDB() as elsewhere:
            elsewhere.delete_session("b")
        await screen.press("down")
        assert "This conversation was deleted" in screen.text
        await screen.press("enter")
        assert screen.app.is_running
        assert "is gone: it was deleted elsewhere" in screen.status
        assert screen.names == ["hello from a"]


async def test_the_preview_is_hidden_on_a_small_screen_until_it_is_opened(
    browsing: Browsing, add_session: AddSession
) -> None:
    add_session("a", "hello", "said here", title="a title")
    async with browsing(size=(60, 15)) as screen:
        assert "said here" not in screen.text
        await screen.press("ctrl+o")
        assert "said here" in screen.text
        await screen.press("ctrl+o")
        assert "said here" not in screen.text
        await screen.pilot.resize_terminal(100, 30)
        await screen.settle()
        assert "said here" not in screen.text
    async with browsing(size=(60, 15)) as screen:
        await screen.pilot.resize_terminal(100, 30)
        await screen.settle()
        assert "said here" in screen.text


async def test_typing_in_the_preview_starts_a_search(browsing: Browsing, add_session: AddSession) -> None:
    add_session("a")
    async with browsing() as screen:
        await screen.press("tab", "h")
        assert screen.app.search.has_focus
        assert screen.app.search.value == "h"


async def test_conversations_of_two_people_with_the_same_title_show_their_person(
    browsing: Browsing, db: SessionDB
) -> None:
    for person in ("anna", "bert"):
        scope = db.scoped(Principal("telegram", user=person))
        session = scope.create_session()
        scope.set_session_title(session, "plans")
        scope.append_message(session, "user", "hello")
    async with browsing(size=(140, 30)) as screen:
        assert "telegram bert · 1 message" in screen.text
        await screen.press("down")
        assert "telegram anna · 1 message" in screen.text
