"""Coordination of forks with SQLite: a fork waits until no other thread of this process is inside SQLite.

Without this wait, a fork would copy SQLite's state while other threads use it. These threads do not exist in
the child, so everything they hold would stay locked there forever: SQLite's mutexes, and the write lock or a
reader slot in SQLite's table of open files. (The table does not record which process holds a lock.) If the
wait takes too long, the child is marked as unable to open a store.

Locks on open file descriptions are shared by parent and child while the child has the descriptors open. So
the child closes these descriptors at once.
"""

from __future__ import annotations

import os
import threading
import time
from _thread import interrupt_main

WAIT_S, NAP_S = 2.0, 0.0005
ANY = 0
"""The thread number that stands for every thread. No thread has this number."""

_inside: dict[object, int] = {}
"""Each running call into SQLite, and the thread that makes it."""
_shared: set[int] = set()
_forking = False
_one_fork = threading.RLock()
_forker, _forks = ANY, 0
"""The forking thread, and the depth of its nested forks.

A signal handler that interrupts a fork may fork again.
"""
_was_torn = False
_interrupted = False


class Inside:
    """A context manager, `with Inside():`, that marks the current thread as inside SQLite during its block.

    The blocks may be nested, and a block may end in another thread.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        self.enter(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self, thread: int = ANY) -> None:
        """Mark `thread` as inside SQLite. Use `ANY` for a call that may be continued in another thread.

        A fork waits until all threads other than the forking one have left SQLite, and until all calls marked
        `ANY` have ended.
        """
        _inside[self] = thread
        if _forking:
            self._wait_outside(thread)

    def leave(self) -> None:
        _inside.pop(self, None)

    def _wait_outside(self, thread: int) -> None:
        me = threading.get_ident()
        if me == _forker or any(thread == me for way, thread in list(_inside.items()) if way is not self):
            return  # the fork waits for this thread, or for a signal handler in it, so this thread must continue
        while _forking:
            _inside.pop(self, None)
            _wait_for_fork()
            _inside[self] = thread


def _wait_for_fork() -> None:
    while _forking:
        time.sleep(NAP_S)


def was_torn() -> bool:
    """Return whether this process was forked while another thread was inside SQLite.

    If so, it must not use SQLite.
    """
    return _was_torn


def share(descriptor: int) -> None:
    """Register a file descriptor that holds file locks, so that a forked child closes its copy of the
    descriptor at once.
    """
    _shared.add(descriptor)


def unshare(descriptor: int) -> None:
    _shared.discard(descriptor)


def _before() -> None:
    """Before a fork, wait until all other threads of this process have left SQLite, or until `WAIT_S` seconds have
    passed.

    A KeyboardInterrupt during the wait is raised after the fork, because the fork cannot be cancelled.
    """
    global _forking, _forker, _forks, _interrupted
    _one_fork.acquire()
    _forker = threading.get_ident()
    _forks += 1
    _forking = True
    me, until = threading.get_ident(), time.monotonic() + WAIT_S
    while any(thread != me for thread in list(_inside.values())) and time.monotonic() < until:
        try:
            time.sleep(NAP_S)
        except KeyboardInterrupt:
            _interrupted = True


def _after() -> None:
    global _forking, _forker, _forks, _interrupted
    _forks -= 1
    if not _forks:
        _forking, _forker = False, ANY
    _one_fork.release()
    if _interrupted:
        _interrupted = False
        interrupt_main()


def _in_child() -> None:
    global _forking, _forker, _forks, _one_fork, _was_torn, _interrupted
    _was_torn = _was_torn or bool(_inside)
    _inside.clear()
    for descriptor in _shared:
        os.close(descriptor)
    _shared.clear()
    _forking, _forker, _forks, _interrupted = False, ANY, 0, False
    _one_fork = threading.RLock()  # replaced, because another thread may have held the old one


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
