"""Random steps that change the conversations of a gateway while their mirror files are being written."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hermes import errors
from hermes.gateway.mirror.transcripts import Transcripts
from hermes_state import SessionDB
from tests.gateway.mirror_samples import ANN, ROOM, begun


class Story:
    def __init__(self, db: SessionDB, folder: Path) -> None:
        self.db, self.folder = db, folder
        self.transcripts = Transcripts(db, folder)
        for who in (ANN, ROOM):
            begun(db, who, key=f"key of {who.room}")

    def sessions(self) -> list[str]:
        return sorted(row["id"] for row in self.db.export_all())

    def live(self, session_id: str) -> list[int]:
        return [row["id"] for row in self.db.get_context(session_id)]

    def do(self, step: str, dice: random.Random) -> None:
        session_id = dice.choice(self.sessions() or [begun(self.db)])
        # these errors are expected in random steps
        with suppress(errors.InvalidTitle, errors.AlreadyContinued):
            _STEPS[step](self, session_id, dice)

    def _say(self, session_id: str, dice: random.Random) -> None:
        self.db.append_message(session_id, "user", f"says {dice.random()}", timestamp=dice.random() * 1e9)

    def _answer(self, session_id: str, dice: random.Random) -> None:
        call = {"id": "c", "function": {"name": "f", "arguments": str(dice.random())}}
        self.db.append_message(session_id, "assistant", None, tool_calls=[call], reasoning="hm")

    def _rewind(self, session_id: str, dice: random.Random) -> None:
        people = self.db.list_recent_user_messages(session_id)
        if people:
            self.db.rewind_to_message(session_id, dice.choice(people)["id"])

    def _restore(self, session_id: str, dice: random.Random) -> None:
        self.db.restore_rewound(session_id, dice.choice([0, *self.live(session_id)]))

    def _title(self, session_id: str, dice: random.Random) -> None:
        self.db.set_session_title(session_id, f"title {dice.randrange(4)}")

    def _compress(self, session_id: str, dice: random.Random) -> None:
        live = self.live(session_id)
        carried = sorted(dice.sample(live, dice.randrange(len(live) + 1)))
        self.db.begin_continuation(session_id, "What was said.", carried=carried)

    def _branch(self, session_id: str, dice: random.Random) -> None:
        live = self.live(session_id)
        self.db.branch(session_id, dice.choice(live) if live else None, end_parent=dice.random() < 0.5)

    def _reset(self, session_id: str, dice: random.Random) -> None:
        self.db.reset(session_id, reason=dice.choice(["session_reset", "idle"]))

    def _undo(self, session_id: str, _: random.Random) -> None:
        with suppress(errors.InvalidArgument):  # most sessions were not created by a reset
            self.db.undo_reset(session_id)

    def _delete(self, session_id: str, dice: random.Random) -> None:
        named = dice.random() < 0.5
        self.db.delete_session(session_id, self.folder if named else None)
        if not named:  # a crash before this call would leave a file that no session explains
            self.transcripts.catch_up()

    def _end(self, session_id: str, dice: random.Random) -> None:
        self.db.end_session(session_id, "idle") if dice.random() < 0.5 else self.db.reopen_session(session_id)

    def _use(self, session_id: str, dice: random.Random) -> None:
        self.db.record_usage(session_id, model="m", input_tokens=dice.randrange(99), output_tokens=1)

    def _tag(self, session_id: str, dice: random.Random) -> None:
        change = self.db.add_tags if dice.random() < 0.7 else self.db.remove_tags
        change(session_id, dice.choice("abc"))

    def _trash(self, session_id: str, dice: random.Random) -> None:
        self.db.trash_session(session_id)
        if dice.random() < 0.5:
            self.transcripts.catch_up()
        self.db.restore_session(session_id)

    def _replace(self, session_id: str, dice: random.Random) -> None:
        rows = self.db.get_messages(session_id)
        kept = [{**row, "timestamp": None} for row in rows if dice.random() < 0.7]
        self.db.replace_messages(session_id, kept)

    def _mirror(self, _session_id: str, _dice: random.Random) -> None:
        self.transcripts.catch_up()

    def _mirror_new(self, _session_id: str, _dice: random.Random) -> None:
        self.transcripts.catch_up_new()

    def _tear(self, session_id: str, dice: random.Random) -> None:
        file = self.folder / f"{session_id}.jsonl"
        if file.exists():
            os.truncate(file, dice.randrange(file.stat().st_size + 1))

    def _crash(self, _session_id: str, _dice: random.Random) -> None:
        self.transcripts = Transcripts(self.db, self.folder)
        self.transcripts.catch_up()  # a gateway does this at every start


_STEPS: dict[str, Callable[[Story, str, random.Random], None]] = {
    "say": Story._say,
    "answer": Story._answer,
    "rewind": Story._rewind,
    "restore": Story._restore,
    "title": Story._title,
    "compress": Story._compress,
    "branch": Story._branch,
    "reset": Story._reset,
    "undo": Story._undo,
    "delete": Story._delete,
    "end": Story._end,
    "use": Story._use,
    "tag": Story._tag,
    "trash": Story._trash,
    "replace": Story._replace,
    "mirror": Story._mirror,
    "mirror new": Story._mirror_new,
    "tear": Story._tear,
    "crash": Story._crash,
}
STEPS = ("say", "say", *_STEPS)
