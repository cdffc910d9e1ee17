"""Draws the diagrams of docs/architecture.md as SVG files: `python -m tools.diagrams`.

The folders come from the import contract in pyproject.toml. The two sequence diagrams come from the tables
below.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
CONTAINER = "hermes"
LINE, MARGIN = 18, 24
INK, PAPER, FAINT, ACCENT = "#1f2937", "#ffffff", "#6b7280", "#2563eb"
FILL, EDGE = "#f3f4f6", "#9ca3af"

FOLDERS = {
    "cli": "the hermes command",
    "server": "OpenAI-compatible API",
    "chat": "the terminal",
    "browser": "full-screen browser",
    "demo": "sample conversations",
    "gateway": "chat platforms",
    "jobs": "scheduled jobs: work without a person",
    "conversation": "one live conversation, and slash commands, for every surface",
    "agent": "turn, models, context, prompt, tools, approvals, sandbox",
    "db": "SessionDB and ScopedStore: the public handles",
    "recall": "search and ranking",
    "insights": "usage and costs",
    "export": "formats and the writer",
    "store": "sessions, messages and what follows from them; the engine behind an interface",
    "config": "every setting, declared once",
}
"""A short description of each folder in the contract."""


class Lane(NamedTuple):
    title: str
    note: str = ""


class Step(NamedTuple):
    start: int
    end: int
    """The indexes of the lanes at which the step starts and ends. If they are equal, the work stays inside
    one lane."""
    text: str
    note: str = ""
    is_durable: bool = False
    """Whether data is on disk after the step."""


MESSAGE_LANES = (
    Lane("platform", "Telegram, Matrix, …"),
    Lane("gateway/inbound"),
    Lane("conversation, agent"),
    Lane("gateway/outbound"),
    Lane("store"),
)
MESSAGE_STEPS = (
    Step(0, 1, "Router.receive", "the adapter hands the message in"),
    Step(1, 1, "access control, rate limit, files"),
    Step(1, 4, "inbox.accept", "a duplicate is recognised here", is_durable=True),
    Step(1, 0, "acknowledge"),
    Step(1, 4, "leases.acquire, inbox.claim", "Mailbox: one message of a chat at a time", is_durable=True),
    Step(1, 2, "Conversation.say", "MessageProcessor, with the person's scoped handle"),
    Step(2, 4, "append_message: the person's message", is_durable=True),
    Step(2, 2, "model, tools, model, …"),
    Step(2, 4, "append_message: each answer and result", is_durable=True),
    Step(2, 3, "events of the turn", "collect_reply; edits show the answer as it grows"),
    Step(3, 4, "outbox.enqueue", "under an idempotency key", is_durable=True),
    Step(1, 4, "inbox.complete", is_durable=True),
    Step(3, 0, "Adapter.send", "Delivery: in order within a chat"),
    Step(3, 4, "outbox.mark_sent", is_durable=True),
)

APPEND_LANES = (
    Lane("caller", "any thread"),
    Lane("commit queue", "store/sqlite/group_commit"),
    Lane("transaction", "store/sqlite/transactions"),
    Lane("state.db and its log"),
)
APPEND_STEPS = (
    Step(0, 0, "Messages.append: check, encode, uid, time", "no lock is held"),
    Step(0, 1, "SqliteEngine.write", "no leader: lead now; else wait for the leader"),
    Step(1, 2, "transact(batch)", "up to 64 waiting writes share one commit"),
    Step(2, 3, "BEGIN IMMEDIATE", "in turn with other processes; StoreBusy after 30 s"),
    Step(2, 3, "UPDATE sessions, INSERT messages", "one savepoint for each write"),
    Step(2, 3, "COMMIT and fsync", "synchronous=FULL", is_durable=True),
    Step(2, 2, "is the log still the file that was opened?", "if not: save it, or raise"),
    Step(1, 0, "the id of the message", "it survives kill -9 and a power cut"),
    Step(1, 3, "indexer: every 32 writes, if 128 rows wait", "in transactions of its own, after the answer"),
    Step(1, 3, "checkpoint: every 50 writes", "on a thread of its own"),
)


class Drawing:
    """The elements of an SVG file, in the order of drawing."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._elements: list[str] = []

    def draw_box(self, x: float, y: float, width: float, height: float, fill: str = FILL) -> None:
        self._elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="{EDGE}"/>'
        )

    def draw_text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        color: str = INK,
        weight: int = 400,
        is_over_lines: bool = False,
    ) -> None:
        size = 12 if color == FAINT else 14
        halo = f' paint-order="stroke" stroke="{PAPER}" stroke-width="4"' if is_over_lines else ""
        self._elements.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}" font-size="{size}"'
            f' font-weight="{weight}"{halo}>{escape(text)}</text>'
        )

    def draw_line(
        self, start: tuple[float, float], end: tuple[float, float], *, color: str = INK, arrow: bool = False
    ) -> None:
        style = ' marker-end="url(#arrow)"' if arrow else ' stroke-dasharray="3 4"'
        self._elements.append(
            f'<line x1="{start[0]:g}" y1="{start[1]:g}" x2="{end[0]:g}" y2="{end[1]:g}" stroke="{color}"{style}/>'
        )

    def draw_dot(self, x: float, y: float) -> None:
        self._elements.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{ACCENT}"/>')

    def to_svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" role="img"'
            f' font-family="system-ui, sans-serif"><title>{escape(self._title)}</title>'
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
            f' orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
        )
        paper = f'<rect width="{self._width}" height="{self._height}" rx="8" fill="{PAPER}"/>'
        return "\n".join((head, paper, *self._elements, "</svg>", ""))


def read_layers() -> list[list[str]]:
    """Return the folders of the import contract, the top layer first. Modules outside of folders are the
    foundations in the bottom layer."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        found
        for found in settings["tool"]["importlinter"]["contracts"]
        if found.get("containers") == [CONTAINER]
    )
    layers = [layer.replace(":", "|").split("|") for layer in contract["layers"]]
    folders = [[name.strip() for name in names if name.strip() in FOLDERS] for names in layers]
    return [names for names in folders if names]


def draw_rooms() -> str:
    width, height, gap = 960, 52, 14
    rows = [[(f"{name}/", FOLDERS[name]) for name in names] for names in read_layers()]
    rows.append(
        [("foundations", "hermes/*.py: errors, clock, text, terms, home, atomic files, secrets, logs")]
    )
    drawing = Drawing(
        width, 2 * MARGIN + len(rows) * (height + gap) - gap, "Folders, each above those it imports"
    )
    for number, row in enumerate(rows):
        y = MARGIN + number * (height + gap)
        size = (width - 2 * MARGIN - gap * (len(row) - 1)) / len(row)
        for place, (name, meaning) in enumerate(row):
            x = MARGIN + place * (size + gap)
            drawing.draw_box(x, y, size, height)
            drawing.draw_text(x + size / 2, y + 22, name, weight=600)
            drawing.draw_text(x + size / 2, y + 40, meaning, color=FAINT)
        if number:
            drawing.draw_line((width / 2, y - gap), (width / 2, y), arrow=True)
    return drawing.to_svg()


def draw_sequence(title: str, lanes: Sequence[Lane], steps: Sequence[Step]) -> str:
    width, head, row = 960, 44, 50
    bottom = MARGIN + head + row * len(steps) + 16
    drawing = Drawing(width, bottom + 28, title)
    size = (width - 2 * MARGIN) / len(lanes)
    centres = [MARGIN + size * (number + 0.5) for number in range(len(lanes))]
    for lane, x in zip(lanes, centres, strict=True):
        drawing.draw_line((x, MARGIN + head), (x, bottom), color=EDGE)
        drawing.draw_box(x - size / 2 + 6, MARGIN, size - 12, head)
        drawing.draw_text(x, MARGIN + (20 if lane.note else 27), lane.title, weight=600)
        if lane.note:
            drawing.draw_text(x, MARGIN + 36, lane.note, color=FAINT)
    for number, step in enumerate(steps, start=1):
        y = MARGIN + head + row * number - 12
        _draw_step(drawing, step, number, y, centres, width)
    drawing.draw_dot(MARGIN + 8, bottom + 10)
    drawing.draw_text(MARGIN + 20, bottom + 14, "on disk when the step is done", anchor="start", color=FAINT)
    return drawing.to_svg()


def _draw_step(
    drawing: Drawing, step: Step, number: int, y: float, centres: Sequence[float], width: int
) -> None:
    start, end = centres[step.start], centres[step.end]
    text = f"{number}. {step.text}"
    if step.start == step.end:
        longest = max(len(text) * 7.4, len(step.note) * 6.2) + 20
        left = min(max(start - longest / 2, MARGIN), width - MARGIN - longest)
        drawing.draw_box(left, y - 24, longest, 38 if step.note else 26, PAPER)
        drawing.draw_text(left + longest / 2, y - 7, text)
        if step.note:
            drawing.draw_text(left + longest / 2, y + 8, step.note, color=FAINT)
        return
    drawing.draw_line((start, y), (end, y), arrow=True)
    middle = (start + end) / 2
    drawing.draw_text(middle, y - 6, text, is_over_lines=True)
    if step.note:
        drawing.draw_text(middle, y + 14, step.note, color=FAINT, is_over_lines=True)
    if step.is_durable:
        drawing.draw_dot(end + (9 if end > start else -9), y)


def draw_all() -> dict[str, str]:
    """Return the diagrams by file name."""
    return {
        "rooms.svg": draw_rooms(),
        "message.svg": draw_sequence("From a platform to the answer", MESSAGE_LANES, MESSAGE_STEPS),
        "append.svg": draw_sequence("An append on its way to disk", APPEND_LANES, APPEND_STEPS),
    }


def main() -> None:
    for name, drawing in draw_all().items():
        (IMAGES / name).write_text(drawing, encoding="utf-8")
        print(IMAGES / name)


if __name__ == "__main__":
    main()
