"""Random steps that change the conversations of a gateway while their mirror files are written."""

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

    def live(self, one: str) -> list[int]:
        return [row["id"] for row in self.db.get_context(one)]

    def do(self, step: str, dice: random.Random) -> None:
        one = dice.choice(self.sessions() or [begun(self.db)])
        # These errors are expected in random steps.
        with suppress(errors.InvalidTitle, errors.AlreadyContinued):
            _STEPS[step](self, one, dice)

    def _say(self, one: str, dice: random.Random) -> None:
        self.db.append_message(one, "user", f"says {dice.random()}", timestamp=dice.random() * 1e9)

    def _answer(self, one: str, dice: random.Random) -> None:
        call = {"id": "c", "function": {"name": "f", "arguments": str(dice.random())}}
        self.db.append_message(one, "assistant", None, tool_calls=[call], reasoning="hm")

    def _rewind(self, one: str, dice: random.Random) -> None:
        people = self.db.list_recent_user_messages(one)
        if people:
            self.db.rewind_to_message(one, dice.choice(people)["id"])

    def _restore(self, one: str, dice: random.Random) -> None:
        self.db.restore_rewound(one, dice.choice([0, *self.live(one)]))

    def _title(self, one: str, dice: random.Random) -> None:
        self.db.set_session_title(one, f"title {dice.randrange(4)}")

    def _compress(self, one: str, dice: random.Random) -> None:
        live = self.live(one)
        carried = sorted(dice.sample(live, dice.randrange(len(live) + 1)))
        self.db.begin_continuation(one, "What was said.", carried=carried)

    def _branch(self, one: str, dice: random.Random) -> None:
        live = self.live(one)
        self.db.branch(one, dice.choice(live) if live else None, end_parent=dice.random() < 0.5)

    def _reset(self, one: str, dice: random.Random) -> None:
        self.db.reset(one, reason=dice.choice(["session_reset", "idle"]))

    def _undo(self, one: str, _: random.Random) -> None:
        with suppress(errors.InvalidArgument):  # most sessions were not created by a reset
            self.db.undo_reset(one)

    def _delete(self, one: str, dice: random.Random) -> None:
        named = dice.random() < 0.5
        self.db.delete_session(one, self.folder if named else None)
        if not named:  # a crash before this call would leave an unexplained file
            self.transcripts.catch_up()

    def _end(self, one: str, dice: random.Random) -> None:
        self.db.end_session(one, "idle") if dice.random() < 0.5 else self.db.reopen_session(one)

    def _use(self, one: str, dice: random.Random) -> None:
        self.db.record_usage(one, model="m", input_tokens=dice.randrange(99), output_tokens=1)

    def _tag(self, one: str, dice: random.Random) -> None:
        change = self.db.add_tags if dice.random() < 0.7 else self.db.remove_tags
        change(one, dice.choice("abc"))

    def _trash(self, one: str, dice: random.Random) -> None:
        self.db.trash_session(one)
        if dice.random() < 0.5:
            self.transcripts.catch_up()
        self.db.restore_session(one)

    def _replace(self, one: str, dice: random.Random) -> None:
        rows = self.db.get_messages(one)
        kept = [{**row, "timestamp": None} for row in rows if dice.random() < 0.7]
        self.db.replace_messages(one, kept)

    def _mirror(self, _one: str, _dice: random.Random) -> None:
        self.transcripts.catch_up()

    def _mirror_new(self, _one: str, _dice: random.Random) -> None:
        self.transcripts.catch_up_new()

    def _tear(self, one: str, dice: random.Random) -> None:
        file = self.folder / f"{one}.jsonl"
        if file.exists():
            os.truncate(file, dice.randrange(file.stat().st_size + 1))

    def _crash(self, _one: str, _dice: random.Random) -> None:
        self.transcripts = Transcripts(self.db, self.folder)
        self.transcripts.catch_up()  # every start does this


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
