"""A transaction that several store calls of one thread share. See `Engine.run_together`.

The transaction begins with the first write and is committed after the last call. It is committed earlier if a call
reads after it has written, because a read uses another connection, which does not see uncommitted writes. Each write
runs in a savepoint, so that an error in a write undoes only this write.

A shared transaction does not repair, spool or retry. If SQLite reports an error other than a constraint error, or if
the commit fails, the transaction is rolled back. The engine then runs the affected calls again, without a shared
transaction. The repairs, the spool and the retries of the engine apply to them.

A shared transaction must not run in the main thread. A signal handler could raise an exception there between two
steps.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from hermes import errors
from hermes.store.engine import Outcome, Writer
from hermes.store.sqlite.group_commit import Ticket

if TYPE_CHECKING:
    from hermes.store.sqlite.transactions import Transactions

T = TypeVar("T")


class SharedCommitFailed(BaseException):
    """Raised if the shared transaction was rolled back, because its commit or a statement failed.

    It is derived from `BaseException`, so that the code of the call that is running does not catch it by `except
    Exception`.
    """

    def __init__(self, problem: Exception) -> None:
        super().__init__(str(problem))
        self.problem = problem


class SharedTransaction:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._ticket: Ticket | None = None
        """The ticket with which this thread leads the commit queue; None while no transaction is open."""
        self._writes = 0
        """The number of writes in the open transaction."""
        self._writes_before_call = 0
        self._is_partly_committed = False
        """Whether some writes of the current call are already committed."""
        self._outcomes: list[Outcome] = []
        self._settled = 0
        """The number of outcomes that do not depend on the open transaction."""
        self._refusal: errors.HermesError | None = None
        """The error with which the transaction could not begin. The following writes fail with it at once, so that they
        do not wait for the lock again."""

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Outcome]:
        """Run the calls and return their outcomes, in order. If a commit fails, return fewer outcomes: those of the
        first calls, which do not depend on the failed commit."""
        shared, thread = self._transactions.shared, get_ident()
        shared[thread] = self
        try:
            for call in calls:
                self._run_call(call)
            self.commit()
        except SharedCommitFailed as failure:
            settled = self._outcomes[: self._settled]
            # Running a partly committed call again would repeat the committed part.
            return [*settled, Outcome(None, failure.problem, True)] if self._is_partly_committed else settled
        finally:
            del shared[thread]
        return self._outcomes

    def _run_call(self, call: Callable[[], Any]) -> None:
        self._writes_before_call = self._writes
        self._is_partly_committed = False
        try:
            result, problem = call(), None
        except SharedCommitFailed:
            raise
        except BaseException as failure:  # noqa: BLE001 - the outcome of this call
            result, problem = None, failure
        has_written = self._is_partly_committed or self._writes > self._writes_before_call
        if self._is_partly_committed:  # the calls after it must not share its rest
            self.commit()
        self._outcomes.append(Outcome(result, problem, has_written))
        self._is_partly_committed = False
        if self._ticket is None:
            self._settled = len(self._outcomes)

    # ---------------------------------------------------------------- used by the engine during a call

    def write(self, work: Callable[[Writer], T]) -> T:
        """Run `work` in the transaction. Begin the transaction if necessary."""
        if self._ticket is None:
            self._begin()
        connections = self._transactions.connections
        connection = connections.connection
        connection.execute("SAVEPOINT call")
        try:
            result = work(connections.writer)
        except Exception as problem:  # noqa: BLE001 - raised again
            if isinstance(problem, apsw.Error) and not isinstance(problem, apsw.ConstraintError):
                self._fail(problem)
            connection.execute("ROLLBACK TO call")
            connection.execute("RELEASE call")
            raise self._transactions.translate(problem) from None
        connection.execute("RELEASE call")
        self._writes += 1
        return result

    def prepare_read(self) -> None:
        """Commit the writes of the current call, so that a read sees them."""
        if self._writes > self._writes_before_call:
            self.commit()

    def note_own_write(self) -> None:
        """Record that the current call has made a write with a transaction of its own."""
        self._is_partly_committed = True

    def commit(self) -> None:
        """Commit the open transaction, if there is one. Raise `SharedCommitFailed` if this fails."""
        if self._ticket is None:
            return
        try:
            self._transactions.commit_shared()
        except Exception as problem:  # noqa: BLE001 - raised as SharedCommitFailed
            self._fail(problem)
        writes, has_written = self._writes, self._writes > self._writes_before_call
        self._end()
        self._is_partly_committed = self._is_partly_committed or has_written
        self._settled = len(self._outcomes)
        self._transactions.count_writes(writes)

    # ---------------------------------------------------------------- the transaction

    def _begin(self) -> None:
        if self._refusal is not None:
            raise type(self._refusal)(str(self._refusal))
        ticket = Ticket(lambda _: None)
        self._transactions.queue.take_lead(ticket, self.commit)
        self._ticket = ticket
        try:
            self._transactions.begin_shared()
        except Exception as problem:
            self._roll_back()
            failure = self._transactions.translate(problem)
            if isinstance(failure, errors.StoreBusy):
                self._refusal = failure
            raise failure from problem

    def _fail(self, problem: Exception) -> None:
        self._roll_back()
        failure = self._transactions.translate(problem)
        self._refusal = errors.make_error(errors.StoreFailed, f"an earlier write failed: {failure}")
        raise SharedCommitFailed(failure) from problem

    def _roll_back(self) -> None:
        try:
            self._transactions.roll_back()
        finally:
            self._end()

    def _end(self) -> None:
        ticket, self._ticket = self._ticket, None
        self._writes = self._writes_before_call = 0
        assert ticket is not None
        self._transactions.queue.give_up_lead(ticket)
