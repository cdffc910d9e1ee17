"""Rewrites the command line before argparse reads it. The user may then type a question without a flag, chat
flags without the command `chat`, and `--store` before a command.

A question is one quoted argument or several words. An unquoted word that could be a mistyped command is
refused. Otherwise `hermes delete my project` would ask a model to act on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes.cli.exit_codes import WrongUsage

CONVERSATION_FLAGS = {
    "-c": "--continue",
    "--continue": "--continue",
    "-r": "--resume",
    "--resume": "--resume",
}
"""The flags that are followed by the name of a conversation, and their long forms."""
CHAT, STORE, END_OF_FLAGS = "chat", "--store", "--"
HELP = "(see 'hermes --help')"
_COMMAND_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
NEAR_ENOUGH = 0.75
"""The similarity from which the first of several words counts as a mistyped command."""


class TakenStore(NamedTuple):
    store: Path | None
    argv: list[str]


def take_store(argv: Sequence[str], commands: Collection[str]) -> TakenStore:
    """Take `--store FILE` out of the command line if it is before the command or the sub-command. Return the
    path of the store and the remaining words. `commands` are the names of all commands."""
    rest, before = list(argv), list[str]()
    store: Path | None = None
    while rest:
        name, equals, value = rest[0].partition("=")
        if name == STORE and (equals or len(rest) > 1):
            store = Path(value if equals else rest[1])
            del rest[: 1 if equals else 2]
        elif not before and rest[0] in commands:
            before.append(rest.pop(0))
        else:
            break
    return TakenStore(store, [*before, *rest])


def insert_chat_command(argv: Sequence[str], commands: Collection[str]) -> list[str]:
    """Return the words of the command line, with `chat` inserted if they begin with a question or with flags
    instead of a command. `commands` are the names of all commands.

    After `-c` or `-r`, the words of a conversation's title are joined to one argument.
    """
    if argv and argv[0] in commands and argv[0] != CHAT:
        return list(argv)
    if argv[:1] in (["-h"], ["--help"], ["--version"]):
        return list(argv)
    words: list[str] = []
    rest = list(argv[1:] if argv[:1] == [CHAT] else argv)
    while rest:
        word = rest.pop(0)
        if word == END_OF_FLAGS:
            return [CHAT, *words, word, *rest]
        if word not in CONVERSATION_FLAGS:
            words.append(word)
            continue
        name: list[str] = []
        while rest and not rest[0].startswith("-") and rest[0] not in commands:
            name.append(rest.pop(0))
        words.append(f"{CONVERSATION_FLAGS[word]}={' '.join(name)}" if name else word)
        if rest and rest[0] == CHAT:
            rest.pop(0)
        elif rest and rest[0] in commands:
            return [*rest, *words]
    return [CHAT, *words]


def get_first_words(argv: Sequence[str]) -> list[str]:
    """Return the words of the command line before the first flag."""
    end = next((at for at, word in enumerate(argv) if word.startswith("-")), len(argv))
    return list(argv[:end])


def check_question(words: Sequence[str], commands: Collection[str], subcommands: Iterable[str]) -> None:
    """Raise `WrongUsage` if `words`, typed as a question without quotes, are probably a mistyped command. A
    single unquoted word is always refused if it could be the name of a command.

    `subcommands` are the commands of `hermes sessions`. A person may type them without `sessions`.
    """
    first = words[0] if words else ""
    if not _COMMAND_WORD.fullmatch(first):
        return
    if first in commands:
        raise WrongUsage(f"the flags of '{first}' must follow the command: hermes {' '.join(words)} {HELP}")
    meant = _find_meant(first, commands, subcommands, is_alone=len(words) == 1)
    if meant is None and len(words) > 1:
        return
    suggestion = f"; did you mean '{meant}'?" if meant else "."
    how = f"use: hermes -q {first}" if len(words) == 1 else "put the question in quotes"
    raise WrongUsage(f"there is no command '{first}'{suggestion} To ask the agent, {how} {HELP}")


def _find_meant(
    word: str, commands: Collection[str], subcommands: Iterable[str], *, is_alone: bool
) -> str | None:
    """Return the command that the user probably meant by `word`; None if no command is similar. `is_alone` says
    that no other words follow. If other words follow, the word must be more similar to a command, because it
    may begin a question."""
    from difflib import get_close_matches

    lower = word.lower()
    if lower in commands:
        return lower
    if lower in subcommands:
        return f"sessions {lower}"
    near = get_close_matches(lower, commands, 1, 0.6 if is_alone else NEAR_ENOUGH)
    if not near:
        return None
    # excludes `what`, which resembles `chat`
    is_likely = near[0][0] == lower[0] or sorted(near[0]) == sorted(lower)
    return near[0] if is_alone or is_likely else None
