"""The live preview of an answer: one message that is sent with the first text and then edited.

A preview never delays the answer. If the preview fails, the answer is not affected. The final text replaces
the preview.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from time import monotonic

from hermes.gateway.adapter import Adapter, AdapterError, DeliveryUnknown, RateLimited, Unreachable
from hermes.gateway.inbound_events import Source
from hermes.gateway.outbound.splitting import fit_beginning
from hermes.logs import get_logger
from hermes.recall.tool.prompt_safety import to_one_line

log = get_logger(__name__)

FIRST_AFTER = 0.7
"""Seconds from the first text to the first preview. An answer that ends sooner is sent as one message without
a preview."""
TYPING_EVERY = 4.0
"""Seconds between two calls of `typing`. Platforms show the typing indicator for about five seconds."""
TYPING_AFTER = 1.0
"""Seconds until the first call of `typing`. An answer that comes sooner needs no indicator."""
SLOWEST = 30.0
UNSENT = "?"
"""Placeholder for the id of a preview that is being sent. It is stored before the preview is sent. If the process
ends before the platform returns the id, the id remains unknown."""
CURSOR = "▌"
WAITS = "⏸ waiting for your approval, see below"
LONGEST_TOOL_NAME = 40


class LiveMessage:
    """The preview message of one running answer, updated by a background task.

    The creator must call `finish` in every case, because `finish` ends the task.
    """

    def __init__(
        self,
        adapter: Adapter,
        to: Source,
        idempotency_key: str,
        clock: Callable[[], float] = monotonic,
        *,
        stream: bool = True,
        reply_to: str | None = None,
        message: str | None = None,
        sent: Callable[[str], Awaitable[None]] | None = None,
        must_wait: Callable[[], bool] = lambda: False,
        slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """Create a preview for an answer. Without `stream`, only the typing indicator is shown.

        - `message`: the id of an earlier preview to continue, or None.
        - `sent`: records the id of the preview message. It is called with `UNSENT` before a preview message is
          sent, and with its id afterwards. It is called with an empty string if nothing was sent, or if the
          message will not be edited any more.
        - `must_wait`: returns whether an earlier message is still undelivered. The preview then waits.
        - `slot`: the context manager within which a new preview message is sent.
        """
        self._adapter = adapter
        self._to = to
        self._idempotency_key = f"{idempotency_key}:preview"  # the final text may become a separate message
        self._previews_left = 0
        self._left_with: str | None = None
        """The last text of a preview message that will not be edited any more. None if there is none."""
        self._is_paused = False
        self._clock = clock
        self._reply_to = reply_to
        self._previews = stream and adapter.capabilities.edits
        self._types = True
        self._every = adapter.capabilities.edit_every
        self._text: list[str] = []
        self._note = ""
        self._last_preview = ""
        self._message = message
        self._sent = sent
        self._must_wait, self._slot = must_wait, slot
        self._show_at = inf
        self._earliest = 0.0
        self._type_at = clock() + TYPING_AFTER
        self._was_logged = False
        self._is_finished = False
        self._woken = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the background task that shows the preview. The task shows the typing indicator if the answer does
        not come soon."""
        if self._work is None and not self._is_finished:
            self._work = asyncio.create_task(self._show_and_wait())

    async def add(self, text: str) -> None:
        self._text.append(text)
        self._note = ""
        await self._schedule()

    async def discard(self) -> None:
        """Discard the text of the answer so far, because the model begins the answer again. The old preview stays
        visible until there is new text."""
        self._text.clear()
        self._note = ""
        await self._schedule()

    async def note(self, tool: str) -> None:
        """Show the name of a running tool below the preview until more text of the answer arrives."""
        self._note = f"⚙ {to_one_line(tool, LONGEST_TOOL_NAME)}…"
        await self._schedule()

    async def pause(self) -> None:
        """Stop the typing indicator until `resume`, because a person is asked a question.

        The current preview stays in the chat, above the question. Later text is shown in a new message, below
        the question.
        """
        self._is_paused, self._note = True, WAITS
        self._left_with = self._preview()
        self._text.clear()
        self._note, self._show_at = "", inf
        await self.begin()
        self._woken.set()

    def resume(self) -> None:
        """Show the typing indicator and new text again, after the question for which `pause` was called was
        answered or withdrawn."""
        self._is_paused, self._type_at = False, 0.0
        self._woken.set()

    async def finish(self) -> str | None:
        """Stop the preview. Return the id of the message that the final text must replace, or None.

        A running request to the platform is completed first, so that it cannot arrive after the final text.
        """
        self._is_finished = True
        self._woken.set()
        if self._work is not None:
            await asyncio.wait((self._work,))
        return self._message

    async def _schedule(self) -> None:
        await self.begin()
        if self._previews and self._show_at == inf and (self._note or any(map(str.strip, self._text))):
            self._show_at = max(self._earliest, self._clock() + (0.0 if self._message else FIRST_AFTER))
            self._woken.set()

    async def _show_and_wait(self) -> None:
        while not self._is_finished:
            self._woken.clear()
            if self._left_with is not None:
                await self._leave_preview(self._left_with)
            elif self._may_type and self._clock() >= self._type_at:
                await self._type()
            elif self._clock() >= self._show_at:
                await self._show()
            try:
                async with asyncio.timeout(self._until_something_is_due()):
                    await self._woken.wait()
            except TimeoutError:
                pass
        if self._left_with is not None:
            await self._leave_preview(self._left_with)

    async def _leave_preview(self, text: str) -> None:
        """Edit the preview message for the last time, so that it shows `text`. Later text of the answer is shown in
        a new message."""
        self._left_with = None
        if self._message is None:
            return
        left, self._message, self._last_preview = self._message, None, ""
        self._previews_left += 1
        self._idempotency_key = (
            f"{self._idempotency_key.partition(':preview')[0]}:preview:{self._previews_left}"
        )
        try:
            if self._sent is not None:
                await self._sent("")
            await self._adapter.edit(self._to, left, text)
        except Exception as error:  # noqa: BLE001 - the old text stays visible
            self._log_once(error)

    def _until_something_is_due(self) -> float | None:
        due = min(self._show_at, self._type_at if self._may_type else inf)
        return None if due == inf else max(0.0, due - self._clock())

    @property
    def _may_type(self) -> bool:
        """Whether the typing indicator may be shown. It is not needed if the first preview is due soon."""
        is_beginning = self._message is None and self._show_at != inf
        return self._types and not self._is_paused and not is_beginning

    async def _type(self) -> None:
        self._type_at = self._clock() + TYPING_EVERY
        try:
            await self._adapter.typing(self._to)
        except RateLimited as error:
            self._type_at = self._clock() + max(error.seconds, TYPING_EVERY)
        except Exception as error:  # noqa: BLE001 - the indicator is optional
            self._types = False
            self._log_once(error)

    async def _show(self) -> None:
        self._show_at = inf
        preview = self._preview()
        if preview == self._last_preview:
            return
        if self._message is None and self._must_wait():
            self._show_at = self._clock() + FIRST_AFTER
            return
        pause = 0.0
        try:
            await self._send_or_edit(preview)
            self._last_preview = preview
        except RateLimited as error:
            self._slow_down()
            pause = error.seconds
        except (Unreachable, DeliveryUnknown) as error:
            self._slow_down()
            # The message may have arrived. Send it again only if the platform ignores duplicates.
            arrived_perhaps = isinstance(error, DeliveryUnknown) and self._message is None
            self._previews = self._adapter.capabilities.idempotent or not arrived_perhaps
            self._log_once(error)
        except Exception as error:  # noqa: BLE001 - the answer does not need a preview
            self._previews = False
            self._message = None  # it cannot be edited, so the final text is a new message
            self._log_once(error)
        self._earliest = self._clock() + max(pause, self._every)
        is_behind = self._previews and self._preview() != self._last_preview
        self._show_at = self._earliest if is_behind else inf

    def _slow_down(self) -> None:
        self._every = min(2 * max(self._every, 0.5), SLOWEST)

    async def _send_or_edit(self, preview: str) -> None:
        if self._message is not None:
            await self._adapter.edit(self._to, self._message, preview)
            return
        async with self._slot():
            if self._is_finished:
                return
            if self._sent is not None:
                await self._sent(UNSENT)
            try:
                self._message = await self._adapter.send(
                    self._to, preview, idempotency_key=self._idempotency_key, reply_to=self._reply_to
                )
            except (Unreachable, RateLimited):
                if self._sent is not None:
                    await self._sent("")
                raise
        self._previews = self._message is not None
        if self._message is not None and self._sent is not None:
            await self._sent(self._message)

    def _preview(self) -> str:
        """Return the text that the preview message must show now. It is the beginning of the answer that fits into
        one message, as complete Markdown. A cursor or the name of the running tool is at its end."""
        note = f"\n\n{self._note}" if self._note else ""
        measure = self._adapter.measure
        room = self._adapter.capabilities.max_length - measure(f" {CURSOR}{note}")
        text = fit_beginning("".join(self._text), room, measure)
        if not text:
            return self._note or self._last_preview
        if note:
            return f"{text}{note}"
        is_fence = text.rpartition("\n")[2].lstrip(" \t>").startswith(("```", "~~~"))
        return f"{text}\n{CURSOR}" if is_fence else f"{text} {CURSOR}"

    def _log_once(self, error: Exception) -> None:
        """Log an error of this preview if it is the first one. If the platform is not available, further errors
        would only fill the log."""
        if not self._was_logged:
            is_expected = isinstance(error, AdapterError)
            log.warning("the preview on %s failed: %s", self._adapter.name, error, exc_info=not is_expected)
        self._was_logged = True
