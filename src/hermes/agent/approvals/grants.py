"""Stored consents per workspace, in `<home>/approvals.json`. Tools cannot access this file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hermes import audit_log, clock, home
from hermes.agent.approvals.request import Scope
from hermes.atomic_files import lock_folder, replace_file
from hermes.errors import HermesError

NAME = "approvals.json"
VERSION = 1


class Grant(NamedTuple):
    workspace: str
    scope: Scope
    text: str
    """The meaning depends on `scope`: a whole command, the words of a prefix joined by single spaces, or an
    empty text for edits."""
    since: float


class Grants:
    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is the folder that contains `approvals.json`. If it is None, the program's home is used."""
        self._folder = folder

    @property
    def path(self) -> Path:
        return (self._folder or home.get_hermes_home()) / NAME

    def all(self) -> list[Grant]:
        """Return all grants, grouped by workspace, the oldest of each group first; none if there is no file.
        Raise `HermesError` if the file cannot be read or is damaged."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise HermesError(f"{self.path} cannot be read: {problem.strerror}") from problem
        try:
            return _parse(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise HermesError(
                f"{self.path} is damaged, so none of its approvals apply; delete it"
            ) from problem

    def list_for(self, workspace: Path) -> list[Grant]:
        return [grant for grant in self.all() if grant.workspace == str(workspace)]

    def has(self, workspace: Path, scope: Scope, text: str = "") -> bool:
        return any(grant.scope is scope and grant.text == text for grant in self.list_for(workspace))

    def add(self, workspace: Path, scope: Scope, text: str = "") -> None:
        home.make_private_folder(self.path.parent)
        with lock_folder(self.path.parent):
            grants = self.all()
            if any((g.workspace, g.scope, g.text) == (str(workspace), scope, text) for g in grants):
                return
            self._write([*grants, Grant(str(workspace), scope, text, clock.now())])
        audit_log.record("approval granted", workspace=str(workspace), scope=str(scope), text=text)

    def revoke(self, grants: list[Grant]) -> int:
        """Delete these grants from the file. Return how many of them were in the file."""
        if not self.path.exists():
            return 0
        with lock_folder(self.path.parent):
            before = self.all()
            gone = [grant for grant in before if grant in grants]
            self._write([grant for grant in before if grant not in grants])
        for grant in gone:
            audit_log.record(
                "approval revoked", workspace=grant.workspace, scope=str(grant.scope), text=grant.text
            )
        return len(gone)

    def _write(self, grants: list[Grant]) -> None:
        by_workspace: dict[str, list[dict[str, object]]] = {}
        for grant in grants:
            entry = {"scope": str(grant.scope), "text": grant.text, "since": grant.since}
            by_workspace.setdefault(grant.workspace, []).append(entry)
        data = {"version": VERSION, "workspaces": by_workspace}
        replace_file(self.path, json.dumps(data, indent=2, ensure_ascii=False).encode())


def _parse(data: Mapping[str, object]) -> list[Grant]:
    workspaces = data["workspaces"]
    if data["version"] != VERSION or not isinstance(workspaces, dict):
        raise ValueError
    return [
        Grant(workspace, Scope(entry["scope"]), str(entry["text"]), float(entry["since"]))
        for workspace, entries in workspaces.items()
        for entry in entries
    ]
