"""`hermes sessions`: commands for stored conversations, one module per sub-command.

This folder owns the arguments and output of these commands. It imports the store handles, recall, export and
the browser, but no other command.
"""

from __future__ import annotations

import argparse

from hermes.cli.command import Access, Command, Words, add_commands

HERE = "hermes.cli.sessions"

COMMANDS = {
    "list": Command(f"{HERE}.list", "show the conversations, newest activity first", Access.READS),
    "search": Command(f"{HERE}.search", "find conversations by their content", Access.READS),
    "show": Command(f"{HERE}.show", "read a conversation", Access.READS),
    "tree": Command(
        f"{HERE}.tree",
        "show the tree of a conversation: its origin, continuations and branches",
        Access.READS,
    ),
    "rename": Command(f"{HERE}.labels:define_rename", "give a conversation a title", Access.CHANGES),
    "pin": Command(f"{HERE}.labels:define_pin", "keep conversations from being pruned", Access.CHANGES),
    "unpin": Command(
        f"{HERE}.labels:define_unpin", "let pinned conversations be pruned again", Access.CHANGES
    ),
    "archive": Command(
        f"{HERE}.labels:define_archive",
        "hide conversations from lists and searches",
        Access.CHANGES,
    ),
    "unarchive": Command(
        f"{HERE}.labels:define_unarchive", "bring conversations back from the archive", Access.CHANGES
    ),
    "tag": Command(f"{HERE}.tag", "add, remove and list tags of conversations", Access.READS),
    "delete": Command(
        f"{HERE}.delete:define_delete",
        "move conversations to the trash, or delete them permanently",
        Access.PERSON,
    ),
    "trash": Command(
        f"{HERE}.trash", "list, restore or permanently delete conversations in the trash", Access.READS
    ),
    "prune": Command(
        f"{HERE}.retention:define_prune",
        "delete ended conversations that have not been used for a long time",
        Access.PERSON,
        ("dry_run",),
    ),
    "thin": Command(
        f"{HERE}.retention:define_thin",
        "shorten large old tool output, but no messages of people or the agent",
        Access.PERSON,
        ("dry_run",),
    ),
    "stats": Command(
        f"{HERE}.stats", "show the number of conversations and the use of disk space", Access.READS
    ),
    "export": Command(
        f"{HERE}.export", "write conversations to a file: JSONL, Markdown, HTML or a trace", Access.CHANGES
    ),
    "import": Command(
        f"{HERE}.import_",
        "import sessions from JSONL exports or from another store",
        Access.CHANGES,
        person_with=("trusted",),
    ),
    "browse": Command(
        f"{HERE}.browse", "find, read and manage conversations on the full screen", Access.PERSON
    ),
    "optimize": Command(
        f"{HERE}.upkeep:define_optimize",
        "release unused disk space and compact the search index",
        Access.CHANGES,
    ),
    "verify": Command(f"{HERE}.upkeep:define_verify", "check the integrity of the store", Access.READS),
    "repair": Command(
        f"{HERE}.upkeep:define_repair",
        "recover the data of a damaged store into a new file",
        Access.PERSON,
        ("check_only",),
    ),
    "backup": Command(
        f"{HERE}.upkeep:define_backup",
        "write a verified copy of the store",
        Access.CHANGES,
        person_with=("force",),
    ),
    "restore": Command(f"{HERE}.upkeep:define_restore", "replace the store with a backup", Access.PERSON),
    "rebuild": Command(f"{HERE}.rebuild", "build a new store from the gateway's transcripts", Access.CHANGES),
    "scrub": Command(
        f"{HERE}.delete:define_scrub", "remove a secret from all stored data", Access.PERSON, ("dry_run",)
    ),
    "doctor": Command(
        "hermes.cli.doctor", "check the store, the home and the sandbox for problems", Access.READS
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)
