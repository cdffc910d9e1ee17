"""Computes the correct lists directly from the raw rows and the documented rules. It is slow and shares no
code with the product.
"""

from __future__ import annotations

import json
from typing import Any

Row = dict[str, Any]

NOT_JSON = object()


def decoded(row: Row) -> Any:
    """Return the content of a row, decoded by the documented format. Content that the writer marked as plain
    text is returned unchanged."""
    content = row["content"]
    if isinstance(content, str) and content.startswith("\0json:") and row["content_kind"] != "text":
        try:
            return json.loads(content[6:])
        except ValueError:
            return content
    return content


def preview(content: Any) -> str:
    text = content if isinstance(content, str) else "\n".join(_strings(content))
    line = text[:63].replace("\r", " ").replace("\n", " ").strip()
    return line if len(line) <= 60 else line[:60] + "..."


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [] if value.startswith("data:") else [value]
    if isinstance(value, dict):
        return [
            one
            for key, item in value.items()
            if key != "type" or not isinstance(item, str)
            for one in _strings(item)
        ]
    return [one for item in value for one in _strings(item)] if isinstance(value, list) else []


class Recount:
    def __init__(self, sessions: list[Row], messages: list[Row]) -> None:
        self.sessions = {row["id"]: dict(row) for row in sessions}
        self.messages: dict[str, list[Row]] = {}
        for message in sorted(messages, key=lambda row: int(row["id"])):
            self.messages.setdefault(message["session_id"], []).append(message)
        for session in self.sessions.values():
            own = self.messages.get(session["id"], [])
            session["last_active"] = max([row["timestamp"] for row in own], default=session["started_at"])
            first = next((row for row in own if row["role"] == "user" and row["content"] is not None), None)
            session["preview"] = "" if first is None else preview(decoded(first))

    def parent(self, session: Row) -> Row | None:
        parent = session["parent_session_id"]
        return self.sessions.get(parent) if parent != session["id"] else None

    def is_below(self, session: Row) -> bool:
        """Return whether a session belongs below another session and is therefore not listed. No session of a
        cycle is below another, so all of them are listed."""
        seen: set[str] = set()
        above = self.parent(session)
        while above is not None and above["id"] not in seen:
            if above["id"] == session["id"]:
                return False
            seen.add(above["id"])
            above = self.parent(above)
        return self.parent(session) is not None

    def must_have_relation(self, session: Row) -> str | None:
        """Return the relation of a child for which no relation is stored. It follows from the times of the
        child and from the time and the reason of the end of its parent."""
        parent = self.parent(session)
        if parent is None or parent["ended_at"] is None or session["started_at"] < parent["ended_at"]:
            return None
        return {"compression": "compression", "branched": "branch"}.get(parent["end_reason"])

    def root(self, session: Row) -> Row:
        """Return the root of the recorded compressions. In a cycle, any member that names itself as its root
        is accepted."""
        seen, at = {session["id"]}, session
        while at["relation"] == "compression" and (above := self.parent(at)) is not None:
            if above["id"] in seen:
                taken = self.sessions[session["root_id"]]
                assert taken["id"] in seen
                assert taken["root_id"] == taken["id"]
                return taken
            seen.add(above["id"])
            at = above
        return at

    def tip(self, session: Row) -> Row:
        seen, at = {session["id"]}, session
        while True:
            following = [
                row
                for row in self.sessions.values()
                if row["parent_session_id"] == at["id"]
                and row["relation"] == "compression"
                and row["id"] != at["id"]
            ]
            if not following:
                return at
            newest = max(following, key=lambda row: (row["started_at"], row["id"]))
            if newest["id"] in seen:
                return at
            seen.add(newest["id"])
            at = newest

    def conversations(self, *, by_activity: bool) -> list[tuple[str, str, float, str]]:
        """Return (shown id, id of the listed session, last activity, preview), in order."""
        roots = {row["id"]: self.root(row)["id"] for row in self.sessions.values()}
        active: dict[str, float] = {}
        for session_id, root in roots.items():
            active[root] = max(active.get(root, float("-inf")), self.sessions[session_id]["last_active"])
        listed = [
            row
            for row in self.sessions.values()
            if not self.is_below(row)
            or row["relation"] in ("branch", "reset")
            or (row["relation"] == "compression" and roots[row["id"]] == row["id"])
        ]

        def place(row: Row) -> tuple[float, float, str]:
            return (active.get(row["id"], 0.0) if by_activity else 0.0, row["started_at"], row["id"])

        expected_rows = []
        for row in sorted(listed, key=place, reverse=True):
            tip = self.tip(row)
            segments = [other for other in self.sessions.values() if roots[other["id"]] == row["id"]]
            newest_first = sorted(
                segments, key=lambda other: (other["started_at"], other["id"]), reverse=True
            )
            previews = [tip["preview"], *(other["preview"] for other in newest_first if tip is not row)]
            shown = next(filter(None, previews), "")
            expected_rows.append((tip["id"], row["id"], tip["last_active"], shown))
        return expected_rows

    def every(self, *, by_activity: bool) -> list[tuple[str, float, str]]:
        def place(row: Row) -> tuple[float, float, str]:
            return (row["last_active"] if by_activity else 0.0, row["started_at"], row["id"])

        rows = sorted(self.sessions.values(), key=place, reverse=True)
        return [(row["id"], row["last_active"], row["preview"]) for row in rows]

    def orphans(self) -> set[str]:
        return {session for session in self.messages if session not in self.sessions}
