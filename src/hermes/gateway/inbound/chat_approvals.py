"""The approvals of one chat: asked for as messages, answered by `/approve`, `/deny` or a button, or run out.

A request lives as long as the turn that asks for it, in memory: after a restart nothing waits, and nothing was run. It
has a random name, so that an answer to an old question cannot be taken for one to a new question.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hermes import audit_log, clock
from hermes.agent.approvals.request import ApprovalRequest, Decision, Scope
from hermes.agent.events import ApprovalAsked
from hermes.gateway.commands.markdown_format import code
from hermes.gateway.context import LONGEST_UNKNOWN, Letter, Office
from hermes.gateway.inbound.approval_text import choices_of, limit_of, offered_scopes, question_parts
from hermes.gateway.outbound.retry import surely
from hermes.gateway.sessions import incidents

if TYPE_CHECKING:
    from hermes.gateway.commands.command_context import Asked
    from hermes.gateway.sessions.chat_state import Chat

log = logging.getLogger(__name__)

Decide = Callable[[int, Decision], bool]

MOST_REMEMBERED = 50
"""How many finished requests, and messages that answered one, are known by a chat."""
CLOSE_S = 5.0
"""How long the outcomes of open questions may take to be posted when the program ends."""
LONGEST_NOTE = 1000
"""Characters of what is written behind `/deny` that the model is told."""

NOTHING_WAITS = "Nothing is waiting for an approval."
GONE = "◌ It did not wait any longer, so the answer changed nothing."
STOPPED = "⏹ Not done: the turn was stopped."
RESTARTED = "⏹ Not done: I was restarted. I ask again if it is still needed."
TOO_LONG = (
    "⚠ I wanted to do something that needs your approval, and it is too long to be shown here whole. What cannot be"
    " shown cannot be approved from here, so it was refused. At a terminal (`/handoff`) it can be."
)
TOO_LONG_NOTE = (
    "it is too long to be shown to the owner in this chat, and they cannot approve what they cannot see; make it"
    " shorter, or do it in several steps"
)
UNDELIVERED_NOTE = "the question could not be delivered to the owner's chat"

_LETTERS, _DIGITS = "bcdfghjkmnpqrstvwxz", "23456789"
_NAME = re.compile(f"[{_LETTERS}][{_DIGITS}][{_LETTERS}][{_DIGITS}]")


def record_decision(*, subject: str, allowed: bool, scope: Scope | None, surface: str) -> None:
    """Record a decision in the audit log. The program's log does not get the subject: it holds what people say."""
    audit_log.record("approval answered", subject=subject, allowed=allowed, scope=scope, surface=surface)
    log.info("an approval on %s was %s", surface, "given" if allowed else "refused")


class PendingApproval:
    """A request that waits, and the messages that ask for it."""

    def __init__(
        self, name: str, asked: ApprovalAsked, decide: Decide, who: str | None, seconds: float
    ) -> None:
        self.name, self.number, self.request = name, asked.number, asked.request
        self.decide, self.who = decide, who
        self.expires_at = clock.now() + seconds
        self.once = f"approval:{secrets.token_hex(16)}"
        self.question = ""
        """The last message of the question."""
        self.undelivered = 0
        self.delivered_at: float | None = None
        """When all messages of the question had arrived."""
        self.message_id: str | None = None
        """The last of them, on the platform."""
        self.fate_known = asyncio.Event()
        self.over = asyncio.Event()
        self.outcome: str | None = None


class Approvals:
    def __init__(self, office: Office, chat: Chat) -> None:
        self._office, self._chat = office, chat
        self._waiting: dict[str, PendingApproval] = {}
        self._finished: OrderedDict[str, str] = OrderedDict()
        """Outcomes by name, of the last ones."""
        self._answers: deque[str] = deque(maxlen=MOST_REMEMBERED)
        """Messages that were taken as an answer: a second delivery of one answers nothing else."""
        self._tasks: dict[asyncio.Task[None], PendingApproval] = {}
        self._on_settled: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> Sequence[PendingApproval]:
        return list(self._waiting.values())

    # ---------------------------------------------------------------- asking

    def ask(self, asked: ApprovalAsked, decide: Decide, on_settled: Callable[[], None]) -> None:
        """Ask the owner in this chat. `decide` answers the turn; `on_settled` is called when nothing waits any more."""
        name = self._new_name()
        pending = PendingApproval(
            name, asked, decide, self._chat.source.participant, self._office.approval_seconds
        )
        self._waiting[name], self._on_settled = pending, on_settled
        task = asyncio.create_task(self._attend(pending), name=f"approval {name}")
        self._tasks[task] = pending
        task.add_done_callback(self._ended)

    def _new_name(self) -> str:
        while True:
            name = "".join(secrets.choice(signs) for signs in (_LETTERS, _DIGITS) * 2)
            if name not in self._waiting and name not in self._finished:
                return name

    def _ended(self, task: asyncio.Task[None]) -> None:
        pending = self._tasks.pop(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("an approval could not be asked for", exc_info=problem)
            note = "the question could not be asked"
            self._settle(pending, Decision(False, note=note), f"⚠ Not done: {note}.")

    async def _attend(self, pending: PendingApproval) -> None:
        """Ask, wait for the answer, and show in the question what became of it."""
        limit = limit_of(self._office.approval_seconds)
        try:
            async with asyncio.timeout(self._office.approval_seconds):
                await self._post_question(pending)
                await pending.over.wait()
        except TimeoutError:
            note = f"nobody answered within {limit}"
            outcome = f"⌛ Not done: {note}."
            if self._settle(pending, Decision(False, note=note), outcome):
                await self._post(f"{outcome} {code(pending.name)}", f"{pending.once}:timeout")
        await self._remember(f"An approval ({code(pending.name)}) was asked for. {pending.outcome}")
        await self._show_outcome(pending)

    async def _post_question(self, pending: PendingApproval) -> None:
        office, chat = self._office, self._chat
        adapter = office.adapters.get(chat.source.platform)
        seconds = office.approval_seconds
        parts = (
            question_parts(pending.name, pending.request, seconds, LONGEST_UNKNOWN)
            if adapter is None
            else question_parts(pending.name, pending.request, seconds, adapter.can.longest, adapter.measure)
        )
        if parts is None:
            self._settle(pending, Decision(False, note=TOO_LONG_NOTE), "⚠ Refused: too long to be shown.")
            await self._post(TOO_LONG, pending.once)
            return
        pending.undelivered = len(parts)
        for number, text in enumerate(parts, 1):
            if pending.over.is_set():
                return
            is_last, once = number == len(parts), f"{pending.once}:{number}"
            office.watch_delivery(once, self._fate_of(pending, is_last))
            choices = choices_of(pending.name, pending.request) if is_last else ()
            await self._post_letter(Letter(chat.source, text, choices=choices), once)
        pending.question = parts[-1]

    def _fate_of(self, pending: PendingApproval, is_last: bool) -> Callable[[str, str | None], None]:
        def tell(state: str, message_id: str | None) -> None:
            if state == "failed":  # what was not shown cannot be approved
                note = UNDELIVERED_NOTE
                self._settle(pending, Decision(False, note=note), f"⚠ Not done: {note}.")
            if state == "sent":
                pending.undelivered -= 1
                if not pending.undelivered:
                    pending.delivered_at = clock.now()
            if is_last:
                pending.message_id = message_id
                pending.fate_known.set()

        return tell

    async def _show_outcome(self, pending: PendingApproval) -> None:
        """Add the outcome to the question, which also takes its buttons away."""
        if not pending.question:
            return
        await pending.fate_known.wait()
        adapter = self._office.adapters.get(self._chat.source.platform)
        if pending.message_id is not None and adapter is not None and adapter.can.edits:
            text = f"{pending.question}\n\n{pending.outcome}"
            letter = Letter(self._chat.source, text, edits=pending.message_id)
            await self._post_letter(letter, f"{pending.once}:outcome")

    async def _post(self, text: str, once: str) -> None:
        await self._post_letter(Letter(self._chat.source, text), once)

    async def _post_letter(self, letter: Letter, once: str) -> None:
        key, session = self._chat.key, self._chat.session_id
        await surely(lambda: self._office.post(key, letter, once, session))

    async def _remember(self, text: str) -> None:
        """For `/why`. The request itself is not kept there: it must not outlive its conversation."""
        await surely(lambda: asyncio.to_thread(incidents.note, self._office.db, self._chat.key, text))

    # ---------------------------------------------------------------- answering

    def answer(self, asked: Asked, *, allowed: bool) -> str:
        """What a person is told who typed `/approve` or `/deny`, or pressed a button. It counts from now on."""
        if not asked.can_approve:
            return NOTHING_WAITS  # as where nothing ever waits
        is_new = asked.message_id is None or asked.message_id not in self._answers
        if asked.message_id is not None:
            self._answers.append(asked.message_id)
        name, rest = _name_in(asked.words, anywhere=allowed)
        found = self._find(asked, name, must_be_shown=allowed) if is_new else NOTHING_WAITS
        if isinstance(found, str):
            return found
        return self._approve(found, rest) if allowed else self._deny(found, rest)

    def _find(self, asked: Asked, name: str | None, *, must_be_shown: bool) -> PendingApproval | str:
        """The request that is meant, or why there is none."""
        mine = {one.name: one for one in self._waiting.values() if one.who == asked.source.participant}
        if name is not None:
            return mine.get(name) or self._finished_text(name)
        if not mine:
            last = next(reversed(self._finished), None)
            return NOTHING_WAITS if last is None else f"{NOTHING_WAITS} The last was {self._told(last)}"
        if len(mine) > 1:
            names = ", ".join(code(one) for one in mine)
            return f"{len(mine)} requests wait: {names}. Say which, as in {code(f'/approve {next(iter(mine))}')}."
        (only,) = mine.values()
        # A command that was typed before the question arrived was meant for something else.
        was_shown = (
            only.delivered_at is not None and asked.sent_at is not None and asked.sent_at >= only.delivered_at
        )
        if must_be_shown and not was_shown:
            return f"You sent that before you could see the question. If you mean it: {code(f'/approve {only.name}')}"
        return only

    def _finished_text(self, name: str) -> str:
        known = name in self._finished
        return f"It is over: {self._told(name)}" if known else f"No request {code(name)} is waiting."

    def _told(self, name: str) -> str:
        return f"{code(name)}: {self._finished[name]}"

    def _approve(self, pending: PendingApproval, words: str) -> str:
        offered, word = offered_scopes(pending.request), words.lower()
        if word not in ("", "once", *offered):
            if word in ("always", "like"):
                return f"That is not offered here. Once: {code(f'/approve {pending.name}')}"
            return "Usage: `/approve [name] [once, always or like]`. Nothing was approved."
        scope = offered.get(word)
        lasting = {
            Scope.COMMAND: ", and this command from now on",
            Scope.EDITS: ", and edits from now on",
            Scope.PREFIX: f", and what begins with `{pending.request.prefix}` from now on",
        }
        outcome = f"✓ Approved{lasting[scope] if scope else ', once'}."
        self._settle(pending, Decision(True, scope), outcome)
        return f"{pending.outcome} {code(pending.name)}"

    def _deny(self, pending: PendingApproval, why: str) -> str:
        self._settle(pending, Decision(False, note=why[:LONGEST_NOTE]), "✗ Denied.")
        return f"{pending.outcome} {code(pending.name)}"

    def _settle(self, pending: PendingApproval, decision: Decision, outcome: str) -> bool:
        """Answer the turn, once. False if it was answered before, or does not wait any longer."""
        if pending.outcome is not None:
            return False
        counts = pending.decide(pending.number, decision)
        if counts:
            self._record(pending.request, decision)
        self._finish(pending, outcome if counts else GONE)
        return counts

    def _record(self, request: ApprovalRequest, decision: Decision) -> None:
        record_decision(
            subject=request.subject,
            allowed=decision.allowed,
            scope=decision.scope,
            surface=self._chat.source.platform,
        )

    def _finish(self, pending: PendingApproval, outcome: str) -> None:
        pending.outcome = outcome
        self._waiting.pop(pending.name, None)
        self._finished[pending.name] = outcome
        if len(self._finished) > MOST_REMEMBERED:
            self._finished.popitem(last=False)
        pending.over.set()
        if not self._waiting:
            self._on_settled()

    # ---------------------------------------------------------------- ending

    def withdraw(self, outcome: str) -> None:
        """The turn is over: what still waits is not done."""
        for pending in self.waiting:
            self._finish(pending, outcome)

    async def close(self) -> None:
        """The end of the program: outcomes of questions that were delivered are posted, the rest is left."""
        for task, pending in self._tasks.items():
            if not pending.fate_known.is_set():
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _name_in(words: str, *, anywhere: bool) -> tuple[str | None, str]:
    """The request that is named, and the other words; behind `/deny` the name comes first."""
    if anywhere:
        typed = [word.strip("`").lower() for word in words.split()]
        names = [word for word in typed if _NAME.fullmatch(word)]
        return (names[0] if names else None), " ".join(word for word in typed if word not in names[:1])
    first, _, rest = words.strip().partition(" ")
    named = first.strip("`").lower()
    return (named, rest.strip()) if _NAME.fullmatch(named) else (None, words.strip())
