"""A worker process for the tests in this folder.

    python workers.py

The worker reads one command per line, `{"do": NAME, ...}`. It answers each with one or more lines of JSON.
The last line of an answer has `done` or `error`. Each command is a small function in this file. It does one
thing to a store that other processes use at the same time. Nothing is imported from the tests, so a worker
starts fast and opens no other files.
"""

from __future__ import annotations

import json
import linecache
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hermes import errors
from hermes.store.content import from_json
from hermes_state import SessionDB
from tests.survival.processes import impatient

stores: dict[str, SessionDB] = {}
others: dict[str, Any] = {}
notices: list[str] = []


def say(**answer: Any) -> None:
    """Write one line of JSON in a single write, so that a kill cannot truncate it."""
    os.write(1, (json.dumps(answer) + "\n").encode())


# --- one store, step by step


def open_store(path: str, name: str = "main", **options: Any) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        stores[name] = SessionDB(Path(path), **options)
    notices.extend(f"{warning.category.__name__}: {warning.message}" for warning in seen)


def append(session: str, texts: list[str], name: str = "main") -> list[int]:
    db = stores[name]
    db.ensure_session(session, "cli")
    return [db.append_message(session, "user", text) for text in texts]


def append_only(session: str, texts: list[str], name: str = "main") -> list[int]:
    return [stores[name].append_message(session, "user", text) for text in texts]


def append_or_spool(session: str, texts: list[str], name: str = "main") -> list[list[Any]]:
    """Append the texts. For each text, return [result, error message, message id or spool file]."""
    collected: list[list[Any]] = []
    for text in texts:
        try:
            collected.append(["stored", "", stores[name].append_message(session, "user", text)])
        except errors.HermesError as problem:
            collected.append([type(problem).__name__, str(problem), problem.spooled and str(problem.spooled)])
    return collected


def contents(session: str, name: str = "main") -> list[Any]:
    return [row["content"] for row in stores[name].get_messages(session)]


def found(query: str, name: str = "main") -> list[int]:
    return [row["id"] for row in stores[name].search_messages(query, limit=10_000)]


def back_up(target: str, name: str = "main") -> int:
    return stores[name].backup(Path(target)).messages


def diagnosed(name: str = "main") -> list[str]:
    """Return the problems with the data of the store. Problems with permissions are left out."""
    return [f.what for f in stores[name].diagnose(deep=True).findings if f.what.startswith("Store")]


def health(name: str = "main") -> list[str]:
    report = stores[name].verify()
    return [] if report.ok else report.lines()


def close(name: str = "main") -> None:
    stores.pop(name).close()


def purge(session: str, name: str = "main") -> bool:
    return stores[name].delete_session(session, purge=True)


def purge_until(session: str, step: str, name: str = "main") -> bool:
    """Purge a session. The process is killed when it enters the function `step`."""

    def look(frame: Any, event: str, called: Any) -> None:
        qualified = frame.f_code.co_qualname if event == "call" else getattr(called, "__qualname__", "")
        if event in ("call", "c_call") and qualified == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)
    return purge(session, name)


def visit(path: str, session: str, texts: list[str], **options: Any) -> list[int]:
    """Open the store, write and close it. The last process that closes a store removes the log."""
    open_store(path, "visit", **options)
    ids = append(session, texts, "visit")
    close("visit")
    return ids


def visit_with_old_library(path: str, session: str, texts: list[str]) -> None:
    """Open the store, write and close it as a program with the interpreter's SQLite does. That library
    removes the log even if our process still uses it."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT OR IGNORE INTO sessions (id, source, started_at) VALUES (?, 'cli', 1000.0)", (session,)
    )
    for text in texts:
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?, 1000.0)",
            (session, text),
        )
    connection.execute("COMMIT")
    connection.close()


def count_all(name: str = "main") -> list[int]:
    return [stores[name].session_count(), stores[name].message_count()]


def log_inode(path: str) -> int | None:
    try:
        return os.stat(path + "-wal").st_ino
    except FileNotFoundError:
        return None


# --- failures


def read_raw(path: str) -> int:
    """Open, read and close a file in this process, as programs for backups, searches or hashes do."""
    with open(path, "rb") as file:
        return len(file.read())


def without_lock() -> None:
    """Behave as on a system without open file description locks. There, only the inode of the log shows that
    it was removed."""
    sys.platform = "somewhere"


def second_library(path: str, name: str = "second") -> None:
    import sqlite3

    others[name] = sqlite3.connect(path, isolation_level=None)
    others[name].execute("SELECT count(*) FROM sessions").fetchall()


def attach_second_library(path: str, name: str = "second") -> None:
    import sqlite3

    others[name] = sqlite3.connect(":memory:", isolation_level=None)
    others[name].execute("ATTACH ? AS live", (path,))
    others[name].execute("SELECT count(*) FROM live.sessions").fetchall()


def close_second_library(name: str = "second") -> None:
    others.pop(name).close()


def hold_write_lock(path: str, seconds: float) -> None:
    """Hold a write transaction as another program does. Print `held` when it has begun and `done` after its
    end."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("BEGIN IMMEDIATE")
    say(held=True)
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()


def hold_half_a_change(path: str) -> None:
    """Begin a change as another program does. Print `held`, and keep the transaction open until the process
    is killed."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA cache_spill=1")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("CREATE TABLE half (way)")
    say(held=True)
    signal.pause()


def hold_lock_now_and_then(path: str, seconds: float, each: float) -> None:
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    until = time.monotonic() + seconds
    say(held=True)
    while time.monotonic() < until:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(each)
        connection.execute("ROLLBACK")
        time.sleep(each / 3)
    connection.close()


def hold_snapshot(path: str) -> None:
    """Begin a read transaction and keep it open."""
    import sqlite3

    others["reading"] = sqlite3.connect(path, isolation_level=None)
    others["reading"].execute("BEGIN")
    others["reading"].execute("SELECT count(*) FROM messages").fetchall()


def execute_raw(sql: str, name: str = "main") -> list[Any]:
    """Run a statement as a script does, on the connection that the script got for its first statement."""
    if f"raw {name}" not in others:
        others[f"raw {name}"] = stores[name].raw()
    return [list(row) for row in others[f"raw {name}"].execute(sql).fetchall()]


def append_scoped(person: str, texts: list[str], name: str = "main") -> list[int]:
    """Append as a person on a platform, through a handle that sees only the sessions of that person."""
    from hermes.store.people import Principal

    store = stores[name].scoped(Principal("telegram", person))
    session = next((row["id"] for row in store.list_sessions_rich()), None) or store.create_session()
    return [store.append_message(session, "user", text) for text in texts]


def contents_scoped(person: str, name: str = "main") -> list[Any]:
    from hermes.store.people import Principal

    store = stores[name].scoped(Principal("telegram", person))
    return [row["content"] for each in store.list_sessions_rich() for row in store.get_messages(each["id"])]


def begin_long_read(name: str = "main") -> int:
    """Begin a read that stays open, like a slow export."""
    reading = stores[name]._engine.read()
    others[f"reading {name}"] = reading
    return int(reading.__enter__().value("SELECT count(*) FROM messages"))


def end_long_read(name: str = "main") -> None:
    others.pop(f"reading {name}").__exit__(None, None, None)


def append_with_threads(session: str, threads: int, count: int, name: str = "main") -> None:
    """Append messages in several threads. Each thread prints a line for each acknowledged message."""

    def work(number: int) -> None:
        for n in range(count):
            stores[name].append_message(session, "user", f"t{number}n{n}")
            say(stored=f"t{number}n{n}")

    wrong: list[str] = []
    _run_threads([partial(work, number) for number in range(threads)], wrong)
    say(wrong=wrong)


def open_store_with_pause(path: str) -> None:
    """Open a store in two steps. After its files were examined and before SQLite opens them, wait for another
    line."""
    from hermes.store.sqlite import opener

    names = vars(opener)
    connect = names["connect"]

    def wait_and_connect(*arguments: Any, **options: Any) -> Any:
        names["connect"] = connect
        say(waits=True)
        sys.stdin.readline()
        return connect(*arguments, **options)

    names["connect"] = wait_and_connect
    open_store(path)


def append_despite_errors(session: str, threads: int, count: int, prefix: str, name: str = "main") -> None:
    """Append, and print a line per acknowledged message. Refused messages are dropped."""
    from hermes import errors

    def work(number: int) -> None:
        for n in range(count):
            text = f"{prefix} t{number}n{n}"
            try:
                stores[name].append_message(session, "user", text)
            except errors.StoreError:
                continue
            say(stored=text)

    wrong: list[str] = []
    _run_threads([partial(work, number) for number in range(threads)], wrong)
    say(wrong=wrong)


# --- limits


def limit_files(size: int | None) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def limit_descriptors(most: int) -> None:
    import resource

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def use_up_descriptors(but: int = 0) -> None:
    """Open files until the limit of descriptors is reached, then close `but` of them."""
    held = others.setdefault("descriptors", [])
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        free_descriptors(but)


def free_descriptors(count: int | None = None) -> None:
    held = others.get("descriptors", [])
    for _ in range(len(held) if count is None else min(count, len(held))):
        os.close(held.pop())


def read_in_threads(session: str, threads: int, times: int, name: str = "main") -> None:
    """Read in several threads that start at the same time."""
    begin = threading.Barrier(threads)

    def work() -> None:
        begin.wait()
        for _ in range(times):
            stores[name].get_messages(session)

    wrong: list[str] = []
    _run_threads([work] * threads, wrong)
    assert not wrong, wrong


def close_idle_readers_at_once() -> None:
    from hermes.store.sqlite import reader_pool

    reader_pool.IDLE_S = 0.0


def become_nobody(folder: str) -> None:
    """Drop all privileges. First import the modules that a store imports later, because they may not be
    readable afterwards."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        visit(f"{place}/state.db", "s", ["warm up"])
        open_store(f"{place}/state.db", "reader", read_only=True)
        try:
            append("s", ["refused"], "reader")
        except errors.StoreReadOnly:
            found("warm", "reader")
        assert not health("reader")
        assert not diagnosed("reader")
        back_up(f"{place}/copy.db", "reader")
        close("reader")
    from_json("{}", None)  # this loads the decoder for records of other processes
    os.chdir(folder)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


def write_ahead_log_unfit(folder: str) -> str:
    """Treat the file system of the store as one on which a write-ahead log is not safe."""
    from hermes.store.sqlite.wal import journal_choice

    kind = journal_choice.journal_for(Path(folder, "x"))[1]
    journal_choice.UNFIT_FOR_WAL = frozenset({kind})
    return kind


def change_mode(path: str, mode: int) -> None:
    os.chmod(path, mode)


def set_umask(mask: int) -> None:
    os.umask(mask)


def logged() -> list[str]:
    return [*notices]


def journal_mode(name: str = "main") -> str:
    return str(stores[name].raw().execute("PRAGMA journal_mode").fetchone()[0])


def be_impatient(seconds: float, name: str = "main") -> None:
    impatient(stores[name], seconds)


# --- work for a while; each prints a line per step


def keep_appending(path: str, session: str, tag: str, search_every: int = 0, **options: Any) -> None:
    """Append numbered messages until the process is killed. Print `n` when message n is acknowledged."""
    db = SessionDB(Path(path), **options)
    db.ensure_session(session, "cli")
    say(open=True)
    n = 0
    while True:
        role = ("user", "assistant")[n % 2]
        number = db.append_message(session, role, f"{tag}n{n} the quick brown fox is message {n}")
        say(n=n, id=number)
        n += 1
        if search_every and n % search_every == 0:
            db.search_messages(f"{tag}n{n - 1}")


def keep_spooling(path: str, session: str, tag: str) -> None:
    """Append numbered messages until the process is killed, with a short time limit. Print `n` when message n
    is stored or spooled."""
    db = SessionDB(Path(path), spool=True)
    impatient(db, 0.01)
    say(open=True)
    n, begun = 0, False
    while True:
        kept = False
        try:
            if not begun:
                db.ensure_session(session, "cli")
                begun = True
            db.append_message(session, "user", f"{tag}n{n} the quick brown fox")
        except errors.StoreError as problem:
            if problem.spooled is None:
                raise
            kept = True
            if not begun:  # the session is spooled, and its message was not tried yet
                begun = True
                continue
        say(n=n, kept=kept)
        n += 1


ENOUGH = 10


def write_for(path: str, me: str, seconds: float) -> None:
    """Write to three kinds of sessions: one that is kept, many that end and may be pruned, and one that
    another process deletes."""
    db = SessionDB(Path(path))
    db.ensure_session(f"keep-{me}", "cli")
    db.ensure_session(f"victim-{me}", "cli")
    say(open=True)
    until, n, worst, deleted, ended = time.monotonic() + seconds, 0, 0.0, False, []
    while time.monotonic() < until or n < ENOUGH or not deleted:  # a busy machine needs longer
        before = time.monotonic()
        db.append_message(f"keep-{me}", "user", f"kept{me}n{n} word")
        worst = max(worst, time.monotonic() - before)
        if not deleted:
            try:
                db.append_message(f"victim-{me}", "user", f"doomed{me}n{n}")
            except errors.UnknownSession:
                deleted = True
        if n % 5 == 0:
            passing = f"passing-{me}-{n}"
            db.create_session(passing, "cli")
            db.append_message(passing, "user", f"passing{me}n{n}")
            db.end_session(passing, "cli_close")
            ended.append(passing)
        n += 1
    db.close()
    say(count=n, worst=worst, deleted=deleted, ended=ended)


def read_for(path: str, seconds: float, writers: list[str]) -> None:
    """Check that every read shows a prefix of the messages of each writer. A read never shows fewer messages
    than the previous one."""
    db = SessionDB(Path(path))
    say(open=True)
    until, looks = time.monotonic() + seconds, 0
    seen = dict.fromkeys(writers, 0)
    while time.monotonic() < until:
        for me in writers:
            texts = [row["content"] for row in db.get_messages(f"keep-{me}")]
            assert texts == [f"kept{me}n{n} word" for n in range(len(texts))], texts
            assert len(texts) >= seen[me], (len(texts), seen[me])
            seen[me] = len(texts)
            hits = db.search_messages("word", limit=100_000)
            mine = [row for row in hits if row["session_id"] == f"keep-{me}"]
            assert len(mine) >= len(texts), (len(mine), len(texts))
            for row in db.list_sessions_rich(limit=1000):
                assert row["last_active"] >= row["started_at"], row
            looks += 1
    db.close()
    say(looks=looks)


def prune_for(path: str, seconds: float) -> None:
    db = SessionDB(Path(path))
    say(open=True)
    until, pruned = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        pruned += db.prune_sessions(older_than_days=0)
        time.sleep(0.02)  # still far more often than in real use
    db.close()
    say(pruned=pruned)


def delete_for(path: str, victims: list[str]) -> None:
    """Delete each session as soon as it has three messages. Print a line for each deleted session."""
    db = SessionDB(Path(path))
    say(open=True)
    left = list(victims)
    while left:
        for victim in [*left]:
            if db.message_count(victim) >= 3:
                assert db.delete_session(victim)
                left.remove(victim)
                say(deleted=victim)
    db.close()
    say(left=left)


def churn_for(path: str, me: str, seconds: float, seed: int) -> None:
    """Append, search and list while another program writes plain SQL. Rows may vanish."""
    rng = random.Random(seed)
    db = SessionDB(Path(path))
    say(open=True)
    until, n, session = time.monotonic() + seconds, 0, ""
    while time.monotonic() < until:
        if n % 12 == 0:
            session = f"ours-{me}-{seed}-{n}"
            db.create_session(session, "cli")
        try:
            role = rng.choice(("user", "assistant"))
            db.append_message(session, role, f"ours word{rng.randrange(1000)} façade 端午 {me}")
        except errors.UnknownSession:
            n = -1  # the other program deleted it: begin another session
        action = rng.randrange(8)
        if action == 0:
            db.search_messages(
                rng.choice(("foreign", "façade", "端午", "привет", f"word{rng.randrange(1000)}"))
            )
        elif action == 1:
            db.list_sessions_rich(limit=30, order_by_last_active=bool(n % 2))
        elif action == 2 and n > 0:
            db.end_session(session, rng.choice(("compression", "branched", "cli_close")))
        n += 1
        time.sleep(rng.random() / 100)  # give the other program time, because its busy handler is not fair
    db.close()


# --- threads


def append_in_threads(path: str, threads: int, each: int) -> dict[str, Any]:
    """Append in several threads through one store. Every seventh append names a session that does not
    exist."""
    db = SessionDB(Path(path))
    for me in range(threads):
        db.create_session(f"t{me}", "cli")
    start, refused, wrong = threading.Barrier(threads), [0] * threads, []
    ids: list[list[int]] = [[] for _ in range(threads)]

    def work(me: int) -> None:
        start.wait()
        for n in range(each):
            if n % 7 == 3:
                try:
                    db.append_message("nobody", "user", "lost")
                    wrong.append("an append to an unknown session was accepted")
                except errors.UnknownSession:
                    refused[me] += 1
            ids[me].append(db.append_message(f"t{me}", "user", f"t{me}n{n}"))

    _run_threads([lambda me=me: work(me) for me in range(threads)], wrong)  # type: ignore[misc]
    db.close()
    return {"ids": ids, "refused": refused, "wrong": wrong}


def interrupted_writers(path: str, threads: int, seconds: float) -> None:
    """Write in several threads. One of them is the main thread, which is interrupted by real signals. Print
    the acknowledged messages at the end."""
    db = SessionDB(Path(path))
    acknowledged: list[list[Any]] = []
    wrong: list[str] = []
    lock = threading.Lock()
    stop = threading.Event()

    def write(me: str) -> None:
        n = 0
        while not stop.is_set():
            number = db.append_message("shared", "user", f"{me}n{n}")
            with lock:
                acknowledged.append([me, n, number])
            n += 1

    db.ensure_session("shared", "cli")
    started = [
        threading.Thread(target=_noting(lambda me=me: write(f"w{me}"), wrong), daemon=True)  # type: ignore[misc]
        for me in range(threads)
    ]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for thread in (*started, threading.Thread(target=_tell_if_stuck, args=(stop, seconds + 10), daemon=True)):
        thread.start()
    until, n, interrupted = time.monotonic() + seconds, 0, 0
    mine: list[list[Any]] = []
    armed = False

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal armed
        if armed:  # once per round, so that it interrupts the store and not this function
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    say(open=True)
    while time.monotonic() < until:
        try:
            armed = True
            while time.monotonic() < until:
                n += 1
                number = db.append_message("shared", "user", f"mainn{n}")
                mine.append(["main", n, number])
            armed = False
        except KeyboardInterrupt:
            interrupted += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop.set()
    for thread in started:
        thread.join(20)
        if thread.is_alive():
            wrong.append("a writing thread never came back")
            break
    say(acknowledged=acknowledged + mine, interrupted=interrupted, attempts=n, wrong=wrong)


def interrupted_leader(path: str, followers: int) -> dict[str, Any]:
    """Interrupt the main thread while it leads a group commit and waits for another program's lock.

    A line on stdin says that the lock is held. Then all threads continue.
    """
    db = SessionDB(Path(path))
    db.ensure_session("shared", "cli")
    engine: Any = db._engine
    waiting = engine._queue._waiting
    acknowledged: list[list[Any]] = []
    wrong: list[str] = []
    threads = [
        threading.Thread(
            target=engine._transactions.run_alone,
            args=(lambda _connection: sys.stdin.readline(),),
            daemon=True,
        )
    ]

    def gather_and_interrupt() -> None:
        _wait_until(lambda: len(waiting) == 1)  # the main thread is the next leader
        for me in range(followers):
            work = _noting(lambda me=me: _acknowledge(db, f"follower{me}", acknowledged), wrong)  # type: ignore[misc]
            threads.append(threading.Thread(target=work, daemon=True))
            threads[-1].start()
        _wait_until(lambda: len(waiting) == 1 + followers)
        say(queued=True)
        threads[0].join()
        time.sleep(0.2)  # by now it is in the busy handler
        os.kill(os.getpid(), signal.SIGINT)

    threads[0].start()
    _wait_until(lambda: engine._queue._leader is not None)
    helper = threading.Thread(target=gather_and_interrupt)
    helper.start()
    try:
        _acknowledge(db, "leader", acknowledged)
    except KeyboardInterrupt:
        pass
    helper.join()
    for thread in threads:
        thread.join(20)
        if thread.is_alive():
            wrong.append("a thread waits for ever")
            break
    return {"acknowledged": acknowledged, "wrong": wrong}


def _leaves_a_with(frame: Any, entered: set[tuple[int, int]]) -> bool:
    """Return whether this trace event is the second event of a `with` line. That event occurs at the end of
    the block.

    CPython checks for signals after calls and at the end of a loop iteration. It never checks between the end
    of the body and `__exit__`, so a real signal cannot raise an exception there.
    """
    line = (id(frame), frame.f_lineno)
    if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
        return False
    if line in entered:
        entered.discard(line)
        return True
    entered.add(line)
    return False


def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def _tell_if_stuck(stop: threading.Event, seconds: float) -> None:
    if not stop.wait(seconds):
        stacks = ["".join(traceback.format_stack(frame, 4)) for frame in sys._current_frames().values()]
        say(acknowledged=[], interrupted=0, attempts=0, wrong=["the main thread waits for ever", *stacks])


def interrupted_everywhere(path: str, last: int, crowd: bool) -> dict[str, Any]:
    """Interrupt an append at every line of the write path in turn. After each interruption, other threads
    must still be able to write.

    A signal handler can run between any two lines. With real signals, it would take years until each case has
    occurred.
    """
    from hermes.store.sqlite import engine, group_commit, transactions

    watched = tuple(str(module.__file__) for module in (group_commit, transactions, engine))
    bad: dict[str, str] = {}
    acknowledged: list[list[Any]] = []
    db = SessionDB(Path(path))
    db.ensure_session("shared", "cli")
    at = 0
    while at < last:
        at += 1
        count, where = 0, ""
        entered: set[tuple[int, int]] = set()

        def trace(frame: Any, event: str, _arg: Any) -> Any:
            nonlocal count, where
            if not frame.f_code.co_filename.endswith(watched):
                return None
            if event == "line" and not _leaves_a_with(frame, entered):  # noqa: B023
                count += 1
                if count == at:  # noqa: B023 - it is called within this round only
                    where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        rivals = _rivals(db, at, acknowledged) if crowd else []
        interrupted = False
        sys.settrace(trace)
        try:
            number = db.append_message("shared", "user", f"e{at}")
            sys.settrace(None)
            acknowledged.append([f"e{at}", number])
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(None)
        wrong: list[str] = []
        after = threading.Thread(
            target=_noting(lambda at=at: _acknowledge(db, f"after{at}", acknowledged), wrong),  # type: ignore[misc] # noqa: B023
            daemon=True,
        )
        after.start()
        for thread in (*rivals, after):
            thread.join(2)
            if thread.is_alive():
                wrong.append("others wait for ever")
                break
        try:
            db.get_messages("nobody")
        except errors.HermesError as problem:
            wrong.append(f"reading: {problem}")
        if wrong:
            bad[where] = "; ".join(wrong)
            db = SessionDB(Path(path))
        if not interrupted:
            break  # the whole path was covered
    return {"bad": bad, "acknowledged": acknowledged, "lines": at}


def interrupted_reads(path: str, last: int) -> dict[str, Any]:
    """Interrupt reads at every line of the read path in turn. An interrupted read must not affect the next
    one."""
    from hermes.store.sqlite import connection, engine, transactions
    from hermes.store.sqlite.search import exact_search, index

    watched = tuple(
        str(module.__file__) for module in (transactions, engine, connection, exact_search, index)
    )
    bad: dict[str, str] = {}
    db = SessionDB(Path(path))
    db.ensure_session("shared", "cli")
    db.append_message("shared", "user", "a word")
    looks: tuple[Callable[[], object], ...] = (
        lambda: db.get_messages("shared"),
        lambda: db.search_messages("word"),
        lambda: db.list_sessions_rich(limit=5),
    )
    for look in looks:
        at = 0
        while at < last:
            at += 1
            count, where = 0, ""
            entered: set[tuple[int, int]] = set()

            def trace(frame: Any, event: str, _arg: Any) -> Any:
                nonlocal count, where
                if not frame.f_code.co_filename.endswith(watched):
                    return None
                if event == "line" and not _leaves_a_with(frame, entered):  # noqa: B023
                    count += 1
                    if count == at:  # noqa: B023
                        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                        sys.settrace(None)
                        raise KeyboardInterrupt
                return trace

            interrupted = False
            sys.settrace(trace)
            try:
                look()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                sys.settrace(None)
            try:
                for _ in range(3):
                    assert len(db.get_messages("shared")) == 1
                    assert len(db.search_messages("word")) == 1
                    assert len(db.list_sessions_rich()) == 1
                db.set_meta("still", "here")
            except Exception as problem:  # noqa: BLE001 - whatever it is, it is the finding
                bad[where] = repr(problem)
                db = SessionDB(Path(path))
            if not interrupted:
                break
    return {"bad": bad}


def _rivals(db: SessionDB, at: int, acknowledged: list[list[Any]]) -> list[threading.Thread]:
    threads = [
        threading.Thread(target=_acknowledge, args=(db, f"rival{me}-{at}", acknowledged), daemon=True)
        for me in range(3)
    ]
    for thread in threads:
        thread.start()
    return threads


def _acknowledge(db: SessionDB, text: str, acknowledged: list[list[Any]]) -> None:
    number = db.append_message("shared", "user", text)
    acknowledged.append([text, number])


def _noting(work: Callable[[], None], wrong: list[str]) -> Callable[[], None]:
    def noted() -> None:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 - a thread's failure is part of the answer
            wrong.append(repr(problem))

    return noted


def _run_threads(works: list[Callable[[], None]], wrong: list[str]) -> None:
    threads = [threading.Thread(target=_noting(work, wrong)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- fork


def fork_with_open_store(path: str) -> dict[str, Any]:
    """Fork the process. The child tries the parent's store, closes it, opens its own store, writes and exits.
    The parent continues."""
    db = SessionDB(Path(path))
    db.create_session("parent", "cli")
    db.append_message("parent", "user", "before")
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        result: dict[str, Any] = {}
        try:
            uses: dict[str, Callable[[], object]] = {
                "append": lambda: db.append_message("parent", "user", "from the child"),
                "read": lambda: db.get_messages("parent"),
                "search": lambda: db.search_messages("before"),
            }
            for name, use in uses.items():
                try:
                    use()
                    result[name] = "nothing"
                except errors.HermesError as problem:
                    result[name] = type(problem).__name__
            db.close()
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                own = SessionDB(Path(path))
            result["warned"] = [str(warning.message) for warning in seen]
            own.create_session("child", "cli")
            own.append_message("child", "user", "by the child")
            own.close()
        except BaseException:  # noqa: BLE001
            result["failed"] = traceback.format_exc()
        os.write(send, json.dumps(result).encode())
        os._exit(0)
    db.append_message("parent", "user", "meanwhile")
    os.waitpid(child, 0)
    result = json.loads(os.read(receive, 65536))
    db.append_message("parent", "user", "afterwards")
    return result


# --- the loop

COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(
            open_store,
            change_mode,
            limit_descriptors,
            count_descriptors,
            use_up_descriptors,
            free_descriptors,
            read_in_threads,
            close_idle_readers_at_once,
            execute_raw,
            append_scoped,
            contents_scoped,
            begin_long_read,
            end_long_read,
            append_with_threads,
            append_despite_errors,
            open_store_with_pause,
            append,
            append_only,
            contents,
            found,
            health,
            back_up,
            diagnosed,
            close,
            visit,
            count_all,
            log_inode,
        ),
        *(visit_with_old_library, purge, purge_until, append_or_spool, keep_spooling),
        *(read_raw, without_lock, second_library, attach_second_library, close_second_library),
        *(hold_write_lock, hold_half_a_change, hold_lock_now_and_then, hold_snapshot),
        *(limit_files, become_nobody, write_ahead_log_unfit, set_umask, logged, journal_mode, be_impatient),
        *(keep_appending, write_for, read_for, prune_for, delete_for, churn_for),
        *(
            append_in_threads,
            interrupted_writers,
            interrupted_leader,
            interrupted_everywhere,
            interrupted_reads,
        ),
        fork_with_open_store,
    )
}


class Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        notices.append(record.getMessage())


def main() -> None:
    logging.getLogger("hermes").addHandler(Notices(logging.WARNING))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(done=COMMANDS[order.pop("do")](**order))
        except Exception as problem:  # noqa: BLE001 - the test decides what it means
            kinds = [kind.__name__ for kind in type(problem).__mro__]
            say(error=str(problem), kinds=kinds, trace=traceback.format_exc())


if __name__ == "__main__":
    main()
