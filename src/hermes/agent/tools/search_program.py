"""Searches files without ripgrep. This is a separate program, so that a regular expression that never ends
can be killed.

The program is run by its file path and uses only the standard library. Its first argument is the query as
JSON. It prints each path followed by NUL, then `line:text` if lines are searched, like `rg --null`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".tox"})
LARGEST = 5_000_000
"""The size limit of a file whose content is searched, in bytes."""
LOOKED_AT = 8_192
LONGEST_LINE = 300
WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def walk_files(top: Path, name: str | None) -> Iterator[Path]:
    """Yield the regular files below `top` in sorted order. `name` is a glob that selects files; None selects
    all. A glob with a slash is compared with the path, any other glob with the file name."""
    pattern = None if name is None else compile_glob(name.lstrip("/"))
    by_path = name is not None and "/" in name
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name_below for name_below in folders if name_below not in SKIPPED)
        for file in sorted(files):
            path = Path(folder) / file
            looked_at = path.relative_to(top).as_posix() if by_path else file
            if (pattern is None or pattern.fullmatch(looked_at)) and path.is_file() and not path.is_symlink():
                yield path


def compile_glob(glob: str) -> re.Pattern[str]:
    """Compile a glob with `*`, `?`, `**`, sets and `{this,that}` to a pattern for a whole path."""
    pieces: list[str] = []
    open_braces = 0
    for token in re.findall(r"\*\*/|\*\*|\[[^\]/]+\]|.", glob, re.DOTALL):
        if token in WILD:
            pieces.append(WILD[token])
        elif len(token) > 1:
            inside = token[1:-1].replace("\\", r"\\").replace("[", r"\[")
            pieces.append(f"[^{inside[1:]}]" if inside[0] in "!^" and inside[1:] else f"[{inside}]")
        elif token == "{":
            open_braces += 1
            pieces.append("(?:")
        elif token == "}" and open_braces:
            open_braces -= 1
            pieces.append(")")
        else:
            pieces.append("|" if token == "," and open_braces else re.escape(token))
    return re.compile("".join(pieces) + ")" * open_braces, re.DOTALL)


def find_lines(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the matching lines of a text file. Binary, large and unreadable files yield none."""
    try:
        if path.stat().st_size > LARGEST:
            return
        data = path.read_bytes()
    except OSError:
        return
    if b"\0" in data[:LOOKED_AT]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if pattern.search(line):
            yield number, line[:LONGEST_LINE]


def search_files(
    top: Path, name: str | None, content: str | None, ignore_case: bool, hidden: list[str]
) -> Iterator[str]:
    pattern = None if content is None else re.compile(content, re.IGNORECASE if ignore_case else 0)
    for path in [top] if top.is_file() else walk_files(top, name):
        if any(path.is_relative_to(secret) for secret in hidden):
            continue
        if pattern is None:
            yield f"{path}\0"
        else:
            for number, line in find_lines(path, pattern):
                yield f"{path}\0{number}:{line}\n"


def main() -> None:
    arguments = json.loads(sys.argv[1])
    for line in search_files(Path(arguments.pop("top")), **arguments):
        sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
