"""The recipes of docs/extending.md as data: edits of files, new files, and commands with their output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCED = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"\b(?P<verb>In|Create) `(?P<path>[\w./-]+)`:\n*$")
ANY = "…"
LEFT_OUT = re.compile("(^ *…\\n|…)", re.MULTILINE)
TIMEOUT_S = 120


class Edit(NamedTuple):
    path: str
    before: str
    after: str
    """`…` stands for omitted text. A line with only `…` stands for any number of lines."""

    def apply(self, root: Path) -> None:
        file = root / self.path
        text = file.read_text(encoding="utf-8")
        found = list(re.finditer(make_pattern(self.before), text, re.MULTILINE))
        assert len(found) == 1, f"{self.path} has {len(found)} of:\n{self.before}"
        (place,) = found
        left_out = iter(place.groups())
        pieces = [next(left_out) if piece.strip() == ANY else piece for piece in LEFT_OUT.split(self.after)]
        file.write_text(text[: place.start()] + "".join(pieces) + text[place.end() :], encoding="utf-8")


def make_pattern(lines: str) -> str:
    """Return a regular expression that matches whole lines. Each `…` in the lines becomes a group that
    matches any text."""
    pattern = "^"
    for piece in LEFT_OUT.split(lines):
        if piece.strip() != ANY:
            pattern += re.escape(piece)
        else:
            pattern += "(.*)" if piece == ANY else r"((?:.*\n)*?)"
    return pattern


class NewFile(NamedTuple):
    path: str
    text: str

    def apply(self, root: Path) -> None:
        file = root / self.path
        assert not file.exists(), self.path
        file.parent.mkdir(exist_ok=True)
        file.write_text(self.text, encoding="utf-8")


class Session(NamedTuple):
    """Commands at a terminal, each with its expected output."""

    commands: tuple[tuple[str, str], ...]


class Recipe(NamedTuple):
    title: str
    changes: list[Edit | NewFile]
    sessions: list[Session]


def read_recipes(page: str) -> list[Recipe]:
    """Return the recipes of a page, one for each second-level heading with a code block."""
    recipes = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        recipe = Recipe(title, [], [])
        for block in _read_blocks(text):
            if isinstance(block, Session):
                recipe.sessions.append(block)
            else:
                recipe.changes.append(block)
        recipes.append(recipe)
    return recipes


def _read_blocks(text: str) -> Iterator[Edit | NewFile | Session]:
    verb, path, end = "", "", 0
    for block in FENCED.finditer(text):
        target = TARGET.search(text[end : block.start()])
        if target is not None:
            verb, path = target["verb"], target["path"]
        end = block.end()
        match block["kind"], verb:
            case "console", _:
                yield Session(tuple(_read_commands(block["body"])))
            case "diff", "In":
                yield _read_edit(path, block["body"])
            case "python", "Create":
                yield NewFile(path, block["body"])
            case kind, _:
                raise AssertionError(f"a {kind} block without a file:\n{block['body']}")


def _read_edit(path: str, body: str) -> Edit:
    lines = body.splitlines(keepends=True)
    assert all(line[0] in " +-" for line in lines), body
    return Edit(
        path,
        "".join(line[1:] for line in lines if line[0] != "+"),
        "".join(line[1:] for line in lines if line[0] != "-"),
    )


def _read_commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        count = next((at for at, line in enumerate(lines[1:], 1) if not line.startswith(">")), len(lines))
        typed = [lines[0], *(line.removeprefix(">").removeprefix(" ") for line in lines[1:count])]
        yield "".join(typed), "".join(lines[count:])


def matches(expected: str, output: str) -> bool:
    """Return whether the output of a command matches the page. `…` matches any text; a line with only `…`
    matches any number of lines."""
    return re.fullmatch(make_pattern(expected), output) is not None


class ChangedCopy:
    """A copy of the source, with programs `hermes` and `python` that run the copy in a separate home."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home
        programs = root / "bin"
        programs.mkdir()
        for name, words in (("python", ""), ("hermes", " -m hermes")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "HERMES_HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{root / 'src'}:{root}",
            "NO_COLOR": "1",
        }

    def run(self, command: str) -> str:
        """Run a command line and return its output and errors."""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=TIMEOUT_S,
        )
        return done.stdout
