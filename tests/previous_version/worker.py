"""Calls `SessionDB` of whichever version is first on the Python path. Each input line is a call. Each output
line is its result.
"""

from __future__ import annotations

import base64
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import hermes
from hermes_state import SessionDB

PICTURE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 64).decode()
WORDS = ("heron", "marten", "zebra", "plover")


class Worker:
    """The verbs of a `SessionDB`, and some combinations of them."""

    def open(self, path: str) -> str:
        self.db = SessionDB(Path(path))
        return str(Path(hermes.__file__).parent)

    def close(self) -> None:
        self.db.close()

    def fill(self) -> None:
        """Create every kind of row that a real store contains."""
        db = self.db
        db.create_session(
            "plain", "cli", model="model-a", system_prompt="Be brief.", cwd="/", user_id="user-1"
        )
        db.append_message("plain", "user", "where does the heron nest?")
        db.append_message("plain", "assistant", None, tool_calls=[{"id": "c1", "function": {"name": "look"}}])
        db.append_message("plain", "tool", "in the reeds", tool_name="look", tool_call_id="c1")
        db.append_message("plain", "assistant", "In the reeds.", reasoning="thinking", token_count=7)
        db.set_session_title("plain", "Birds of the lake")
        db.add_tags("plain", "birds", "lake")
        db.pin_session("plain")

        db.create_session("long", "telegram")
        kept = [db.append_message("long", "user", f"the marten was here {n} times") for n in range(30)]
        db.set_session_title("long", "Martens")
        db.begin_continuation("long", "martens, counted", kept[-4:], session_id="long-2")
        db.append_message("long-2", "user", "and the marten came again")
        db.branch("long-2", session_id="long-3", end_parent=False)
        db.append_message("long-3", "user", "what if it were a plover?")

        db.create_session("picture", "cli")
        text = {"type": "text", "text": "a zebra in this picture"}
        db.append_message("picture", "user", [text, {"type": "image_url", "image_url": {"url": PICTURE}}])

        db.create_session("rewound", "cli")
        wrong = [db.append_message("rewound", "user", f"plover number {n}") for n in range(3)]
        db.rewind_to_message("rewound", wrong[1])

        db.create_session("thrown", "cli")
        db.append_message("thrown", "user", "a heron that nobody wants")
        db.trash_session("thrown")
        db.create_session("archived", "cli")
        db.append_message("archived", "user", "an old zebra")
        db.end_session("archived", "user_exit")
        db.set_session_archived("archived", True)

        db.record_usage("plain", model="model-a", input_tokens=11, output_tokens=5)
        db.routing.route("agent:main:telegram:dm:1", "telegram", "dm", "1", None, None, "long-2")
        db.set_meta("a key", "a value")

    def read(self) -> dict[str, Any]:
        """Return all data of the store, through its public verbs."""
        db = self.db
        sessions = sorted(row["id"] for row in db.search_sessions(limit=1_000))
        return {
            "export": sorted(db.export_all(), key=lambda record: str(record["id"])),
            "messages": {name: db.get_messages(name) for name in sessions},
            "contexts": {name: db.get_context(name) for name in sessions},
            "tips": {name: db.get_compression_tip(name) for name in sessions},
            "conversations": [
                [self.drop(row, "message_count", "tool_call_count") for row in page]
                if isinstance(page, list)
                else page
                for page in db.list_conversations(limit=1_000, include_hidden=True)
            ],
            "rich": [
                self.drop(row, "conversation_message_count", "conversation_tool_call_count")
                for row in db.list_sessions_rich(limit=1_000)
            ],
            "tags": sorted(db.all_tags()),
            "trash": db.list_trash(),
            "thrown": db.get_messages("thrown", include_trashed=True),
            "titles": [db.get_session_by_title(title) for title in ("Birds of the lake", "Martens")],
            "usage": db.usage_of("plain"),
            "route": db.routing.get("agent:main:telegram:dm:1"),
            "meta": db.get_meta("a key"),
            "found": {word: self.find(word) for word in WORDS},
            "parts": self.find("arte"),
            "ranked": sorted(row["conversation_id"] for row in db.search_conversations("marten heron")),
            "counts": [db.session_count(), db.message_count()],
        }

    @staticmethod
    def drop(row: dict[str, Any], *counts: str) -> dict[str, Any]:
        """Return a row of a list without the values that differ between the versions. The previous version
        took the counts, the title and the preview of a continued conversation from its last segment alone."""
        names = (*counts, "title", "preview") if "_lineage_root_id" in row else counts
        return {name: value for name, value in row.items() if name not in names}

    def find(self, query: str) -> list[dict[str, Any]]:
        """Search, and return the results in order of ids, because relevance depends on how much of the store
        is indexed."""
        return sorted(self.db.search_messages(query, limit=1_000), key=lambda row: row["id"])

    def work(self, tag: str, rounds: int) -> str:
        """In each round, write, search, list and compress in one conversation. Return the last session of the
        conversation."""
        session = f"{tag}-0"
        self.db.create_session(session, "cli")
        for n in range(1, rounds + 1):
            ids = [self.db.append_message(session, "user", f"{tag} {word} of round {n}") for word in WORDS]
            self.db.append_message("shared", "user", f"{tag} wrote round {n}")
            assert any(row["id"] == ids[0] for row in self.db.search_messages(f'"{tag} heron of round {n}"'))
            self.db.list_conversations()
            session = self.db.begin_continuation(session, f"summary {n}", ids[-1:], session_id=f"{tag}-{n}")
        return session

    def check(self) -> list[str]:
        health = self.db.verify()
        return [*health.damage, *health.drift]

    def call(self, verb: str, *arguments: Any, **named: Any) -> Any:
        own = getattr(self, verb, None)
        return (own or getattr(self.db, verb))(*arguments, **named)


def answer(worker: Worker, line: str) -> dict[str, Any]:
    order = json.loads(line)
    try:
        return {"result": worker.call(order["verb"], *order["arguments"], **order["named"])}
    except Exception:  # noqa: BLE001  (the test shows it)
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    worker = Worker()
    for line in sys.stdin:
        print(json.dumps(answer(worker, line), default=str), flush=True)
