"""Fixtures with servers for the tests of platforms. The modules of the servers are imported only when a test
needs them.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.gateway.operated_gateway import OperatedGateway
    from tests.gateway.synapse import People, Synapse


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that needs the homeserver as `full`, so that it runs in `make test-full` only."""
    if "synapse" in getattr(item, "fixturenames", ()):
        item.add_marker("full")


@pytest.fixture(scope="session")
def synapse() -> Iterator[Synapse]:
    """Run one homeserver for all tests of this process."""
    from tests.gateway.synapse import running

    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as server:
        yield server


@pytest.fixture
async def people(synapse: Synapse) -> AsyncIterator[People]:
    """Return a function that creates a user: `await people("alice")`. The user is signed out when the test ends."""
    from tests.gateway.synapse import guests

    async with guests(synapse) as here:
        yield here


@pytest.fixture
def operated(home: Path) -> Iterator[OperatedGateway]:
    """Return a gateway process that is configured by files and not started yet."""
    from tests.gateway.conformance.echo_model import EchoModel
    from tests.gateway.conformance.on_telegram import OnTelegram
    from tests.gateway.operated_gateway import OperatedGateway

    with (
        closing(EchoModel()) as model,
        closing(OnTelegram()) as telegram,
        closing(OperatedGateway(home, telegram, model)) as gateway,
    ):
        yield gateway
