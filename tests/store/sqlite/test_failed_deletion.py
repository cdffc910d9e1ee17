"""A deletion fails in the middle. A trigger raises the error, which stands for any error inside the
transaction.
"""

from __future__ import annotations

import pytest

from hermes_state import SessionDB
from tests.store.test_retention import carried, column, contents

__all__ = ["carried"]


def test_a_failure_half_way_leaves_the_state_before(carried: SessionDB) -> None:
    trigger = "CREATE TRIGGER no BEFORE DELETE ON sessions BEGIN SELECT raise(ABORT, 'not now'); END"
    carried.raw().execute(trigger)
    with pytest.raises(Exception, match="not now"):
        carried.delete_session("root")
    carried.raw().execute("DROP TRIGGER no")
    assert contents(carried, "root") == ["one", "two", "three", "four"]
    assert contents(carried, "tip") == ["five"]
    assert column(carried, "tip", "parent_session_id") == "root"
