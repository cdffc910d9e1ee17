"""`hermes store`: turn encryption at rest on or off, for the store and the files of its home."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.command import Access, Command, Words, add_commands, add_store_option
from hermes.cli.exit_codes import DONE
from hermes.cli.io.output import print_lines
from hermes.cli.store_access import require_store
from hermes.export.output_file import refuse_store_files
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.store.values import Converted

WARNING = "Without the key, all data in the store is lost: keep a copy of the key in a safe place, not on this machine."
MOST_NAMED = 5

COMMANDS = {
    "encrypt": Command(
        "hermes.cli.store:define_encrypt",
        "encrypt the store, its backups, memories, skills and prompt history",
        Access.PERSON,
    ),
    "decrypt": Command(
        "hermes.cli.store:define_decrypt",
        "decrypt the store and the files that were encrypted with it",
        Access.PERSON,
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)


def define_encrypt(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, encrypt)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--key-file",
        type=Path,
        metavar="F",
        help="keep the key in this file; it must be readable only by you",
    )
    place.add_argument("--keyring", action="store_true", help="keep the key in the keyring of the system")
    place.add_argument(
        "--env", action="store_true", help="read the key from HERMES_STORE_KEY or HERMES_STORE_KEY_FILE"
    )
    parser.add_argument(
        "--generate",
        action="store_true",
        help="generate a new key; it is kept in the keyring, or in the file of --key-file",
    )
    parser.add_argument("--keep-plain-backups", action="store_true", help="do not encrypt existing backups")
    parser.add_argument(
        "--remove-plain",
        action="store_true",
        help="remove transcripts and sessions.json, which are plain copies of stored data",
    )


def define_decrypt(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, decrypt)


def encrypt(arguments: argparse.Namespace) -> int:
    from hermes.store import engine_choice

    path = require_store(arguments)
    if arguments.generate and arguments.key_file is not None:
        refuse_store_files(path, arguments.key_file)
    key = engine_choice.choose_encryption_key(
        path,
        key_file=arguments.key_file,
        keyring=arguments.keyring,
        env=arguments.env,
        generate=arguments.generate,
    )
    done = engine_choice.encrypt_file(
        path,
        key.key,
        key_file=key.file,
        keep_plain_backups=arguments.keep_plain_backups,
        remove_plain=arguments.remove_plain,
    )
    _print_result(done, "encrypted")
    if done.files:
        print_lines([f"Sealed with the key of the store: {_describe_folders(done)}."])
    if done.removed:
        print_lines(
            [f"Removed: {format_count(len(done.removed), 'plain copy', 'plain copies')} of stored data."]
        )
    print_lines(make_printable(line) for line in _format_plain_files(done))
    if done.changed:
        print_lines([f"The key is in {make_printable(key.where)}.", WARNING])
    return DONE


def decrypt(arguments: argparse.Namespace) -> int:
    from hermes.store import engine_choice

    done = engine_choice.decrypt_file(require_store(arguments))
    _print_result(done, "decrypted")
    if done.files:
        print_lines([f"Decrypted, too: {_describe_folders(done)}."])
    return DONE


def _print_result(done: Converted, participle: str) -> None:
    counts = f"{format_count(done.sessions, 'session')}, {format_count(done.messages, 'message')}"
    if done.changed:
        lines = [f"{participle.capitalize()} '{done.path}': {counts}, all compared with the old file."]
    else:
        lines = [f"'{done.path}' was {participle} already: {counts}."]
    if done.backups:
        lines.append(f"Backups {participle} with it: {len(done.backups)}.")
    print_lines(
        make_printable(line) for line in (*lines, *(remark[:1].upper() + remark[1:] for remark in done.left))
    )


def _describe_folders(done: Converted) -> str:
    """Return how many files were encrypted or decrypted in each folder of the home: `memories (2), skills (5),
    chat_history`."""
    folders: dict[str, int] = {}
    for file in done.files:
        first = file.relative_to(done.path.parent).parts[0]
        folders[first] = folders.get(first, 0) + 1
    return ", ".join(
        name if (done.path.parent / name).is_file() else f"{name} ({count})"
        for name, count in folders.items()
    )


def _format_plain_files(done: Converted) -> Iterator[str]:
    """Yield a line for each kind of file of the home that is not encrypted. The line names the files and gives
    advice."""
    if done.plain:
        yield "Not encrypted, readable by anyone with access to the disk:"
    for kind in done.plain:
        names = [str(file.relative_to(done.path.parent)) for file in kind.files]
        more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        line = f"  {kind.what}: {', '.join([*names[:MOST_NAMED], *more])}" if names else f"  {kind.what}"
        yield f"{line} ({kind.advice})" if kind.advice else line
