"""`<home>/.env`: secrets, one `NAME=value` per line, in a private file. The environment overrides it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hermes import caller, errors, home
from hermes.config.redaction import is_secret_name

TOOL_MARKER = caller.TOOL_MARKER
"""A variable that is set in the environment of every command that a tool of the agent starts."""
NAME = ".env"
_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(?P<value>.*?)\s*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_NEEDS_QUOTES = re.compile(r"[\s#'\"\\$`]")


def get_path() -> Path:
    return home.get_hermes_home() / NAME


def get_variable(name: str) -> str | None:
    """Return the value of a variable from the environment or else from .env. Return None if it is unset or
    blank."""
    return os.environ.get(name, "").strip() or read().get(name, "").strip() or None


def read() -> dict[str, str]:
    """Return the variables in .env with their values. Make the file private if other accounts can read it."""
    home.tighten(str(get_path()), home.PRIVATE_FILE)
    return {name: value for name, value in map(_parse_line, _read_text().split("\n")) if name}


def collect_secrets() -> set[str]:
    """Return the values of all variables whose names are those of secrets, from the environment and from .env."""
    try:
        kept = read()
    except errors.BadConfig:
        kept = {}
    every = (*kept.items(), *os.environ.items())
    return {value.strip() for name, value in every if value.strip() and is_secret_name(name)}


def change(name: str, value: str | None) -> None:
    """Set a variable in .env. If `value` is None, remove the variable. Comments and the order of the lines are
    kept."""
    from hermes import audit_log
    from hermes.atomic_files import lock_folder, replace_file

    caller.refuse_tool(f"only a person can change {NAME}")
    if not _VARIABLE.fullmatch(name):
        raise errors.make_error(errors.InvalidArgument, f"{name!r} is not a valid variable name")
    file = get_path().resolve()  # the file may be a link
    home.make_private_folder(file.parent)
    with lock_folder(file.parent):
        before = _read_text()
        text = change_text(before, name, value)
        if text == before:
            return
        replace_file(file, text.encode())
    audit_log.record("key.unset" if value is None else "key.set", name=name)


def change_text(text: str, name: str, value: str | None) -> str:
    """Return `text`, the content of .env, with a new value for the variable `name`.

    The last line that sets the variable is replaced, and earlier such lines are removed. If there is no such
    line, one is added at the end. If `value` is None, all lines that set the variable are removed.
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    places = [place for place, line in enumerate(lines) if _parse_line(line)[0] == name]
    if value is not None:
        line = f"{name}={_quote_value(value)}"
        if places:
            lines[places.pop()] = line
        else:
            lines.append(line)
    for place in reversed(places):
        del lines[place]
    return "".join(f"{line}\n" for line in lines)


def _read_text() -> str:
    try:
        return get_path().read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        what = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
        raise errors.BadConfig(f"cannot read {get_path()}: {what}") from problem


def _parse_line(line: str) -> tuple[str, str]:
    """Return the name and the value of the variable that a line of .env sets. Both are empty for a comment or
    an invalid line."""
    match = _LINE.fullmatch(line)
    if match is None:
        return "", ""
    value = match["value"]
    if quoted := re.match(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"", value):
        inner = quoted[1]
        if inner is None:
            inner = re.sub(r"\\(.)", lambda found: _UNESCAPED.get(found[1], found[1]), quoted[2])
        return match["name"], inner
    return match["name"], re.split(r"(?:^|\s)#", value, maxsplit=1)[0].rstrip()


def _quote_value(value: str) -> str:
    if value and not _NEEDS_QUOTES.search(value):
        return value
    if not re.search(r"['\r\n]", value):
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
