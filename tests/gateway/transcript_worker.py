"""A process that adds messages and writes transcripts until it is killed."""

from __future__ import annotations

import json
import os
import random
import sys

from hermes.gateway.mirror.transcripts import Transcripts
from hermes.home import get_hermes_home
from hermes_state import SessionDB


def say(**answer: object) -> None:
    os.write(1, (json.dumps(answer) + "\n").encode())


def write(chats: list[str], seed: int, rounds: int = 10_000) -> None:
    dice = random.Random(seed)
    with SessionDB() as db:
        transcripts = Transcripts(db, get_hermes_home() / "sessions")
        for number in range(rounds):
            for chat in chats:
                db.append_message(chat, "user", "x" * dice.randrange(50_000))
            transcripts.catch_up_new() if number % 3 else transcripts.catch_up()
            say(round=number)
    say(done=None)


if __name__ == "__main__":
    for line in sys.stdin:
        order = json.loads(line)
        order.pop("do")
        write(**order)
