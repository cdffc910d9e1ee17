"""The approval requests of one chat. The owner answers with `/approve`, `/deny` or a button, or they time out.

A request exists only in memory, while its turn runs. A restart discards all requests, and their actions are not
executed. Each request has a random name, so that an answer to an old question cannot be mistaken for an answer
to a new one.
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
from hermes.db.store_queue import call_store_early
from hermes.gateway import incidents
from hermes.gateway.context import GatewayContext
from hermes.gateway.inbound.approval_text import format_limit, format_question, make_choices, offered_scopes
from hermes.gateway.outbound.delivery import OutgoingMessage
from hermes.gateway.outbound.markdown_format import format_code
from hermes.gateway.outbound.outgoing_message import DEFAULT_MAX_LENGTH
from hermes.gateway.outbound.retry import until_stored

if TYPE_CHECKING:
    from hermes.gateway.commands.command_context import ChatCommandContext
    from hermes.gateway.inbound.chat_state import Chat

log = logging.getLogger(__name__)

Decide = Callable[[int, Decision], bool]

MOST_REMEMBERED = 50
"""Maximum number of finished requests to remember. The same limit applies to the ids of answer messages."""
CLOSE_S = 5.0
"""Time limit for posting the outcomes of open questions at shutdown."""
LONGEST_NOTE = 1000
"""Maximum number of characters after `/deny` that are passed to the model."""

NOTHING_WAITS = "Nothing is waiting for an approval."
GONE = "◌ The request had already ended, so the answer has no effect."
STOPPED = "⏹ Not done: the turn was stopped."
RESTARTED = "⏹ Not done: I was restarted. I ask again if it is still needed."
TOO_LONG = (
    "⚠ An action needs your approval, but it is too long to be shown here, so it was refused."
    " At a terminal (`/handoff`) you can approve it."
)
TOO_LONG_NOTE = (
    "it is too long to be shown to the owner in this chat; make it shorter, or do it in several steps"
)
UNDELIVERED_NOTE = "the question could not be delivered to the owner's chat"

_LETTERS, _DIGITS = "bcdfghjkmnpqrstvwxz", "23456789"
_NAME = re.compile(f"[{_LETTERS}][{_DIGITS}][{_LETTERS}][{_DIGITS}]")


def record_decision(*, subject: str, allowed: bool, scope: Scope | None, surface: str) -> None:
    """Record the decision about an approval request in the audit log. The program log omits the requested action,
    because it may contain text of a person."""
    audit_log.record("approval answered", subject=subject, allowed=allowed, scope=scope, surface=surface)
    log.info("an approval on %s was %s", surface, "given" if allowed else "refused")


class PendingApproval:
    """An approval request that waits for an answer, and how far the messages that ask for it are delivered."""

    def __init__(
        self, name: str, event: ApprovalAsked, decide: Decide, who: str | None, seconds: float
    ) -> None:
        self.name, self.number, self.request = name, event.number, event.request
        self.decide, self.who = decide, who
        self.expires_at = clock.now() + seconds
        self.idempotency_prefix = f"approval:{secrets.token_hex(16)}"
        self.question = ""
        """The text of the question's last message. A long question consists of several messages."""
        self.undelivered = 0
        self.delivered_at: float | None = None
        """The time at which the last message of the question was delivered. None before that."""
        self.message_id: str | None = None
        """The platform id of the question's last message."""
        self.fate_known = asyncio.Event()
        self.over = asyncio.Event()
        self.outcome: str | None = None


class Approvals:
    def __init__(self, context: GatewayContext, chat: Chat) -> None:
        self._context, self._chat = context, chat
        self._waiting: dict[str, PendingApproval] = {}
        self._finished: OrderedDict[str, str] = OrderedDict()
        """Outcomes of the last finished requests, by name."""
        self._answers: deque[str] = deque(maxlen=MOST_REMEMBERED)
        """Ids of the last answer messages. If the platform delivers such a message again, it is ignored."""
        self._tasks: dict[asyncio.Task[None], PendingApproval] = {}
        self._on_settled: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> Sequence[PendingApproval]:
        return list(self._waiting.values())

    # ---------------------------------------------------------------- asking

    def ask(self, event: ApprovalAsked, decide: Decide, on_settled: Callable[[], None]) -> None:
        """Ask the owner in this chat to approve the action in `event`. The decision is passed to the turn by
        calling `decide`. `on_settled` is called when no more approval requests wait in this chat."""
        name = self._new_name()
        pending = PendingApproval(
            name, event, decide, self._chat.source.participant, self._context.approval_seconds
        )
        self._waiting[name], self._on_settled = pending, on_settled
        task = asyncio.create_task(self._attend(pending), name=f"approval {name}")
        self._tasks[task] = pending
        task.add_done_callback(self._on_done)

    def _new_name(self) -> str:
        while True:
            name = "".join(secrets.choice(signs) for signs in (_LETTERS, _DIGITS) * 2)
            if name not in self._waiting and name not in self._finished:
                return name

    def _on_done(self, task: asyncio.Task[None]) -> None:
        pending = self._tasks.pop(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("an approval could not be asked for", exc_info=problem)
            note = "the question could not be asked"
            self._settle(pending, Decision(False, note=note), f"⚠ Not done: {note}.")

    async def _attend(self, pending: PendingApproval) -> None:
        """Post the question of an approval request, wait for the answer or the timeout, and then show the outcome
        below the question."""
        limit = format_limit(self._context.approval_seconds)
        try:
            async with asyncio.timeout(self._context.approval_seconds):
                await self._post_question(pending)
                await pending.over.wait()
        except TimeoutError:
            note = f"nobody answered within {limit}"
            outcome = f"⌛ Not done: {note}."
            if self._settle(pending, Decision(False, note=note), outcome):
                await self._post(
                    f"{outcome} {format_code(pending.name)}", f"{pending.idempotency_prefix}:timeout"
                )
        await self._remember(f"An approval ({format_code(pending.name)}) was asked for. {pending.outcome}")
        await self._show_outcome(pending)

    async def _post_question(self, pending: PendingApproval) -> None:
        context, chat = self._context, self._chat
        adapter = context.adapters.get(chat.source.platform)
        seconds = context.approval_seconds
        parts = (
            format_question(pending.name, pending.request, seconds, DEFAULT_MAX_LENGTH)
            if adapter is None
            else format_question(
                pending.name, pending.request, seconds, adapter.capabilities.max_length, adapter.measure
            )
        )
        if parts is None:
            self._settle(pending, Decision(False, note=TOO_LONG_NOTE), "⚠ Refused: too long to be shown.")
            await self._post(TOO_LONG, pending.idempotency_prefix)
            return
        pending.undelivered = len(parts)
        for number, text in enumerate(parts, 1):
            if pending.over.is_set():
                return
            is_last, idempotency_key = number == len(parts), f"{pending.idempotency_prefix}:{number}"
            context.delivery.watch(idempotency_key, self._watch_delivery(pending, is_last))
            choices = make_choices(pending.name, pending.request) if is_last else ()
            await self._post_message(OutgoingMessage(chat.source, text, choices=choices), idempotency_key)
        pending.question = parts[-1]

    def _watch_delivery(self, pending: PendingApproval, is_last: bool) -> Callable[[str, str | None], None]:
        def tell(state: str, message_id: str | None) -> None:
            if state == "failed":  # an action that was not shown cannot be approved
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
        """Edit the question of an approval request so that its outcome stands below it. The edit also removes the
        buttons. Do nothing if the question was not delivered or the platform cannot edit messages."""
        if not pending.question:
            return
        await pending.fate_known.wait()
        adapter = self._context.adapters.get(self._chat.source.platform)
        if pending.message_id is not None and adapter is not None and adapter.capabilities.edits:
            text = f"{pending.question}\n\n{pending.outcome}"
            message = OutgoingMessage(self._chat.source, text, edits=pending.message_id)
            await self._post_message(message, f"{pending.idempotency_prefix}:outcome")

    async def _post(self, text: str, idempotency_key: str) -> None:
        await self._post_message(OutgoingMessage(self._chat.source, text), idempotency_key)

    async def _post_message(self, message: OutgoingMessage, idempotency_key: str) -> None:
        key, session = self._chat.key, self._chat.session_id
        await until_stored(lambda: self._context.delivery.post(key, message, idempotency_key, session))

    async def _remember(self, text: str) -> None:
        """Record `text` as an incident of this chat, for `/why`. It must not contain the action that was to be
        approved, because an incident can outlive the conversation."""
        await until_stored(
            lambda: call_store_early(incidents.add_incident, self._context.db, self._chat.key, text)
        )

    # ---------------------------------------------------------------- answering

    def answer(self, context: ChatCommandContext, words: str, *, allowed: bool) -> str:
        """Apply the answer to an approval request that a person gave with `/approve`, `/deny` or a button. `words`
        is the text after the command, and `allowed` is True for `/approve`. Return the reply for the person."""
        if not context.can_approve:
            return NOTHING_WAITS  # the same reply as in a chat without requests
        is_new = context.message_id is None or context.message_id not in self._answers
        if context.message_id is not None:
            self._answers.append(context.message_id)
        name, rest = _split_name(words, anywhere=allowed)
        pending = self._find(context, name, must_be_displayed=allowed) if is_new else NOTHING_WAITS
        if isinstance(pending, str):
            return pending
        return self._approve(pending, rest) if allowed else self._deny(pending, rest)

    def _find(
        self, context: ChatCommandContext, name: str | None, *, must_be_displayed: bool
    ) -> PendingApproval | str:
        """Return the approval request that the sender answers, or the text of an error reply. `name` is the name of
        the request in the answer, or None if the answer names none. With `must_be_displayed`, an answer without a
        name counts only if it was sent after the question was delivered."""
        mine = {
            pending.name: pending
            for pending in self._waiting.values()
            if pending.who == context.source.participant
        }
        if name is not None:
            return mine.get(name) or self._finished_text(name)
        if not mine:
            last = next(reversed(self._finished), None)
            return (
                NOTHING_WAITS
                if last is None
                else f"{NOTHING_WAITS} The last was {self._describe_settled(last)}"
            )
        if len(mine) > 1:
            names = ", ".join(format_code(name) for name in mine)
            example = format_code(f"/approve {next(iter(mine))}")
            return f"{len(mine)} requests are waiting: {names}. Name one of them, as in {example}."
        (only,) = mine.values()
        # A command that was sent before the question was delivered cannot be its answer.
        was_displayed = (
            only.delivered_at is not None
            and context.sent_at is not None
            and context.sent_at >= only.delivered_at
        )
        if must_be_displayed and not was_displayed:
            command = format_code(f"/approve {only.name}")
            return f"You sent that before the question was shown. To confirm: {command}"
        return only

    def _finished_text(self, name: str) -> str:
        is_known = name in self._finished
        return (
            f"The request has ended: {self._describe_settled(name)}"
            if is_known
            else f"No request {format_code(name)} is waiting."
        )

    def _describe_settled(self, name: str) -> str:
        return f"{format_code(name)}: {self._finished[name]}"

    def _approve(self, pending: PendingApproval, words: str) -> str:
        offered, word = offered_scopes(pending.request), words.lower()
        if word not in ("", "once", *offered):
            if word in ("always", "like"):
                return f"This option is not available here. To approve once: {format_code(f'/approve {pending.name}')}"
            return "Usage: `/approve [name] [once, always or like]`. Nothing was approved."
        scope = offered.get(word)
        lasting = {
            Scope.COMMAND: ", and this command from now on",
            Scope.EDITS: ", and edits from now on",
            Scope.PREFIX: f", and every command that begins with `{pending.request.prefix}` from now on",
        }
        outcome = f"✓ Approved{lasting[scope] if scope else ', once'}."
        self._settle(pending, Decision(True, scope), outcome)
        return f"{pending.outcome} {format_code(pending.name)}"

    def _deny(self, pending: PendingApproval, why: str) -> str:
        self._settle(pending, Decision(False, note=why[:LONGEST_NOTE]), "✗ Denied.")
        return f"{pending.outcome} {format_code(pending.name)}"

    def _settle(self, pending: PendingApproval, decision: Decision, outcome: str) -> bool:
        """Pass the decision about an approval request to its turn. Return False if a decision was passed before, or
        if the turn no longer waits for one."""
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
        """End all waiting approval requests of this chat without approval, because the turn has ended. `outcome` is
        the text that their questions then show."""
        for pending in self.waiting:
            self._finish(pending, outcome)

    async def close(self) -> None:
        """Shut down. For questions that were delivered, post the outcome. Drop the questions that were not
        delivered."""
        for task, pending in self._tasks.items():
            if not pending.fate_known.is_set():
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _split_name(words: str, *, anywhere: bool) -> tuple[str | None, str]:
    """Split `words`, the text after `/approve` or `/deny`, into the name of an approval request and the remaining
    words. The name is None if `words` contains no name. With `anywhere`, any word can be the name; otherwise only
    the first word can."""
    if anywhere:
        typed = [word.strip("`").lower() for word in words.split()]
        names = [word for word in typed if _NAME.fullmatch(word)]
        return (names[0] if names else None), " ".join(word for word in typed if word not in names[:1])
    first, _, rest = words.strip().partition(" ")
    named = first.strip("`").lower()
    return (named, rest.strip()) if _NAME.fullmatch(named) else (None, words.strip())
