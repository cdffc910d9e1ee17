"""Prompt files of batches: JSONL, CSV or plain text. The whole file is checked before the first prompt runs.

An error names the file and the line. A file is read line by line, so it need not fit into memory.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hermes.errors import HermesError
from hermes.text import make_printable

FIELDS = ("prompt", "id", "system", "tools", "metadata")
JSONL, CSV, TEXT = (".jsonl", ".ndjson"), (".csv",), (".txt", ".text")
NO_TOOLS = "none"
"""The value of the column `tools` of a CSV file for a prompt without tools. An empty cell means all tools."""


class BadPrompts(HermesError):
    """The prompt file cannot be used. The message names the file and, if possible, the line."""


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One prompt of a prompt file, with the default values filled in."""

    id: str
    prompt: str
    system: str | None = None
    """The system prompt, in place of the agent's own."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that the model may call; None for the usual tools of a batch."""
    metadata: dict[str, Any] | None = None


def read_prompts(file: Path, known_tools: Collection[str]) -> Iterator[Prompt]:
    """Yield the prompts of a file. Raise `BadPrompts` at the first line that is wrong."""
    ending = file.suffix.lower()
    readers = {
        **dict.fromkeys(JSONL, _read_jsonl),
        **dict.fromkeys(CSV, _read_csv),
        **dict.fromkeys(TEXT, _read_text),
    }
    if ending not in readers:
        endings = ", ".join((*JSONL, *CSV, *TEXT))
        raise BadPrompts(f"{file}: the format is recognised by the ending of the name; use one of {endings}")
    lines: dict[str, int] = {}
    for line, fields in readers[ending](file):
        prompt = _check_prompt(fields, len(lines) + 1, f"{file}, line {line}", known_tools)
        if prompt.id in lines:
            raise BadPrompts(
                f"{file}, line {line}: the id {prompt.id!r} is already used in line {lines[prompt.id]}"
            )
        lines[prompt.id] = line
        yield prompt
    if not lines:
        raise BadPrompts(f"{file} contains no prompts")


def _read_lines(file: Path) -> Iterator[str]:
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise BadPrompts(f"{file}, line {number}: not valid UTF-8") from None
    except OSError as problem:
        raise BadPrompts(f"{file} cannot be read: {problem.strerror or problem}") from problem


def _read_jsonl(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_read_lines(file), 1):
        if not line.strip():
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise BadPrompts(
                f"{file}, line {number}: not valid JSON: {make_printable(str(problem))}"
            ) from None
        if not isinstance(value, dict):
            raise BadPrompts(f"{file}, line {number}: a line must be a JSON object with the field `prompt`")
        unknown = next((name for name in value if name not in FIELDS), None)
        if unknown is not None:
            raise BadPrompts(
                f"{file}, line {number}: unknown field {unknown!r}; the fields are {', '.join(FIELDS)}"
                " (put other values into `metadata`)"
            )
        yield number, value


def _read_csv(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv.reader(_read_lines(file), strict=True)
    try:
        names = next(rows, None)
        if names is None:
            return
        if "prompt" not in names:
            raise BadPrompts(
                f"{file}, line 1: there is no column `prompt`; the first line must name the columns"
            )
        if len(set(names)) < len(names):
            raise BadPrompts(f"{file}, line 1: two columns have the same name")
        start = rows.line_num + 1
        for row in rows:
            if any(cell.strip() for cell in row):
                place = f"{file}, line {start}"
                if len(row) != len(names):
                    raise BadPrompts(f"{place}: {len(row)} values, but the file has {len(names)} columns")
                yield start, _convert_row(dict(zip(names, row, strict=True)), place)
            start = rows.line_num + 1
    except csv.Error as problem:
        raise BadPrompts(f"{file}, line {rows.line_num}: not valid CSV: {problem}") from None


def _convert_row(cells: dict[str, str], place: str) -> dict[str, Any]:
    """Return the fields of the prompt in a row of a CSV file. Columns that are not fields of a prompt become its
    metadata."""
    fields: dict[str, Any] = {name: cells[name] for name in ("prompt", "id", "system") if cells.get(name)}
    if tools := cells.get("tools", "").replace(",", " ").split():
        fields["tools"] = [] if tools == [NO_TOOLS] else tools
    metadata: dict[str, Any] = {name: value for name, value in cells.items() if name not in FIELDS}
    if written := cells.get("metadata", "").strip():
        try:
            metadata.update(msgspec.json.decode(written, type=dict[str, Any]))
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            raise BadPrompts(f"{place}: `metadata` is not a JSON object") from None
    return {**fields, "metadata": metadata} if metadata else fields


def _read_text(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_read_lines(file), 1):
        if line.strip():
            yield number, {"prompt": line.strip()}


def _check_prompt(fields: dict[str, Any], number: int, place: str, known_tools: Collection[str]) -> Prompt:
    text, name = fields.get("prompt"), fields.get("id")
    if not isinstance(text, str) or not text.strip():
        raise BadPrompts(
            f"{place}: `prompt` is missing or empty" if not text else f"{place}: `prompt` must be text"
        )
    if name is None:
        name = str(number)
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
        raise BadPrompts(f"{place}: `id` must be text or a whole number")
    system, tools, metadata = fields.get("system"), fields.get("tools"), fields.get("metadata")
    if system is not None and not isinstance(system, str):
        raise BadPrompts(f"{place}: `system` must be text")
    if metadata is not None and not isinstance(metadata, dict):
        raise BadPrompts(f"{place}: `metadata` must be a JSON object")
    if tools is not None:
        if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
            raise BadPrompts(f"{place}: `tools` must be a list of names")
        unknown = next((tool for tool in tools if tool not in known_tools), None)
        if unknown is not None:
            raise BadPrompts(
                f"{place}: there is no tool {unknown!r}; the tools are {', '.join(sorted(known_tools))}"
            )
        tools = tuple(dict.fromkeys(tools))
    return Prompt(str(name), text, system or None, tools, metadata or None)
