"""Writes docs/session-db.md, the reference of `SessionDB`, from its source.

    python -m tools.api_reference [--check]

The headings of the page are the section comments of the source. A public verb without a docstring is an
error. With `--check`, nothing is written, and an outdated page is an error.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hermes_state import SessionDB

PAGE = Path(__file__).parents[1] / "docs" / "session-db.md"
SECTION = re.compile(r"^    # -{20,} (?P<title>.+)$")
SECTIONS = (
    "sessions",
    "messages",
    "titles and lineage",
    "families",
    "rewind",
    "lists and search",
    "labels",
    "trash",
    "usage",
    "export and import",
    "deletion and maintenance",
    "people",
    "chats",
    "handoff and Telegram topics",
    "the store itself",
)
"""The sections in the order in which they appear on the page."""
LONGEST = 100
INTRODUCTION = """\
# SessionDB

<!-- Written by `python -m tools.api_reference`; change the docstrings in src/hermes/db/ instead. -->

`SessionDB` is a handle on the whole store. Threads may share it, and several processes may have the same file open.
When a verb that writes returns, its work is on disk. Times are seconds since 1970, rows are dictionaries.

```python
from hermes_state import SessionDB

with SessionDB() as db:
    db.create_session("demo", source="cli")
    db.append_message("demo", role="user", content="Hello")
```

`db.scoped(principal)` returns a handle for one person, with most of the same verbs.
[Transactions](internals/transactions.md) says what is atomic, [Failures](internals/failures.md) what happens when
something breaks.

## Opening

"""


class Verb(NamedTuple):
    name: str
    section: str
    node: ast.FunctionDef

    @property
    def is_property(self) -> bool:
        return any(isinstance(mark, ast.Name) and mark.id == "property" for mark in self.node.decorator_list)


def list_verbs(database: type = SessionDB) -> list[Verb]:
    """Return the constructor and the public methods and properties of the class and its base classes."""
    verbs: dict[str, Verb] = {}
    for kind in database.__mro__[:-1]:
        if kind.__module__.startswith(("hermes", "tests")):
            for verb in _read_class(inspect.getsource(kind)):
                if (verb.name == "__init__" and kind is database) or not verb.name.startswith("_"):
                    verbs.setdefault(verb.name, verb)
    return list(verbs.values())


def _read_class(source: str) -> Iterator[Verb]:
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    sections = {
        number: found["title"]
        for number, line in enumerate(source.splitlines(), 1)
        if (found := SECTION.match(line))
    }
    for node in body.body:
        if isinstance(node, ast.FunctionDef):
            section = max((number for number in sections if number < node.lineno), default=0)
            yield Verb(node.name, sections.get(section, ""), node)


def list_undocumented(verbs: list[Verb]) -> list[str]:
    return [verb.name for verb in verbs if not ast.get_docstring(verb.node)]


def make_page(verbs: list[Verb]) -> str:
    unknown = {verb.section for verb in verbs if not verb.name.startswith("_")} - set(SECTIONS)
    if unknown:
        raise SystemExit(f"tools.api_reference: SECTIONS does not have {', '.join(sorted(unknown))}")
    pieces = [INTRODUCTION]
    pieces += [_format_entry("SessionDB", verb) for verb in verbs if verb.name == "__init__"]
    for section in SECTIONS:
        pieces.append(f"## {section[0].upper()}{section[1:]}\n\n")
        pieces += [
            f"### `{verb.name}`\n\n{_format_entry(verb.name, verb)}"
            for verb in verbs
            if verb.section == section and verb.name != "__init__"
        ]
    return "".join(pieces).rstrip() + "\n"


def _format_entry(name: str, verb: Verb) -> str:
    signature = _format_signature(name, verb)
    return f"```python\n{signature}\n```\n\n{ast.get_docstring(verb.node) or ''}\n\n"


def _format_signature(name: str, verb: Verb) -> str:
    returns = "" if verb.node.returns is None else ast.unparse(verb.node.returns)
    if verb.is_property:
        return f"{name}: {returns}"
    parameters = [text for text in _list_parameters(verb.node.args) if text not in ("self", "cls")]
    result = "" if name == "SessionDB" else f" -> {returns}"
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) <= LONGEST:
        return line
    return "\n".join((f"{name}(", *(f"    {text}," for text in parameters), f"){result}"))


def _list_parameters(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    for number, argument in enumerate(positional):
        yield _format_parameter(argument, arguments.defaults[number - missing] if number >= missing else None)
    if arguments.vararg is not None:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _format_parameter(argument, default)
    if arguments.kwarg is not None:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _format_parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    equals = "=" if argument.annotation is None else " = "
    return f"{text}{equals}{_format_default(default)}"


def _format_default(default: ast.expr) -> str:
    is_text = isinstance(default, ast.Constant) and isinstance(default.value, str)
    return ast.unparse(default).replace("'", '"') if is_text else ast.unparse(default)


def main() -> int:
    verbs = list_verbs()
    if undocumented := list_undocumented(verbs):
        print(f"verbs of SessionDB without a docstring: {', '.join(undocumented)}", file=sys.stderr)
        return 1
    page = make_page(verbs)
    if "--check" in sys.argv[1:]:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page:
            print(f"{PAGE.name} is not up to date: run python -m tools.api_reference", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
