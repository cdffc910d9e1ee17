"""Which tools were called and which skills were used.

Only the names in a stored call are decoded, and the arguments of the two tools that skills are reached by; reading
100,000 calls so takes a quarter more time than fetching them, and less than SQLite's own JSON functions do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from hermes.store.content import from_json

VIEWED, MANAGED = "skill_view", "skill_manage"
SKILL_TOOLS = (VIEWED, MANAGED)
NO_SKILLS = {"distinct_skills": 0, "total_views": 0, "total_manages": 0, "total_actions": 0}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class _Call(msgspec.Struct):
    function: _Function | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


_decode_calls = msgspec.json.Decoder(list[_Call]).decode


class ToolUse:
    def __init__(self) -> None:
        self._called: Counter[str] = Counter()
        self._skills: dict[str, _Skill] = {}

    def add(self, at: object, stored: object) -> None:
        """The calls of one message, as they are stored."""
        for name, arguments in _iterate_calls(stored):
            self._called[name] += 1
            if name in SKILL_TOOLS and (skill := _get_skill_name(arguments)):
                self._skills.setdefault(skill, _Skill()).add(name, at)

    def tools(self, answered: dict[str, int]) -> list[dict[str, Any]]:
        """By name, the most used first. A call and its answer are one use; where one is missing, the other counts."""
        counts = {name: max(self._called[name], answered.get(name, 0)) for name in {*self._called, *answered}}
        total = sum(counts.values())
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [{"tool": name, "count": n, "percentage": 100.0 * n / total} for name, n in ordered]

    def skills(self) -> dict[str, Any]:
        views = sum(skill.views for skill in self._skills.values())
        manages = sum(skill.manages for skill in self._skills.values())
        total = views + manages
        ordered = sorted(self._skills.items(), key=lambda item: (-item[1].total, item[0]))
        summary = (len(self._skills), views, manages, total)
        return {
            "summary": dict(zip(NO_SKILLS, summary, strict=True)),
            "top_skills": [
                {
                    "skill": name,
                    "view_count": skill.views,
                    "manage_count": skill.manages,
                    "total_count": skill.total,
                    "percentage": 100.0 * skill.total / total,
                    "last_used_at": skill.last_used_at,
                }
                for name, skill in ordered
            ],
        }


class _Skill:
    def __init__(self) -> None:
        self.views = self.manages = 0
        self.last_used_at: float | None = None

    def add(self, tool: str, at: object) -> None:
        if tool == VIEWED:
            self.views += 1
        else:
            self.manages += 1
        if isinstance(at, int | float):  # another program may have written anything
            self.last_used_at = at if self.last_used_at is None else max(self.last_used_at, at)

    @property
    def total(self) -> int:
        return self.views + self.manages


def _iterate_calls(stored: object) -> Iterable[tuple[str, object]]:
    """The name and the arguments of each call, in the two shapes that programs write."""
    if not isinstance(stored, str):
        return
    try:
        calls = _decode_calls(stored)
    except (ValueError, RecursionError):  # not the documented shape: look at each part by itself
        yield from _iterate_odd_calls(from_json(stored, None))
        return
    for call in calls:
        if call.function is not None and call.function.name:
            yield call.function.name, call.function.arguments
        elif call.name:
            yield call.name, call.arguments


def _iterate_odd_calls(value: object) -> Iterable[tuple[str, object]]:
    for call in value if isinstance(value, list) else [value]:
        if not isinstance(call, dict):
            continue
        inner = call.get("function")
        for holder in (inner, call):
            if isinstance(holder, dict) and isinstance(name := holder.get("name"), str) and name:
                yield name, holder.get("arguments")
                break


def _get_skill_name(arguments: object) -> str | None:
    """The `name` among arguments, which are an object or JSON text of one."""
    if isinstance(arguments, msgspec.Raw):
        arguments = from_json(bytes(arguments).decode(), None)
    if isinstance(arguments, str):
        arguments = from_json(arguments, None)
    name = arguments.get("name") if isinstance(arguments, dict) else None
    return name if isinstance(name, str) and name else None
