"""`hermes sessions`: everything that people do with stored conversations, a file for each thing."""

from __future__ import annotations

import argparse

from hermes.cli.command import Command, Words, group

HERE = "hermes.cli.sessions"

COMMANDS = {
    "list": Command(f"{HERE}.listing", "show the conversations, newest activity first"),
    "browse": Command(f"{HERE}.browse", "find, read and look after conversations on the whole screen"),
    "optimize": Command(f"{HERE}.upkeep:define_optimize", "give unused space back and tidy the search index"),
    "verify": Command(f"{HERE}.upkeep:define_verify", "check that everything stored is whole"),
    "repair": Command(
        f"{HERE}.upkeep:define_repair", "save what can be saved of a damaged store into a new file"
    ),
    "backup": Command(f"{HERE}.upkeep:define_backup", "write a verified copy of the store"),
    "restore": Command(f"{HERE}.upkeep:define_restore", "put a backup in the place of the store"),
    "doctor": Command("hermes.cli.doctor", "see how the store is, and what to do about what is wrong"),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)
