"""`hermes store`: encryption at rest, on and off."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.command import DONE, Access, Command, Words, group, takes_store
from hermes.cli.opening import existing, refuse_own
from hermes.cli.output import say
from hermes.text import counted, printable

if TYPE_CHECKING:
    from hermes.store.values import Converted

WARNING = (
    "Whoever loses the key loses everything in the store: keep a copy of it in a safe place, away from here."
)


COMMANDS = {
    "encrypt": Command("hermes.cli.store:define_encrypt", "encrypt the store and its backups", Access.PERSON),
    "decrypt": Command(
        "hermes.cli.store:define_decrypt", "make the store and its backups plain files again", Access.PERSON
    ),
}


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)


def define_encrypt(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, encrypt)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--key-file", type=Path, metavar="F", help="the key is in this file, which only you can read"
    )
    place.add_argument("--keyring", action="store_true", help="the key is in the system's keyring")
    place.add_argument(
        "--env", action="store_true", help="the key is in HERMES_STORE_KEY or HERMES_STORE_KEY_FILE"
    )
    parser.add_argument(
        "--generate",
        action="store_true",
        help="make a new key, in the keyring unless --key-file names a file",
    )
    parser.add_argument(
        "--keep-plain-backups", action="store_true", help="leave the backups as they are, readable"
    )


def define_decrypt(parser: argparse.ArgumentParser, _: Words) -> None:
    takes_store(parser, decrypt)


def encrypt(arguments: argparse.Namespace) -> int:
    from hermes.store import open as stores

    path = existing(arguments)
    if arguments.generate and arguments.key_file is not None:
        refuse_own(path, arguments.key_file)
    key = stores.encryption_key(
        path,
        key_file=arguments.key_file,
        keyring=arguments.keyring,
        env=arguments.env,
        generate=arguments.generate,
    )
    done = stores.encrypt_file(
        path, key.key, key_file=key.file, keep_plain_backups=arguments.keep_plain_backups
    )
    _tell(done, "encrypted")
    if done.changed:
        say([f"The key is in {printable(key.where)}.", WARNING])
    return DONE


def decrypt(arguments: argparse.Namespace) -> int:
    from hermes.store import open as stores

    _tell(stores.decrypt_file(existing(arguments)), "decrypted")
    return DONE


def _tell(done: Converted, participle: str) -> None:
    held = f"{counted(done.sessions, 'session')}, {counted(done.messages, 'message')}"
    if done.changed:
        lines = [f"{participle.capitalize()} '{done.path}': {held}, compared one by one with the old file."]
    else:
        lines = [f"'{done.path}' was {participle} already: {held}."]
    if done.backups:
        lines.append(f"Backups {participle} with it: {len(done.backups)}.")
    say(printable(line) for line in (*lines, *(f"Still {what}" for what in done.left)))
