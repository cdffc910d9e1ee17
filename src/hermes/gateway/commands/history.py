"""Commands about what was just said: take it back, bring it back, ask again, see it again, make room, stop."""

from __future__ import annotations

import asyncio

from hermes import errors
from hermes.gateway.commands.command_context import Answer, Asked, Command
from hermes.gateway.commands.markdown_format import name_of, words_of
from hermes.gateway.commands.switching import spoken
from hermes.gateway.commands.visible_conversations import busy_elsewhere, describe_empty
from hermes.insights.number_format import format_plural
from hermes.reasoning import strip_reasoning
from hermes.text import extract_text, spell_controls

MOST = 1000


async def undo(asked: Asked) -> Answer:
    many = asked.words or "1"
    if not many.isdecimal() or not 0 < int(many[:9]) <= MOST:
        return Answer("Usage: `/undo [how many exchanges]`")
    session = asked.here.session_id
    if session is None:
        return Answer(f"{describe_empty(asked)} There is nothing to take back.")
    asked_before = await asyncio.to_thread(asked.store.list_recent_user_messages, session, int(many))
    if not asked_before:
        return await _before_the_reset(asked, session)
    done = await asyncio.to_thread(
        lambda: asked.store.rewind_to_message(session, asked_before[-1]["id"], lease_epoch=asked.here.epoch)
    )
    what = words_of(done["target_message"]["content"])
    rest = " and all after it" if len(asked_before) > 1 else ""
    return Answer(
        f"↩ Took back {what}{rest} ({format_plural(done['rewound_count'], 'message')}). `/redo` brings it back."
    )


async def _before_the_reset(asked: Asked, session: str) -> Answer:
    """Nobody has spoken in this session: if a reset made it, there is a conversation to go back to."""
    nothing = Answer("There is nothing to take back.")
    row = await asyncio.to_thread(asked.store.get_session, session)
    if row is None or row["relation"] != "reset" or row["parent_session_id"] is None:
        return nothing
    busy = await asyncio.to_thread(busy_elsewhere, asked, row["parent_session_id"])
    if busy is not None:
        return Answer(busy)
    try:
        back = await asyncio.to_thread(lambda: asked.store.undo_reset(session, lease_epoch=asked.here.epoch))
    except errors.InvalidArgument:
        return nothing
    await asked.here.moved(back)
    await asyncio.to_thread(asked.store.set_session_title, session, None)  # it is free for another start
    old = await asyncio.to_thread(asked.store.get_session, back)
    said = await asyncio.to_thread(spoken, asked, back)
    called = "the conversation before" if old is None else name_of(old)
    return Answer(f"↩ The new start is undone. Back in {called} ({format_plural(len(said), 'message')}).")


async def redo(asked: Asked) -> Answer:
    session = asked.here.session_id
    back = 0
    if session is not None:
        since = await asyncio.to_thread(_taken_since, asked, session)
        back = await asyncio.to_thread(
            lambda: asked.store.restore_rewound(session, since, lease_epoch=asked.here.epoch)
        )
    if not back:
        return Answer(
            "There is nothing to bring back: only what was taken back last, before something new is said."
        )
    return Answer(f"↪ Brought back {format_plural(back, 'message')}.")


def _taken_since(asked: Asked, session: str) -> int:
    """From which message on it was taken back last.

    That is what stands behind the live end; but not what was taken back earlier, before other things were said that
    now are taken back themselves.
    """
    live = [row["id"] for row in asked.store.get_context(session) if row["role"] != "system"]
    end = live[-1] if live else 0
    exported = asked.store.export_session(session)
    if exported is None or exported.get("rewound_context"):
        return end + 1
    taken = [
        row for row in exported["messages"] if not row["active"] and row["rewound_at"] and row["id"] > end
    ]
    last = max((row["rewound_at"] for row in taken), default=0)
    first = min((row["id"] for row in taken if row["rewound_at"] == last), default=end + 1)
    earlier = [row["id"] for row in taken if row["id"] < first]
    return max(earlier, default=end) + 1


async def retry(asked: Asked) -> Answer:
    session = asked.here.session_id
    last = []
    if session is not None:
        last = await asyncio.to_thread(asked.store.list_recent_user_messages, session, 1)
    if session is None or not last:
        return Answer("There is nothing to ask again.")
    done = await asyncio.to_thread(
        lambda: asked.store.rewind_to_message(session, last[0]["id"], lease_epoch=asked.here.epoch)
    )
    content = done["target_message"]["content"]
    return Answer(f"↻ Once more: {words_of(content)}", say=content)


async def resend(asked: Asked) -> Answer:
    session = asked.here.session_id
    said = [] if session is None else await asyncio.to_thread(spoken, asked, session)
    answers = [row for row in said if row["role"] == "assistant"]
    if not answers:
        return Answer("There is no answer yet that I could send again.")
    return Answer(spell_controls(extract_text(strip_reasoning(answers[-1]["content"]))))


async def compress(asked: Asked) -> Answer:
    if asked.here.session_id is None:
        return Answer(f"{describe_empty(asked)} There is nothing to make shorter.")
    told = await asked.here.compress(asked.words or None)
    return Answer("\n".join(told) or "Nothing changed.")


async def stop(asked: Asked) -> Answer:
    waiting = asked.here.waiting
    if not asked.here.stop():
        return Answer("Nothing is running.")
    behind = f" {format_plural(waiting, 'message')} waiting; I go on with {'it' if waiting == 1 else 'them'}."
    return Answer(f"⏹ Stopped.{behind if waiting else ''}")


COMMANDS = (
    Command(
        "undo",
        undo,
        "/undo [n]",
        "take back the last exchange, or the last n; right after a new start: go back",
    ),
    Command("redo", redo, "/redo", "bring back what /undo took back"),
    Command("retry", retry, "/retry", "ask the last question again"),
    Command("resend", resend, "/resend", "send the last answer again"),
    Command("compress", compress, "/compress [focus]", "make room: go on from a summary"),
    Command("stop", stop, "/stop", "stop the answer that is being made", at_once=True),
)
