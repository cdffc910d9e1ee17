"""The store refuses a reset. A trigger raises the error, which stands for any error inside the transaction."""

from __future__ import annotations

import time_machine

from tests.gateway.local_gateway import ANN, LocalGateway
from tests.gateway.test_reset_scheduler import DAY, clock, idle, looks, never_looks, savings

__all__ = ["clock", "never_looks"]


async def test_a_reset_that_is_tried_again_saves_once_also_in_the_next_process(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "my name is Ann")
        old = gateway.session_of(ANN)
        clock.shift(DAY)
        block = "CREATE TRIGGER broken BEFORE INSERT ON sessions BEGIN SELECT RAISE(ABORT, 'not now'); END"
        gateway.db.raw().execute(block)
        await looks(gateway)
        await gateway.until(lambda: len(savings(gateway)) == 1)
        await gateway.restart()
        await looks(gateway)
        gateway.db.raw().execute("DROP TRIGGER broken")
        await gateway.asks(ANN, "again")
        assert gateway.session_of(ANN) != old
        assert len(savings(gateway)) == 1
