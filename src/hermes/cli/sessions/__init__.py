"""`hermes sessions`: what people do with stored conversations, a module for each sub-command.

Owns the arguments and output of these commands. Imports the handles, recall, export and the browser; no other command
except what all commands share.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Access, Command, Words, add_commands

HERE = "hermes.cli.sessions"

COMMANDS = {
    "list": Command(f"{HERE}.list", "show the conversations, newest activity first", Access.READS),
    "search": Command(f"{HERE}.search", "find conversations by what was said in them", Access.READS),
    "show": Command(f"{HERE}.show", "read a conversation", Access.READS),
    "tree": Command(
        f"{HERE}.tree", "show what a conversation came from and what came out of it", Access.READS
    ),
    "rename": Command(f"{HERE}.labels:define_rename", "give a conversation a title", Access.CHANGES),
    "pin": Command(f"{HERE}.labels:define_pin", "keep conversations from being pruned", Access.CHANGES),
    "unpin": Command(
        f"{HERE}.labels:define_unpin", "let pinned conversations be pruned again", Access.CHANGES
    ),
    "archive": Command(
        f"{HERE}.labels:define_archive",
        "put conversations away, out of lists and searches",
        Access.CHANGES,
    ),
    "unarchive": Command(
        f"{HERE}.labels:define_unarchive", "bring conversations back from the archive", Access.CHANGES
    ),
    "delete": Command(
        f"{HERE}.delete", "throw conversations into the trash, or delete them for good", Access.PERSON
    ),
    "trash": Command(
        f"{HERE}.trash", "see what was thrown away, bring it back, or delete it for good", Access.READS
    ),
    "prune": Command(
        f"{HERE}.retention:define_prune",
        "delete ended conversations that nobody has used for long",
        Access.PERSON,
        ("dry_run",),
    ),
    "thin": Command(
        f"{HERE}.retention:define_thin",
        "cut large old tool output, and keep what people wrote and read",
        Access.PERSON,
        ("dry_run",),
    ),
    "stats": Command(f"{HERE}.stats", "see how much there is, and where the bytes are", Access.READS),
    "export": Command(
        f"{HERE}.export", "write conversations to a file: JSONL, Markdown, HTML or a trace", Access.CHANGES
    ),
    "import": Command(
        f"{HERE}.import_",
        "take in sessions that were exported as JSONL, or those of another store",
        Access.CHANGES,
        person_with=("trusted",),
    ),
    "browse": Command(
        f"{HERE}.browse", "find, read and look after conversations on the whole screen", Access.PERSON
    ),
    "optimize": Command(
        f"{HERE}.upkeep:define_optimize", "give unused space back and tidy the search index", Access.CHANGES
    ),
    "verify": Command(f"{HERE}.upkeep:define_verify", "check that everything stored is whole", Access.READS),
    "repair": Command(
        f"{HERE}.upkeep:define_repair",
        "save what can be saved of a damaged store into a new file",
        Access.PERSON,
        ("check_only",),
    ),
    "backup": Command(
        f"{HERE}.upkeep:define_backup",
        "write a verified copy of the store",
        Access.CHANGES,
        person_with=("force",),
    ),
    "restore": Command(
        f"{HERE}.upkeep:define_restore", "put a backup in the place of the store", Access.PERSON
    ),
    "rebuild": Command(
        f"{HERE}.rebuild", "make a new store from the transcripts of the gateway", Access.CHANGES
    ),
    "scrub": Command(
        f"{HERE}.scrub", "remove a secret from everything that is kept", Access.PERSON, ("dry_run",)
    ),
    "doctor": Command(
        "hermes.cli.doctor", "see how the store is, and what to do about what is wrong", Access.READS
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)
