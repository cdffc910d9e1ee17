"""Reads and changes `<home>/config.yaml`, which people also edit. The file is read each time its values are
needed.

A change replaces only the characters of one value, so that order, comments and quotes stay unchanged. Before
the new text replaces the file, it is parsed and compared with the old values.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import caller, errors, home
from hermes.config import dotenv
from hermes.config.redaction import HIDDEN, SHORTEST, find_secrets, redact_text
from hermes.text import make_printable

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node

NAME = "config.yaml"
STEP = "  "
_PLAIN = re.compile(r"[A-Za-z0-9_./~-][A-Za-z0-9_ ./:@+~-]*")

Values = dict[str, Any]


def get_path() -> Path:
    return home.get_hermes_home() / NAME


def read_setting(section: str, name: str) -> object:
    """Return the value `name` of a section of config.yaml. Return None if the value, the section or the file
    does not exist."""
    try:
        text = _read_text(get_path())
    except errors.BadConfig:  # without readable settings, defaults apply, so that the store can be opened
        return None
    if name not in text:  # do not parse the file without need: parsing takes longer than opening a store
        return None
    values = parse_text(text, get_path()).get(section)
    return values.get(name) if isinstance(values, dict) else None


def read() -> Values:
    """Return all values of config.yaml, or an empty mapping if there is no such file. If the file contains
    secrets and other accounts can read it, make it private."""
    file = get_path()
    values = parse_text(_read_text(file), file)
    if home.is_loose(str(file)) and any(find_secrets(values)) and home.tighten(str(file), home.PRIVATE_FILE):
        print(
            make_printable(f"hermes: others could read the keys in {file}; it is private now"),
            file=sys.stderr,
        )
    return values


def hide_secrets(text: str) -> str:
    """Return `text` without secrets. The secrets in config.yaml, in .env and in the environment are replaced,
    and so is everything else that looks like a secret."""
    known = set(dotenv.collect_secrets())
    try:
        known.update(find_secrets(parse_text(_read_text(get_path()), get_path())))
    except errors.BadConfig:  # a file that cannot be parsed is never quoted, so its secrets are not needed
        pass
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return redact_text(text)


def parse_text(text: str, file: Path) -> Values:
    """Parse `text`, the content of the settings file `file`, and return its values. The path is used only in
    error messages."""
    if not text.strip():
        return {}
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        values = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as problem:
        # Omit the quoted text and the cause: the line may contain a key, and a traceback would show it.
        raise errors.BadConfig(f"cannot read {file}: {_describe_problem(problem)}") from None
    if values is not None and not isinstance(values, dict):
        raise errors.BadConfig(f"{file} must hold sections such as `model:`, not {type(values).__name__}")
    return values or {}


def _describe_problem(problem: Exception) -> str:
    """Describe a YAML error and its position without quoting the text of the file, which may contain secrets."""
    mark = getattr(problem, "problem_mark", None) or getattr(problem, "context_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    description = getattr(problem, "problem", None)
    if not isinstance(description, str):
        return f"{where}it is not YAML" if mark else "a value in it is invalid"
    first = description.splitlines()[0] if description else ""
    return where + re.sub(r"\"[^\"]{2,}\"?|'[^']{2,}'?", HIDDEN, first.partition(" with value ")[0])


def get_value(values: Values, key: str) -> object:
    """Return the value at the dotted path `key` in `values`, the content of a settings file. Return None if
    there is none."""
    found: object = values
    for name in key.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def change(key: str, value: object) -> None:
    """Set the value at the dotted path `key` in config.yaml. If `value` is None, remove the setting."""
    change_all([(key, value)])


def change_all(changes: Iterable[tuple[str, object]]) -> None:
    """Make several changes to config.yaml atomically. `changes` are pairs of a dotted path and a value. None as
    the value removes the setting."""
    from hermes import audit_log
    from hermes.atomic_files import lock_folder, replace_file

    changes = list(changes)
    caller.refuse_tool(f"only a person can change {NAME}")
    file = get_path().resolve()  # the file may be a link
    home.make_private_folder(file.parent)
    with lock_folder(file.parent):
        before = text = _read_text(file)
        for key, value in changes:
            text = change_text(text, key, value, file)
        if text == before:
            return
        replace_file(file, text.encode())
    for key, value in changes:
        audit_log.record("config.unset" if value is None else "config.set", key=key)


def change_text(text: str, key: str, value: object, file: Path) -> str:
    """Return `text`, the content of config.yaml, with a new value at the dotted path `key`. Raise `BadConfig`
    if the new text cannot be made, or if it would differ from the old one in any other value."""
    expected = parse_text(text, file)
    _put(expected, key.split("."), value)
    fresh = _edit_text(text, key.split("."), value)
    if fresh is None or _drop_empty(parse_text(fresh, file)) != _drop_empty(expected):
        raise errors.BadConfig(f"{key} cannot be changed in {file} automatically; use `hermes config edit`")
    return fresh


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        what = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise errors.BadConfig(f"cannot read {file}: {what}") from problem


def _put(values: Values, names: list[str], value: object) -> None:
    for name in names[:-1]:
        inner = values.get(name)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = values[name] = {}
        values = inner
    if value is None:
        values.pop(names[-1], None)
    else:
        values[names[-1]] = value


def _drop_empty(values: Values) -> Values:
    """Return the values of config.yaml without empty sections, so that two files can be compared. An empty
    section means the same as a missing one."""
    kept = {name: _drop_empty(value) if isinstance(value, dict) else value for name, value in values.items()}
    return {name: value for name, value in kept.items() if value not in (None, {})}


# ---------------------------------------------------------------- the characters of one value


def _edit_text(text: str, names: list[str], value: object) -> str | None:
    """Return `text`, the content of config.yaml, with a new value at the path `names`. If `value` is None,
    remove the setting. Return None if the YAML style of the present value does not allow editing it in place."""
    if text and not text.endswith("\n"):
        text += "\n"
    mapping, depth = _get_mapping(_compose(text)), 0
    if mapping is None:
        return text if value is None else text + _format_lines(names, value, 0)
    while True:
        pair = next(((key, node) for key, node in mapping.value if key.value == names[depth]), None)
        if pair is None:
            return text if value is None else _insert(text, mapping, names[depth:], value)
        key, node = pair
        depth += 1
        if depth == len(names):
            return (
                _remove(text, key, node)
                if value is None
                else _replace(text, key, node, _format_scalar(value))
            )
        inner = _get_mapping(node)
        if inner is None:
            if value is None:
                return text
            indent = key.start_mark.column + len(STEP)
            return _replace(text, key, node, "\n" + _format_lines(names[depth:], value, indent).rstrip("\n"))
        mapping = inner


def _compose(text: str) -> Node | None:
    from ruamel.yaml import YAML

    node: Node | None = YAML(pure=True).compose(text)
    return node


def _get_mapping(node: Node | None) -> MappingNode | None:
    """Return a YAML node if it is a non-empty mapping in block style, otherwise None."""
    from ruamel.yaml.nodes import MappingNode

    return node if isinstance(node, MappingNode) and not node.flow_style and node.value else None


def _format_lines(names: list[str], value: object, indent: int) -> str:
    lines = [f"{' ' * indent}{STEP * depth}{name}:" for depth, name in enumerate(names)]
    return "\n".join(lines) + f" {_format_scalar(value)}\n"


def _insert(text: str, mapping: MappingNode, names: list[str], value: object) -> str:
    """Return `text` with a new value after the last value of a YAML mapping, before the comments of the next
    key. `names` is the path of the value within the mapping."""
    at = text.find("\n", _find_end(text, mapping)) + 1
    return text[:at] + _format_lines(names, value, mapping.value[0][0].start_mark.column) + text[at:]


def _replace(text: str, key: Node, node: Node, instead: str) -> str | None:
    if _is_in_lines(node):
        return None
    start, end = _find_span(text, key, node)
    space = " " if text[start - 1] == ":" and not instead.startswith("\n") else ""
    return text[:start] + space + instead + text[end:]


def _remove(text: str, key: Node, node: Node) -> str:
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    return text[:start] + text[text.find("\n", _find_span(text, key, node)[1]) + 1 :]


def _find_span(text: str, key: Node, node: Node) -> tuple[int, int]:
    """Return the positions in `text` where a YAML value starts and ends. `key` and `node` are the nodes of its
    key and of the value. For an empty value, both positions are right after the colon."""
    start, end = node.start_mark.index, _find_end(text, node)
    if end > start:
        return start, end
    place = text.index(":", key.end_mark.index) + 1
    return place, place


def _find_end(text: str, node: Node) -> int:
    """Return the position in `text` where a YAML value ends, without the comments and empty lines after it.
    `node` is the node of the value."""
    if _is_in_lines(node):
        last = node.value[-1]
        return _find_end(text, last[1] if isinstance(last, tuple) else last)
    start: int = node.start_mark.index
    return start + len(text[start : node.end_mark.index].rstrip())


def _is_in_lines(node: Node) -> bool:
    """Return whether a YAML node is a non-empty mapping or list in block style, which has one item per line."""
    from ruamel.yaml.nodes import CollectionNode

    return isinstance(node, CollectionNode) and bool(node.value) and not node.flow_style


def _format_scalar(value: object) -> str:
    import json

    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and not value.endswith((" ", ":")) and ": " not in value:
            from ruamel.yaml import YAML

            if YAML(typ="safe", pure=True).load(value) == value:
                return value
        quoted = json.dumps(value, ensure_ascii=False)
        return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
    return json.dumps(value)
