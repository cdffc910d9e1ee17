"""The tool `session_search` finds other conversations, but not the current one. A failure is returned as an
error.
"""

from __future__ import annotations

import json

import pytest

from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.session_search import SessionSearch
from hermes_state import SessionDB


async def test_earlier_conversations_are_found_and_this_one_with_its_past_is_not(
    context: ToolContext, db: SessionDB
) -> None:
    db.append_message("here", "user", "the retry budget is five")
    later = db.begin_continuation("here", "so far")
    db.append_message(later, "user", "what about the retry budget")
    db.create_session("there", "cli")
    db.append_message("there", "user", "we set the retry budget to seven")
    found = json.loads(
        await SessionSearch().run({"query": "retry budget"}, context._replace(session_id=later))
    )
    assert [result["session_id"] for result in found["results"]] == ["there"]


async def test_compressed_messages_can_be_read(context: ToolContext, db: SessionDB) -> None:
    message_id = db.append_message("here", "user", "the retry budget is five")
    later = context._replace(session_id=db.begin_continuation("here", "so far"))
    data = json.loads(
        await SessionSearch().run({"session_id": "here", "around_message_id": message_id}, later)
    )
    assert data["messages"][0]["text"] == "the retry budget is five"


async def test_an_invalid_call_is_an_error(context: ToolContext) -> None:
    with pytest.raises(ToolFailed, match="there is no session 'nowhere'"):
        await SessionSearch().run({"session_id": "nowhere"}, context)
    with pytest.raises(ToolFailed, match="there is no argument 'colour'"):
        await SessionSearch().run({"colour": "red"}, context)
