"""Servers that platforms talk to in tests. They are imported when a test asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.gateway.synapse import People, Synapse


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    """One homeserver for all tests of this process."""
    from tests.gateway.synapse import running

    with running(tmp_path_factory.mktemp("synapse")) as server:
        yield server


@pytest.fixture
async def people(synapse: Synapse) -> AsyncIterator[People]:
    """`await people("alice")`: somebody new on that server, gone when the test ends."""
    from tests.gateway.synapse import guests

    async with guests(synapse) as here:
        yield here
