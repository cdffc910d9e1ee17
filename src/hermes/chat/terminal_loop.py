"""The conversation at a terminal: ask, answer, ask again, until the person leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hermes import clock, errors
from hermes.agent import auto_maintenance
from hermes.agent import events as happened
from hermes.agent.approvals.request import DENY
from hermes.agent.turn import TRASH_HINT
from hermes.chat import lease_conflict
from hermes.chat.commands.agent_settings import Leave
from hermes.chat.commands.table import typed
from hermes.chat.farewell import farewell
from hermes.chat.input import quiet_keyboard
from hermes.chat.input.approval import ask_approval
from hermes.chat.input.file_mentions import with_files
from hermes.chat.input.question import Option, Stopped
from hermes.chat.view.log_lines import warnings_on_screen
from hermes.chat.view.recap import recap
from hermes.chat.view.screen import status
from hermes.config.config_file import read_setting
from hermes.text import make_printable

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.agent.turn import Turn
    from hermes.chat.input.prompt_line import Prompting
    from hermes.chat.session import Talk
    from hermes.chat.view.screen import Screen

T = TypeVar("T")

TRASHED = "Session {old} was deleted or moved to the trash. What you say next begins a new one."
BUSY_S = 1.5
"""After so long without an answer from the store a person is told what they wait for."""
TWICE_WITHIN_S = 2.0
TICK_S = 0.1
ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""A window that is closed ends the conversation as properly as its person would."""


class Chat:
    def __init__(self, talk: Talk, screen: Screen) -> None:
        self.talk, self.screen = talk, screen
        self.prompting: Prompting
        self.prefill = ""
        self.listed: list[str] = []
        """Ids in the order of the last list that was shown: `/resume 3` means the third."""
        self.opened = 0
        """Folded outputs that were opened since the last turn, the newest first."""
        self._title: str | None = None
        self._interrupted_at = float("-inf")
        self._stopped: Turn | None = None
        self._listen: Callable[[], None] = _nobody_listens

    # ---------------------------------------------------------------- the loop

    async def run(self, resuming: str | None = None, asked: Path | None = None) -> None:
        """Until the person leaves; `resuming` is the conversation to go on in, `asked` the directory they named."""
        self.prompting.open_output = self._open_output
        beside = asyncio.create_task(self._once_shown())
        me = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in ENDINGS:
            loop.add_signal_handler(number, lambda: me.cancel() if me is not None else None)
        try:
            with (
                warnings_on_screen(self._show_warning),
                quiet_keyboard.unseen(),
            ):  # also between a turn and the next prompt
                if resuming is None or await self.enter(resuming, asked=asked, first=True):
                    if resuming is None:
                        self.greet()
                    await self._converse()
        except (Leave, asyncio.CancelledError):
            pass
        finally:
            for number in ENDINGS:
                loop.remove_signal_handler(number)
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            await self._part()

    async def _converse(self) -> None:
        while True:
            prefill, self.prefill = self.prefill, ""
            with self._patient(), suppress(errors.StoreError):  # the toolbar can do without
                self._title = await asyncio.to_thread(self.talk.title)
            try:
                text = (await self.prompting.ask(prefill)).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                if time.monotonic() - self._interrupted_at < TWICE_WITHIN_S:
                    return
                self._interrupted_at = time.monotonic()
                self.screen.note("Ctrl-C again leaves; so does Ctrl-D.")
                continue
            if text:
                with self._patient():
                    await self._take(text)

    async def _take(self, text: str) -> None:
        command = typed(text)
        try:
            if command is None:
                await self.answer(with_files(text, self.talk.cwd), typed_text=text)
            elif command.command is None:
                alike = ", ".join(f"/{name}" for name in command.alike)
                hint = f"; there are {alike}" if alike else "; /help lists them"
                self.screen.problem(f"There is no command {text.split()[0]}{hint}")
            else:
                await self._leave_trashed()
                await command.command.run(self, command.argument)
        except Leave:
            raise
        except errors.HermesError as problem:
            self.screen.problem(str(problem))
        except Exception as problem:  # whatever happened, the conversation goes on
            if os.environ.get("HERMES_TRACEBACK"):
                raise
            self.screen.problem(
                f"unexpected {type(problem).__name__}: {problem} (HERMES_TRACEBACK=1 shows where)"
            )

    async def _leave_trashed(self) -> None:
        """Say so if the session of this conversation was trashed elsewhere: a command must not act on it."""
        old = None
        with suppress(errors.StoreError):  # the command says that the store cannot be read
            old = await self.talk.leave_trashed()
        if old is not None:
            self.screen.note(f"{TRASHED.format(old=old)} {TRASH_HINT}")

    async def _once_shown(self) -> None:
        """What can wait until the person sees a prompt: the model is made, and the store is looked after."""
        await self.prompting.shown()
        try:
            await self.talk.agent()
            self.prompting.refresh()
        except errors.HermesError as problem:
            wrong = str(problem)
            await self.prompting.above(lambda: self.screen.aside(wrong, "bold red"))
        if self.talk.parts.warning is not None:
            with suppress(errors.HermesError):
                warned = await asyncio.to_thread(self.talk.parts.warning)
                if warned is not None:
                    await self.prompting.above(lambda: self.screen.aside(warned))
        if not self.talk.incognito:
            line = await auto_maintenance.tidy_in_thread(self.talk.db)
            if line is not None:
                await self.prompting.above(lambda: self.screen.aside(line))

    async def _part(self) -> None:
        """Leave the conversation to others, and tell how to come back."""
        rows: list[dict[str, Any]] = []
        with suppress(errors.StoreError):
            rows = [row for row in await self.talk.rows() if row.get("role") != "system"]
        kept, title = self.talk.exists, None
        with suppress(errors.StoreError):
            title = await asyncio.to_thread(self.talk.title)
        await self.talk.leave()
        if self.talk.incognito:
            self.screen.line("Goodbye. Nothing of this was kept.")
            return
        seconds = clock.now() - self.talk.began
        for line in farewell(self.talk.session_id, title, seconds, rows if kept else []):
            self.screen.line(line)

    # ---------------------------------------------------------------- what is on the screen

    def greet(self) -> None:
        if self.talk.incognito:
            self.screen.line("Incognito: nothing of this conversation is written anywhere.", "bold #af87ff")
        self.screen.note("Hermes. /help lists the commands, Ctrl-D leaves.")

    def toolbar(self) -> str:
        talk = self.talk
        name = self._title or talk.queued_title or ("" if talk.exists else "new conversation")
        model = talk.answering.model
        used = talk.total if talk.total.model or model is None else talk.total._replace(model=model.name)
        shown = (
            status(used) if talk.total.model else (make_printable(model.name) if model is not None else "")
        )
        return " · ".join(filter(None, (make_printable(name, width_limit=40), shown, str(talk.cwd))))

    async def _show_warning(self, text: str) -> None:
        await self.prompting.above(lambda: self.screen.aside(text, "yellow"))

    async def _open_output(self) -> None:
        """Show the next folded output above the prompt."""
        from hermes.chat.commands.tool_output import open_next

        try:
            opened = await open_next(self)
        except errors.HermesError as problem:
            wrong = str(problem)
            await self.prompting.above(lambda: self.screen.problem(wrong))
        else:
            await self.prompting.above(lambda: self.screen.show(opened))

    async def has_history(self) -> bool:
        return bool(await self.talk.rows())

    def numbered(self, text: str) -> str | None:
        """The conversation that a number of the last list stands for."""
        number = int(text) if text.isdecimal() and len(text) < 6 else 0
        return self.listed[number - 1] if 0 < number <= len(self.listed) else None

    async def confirmed(self, question: str) -> bool:
        """Whether the person wants it: this time, or from now on without being asked."""
        if read_setting("approvals", "destructive_slash_confirm") is False:
            return True
        options = [
            Option("once", "yes", "y"),
            Option("always", "yes, and do not ask again", "a"),
            Option("cancel", "no", "n"),
        ]
        chosen = await self.choose(question, options, default=2)
        keep = self.talk.parts.keep_setting
        if chosen == "always" and keep is not None:
            await asyncio.to_thread(keep, "approvals.destructive_slash_confirm", False)
        return chosen in ("once", "always")

    # ---------------------------------------------------------------- going on in a conversation

    async def enter(self, session_id: str, *, asked: Path | None = None, first: bool = False) -> bool:
        """Go on in a conversation; False if the person would rather not, because somebody else works in it."""
        if not first and session_id == self.talk.session_id:
            self.screen.line("Already on that session.")
            return True
        patience = asyncio.get_running_loop().call_later(
            BUSY_S, self.screen.note, "The store is busy; waiting …"
        )
        try:
            told = await self.talk.resume(session_id, asked=asked)
        except errors.LeaseHeld as held:
            patience.cancel()  # from here on the person is waited for, not the store
            return await lease_conflict.decide(self, session_id, held.holder)
        finally:
            patience.cancel()
        await self.recall(told)
        return True

    async def recall(self, told: list[str]) -> None:
        """Say where we are, and what was said."""
        rows = await self.talk.rows()
        title = await asyncio.to_thread(self.talk.title)
        by_person = sum(1 for row in rows if row["role"] == "user")
        name = f' "{make_printable(title)}"' if title else ""
        count = f"{by_person} user message{'' if by_person == 1 else 's'}, {len(rows)} total messages"
        self.screen.line(f"↻ Resumed session {self.talk.session_id}{name} ({count})", "bold")
        for line in told:
            self.screen.note(line)
        if not rows:
            self.screen.note("Nothing was said in it yet; it starts fresh.")
        elif read_setting("display", "resume_display") != "minimal":
            self.screen.recap(recap(rows))

    # ---------------------------------------------------------------- one turn

    async def answer(self, content: Any, *, typed_text: str = "") -> None:
        """Say something and show what comes of it. None tries again with what was said last."""
        self.opened = 0
        lost: errors.LeaseLost | None = None
        self.screen.begin()
        ticking = asyncio.create_task(self._tick())
        me = asyncio.current_task()
        try:
            with quiet_keyboard.unseen(), self.interruptible(self._stop, me):
                async with aclosing(self.talk.say(content)) as happening:
                    async for event in happening:
                        if isinstance(event, happened.ApprovalAsked):
                            await self._decide(event)
                        self.screen.event(event)
                        if isinstance(event, happened.Failed) and isinstance(event.error, errors.LeaseLost):
                            lost = event.error
        except errors.HermesError:
            self.prefill = typed_text  # nobody heard it
            raise
        finally:
            ticking.cancel()
            taken = self.talk.taken
            self.screen.end(taken if taken.model else None)
        if lost is not None:
            await lease_conflict.overtaken(self, typed_text)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.screen.tick()

    def _patient(self) -> AbstractContextManager[None]:
        """An answer that is just done, or a command that cannot be stopped, does not end the conversation."""
        told = "Nothing to stop here; the third Ctrl-C leaves."
        return self.interruptible(lambda: self.screen.note(told), asyncio.current_task())

    def _stop(self) -> None:
        if self.talk.turn is not None:
            self._stopped = self.talk.turn
            self.talk.turn.stop()

    @contextmanager
    def interruptible(
        self, stop: Callable[[], object], me: asyncio.Task[Any] | None = None
    ) -> Iterator[None]:
        """Ctrl-C stops what is going on; where that does not help, the third one leaves."""
        loop, pressed = asyncio.get_running_loop(), 0

        def on_interrupt() -> None:
            nonlocal pressed
            pressed += 1
            if pressed > 2 and me is not None:
                me.cancel()
            else:
                stop()

        def listen() -> None:
            loop.add_signal_handler(signal.SIGINT, on_interrupt)

        around, self._listen = self._listen, listen
        listen()
        try:
            yield
        finally:
            self._listen = around
            if around is _nobody_listens:
                loop.remove_signal_handler(signal.SIGINT)
            else:
                around()

    async def choose(self, question: str, options: Sequence[Option[T]], *, default: int = 0) -> T | None:
        """The value of the option that the person chooses; None for Esc, Ctrl-D or Ctrl-C."""
        try:
            return await self.prompting.choose(question, options, default=default)
        except Stopped:
            return None
        finally:
            self._listen()  # the question had Ctrl-C for itself

    async def _decide(self, asked: happened.ApprovalAsked) -> None:
        """Ask the person whether a tool may act, and answer the turn. Ctrl-C stops it."""
        turn = self.talk.turn
        if turn is None:
            return
        self.screen.pause()
        try:
            decision = DENY
            if self._stopped is not turn:
                decision = await ask_approval(asked.request, self.screen, self.prompting)
        except Stopped:
            self._stop()
        finally:
            self._listen()  # the question had Ctrl-C for itself
            self.screen.go_on()
        turn.decide(asked.number, decision)


def _nobody_listens() -> None:
    """Between turns Ctrl-C is a key of the prompt."""
