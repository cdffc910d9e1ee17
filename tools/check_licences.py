"""Checks the licences of all direct and indirect dependencies, for each extra in pyproject.toml.

    python tools/check_licences.py [PROJECT]

The licence of an installed distribution is read from its metadata, all others from licences.toml. An unknown
licence is an error. A licence that licences.toml does not allow is an error too. The exit code is 1 if there
are errors.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CORE = "(core)"
DEV = "dev"
TABLE = Path(__file__).with_name("licences.toml")

# Licence names from before SPDX identifiers.
ALIASES = {
    "apache 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "isc license (iscl)": "ISC",
    "mit licence": "MIT",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
}
SILENT = ("", "unknown")
NO_LICENCE = ("License :: DFSG approved", "License :: OSI Approved")
LONGEST_NAME = 100
"""The maximum length of a licence name. A `License` field that is longer or has several lines contains the
text of a licence."""

_TOKEN = re.compile(r"\(|\)|[^\s()]+")


Wanted = tuple[str, frozenset[str]]
"""The name of a distribution and its requested extras."""


class Found(NamedTuple):
    """The licence and the dependencies of a distribution."""

    licence: str | None
    """An SPDX expression, or None if the licence is unknown."""
    requires: list[Wanted]


class Checker:
    def __init__(self, project: Mapping[str, Any], table: Mapping[str, Any]) -> None:
        self._name = canonicalize_name(project["name"])
        self._core = [Requirement(line) for line in project.get("dependencies", ())]
        self._extras: dict[str, list[Requirement]] = {
            canonicalize_name(extra): [Requirement(line) for line in lines]
            for extra, lines in project.get("optional-dependencies", {}).items()
        }
        self._table = table
        self._allowed = frozenset(table["allowed"])

    def check(self) -> tuple[int, list[str]]:
        """Check all extras. Return the number of distributions and the list of problems."""
        seen: set[str] = set()
        problems: dict[str, None] = {}
        for extra in (CORE, *sorted(self._extras)):
            for path, licence in self._walk(extra):
                seen.add(path[-1])
                problem = self._problem(extra, path[-1], licence)
                if problem is not None:
                    problems[f"{' -> '.join((extra, *path))}: {problem}"] = None
        for listed in ("exceptions", "dev"):
            for name in self._table.get(listed, {}):
                if canonicalize_name(name) not in seen:
                    problems[f"{TABLE.name}: [{listed}] {name}: no extra leads to it"] = None
        return len(seen), list(problems)

    def _walk(self, extra: str) -> Iterator[tuple[tuple[str, ...], str | None]]:
        """Yield every dependency of an extra with its shortest dependency path and its licence."""
        started = self._own([] if extra == CORE else [extra])
        waiting: list[tuple[tuple[str, ...], frozenset[str]]] = [
            ((name,), extras) for name, extras in started
        ]
        done: set[Wanted] = set()
        while waiting:
            path, extras = waiting.pop(0)
            if (path[-1], extras) in done:
                continue
            done.add((path[-1], extras))
            found = self._find(path[-1], extras)
            yield path, found.licence
            waiting += [((*path, name), wanted) for name, wanted in found.requires]

    def _own(self, extras: list[str]) -> list[Wanted]:
        """Return the direct dependencies of this project with these extras. If an extra includes other
        extras, their dependencies are returned too."""
        wanted = list(self._core)
        waiting, done = list(extras), set[str]()
        while waiting:
            extra = waiting.pop()
            if extra in done:
                continue
            done.add(extra)
            for requirement in self._extras[extra]:
                if canonicalize_name(requirement.name) == self._name:
                    waiting += map(canonicalize_name, requirement.extras)
                else:
                    wanted.append(requirement)
        return [_named(requirement) for requirement in wanted if _applies(requirement, frozenset())]

    def _find(self, name: str, extras: frozenset[str]) -> Found:
        stated = _by_name(self._table.get("stated", {})).get(name)
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            row = _by_name(self._table.get("not_installed", {})).get(name)
            if row is None:
                return Found(None, [])
            return Found(row["licence"], [_named(Requirement(line)) for line in row.get("requires", ())])
        requires = [Requirement(line) for line in installed.requires or ()]
        needs = [_named(requirement) for requirement in requires if _applies(requirement, extras)]
        return Found(stated or licence_of(installed), needs)

    def _problem(self, extra: str, name: str, licence: str | None) -> str | None:
        if licence is None:
            return f"its licence is not known; add it to {TABLE.name}"
        if is_allowed(licence, self._allowed):
            return None
        listed = _by_name(self._table.get("exceptions", {}))
        if extra == DEV:
            listed |= _by_name(self._table.get("dev", {}))
        if name in listed and listed[name]["licence"] == licence:
            return None
        return f"{licence} is not allowed here"


def _by_name(rows: Mapping[str, Any]) -> dict[str, Any]:
    return {canonicalize_name(name): row for name, row in rows.items()}


def _named(requirement: Requirement) -> Wanted:
    return canonicalize_name(requirement.name), frozenset(map(canonicalize_name, requirement.extras))


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def licence_of(installed: Distribution) -> str | None:
    """Return the licence in the metadata of a distribution as an SPDX expression, or None if the metadata has
    none."""
    metadata = installed.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    field = "".join(metadata.get_all("License") or ()).strip()
    terms = [] if _is_text(field) or field.lower() in SILENT else [_spdx(field)]
    named = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    terms += [_spdx(line.rpartition(" :: ")[2]) for line in named if line not in NO_LICENCE]
    # The metadata does not say whether one of several licences can be chosen, so all of them must be allowed.
    joined = [f"({term})" if " " in term else term for term in dict.fromkeys(terms)]
    return " AND ".join(joined) or None


def _is_text(field: str) -> bool:
    return "\n" in field or len(field) > LONGEST_NAME


def _spdx(name: str) -> str:
    return ALIASES.get(name.lower(), name)


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Return whether the allowed licences satisfy an SPDX expression. An invalid expression is never
    allowed."""
    tokens = _TOKEN.findall(expression)

    def alternatives() -> bool:
        result = conjunction()
        while tokens and tokens[0].upper() == "OR":
            tokens.pop(0)
            result = conjunction() or result
        return result

    def conjunction() -> bool:
        result = term()
        while tokens and tokens[0].upper() == "AND":
            tokens.pop(0)
            result = term() and result
        return result

    def term() -> bool:
        if not tokens:
            return False
        token = tokens.pop(0)
        if token != "(":
            return token in allowed
        result = alternatives()
        return bool(tokens) and tokens.pop(0) == ")" and result

    return alternatives() and not tokens


def main(words: list[str]) -> int:
    project = Path(words[0] if words else Path(__file__).parents[1] / "pyproject.toml")
    count, problems = Checker(
        tomllib.loads(project.read_text("utf-8"))["project"], tomllib.loads(TABLE.read_text("utf-8"))
    ).check()
    for problem in problems:
        print(f"licences: {problem}", file=sys.stderr)
    if not problems:
        print(f"Licences: {count} distributions, all allowed.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
