"""Every tool declares its arguments exactly. It refuses any other argument with a one-line error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.agent.components import AgentInputs
from hermes.agent.delegation import Delegation
from hermes.agent.subagents import Subagents
from hermes.agent.tool import MOST_OUTPUT, Tool, ToolContext, ToolFailed, make_schema
from hermes.agent.tools import make_standard_tools
from hermes.agent.tools.argument_check import check_arguments
from hermes.config.settings_schema import DelegationSettings
from hermes.errors import HermesError
from hermes_state import SessionDB
from tests.agent.tools.conftest import Person
from tests.agent.tools.examples import EXAMPLES
from tests.tiers import scale_examples


async def no_prompt(_inputs: AgentInputs) -> str:
    raise AssertionError("nothing is delegated here")


TOOLS = make_standard_tools(delegation=Delegation(Subagents(1), DelegationSettings(), no_prompt))
NAMES = [tool.name for tool in TOOLS]
SCHEMA_WORDS = {
    "object": {"type", "properties", "required", "additionalProperties", "description"},
    "string": {"type", "enum", "minLength", "maxLength", "description"},
    "integer": {"type", "minimum", "maximum", "description"},
    "boolean": {"type", "description"},
    "array": {"type", "items", "minItems", "maxItems", "description"},
}

# without `/` and `~`, so that no text is the path of a real file
texts = st.text(max_size=20).map(lambda text: text.translate({ord(one): "_" for one in "/~"}))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def schemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for inner in [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]:
        yield from schemas(inner)
    if "items" in schema:
        yield from schemas(schema["items"])


def test_all_documented_tools_exist() -> None:
    assert set(NAMES) == {
        *("terminal", "process", "read_file", "write_file", "patch", "search_files", "memory", "todo"),
        *("skills_list", "skill_view", "skill_manage", "session_search", "delegate_task"),
    }
    assert len(NAMES) == 13


def test_an_incognito_conversation_has_no_tool_that_stores_data() -> None:
    missing = {tool.name for tool in make_standard_tools()} - {
        tool.name for tool in make_standard_tools(incognito=True)
    }
    assert missing == {"memory", "skill_manage"}


@pytest.mark.parametrize("tool", TOOLS, ids=NAMES)
def test_a_schema_is_valid_and_strict(tool: Tool) -> None:
    result = make_schema(tool)
    assert json.loads(json.dumps(result)) == result
    assert tool.parameters["type"] == "object"
    for schema in schemas(tool.parameters):
        if "anyOf" in schema:
            continue
        assert set(schema) <= SCHEMA_WORDS[schema["type"]]
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False
            assert set(schema["required"]) <= set(schema["properties"])
            described = schema["properties"].values()
            assert all(one.get("description", "").endswith((".", ")")) for one in described)


@pytest.mark.parametrize(
    "tool", [tool for tool in TOOLS if tool.name != "session_search"], ids=lambda tool: tool.name
)
def test_the_examples_of_a_tool_are_what_its_schema_takes(tool: Tool) -> None:
    for example in EXAMPLES[tool.name]:
        assert check_arguments(tool.parameters, example) == example


@pytest.mark.parametrize(
    "tool", [tool for tool in TOOLS if tool.name != "session_search"], ids=lambda tool: tool.name
)
def test_a_name_that_is_not_in_the_schema_is_refused(tool: Tool) -> None:
    with pytest.raises(ToolFailed, match="there is no argument colour"):
        check_arguments(tool.parameters, {**EXAMPLES[tool.name][0], "colour": "red"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"command": "ls", "timeout": "30"}, {"command": "ls", "timeout": 30}),
        (
            {"command": "ls", "timeout": 30.0, "background": "false"},
            {"command": "ls", "timeout": 30, "background": False},
        ),
        ({"command": "ls", "timeout": None, "folder": None}, {"command": "ls"}),
        ({"command": "ls \ud800"}, {"command": "ls �"}),
    ],
)
def test_common_mistakes_of_models_are_corrected(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert check_arguments(TOOLS[0].parameters, given) == meant


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "command is missing"),
        ({"command": None}, "command is missing"),
        ({"command": "  "}, "command is empty"),
        ({"command": ["ls"]}, "command must be a string"),
        ({"command": "x" * 20_001}, "command has 20,001 characters; the limit is 20,000"),
        ({"command": "ls", "timeout": 601}, "timeout must be a whole number from 1 to 600"),
        ({"command": "ls", "timeout": True}, "timeout must be a whole number"),
        ({"command": "ls", "timeout": float("nan")}, "timeout must be a whole number"),
        ({"command": "ls", "timeout": "9" * 5_000}, "timeout must be a whole number"),
        ({"command": "ls", "background": "perhaps"}, "background must be true or false"),
        ("ls", "the arguments must be a JSON object"),
    ],
)
def test_a_bad_argument_is_one_clear_sentence(given: Any, said: str) -> None:
    with pytest.raises(ToolFailed) as problem:
        check_arguments(TOOLS[0].parameters, given)
    assert str(problem.value) == said


@pytest.mark.parametrize("name", [name for name in NAMES if name != "terminal"])
@settings(
    max_examples=scale_examples(100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_hostile_arguments_never_break_a_tool(
    name: str, data: st.DataObject, db: SessionDB, tmp_path: Path
) -> None:
    """A call has known argument names with arbitrary values. The result is a text of limited size or a
    one-line error."""
    tool = TOOLS[NAMES.index(name)]
    keys = st.sampled_from(list(tool.parameters["properties"]) or ["x"])
    example = data.draw(st.sampled_from([{}, *EXAMPLES[tool.name]]))
    arguments = {**example, **data.draw(st.dictionaries(keys, anything, max_size=4))}

    async def run() -> str:
        context = ToolContext(db, "nowhere", tmp_path, Person().approve, asyncio.Event())
        return await tool.run(arguments, context)

    try:
        answer = asyncio.run(run())
    except (ToolFailed, HermesError) as problem:
        answer = str(problem)
    assert 0 < len(answer) <= MOST_OUTPUT
    assert "Traceback" not in answer
