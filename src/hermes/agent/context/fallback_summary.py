"""A summary without a model: what can be told of messages without understanding them.

What the person asked and what they were answered, which tools were called, which files were named; each with its id.
"""

from __future__ import annotations

import json

from hermes.agent.context.boundaries import Plan, Row, is_summary
from hermes.agent.context.summary import SECTIONS, body, parsed, said_in

MOST_POINTS, LONGEST_POINT = 30, 160
LEFT_OUT = "- (earlier ones left out)"
FILE_ARGUMENTS = ("path", "file", "file_path", "filename")


def gathered(plan: Plan) -> dict[str, str]:
    """The sections of a summary of what leaves the context, an earlier summary included."""
    points: dict[str, list[str]] = {name: [] for name in SECTIONS}
    asked: list[str] = []
    for row in plan.middle:
        if is_summary(row):
            for name, inside in parsed(body(row)).items():
                points[name] += inside.splitlines()
        else:
            _gather(row, points, asked)
    points["Pending User Asks"] += asked
    person = [row for part in plan for row in part if row.get("role") == "user"]
    if person:
        points["Goal"] = points["Goal"] or [_point(person[0])]
        points["Active Task"] = [_point(person[-1])]
    return {name: "\n".join(_newest(found)) for name, found in points.items() if found}


def _newest(points: list[str]) -> list[str]:
    each = list(dict.fromkeys(points))
    return each if len(each) <= MOST_POINTS else [LEFT_OUT, *each[1 - MOST_POINTS :]]


def _gather(row: Row, points: dict[str, list[str]], asked: list[str]) -> None:
    """`asked` is what the person said since the agent last did."""
    text, called = said_in(row)
    if row.get("role") == "user" and text:
        asked.append(_point(row))
    elif row.get("role") == "assistant" and text and not called and asked:
        points["Resolved Questions"] += [*asked, f"  answered: {_point(row)[2:]}"]
        asked.clear()
    elif row.get("role") == "assistant" and text:
        points["Critical Context"].append(_point(row))
    for name, given in called:
        points["Completed Actions"].append(f"- {name} {_one_line(given)} [m{row['id']}]")
        points["Relevant Files"] += [f"- {_one_line(path)}" for path in _files(given)]


def _files(given: str) -> list[str]:
    try:
        arguments = json.loads(given)
    except (ValueError, RecursionError):
        return []
    if not isinstance(arguments, dict):
        return []
    return [arguments[key] for key in FILE_ARGUMENTS if isinstance(arguments.get(key), str)]


def _point(row: Row) -> str:
    return f"- {_one_line(said_in(row)[0])} [m{row['id']}]"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_POINT else f"{line[: LONGEST_POINT - 1]}…"
