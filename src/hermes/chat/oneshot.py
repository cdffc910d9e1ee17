"""One question, one answer, for scripts: the answer is given back, and what a person should know is told beside it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from hermes.agent.events import Discarded, Done, Failed, Interrupted, Note, NotStored
from hermes.chat.session import Talk

STOPPED = "interrupted"


class Answered(NamedTuple):
    text: str
    problem: str | None
    """Why there is no answer, or only a part of one."""


async def ask(talk: Talk, question: str, tell: Callable[[str], None]) -> Answered:
    """`tell` hears what goes wrong on the way. The turn is heard to its end, for a title is made behind the answer."""
    answered = Answered("", "the turn ended without an answer")
    async with aclosing(talk.say(question)) as happening:
        async for event in happening:
            match event:
                case Done(text, _):
                    answered = Answered(text, None)
                case Interrupted(text):
                    answered = Answered(text, STOPPED)
                case Failed(why, _):
                    answered = Answered("", why)
                case NotStored(role, why, _):
                    tell(f"not stored ({role}): {why}")
                case Note(text):
                    tell(text)
                case Discarded(why, seconds):
                    tell(f"{why}; trying again in {seconds:.0f}s")
                case _:
                    pass
    return answered


def as_json(talk: Talk, answered: Answered) -> dict[str, Any]:
    used = talk.total
    return {
        "answer": answered.text,
        "session_id": None if talk.incognito else talk.session_id,
        "model": used.model or None,
        "usage": {**used.used._asdict(), "cost_usd": used.cost_usd},
    }
