"""Checks the arguments of a tool call against the tool's schema. The error for an invalid argument is one
sentence.

Models pass null for optional arguments and write numbers as text; both are accepted. An argument that is not
in the schema is rejected, because the model would wrongly assume that it has an effect. These schema keywords
are supported: type, enum, minimum, maximum, minLength, maxLength, items, maxItems, properties, required and
additionalProperties.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes.agent.tool import ToolFailed
from hermes.text import replace_surrogates

Schema = Mapping[str, Any]

NAMES = {
    "string": "a string",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
YES_NO = {"true": True, "false": False, "yes": True, "no": False}
MOST_DIGITS = 18


def check_arguments(schema: Schema, arguments: object) -> dict[str, Any]:
    """Return the arguments converted to the types of the schema. Raise `ToolFailed` if they are invalid."""
    if not isinstance(arguments, dict):
        raise ToolFailed("the arguments must be a JSON object")
    return _check_object("", schema, arguments)


def make_text_field(description: str, most: int, least: int = 0) -> dict[str, Any]:
    """Return the schema of a text argument with `least` to `most` characters."""
    return {"type": "string", "description": description, "minLength": least, "maxLength": most}


def make_object_schema(required: list[str], **properties: Schema) -> dict[str, Any]:
    """Return the schema of an object that can have only these fields. `required` lists those that it must
    have."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _check_object(where: str, schema: Schema, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _make_error(where, schema)
    known: Mapping[str, Schema] = schema["properties"]
    items = {key: item for key, item in value.items() if item is not None}
    for key in items:
        if key not in known:
            raise ToolFailed(
                f"there is no argument {_join_path(where, str(key)[:40])}; there are {', '.join(known)}"
            )
    for key in schema["required"]:
        if key not in items:
            raise ToolFailed(f"{_join_path(where, key)} is missing")
    return {key: _check_value(_join_path(where, key), known[key], item) for key, item in items.items()}


def _check_value(where: str, schema: Schema, value: object) -> Any:
    return CHECKS[schema["type"]](where, schema, value)


def _check_string(where: str, schema: Schema, value: object) -> str:
    if not isinstance(value, str):
        raise _make_error(where, schema)
    text = replace_surrogates(value)
    if "enum" in schema:
        word = text.strip().lower()
        if word not in schema["enum"]:
            raise ToolFailed(f"{where} must be one of {', '.join(schema['enum'])}")
        return word
    if not text.strip() and schema.get("minLength"):
        raise ToolFailed(f"{where} is empty")
    if len(text) > schema["maxLength"]:
        raise ToolFailed(f"{where} has {len(text):,} characters; the limit is {schema['maxLength']:,}")
    return text


def _check_integer(where: str, schema: Schema, value: object) -> int:
    if isinstance(value, str) and re.fullmatch(rf"\s*-?[0-9]{{1,{MOST_DIGITS}}}\s*", value, re.ASCII):
        value = int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 10**MOST_DIGITS:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _make_error(where, schema)
    least, most = schema["minimum"], schema["maximum"]
    if not least <= value <= most:
        raise ToolFailed(f"{where} must be a whole number from {least:,} to {most:,}")
    return value


def _check_boolean(where: str, schema: Schema, value: object) -> bool:
    if isinstance(value, str):
        value = YES_NO.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise _make_error(where, schema)
    return value


def _check_array(where: str, schema: Schema, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _make_error(where, schema)
    if len(value) > schema["maxItems"]:
        raise ToolFailed(f"{where} has {len(value):,} items; the limit is {schema['maxItems']}")
    return [_check_value(f"{where}[{number}]", schema["items"], item) for number, item in enumerate(value)]


CHECKS: Mapping[str, Callable[[str, Schema, object], Any]] = {
    "string": _check_string,
    "integer": _check_integer,
    "boolean": _check_boolean,
    "array": _check_array,
    "object": _check_object,
}


def _join_path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _make_error(where: str, schema: Schema) -> ToolFailed:
    return ToolFailed(f"{where} must be {NAMES[schema['type']]}")
