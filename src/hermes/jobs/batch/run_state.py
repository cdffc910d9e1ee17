"""The state of a run: a folder with the prompts and an append-only journal.

    state/run.json        the name of the run, the model and a digest of the prompts
    state/prompts.jsonl   the checked prompts, so that a run does not need its prompt file any more
    state/journal.jsonl   one line for each start, failed attempt and result, in the order in which they happened

The journal is written when something happens, so it survives the death of the process. It is synced to disk in the
background, because nothing depends on its last lines: an answer is durable in the store before its result is
written to the journal, and a prompt without a result is looked up in the store before it is asked again.

Results stay on disk. In memory, a prompt takes a few bytes.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes import clock, home
from hermes.append_files import lock_descriptor
from hermes.atomic_files import lock_private_folder, replace_file, sync_folder, write_new_file
from hermes.errors import HermesError
from hermes.jobs.batch.prompt_file import Prompt
from hermes.store.sessions.sessions import new_session_id

LAYOUT = 1
FOLDER, RUN, PROMPTS, JOURNAL = "state", "run.json", "prompts.jsonl", "journal.jsonl"
SYNC_EVERY_S = 0.5
LOCK_S = 2.0
"""How long to wait for the lock of a run. `hermes batch status` holds it for a moment."""
NOWHERE = -1

State = Literal["queued", "running", "done", "failed"]
STATES: tuple[State, ...] = ("queued", "running", "done", "failed")
QUEUED, RUNNING, DONE, FAILED = range(4)


class RunRefused(HermesError):
    """The folder cannot be used for this batch run. The message says what to do."""


class RunInfo(msgspec.Struct, frozen=True):
    """The facts of a batch run that never change. They are stored in `run.json`."""

    run_id: str
    """The ids of the run's sessions begin with it."""
    created_at: float
    model: str
    file: str
    """The path of the prompt file."""
    store: str
    total: int
    digest: str
    """The digest of all prompts. A run continues only with the same prompts."""
    layout: int = LAYOUT

    def make_session_id(self, number: int) -> str:
        return f"{self.run_id}_{number}"


class Tokens(msgspec.Struct, frozen=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Result(msgspec.Struct, frozen=True):
    """The outcome of a prompt of a batch."""

    status: Literal["done", "failed"]
    session_id: str
    answer: str | None = None
    error: str | None = None
    attempts: int = 1
    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    """The cost of all attempts; None if it is unknown."""
    seconds: float = 0.0


class Entry(msgspec.Struct, omit_defaults=True):
    """One line of the journal of a batch run: an event of the prompt `number`."""

    number: int
    event: Literal["started", "attempt_failed", "finished", "requeued"]
    at: float
    error: str | None = None
    result: Result | None = None


class Counts(msgspec.Struct, frozen=True):
    queued: int
    running: int
    done: int
    failed: int


_encoder, _entry_decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Entry)
_prompt_decoder = msgspec.json.Decoder(Prompt)


def find_run(folder: Path) -> RunInfo | None:
    """Return the facts of the batch run in a folder. None if the folder contains no run. Raise `RunRefused` if they
    cannot be read."""
    file = folder / FOLDER / RUN
    try:
        info = msgspec.json.decode(file.read_bytes(), type=RunInfo)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise RunRefused(f"{file} cannot be read: {problem.strerror or problem}") from problem
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise RunRefused(f"{file} is damaged; choose another folder") from None
    if info.layout > LAYOUT:
        raise RunRefused(f"{folder} was written by a newer version of hermes")
    return info


def require_run(folder: Path) -> RunInfo:
    info = find_run(folder)
    if info is None:
        raise RunRefused(f"{folder} contains no batch; `hermes batch run FILE --out {folder}` starts one")
    return info


def digest_prompts(prompts: Iterable[Prompt]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(_encoder.encode(prompt) + b"\n")
    return digest.hexdigest()


def create_run(folder: Path, prompts: Iterable[Prompt], *, file: Path, model: str, store: Path) -> RunInfo:
    """Create the folder of a batch run with its prompts and an empty journal. The file `run.json` is written last. If
    the process dies before that, the folder contains no run."""
    state = folder / FOLDER
    home.make_private_folder(state)
    with lock_private_folder(state):
        if find_run(folder) is not None:
            raise RunRefused(f"another process has just started a batch in {folder}")
        digest, total = hashlib.sha256(), 0
        with write_new_file(state / PROMPTS, replace=True) as stream:
            for prompt in prompts:
                line = _encoder.encode(prompt) + b"\n"
                digest.update(line)
                stream.write(line)
                total += 1
        with suppress(FileNotFoundError):
            (state / JOURNAL).unlink()
        os.close(home.create_private_file(state / JOURNAL))
        info = RunInfo(
            new_session_id(), clock.now(), model, str(file.absolute()), str(store), total, digest.hexdigest()
        )
        replace_file(state / RUN, _encoder.encode(info) + b"\n")
        sync_folder(folder)
    return info


def is_running(folder: Path) -> bool:
    """Return whether a process works on the batch run in this folder."""
    try:
        descriptor = os.open(folder / FOLDER / JOURNAL, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_descriptor(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


class RunState:
    """The prompts of a batch run and their states. Prompts are numbered from 1 in the order of the prompt file.

    With `writes`, the run is locked for this process, which can then add to the journal. Without `writes`, the journal
    is read once, when the object is created.
    """

    def __init__(self, folder: Path, *, writes: bool = False) -> None:
        self.folder, self.info = folder, require_run(folder)
        self._states = bytearray(self.info.total + 1)
        self._counts = [self.info.total, 0, 0, 0]
        self._attempts = array("L", [0]) * (self.info.total + 1)
        self._failures = array("L", [0]) * (self.info.total + 1)
        self._results = array("q", [NOWHERE]) * (self.info.total + 1)
        """The position of the last result of each prompt in the journal."""
        self.cost_usd = 0.0
        """The known cost of all results."""
        self.started_at: float | None = None
        self.changed_at: float | None = None
        self._prompt_lines = os.open(folder / FOLDER / PROMPTS, os.O_RDONLY | os.O_CLOEXEC)
        self._starts = _find_lines(self._prompt_lines)
        flags = os.O_RDWR if writes else os.O_RDONLY
        self._journal = os.open(folder / FOLDER / JOURNAL, flags | os.O_CLOEXEC)
        self._writes = writes
        try:
            if writes:
                _lock(self._journal, folder)
            self._end = self._replay()
            if writes:
                os.ftruncate(self._journal, self._end)  # remove a line that was cut off by a crash
        except BaseException:
            self.close()
            raise
        self._is_dirty = False
        if len(self._starts) - 1 != self.info.total:
            self.close()
            raise RunRefused(f"{folder / FOLDER / PROMPTS} was changed; choose another folder")

    def _replay(self) -> int:
        """Read the whole journal and apply its lines to the states of the prompts. Return the position after its last
        complete line."""
        at = 0
        with open(self._journal, "rb", closefd=False) as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                try:
                    self._apply(_entry_decoder.decode(line), at)
                except (msgspec.DecodeError, msgspec.ValidationError, IndexError):
                    raise RunRefused(
                        f"{self.folder / FOLDER / JOURNAL} is damaged; choose another folder"
                    ) from None
                at += len(line)
        return at

    def _apply(self, entry: Entry, at: int) -> None:
        number = entry.number
        self.started_at, self.changed_at = self.started_at or entry.at, entry.at
        match entry.event:
            case "started":
                self._set(number, RUNNING)
                self._attempts[number] += 1
            case "requeued":
                self._set(number, QUEUED)
                self._attempts[number] = self._failures[number] = 0
            case "attempt_failed":
                self._failures[number] += 1
            case "finished" if entry.result is not None:
                self._set(number, DONE if entry.result.status == "done" else FAILED)
                before = self.read_result(number)
                self.cost_usd += (entry.result.cost_usd or 0.0) - ((before and before.cost_usd) or 0.0)
                self._results[number] = at
            case _:
                pass

    def _set(self, number: int, state: int) -> None:
        self._counts[self._states[number]] -= 1
        self._counts[state] += 1
        self._states[number] = state

    # ---------------------------------------------------------------- reading

    @property
    def total(self) -> int:
        return self.info.total

    @property
    def counts(self) -> Counts:
        return Counts(*self._counts)

    def get_state(self, number: int) -> State:
        return STATES[self._states[number]]

    def get_attempts(self, number: int) -> int:
        """Return how often the prompt `number` was started since it was last queued."""
        return self._attempts[number]

    def get_failures(self, number: int) -> int:
        """Return how many attempts of the prompt `number` failed since it was last queued. An attempt that ended with
        the death of the process does not count."""
        return self._failures[number]

    def is_finished(self, number: int) -> bool:
        return self._states[number] in (DONE, FAILED)

    def has_result(self, number: int) -> bool:
        """Return whether the prompt `number` has a result. A failed prompt that is tried again keeps its old result
        until it has a new one."""
        return self._results[number] != NOWHERE

    def read_prompt(self, number: int) -> Prompt:
        start, end = self._starts[number - 1], self._starts[number]
        return _prompt_decoder.decode(os.pread(self._prompt_lines, end - start, start))

    def read_result(self, number: int) -> Result | None:
        at = self._results[number]
        if at == NOWHERE:
            return None
        return _entry_decoder.decode(_read_line(self._journal, at)).result

    def list_results(self, status: str | None = None) -> Iterator[tuple[int, Prompt, Result]]:
        """Yield the number, the prompt and the result of each prompt that has a result, in the order of the prompt
        file. With `status`, yield only results with this status."""
        for number in range(1, self.total + 1):
            result = self.read_result(number)
            if result is not None and status in (None, result.status):
                yield number, self.read_prompt(number), result

    # ---------------------------------------------------------------- writing

    def start(self, number: int) -> None:
        self._write(Entry(number, "started", clock.now()))

    def record_failed_attempt(self, number: int, error: str) -> None:
        self._write(Entry(number, "attempt_failed", clock.now(), error=error))

    def finish(self, number: int, result: Result) -> None:
        self._write(Entry(number, "finished", clock.now(), result=result))

    def requeue_failed(self) -> int:
        """Queue all failed prompts again. Their attempts are counted from 0 again. Return the number of these
        prompts."""
        failed = [number for number in range(1, self.total + 1) if self._states[number] == FAILED]
        for number in failed:
            self._write(Entry(number, "requeued", clock.now()))
        return len(failed)

    def _write(self, entry: Entry) -> None:
        assert self._writes
        line = _encoder.encode(entry) + b"\n"
        try:
            if os.pwrite(self._journal, line, self._end) != len(line):
                raise OSError(28, "the disk is full")
        except OSError as problem:
            raise HermesError(f"{self.folder} cannot be written: {problem.strerror or problem}") from problem
        at, self._end = self._end, self._end + len(line)
        self._is_dirty = True
        self._apply(entry, at)

    def sync(self) -> None:
        """Wait until all lines written to the journal so far are on disk."""
        if self._is_dirty:
            self._is_dirty = False
            os.fsync(self._journal)

    async def keep_synced(self) -> None:
        """Sync the journal about twice a second, until the task is cancelled."""
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            if self._is_dirty:
                await asyncio.to_thread(self.sync)

    def close(self) -> None:
        """Close the journal and the file with the prompts, which also releases the lock of the run. If this object
        could write, the journal is synced to disk first."""
        with suppress(OSError):
            if self._writes:
                os.fsync(self._journal)
        for descriptor in (self._journal, self._prompt_lines):
            with suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> RunState:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _lock(descriptor: int, folder: Path) -> None:
    until = time.monotonic() + LOCK_S
    while not lock_descriptor(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
        if time.monotonic() > until:
            raise RunRefused(
                f"another process works on {folder}; `hermes batch status {folder}` shows its progress"
            )
        time.sleep(0.02)


def _find_lines(descriptor: int) -> array[int]:
    """Return the positions at which the lines of a file start, followed by the size of the file."""
    starts = array("q", [0])
    with open(descriptor, "rb", closefd=False) as stream:
        for line in stream:
            starts.append(starts[-1] + len(line))
    return starts


def _read_line(descriptor: int, at: int) -> bytes:
    parts: list[bytes] = []
    while part := os.pread(descriptor, 4096 if not parts else 1 << 20, at):
        end = part.find(b"\n")
        if end >= 0:
            parts.append(part[:end])
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
