"""`hermes sessions`: everything that people do with stored conversations, a file for each thing."""

from __future__ import annotations

import argparse

from hermes.cli.command import Command, Words, group

HERE = "hermes.cli.sessions"

COMMANDS = {
    "list": Command(f"{HERE}.listing", "show the conversations, newest activity first"),
    "search": Command(f"{HERE}.search", "find conversations by what was said in them"),
    "show": Command(f"{HERE}.show", "read a conversation"),
    "tree": Command(f"{HERE}.tree", "show what a conversation came from and what came out of it"),
    "rename": Command(f"{HERE}.rename", "give a conversation a title"),
    "pin": Command(f"{HERE}.keeping:define_pin", "keep conversations from being pruned"),
    "unpin": Command(f"{HERE}.keeping:define_unpin", "let pinned conversations be pruned again"),
    "archive": Command(f"{HERE}.keeping:define_archive", "put conversations away, out of lists and searches"),
    "unarchive": Command(f"{HERE}.keeping:define_unarchive", "bring conversations back from the archive"),
    "delete": Command(f"{HERE}.delete", "throw conversations into the trash, or delete them for good"),
    "trash": Command(f"{HERE}.trash", "see what was thrown away, bring it back, or delete it for good"),
    "prune": Command(f"{HERE}.prune", "delete ended conversations that nobody has used for long"),
    "thin": Command(f"{HERE}.thin", "cut large old tool output, and keep what people wrote and read"),
    "stats": Command(f"{HERE}.stats", "see how much there is, and where the bytes are"),
    "export": Command(f"{HERE}.exporting", "write conversations to a file: JSONL, Markdown, HTML or a trace"),
    "import": Command(f"{HERE}.importing", "take in sessions that were exported as JSONL"),
    "browse": Command(f"{HERE}.browse", "find, read and look after conversations on the whole screen"),
    "optimize": Command(f"{HERE}.upkeep:define_optimize", "give unused space back and tidy the search index"),
    "verify": Command(f"{HERE}.upkeep:define_verify", "check that everything stored is whole"),
    "repair": Command(
        f"{HERE}.upkeep:define_repair", "save what can be saved of a damaged store into a new file"
    ),
    "backup": Command(f"{HERE}.upkeep:define_backup", "write a verified copy of the store"),
    "restore": Command(f"{HERE}.upkeep:define_restore", "put a backup in the place of the store"),
    "rebuild": Command(f"{HERE}.rebuild", "make a new store from the transcripts of the gateway"),
    "scrub": Command(f"{HERE}.scrub", "remove a secret from everything that is kept"),
    "doctor": Command("hermes.cli.doctor", "see how the store is, and what to do about what is wrong"),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)
