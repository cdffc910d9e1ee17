"""A fork copies SQLite as it is at that moment, in the midst of what other threads do with it.

What they hold is then held in the child for ever, for nobody there lets go of it: SQLite's mutexes and, in its table of
open files, which knows nothing of processes, the write lock or a place among the readers. So a fork waits until no
thread of ours is inside SQLite. Where that takes too long, the child is told that it cannot open a store.

Locks on open files are shared with a child for as long as it lives; it lets go of its share at once.
"""

from __future__ import annotations

import os
import threading
import time
from _thread import interrupt_main

WAIT_S, NAP_S = 2.0, 0.0005
ANY = 0
"""No thread has this number."""

_inside: dict[object, int] = {}
"""Each way into SQLite that is being gone, and the thread that goes it."""
_shared: set[int] = set()
_forking = False
_one_fork = threading.RLock()
_forker, _forks = ANY, 0
"""The thread that forks, and how often at once: a signal handler may interrupt a fork and fork itself."""
_was_torn = False
_interrupted = False


class Inside:
    """While a thread is inside SQLite: `with Inside():`. Ways in may be nested, and left in another thread."""

    __slots__ = ()

    def __enter__(self) -> None:
        self.enter(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self, thread: int = ANY) -> None:
        """For `ANY` thread where another may go on with it: then a fork of this one waits for it, too."""
        _inside[self] = thread
        if _forking:
            self._wait_outside(thread)

    def leave(self) -> None:
        _inside.pop(self, None)

    def _wait_outside(self, thread: int) -> None:
        me = threading.get_ident()
        if me == _forker or any(thread == me for way, thread in list(_inside.items()) if way is not self):
            return  # the fork waits for this thread, or for a signal handler in it, so that it must get on
        while _forking:
            _inside.pop(self, None)
            _wait_for_fork()
            _inside[self] = thread


def _wait_for_fork() -> None:
    while _forking:
        time.sleep(NAP_S)


def was_torn() -> bool:
    """Whether this process was forked while somebody was inside SQLite, so that it may not use it."""
    return _was_torn


def share(descriptor: int) -> None:
    """A file on which locks are held: a child closes it."""
    _shared.add(descriptor)


def unshare(descriptor: int) -> None:
    _shared.discard(descriptor)


def _before() -> None:
    """Wait, whatever Ctrl-C says meanwhile: a fork cannot be given up any more here, and is told of it afterwards."""
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
    _one_fork = threading.RLock()  # made anew: another thread may wait for it


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
