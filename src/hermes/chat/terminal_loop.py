"""The terminal conversation: prompt, answer, prompt again, until the person leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hermes import errors
from hermes.agent import auto_maintenance
from hermes.agent.answer import Answer, collect_answer
from hermes.agent.approvals.request import DENY
from hermes.agent.events import ApprovalAsked, Event
from hermes.agent.turn import TRASH_HINT
from hermes.chat import lease_conflict
from hermes.chat.busy_notice import BUSY, BUSY_S, BusyNotice
from hermes.chat.commands.table import Leave, parse_command, run_command
from hermes.chat.input import quiet_keyboard
from hermes.chat.input.approval import ask_approval
from hermes.chat.input.question import Option, Stopped
from hermes.chat.leaving import may_leave, say_goodbye
from hermes.chat.message_sending import send_message
from hermes.chat.shell_escape import parse_shell_command, run_shell_command
from hermes.chat.view.log_warnings import show_warnings
from hermes.chat.view.recap import make_recap
from hermes.chat.view.screen import format_usage
from hermes.config.config_file import read_setting
from hermes.conversation.background_tasks import BackgroundTasks
from hermes.text import make_printable

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.agent.turn import Turn
    from hermes.chat.input.attachments import File
    from hermes.chat.input.prompt_line import PromptLine
    from hermes.chat.view.screen import Screen
    from hermes.conversation.conversation import Conversation
    from hermes.db.session_db import SessionDB
    from hermes.store.chats.leases import Lease

T = TypeVar("T")

TRASHED = "Session {old} was deleted or moved to the trash. Your next message begins a new session."
PASTED = "Pasted text is sent as a message. To run it, type the ! yourself and paste the command after it."
TWICE_WITHIN_S = 2.0
"""The time within which a second Ctrl-C at an empty prompt ends the program."""
TICK_S = 0.1
ENDS_WITHIN_S = 5.0
"""How many seconds a running answer has to stop after a signal that ends the program."""
AT_ONCE = ("agents",)
"""Slash commands that can run while an answer is made."""
ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the program cleanly, for example when the terminal window is closed."""


class Chat:
    def __init__(self, conversation: Conversation[SessionDB], screen: Screen) -> None:
        self.conversation, self.screen = conversation, screen
        self.prompt_line: PromptLine
        self.prefill = ""
        self.quoted: list[str] = []
        """Outputs of `!!` commands that the model gets with the next message."""
        self.listed: list[str] = []
        """The ids in the last list on the screen, in the order of the list. `/resume 3` selects the third."""
        self.opened = 0
        """How many folded outputs were opened since the last turn. The newest is opened first."""
        self.saved: list[Path] = []
        """The files that `/save` wrote."""
        self.refused_to_leave = 0
        """How many times in a row the person chose to stay when asked about running background processes."""
        self.busy_notice = BusyNotice(self._show_busy)
        self._title: str | None = None
        self._interrupted_at = float("-inf")
        self._stopped: Turn | None = None
        self._is_ending = False
        """Whether a signal has asked to end the program."""
        self._listen: Callable[[], None] = _ignore_interrupt
        self._typed: quiet_keyboard.TypedAhead | None = None
        self._commands = BackgroundTasks()
        """The slash commands that are running while an answer is made."""
        self._printing = asyncio.Lock()
        """Held by a command or a question that uses the screen during an answer."""

    # ---------------------------------------------------------------- the loop

    async def run(
        self,
        resuming: str | None = None,
        asked_cwd: Path | None = None,
        question: str = "",
        files: Sequence[File] = (),
    ) -> None:
        """Run the terminal conversation until the person leaves.

        `resuming` is the session to resume, and `asked_cwd` the working directory from the command line.
        `question` is the first message, and `files` are its attachments. The question may come from a script.
        It is therefore never parsed as a command, and files that it mentions are not attached.
        """
        self.prompt_line.open_output = self._open_output
        self._typed = quiet_keyboard.TypedAhead(
            self.prompt_line.keyboard, self._run_at_once, self.screen.show_typed
        )
        beside = asyncio.create_task(self._finish_start())
        me = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in ENDINGS:
            loop.add_signal_handler(number, self._end, me)
        try:
            # The echo stays off between a turn and the next prompt.
            with show_warnings(self._show_warning), quiet_keyboard.suppress_echo():
                if resuming is None or await self.enter(resuming, asked_cwd):
                    if resuming is None:
                        self.greet()
                    if question:
                        self.screen.print_input(question)
                        self.prompt_line.pasted = [question]
                        with self._ignore_interrupts():
                            await self._handle_input(question, files)
                    if not self._is_ending:
                        await self._converse()
        except (Leave, asyncio.CancelledError):
            pass
        finally:
            for number in ENDINGS:
                loop.remove_signal_handler(number)
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            await say_goodbye(self)

    def _end(self, me: asyncio.Task[Any] | None) -> None:
        """Handle a signal that ends the terminal program. `me` is the task of the program.

        If an answer is being made, it is stopped first, so that its messages are stored as after Ctrl-C. The
        program waits for this at most `ENDS_WITHIN_S` seconds. It does not wait on a second signal, or if a
        question to the person is on the screen.
        """
        is_answering = self.conversation.turn is not None and not self._printing.locked()
        if is_answering and not self._is_ending:
            self._stop()
            asyncio.get_running_loop().call_later(ENDS_WITHIN_S, self._end, me)
        elif me is not None:
            me.cancel()
        self._is_ending = True

    async def _converse(self) -> None:
        while True:
            prefill, self.prefill = self.prefill, ""
            if parse_shell_command(prefill) is not None:
                # the text was sent as a message before, so it must not be run as a command
                prefill = f" {prefill}"
            # on an error, the toolbar shows the previous title
            with self._ignore_interrupts(), suppress(errors.StoreError):
                self._title = await asyncio.to_thread(self.conversation.get_title)
            try:
                typed = await self.prompt_line.ask(prefill)
            except EOFError:
                if await may_leave(self):
                    return
                continue
            except KeyboardInterrupt:
                if time.monotonic() - self._interrupted_at < TWICE_WITHIN_S:
                    if await may_leave(self):
                        return
                    continue
                self._interrupted_at = time.monotonic()
                self.screen.print_note("Press Ctrl-C again, or Ctrl-D, to exit.")
                continue
            self.refused_to_leave = 0
            if typed.strip():
                with self._ignore_interrupts():
                    await self._handle_input(typed)
            if self._is_ending:
                return

    async def _handle_input(self, typed: str, files: Sequence[File] | None = None) -> None:
        """Run an input as a command or send it as a message. `files` is None for an input from the prompt. For
        the question on the command line, `files` are its attachments, and the question is never parsed as a
        command."""
        text = typed.strip()
        shell = None if files is not None else parse_shell_command(typed)
        command = None if files is not None else parse_command(text)
        if shell is not None and self.prompt_line.begins_with_paste:
            self.screen.print_note(PASTED)
            shell = None
        try:
            if shell is not None:
                await run_shell_command(self, shell)
            elif command is None:
                await send_message(self, text, files=files or ())
            else:
                await self._leave_trashed()
                await run_command(self, command.name, command.words)
        except Leave:
            raise
        except errors.HermesError as problem:
            self.screen.print_problem(str(problem))
        except Exception as problem:  # the program must survive any error
            if os.environ.get("HERMES_TRACEBACK"):
                raise
            self.screen.print_problem(
                f"unexpected {type(problem).__name__}: {problem} (HERMES_TRACEBACK=1 shows where)"
            )

    async def _leave_trashed(self) -> None:
        """If another process moved the current session to the trash, start a new session and tell the person.
        A command must not act on a trashed session."""
        old = None
        with suppress(errors.StoreError):  # the command reports the error
            old = await self.conversation.leave_trashed()
        if old is not None:
            self.screen.print_note(f"{TRASHED.format(old=old)} {TRASH_HINT}")

    async def _finish_start(self) -> None:
        """Do the work that can wait until the prompt is shown: load the model and run maintenance."""
        await self.prompt_line.wait_until_drawn()
        await self._load_model()
        if self.conversation.parts.warning is not None:
            with suppress(errors.HermesError):
                warned = await asyncio.to_thread(self.conversation.parts.warning)
                if warned is not None:
                    await self.prompt_line.print_above(lambda: self.screen.print_aside(warned))
        if not self.conversation.incognito:
            line = await auto_maintenance.tidy_in_thread(self.conversation.store)
            if line is not None:
                await self.prompt_line.print_above(lambda: self.screen.print_aside(line))

    def load_model_later(self) -> None:
        """Start to load the model of a conversation that a slash command resumed. Do not wait for the
        model."""
        self._commands.start(self._load_model())

    async def _load_model(self) -> None:
        """Load the model while the person types. Show the model of a resumed conversation, or the reason why
        no model can be loaded."""
        notice = None
        try:
            await self.conversation.prepare()
            if self.conversation.models is not None:
                notice = self.conversation.models.take_notice()
            self.prompt_line.refresh()
        except errors.HermesError as problem:
            wrong = str(problem)
            await self.prompt_line.print_above(lambda: self.screen.print_aside(wrong, "bold red"))
        if notice is not None:
            line = notice
            await self.prompt_line.print_above(lambda: self.screen.print_aside(line))

    # ---------------------------------------------------------------- the screen

    def greet(self) -> None:
        if self.conversation.incognito:
            self.screen.print_line(
                "Incognito: nothing of this conversation is written anywhere, unless you /save it.",
                "bold #af87ff",
            )
        self.screen.print_note("Hermes. /help lists the commands, Ctrl-D exits.")

    def format_toolbar(self) -> str:
        conversation = self.conversation
        name = self._title or conversation.queued_title or ("" if conversation.exists else "new conversation")
        model = None if conversation.models is None else conversation.models.model
        used = (
            conversation.total
            if conversation.total.model or model is None
            else conversation.total._replace(model=model.name)
        )
        usage = (
            format_usage(used)
            if conversation.total.model
            else (make_printable(model.name) if model is not None else "")
        )
        return " · ".join(filter(None, (make_printable(name, width_limit=40), usage, str(conversation.cwd))))

    async def _show_warning(self, text: str) -> None:
        await self.prompt_line.print_above(lambda: self.screen.print_aside(text, "yellow"))

    async def _show_busy(self) -> None:
        await self.prompt_line.print_above(lambda: self.screen.print_aside(BUSY))

    async def _open_output(self) -> None:
        """Show the next folded tool output or reasoning in full, above the prompt."""
        from hermes.chat.commands.tool_output import open_next

        try:
            opened = await open_next(self)
        except errors.HermesError as problem:
            wrong = str(problem)
            await self.prompt_line.print_above(lambda: self.screen.print_problem(wrong))
        else:
            await self.prompt_line.print_above(lambda: self.screen.show(opened))

    async def has_history(self) -> bool:
        return bool(await self.conversation.load_rows())

    async def confirm(self, question: str) -> bool:
        """Ask for confirmation and return whether the person confirms. If the person has turned the question
        off, return True without asking."""
        if read_setting("approvals", "destructive_slash_confirm") is False:
            return True
        options = [
            Option("once", "yes", "y"),
            Option("always", "yes, and do not ask again", "a"),
            Option("cancel", "no", "n"),
        ]
        chosen = await self.choose(question, options, default=2)
        keep = self.conversation.parts.keep_setting
        if chosen == "always" and keep is not None:
            await asyncio.to_thread(keep, "approvals.destructive_slash_confirm", False)
        return chosen in ("once", "always")

    # ---------------------------------------------------------------- resuming a conversation

    async def enter(self, session_id: str, asked_cwd: Path | None = None) -> bool:
        """Resume a conversation in this terminal. Return False if another process works in it and the person
        decides not to open it."""
        try:
            with self.busy_notice.watch():
                notes = await self.conversation.switch_to(session_id, asked_cwd=asked_cwd, reopen=False)
        except errors.LeaseHeld as conflict:
            return await self.resolve_conflict(session_id, conflict.holder)
        await self.show_recap(notes)
        return True

    async def resolve_conflict(self, session_id: str, lease: Lease) -> bool:
        """If another process works in the conversation, ask the person how to continue. Return False if the
        person decides not to open the conversation."""
        return await lease_conflict.resolve_conflict(self, session_id, lease)

    async def show_recap(self, notes: list[str]) -> None:
        """Print which session was resumed, then `notes`, then the recap of its recent messages."""
        rows = await self.conversation.load_rows()
        title = await asyncio.to_thread(self.conversation.get_title)
        by_person = sum(1 for row in rows if row["role"] == "user")
        name = f' "{make_printable(title)}"' if title else ""
        count = f"{by_person} user message{'' if by_person == 1 else 's'}, {len(rows)} total messages"
        self.screen.print_line(f"↻ Resumed session {self.conversation.session_id}{name} ({count})", "bold")
        for line in notes:
            self.screen.print_note(line)
        if not rows:
            self.screen.print_note("This conversation has no messages yet; it starts empty.")
        elif read_setting("display", "resume_display") != "minimal":
            self.screen.print_recap(make_recap(rows))

    # ---------------------------------------------------------------- turns

    async def answer(self, content: Any, *, typed_text: str = "") -> Answer:
        """Send a message, show the answer and return it. If `content` is None, answer the last stored message
        again. If the message is not sent, `typed_text` is put into the next prompt."""
        self.opened = 0
        self.screen.begin()
        ticking = asyncio.create_task(self._tick())
        me = asyncio.current_task()
        try:
            with (
                quiet_keyboard.suppress_echo(),
                self.handle_interrupts(self._stop, me),
                self._typed.read() if self._typed is not None else nullcontext(),
            ):
                answer = await collect_answer(self.conversation.say(content), self._show_event)
        except errors.HermesError:
            self.prefill = typed_text  # the message was not sent
            raise
        finally:
            await self._commands.cancel(BUSY_S)
            ticking.cancel()
            taken = self.conversation.last_turn
            self.screen.end(taken if taken.model else None)
        if answer.lost_lease is not None:
            await lease_conflict.handle_takeover(self, typed_text)
        return answer

    async def _show_event(self, event: Event) -> None:
        if isinstance(event, ApprovalAsked):
            await self._ask_approval(event)
        self.screen.handle_event(event)

    def _run_at_once(self, text: str) -> bool:
        """Run a slash command that was typed while an answer is made. Return False if the command must wait for
        the next prompt."""
        parsed = parse_command(text)
        if parsed is None or parsed.name not in AT_ONCE:
            return False
        self._commands.start(self._run_beside_answer(parsed.name, parsed.words))
        return True

    async def _run_beside_answer(self, name: str, words: str) -> None:
        """Run a slash command while an answer is made, and print the reply of the command above the answer."""
        async with self._printing:
            self.screen.pause()
            try:
                await run_command(self, name, words)
            except errors.HermesError as problem:
                self.screen.print_problem(str(problem))
            finally:
                self.screen.resume()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """During the `with` block, redraw the live region of the screen regularly, so that the elapsed time in
        it is updated."""
        task = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            task.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.screen.tick()

    def _ignore_interrupts(self) -> AbstractContextManager[None]:
        """Use this around a command, or after an answer, when nothing can be stopped. Each of the first two
        presses of Ctrl-C only prints a hint. The third press ends the program."""
        hint = "Nothing to stop here; the third Ctrl-C exits."
        return self.handle_interrupts(lambda: self.screen.print_note(hint), asyncio.current_task())

    def _stop(self) -> None:
        self._stopped = self.conversation.turn
        self.conversation.stop()
        self.screen.show_stopping()

    @contextmanager
    def handle_interrupts(
        self, stop: Callable[[], object], me: asyncio.Task[Any] | None = None
    ) -> Iterator[None]:
        """During the `with` block, call `stop` on the first and the second Ctrl-C. From the third on, Ctrl-C
        cancels the task `me`; if `me` is None, it calls `stop` too."""
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
            if around is _ignore_interrupt:
                loop.remove_signal_handler(signal.SIGINT)
            else:
                around()

    async def choose(self, question: str, options: Sequence[Option[T]], *, default: int = 0) -> T | None:
        """Ask the person to choose one of the options. Return the value of the chosen option, or None for Esc,
        Ctrl-D or Ctrl-C."""
        try:
            with self.busy_notice.pause():
                return await self.prompt_line.choose(question, options, default=default)
        except Stopped:
            return None
        finally:
            self._listen()  # restore the Ctrl-C handler that the question replaced

    async def _ask_approval(self, event: ApprovalAsked) -> None:
        """Ask the person whether they approve a tool call, and pass the decision to the turn. Ctrl-C stops the
        turn."""
        turn = self.conversation.turn
        if turn is None:
            return
        async with self._printing:
            self.screen.pause()
            if self._typed is not None:
                self._typed.hand_over()
            try:
                decision = DENY
                if self._stopped is not turn:
                    decision = await ask_approval(event.request, self.screen, self.prompt_line)
            except Stopped:
                self._stop()
            finally:
                self._listen()  # restore the Ctrl-C handler that the question replaced
                self.screen.resume()
        turn.decide(event.number, decision)


def _ignore_interrupt() -> None:
    """Ignore SIGINT while the prompt is open; the prompt handles Ctrl-C as a key."""
