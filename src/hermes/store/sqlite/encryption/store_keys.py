"""The sources of the key of an encrypted store: the environment, a file, the settings, or the system's keyring.

A key is 32 random bytes, written as 64 hexadecimal digits. This module is imported only if a store is encrypted.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from hermes import errors, home
from hermes.config import config_file
from hermes.store.sealing.sealed_files import require_cipher
from hermes.store.sqlite.encryption import encryption
from hermes.store.values import Key

ENV_KEY, ENV_KEY_FILE = "HERMES_STORE_KEY", "HERMES_STORE_KEY_FILE"
SETTING = "store.key_file"
SERVICE = "hermes-sessions"
KEY_BYTES = 32


def candidates(account: str, key_file: str | None) -> Iterator[Key]:
    """Yield every available key that may open a store, in the order in which to try them.

    First come the keys that the environment or the settings name, then the key in `key_file`. The key of `account` in
    the system's keyring is last, because the keyring may prompt the user.
    """
    yield from _list_named_keys()
    if key_file is not None and os.path.exists(key_file):
        yield read_key_file(Path(key_file), key_file)
    found = read_keyring(account)
    if found is not None:
        yield found


def find_configured_key() -> Key | None:
    """Return the key that is configured for new stores of this home, or None if there is none. The keyring is
    not queried."""
    return next(_list_named_keys(), None)


def _list_named_keys() -> Iterator[Key]:
    if text := os.environ.get(ENV_KEY, "").strip():
        yield Key(parse_key(text, ENV_KEY), ENV_KEY)
    if name := os.environ.get(ENV_KEY_FILE, "").strip():
        yield read_key_file(Path(name).expanduser(), f"{ENV_KEY_FILE} ({name})")
    if name := _read_key_setting():
        yield read_key_file(home.get_hermes_home() / Path(name).expanduser(), f"{SETTING} ({name})")


def _read_key_setting() -> str:
    try:
        name = config_file.read_setting("store", "key_file")
    except errors.BadConfig as problem:
        raise errors.make_error(errors.StoreLocked, str(problem)) from problem
    return name.strip() if isinstance(name, str) else ""


def parse_key(text: str, where: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise errors.make_error(
            errors.StoreLocked,
            f"{where} contains no key: a key is {2 * KEY_BYTES} hexadecimal digits;"
            " `hermes store encrypt --generate` makes one",
        )
    return key


def read_key_file(path: Path, where: str) -> Key:
    if home.is_loose(str(path)):
        raise errors.make_error(
            errors.StoreLocked,
            f"the key file {path} can be read or changed by others, so it is not used: run `chmod 600` on it",
        )
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        sentence = f"the key file {path} cannot be read: {problem.strerror}"
        raise errors.make_error(errors.StoreLocked, sentence) from problem
    return Key(parse_key(text, where), where, os.path.realpath(path))


def read_keyring(account: str) -> Key | None:
    """Return the key that the system's keyring contains for `account`, which is the path of a store.

    Return None if the keyring contains no such key, or if there is no keyring.
    """
    try:
        import keyring
    except ImportError:
        return None
    try:
        text = keyring.get_password(SERVICE, account)
    except Exception:  # noqa: BLE001 - a keyring may raise any exception of its system; the key is then unavailable
        return None
    return None if text is None else Key(parse_key(text, "the keyring"), _get_from_keyring(account))


def _get_from_keyring(account: str) -> str:
    return f"the keyring (service {SERVICE}, account {account})"


# ------------------------------------------------------------------------------------------------ the key for
# encryption


def choose_key(path: Path, *, key_file: Path | None, keyring: bool, env: bool, generate: bool) -> Key:
    """Return the key with which to encrypt the store at `path`, and where it was found.

    A store that is already encrypted keeps its key. If `generate` is true, a new key is made and stored in `key_file`
    or in the system's keyring. Otherwise the key is read from the place that the caller names: `key_file`, the
    keyring (`keyring`) or the environment (`env`). If the caller names none of them, the key is read from the first
    place that has one.
    """
    if not encryption.can_encrypt():
        raise encryption.missing_cipher_error(f"{path} should be encrypted")
    require_cipher()
    account = os.path.realpath(path)
    if (already := encryption.find_key(path)) is not None:
        if generate:
            raise errors.make_error(errors.InvalidArgument, f"{path} is already encrypted and keeps its key")
        return Key(already, "where it was")
    if generate:
        if env:
            raise errors.make_error(
                errors.InvalidArgument,
                "choose where to store the new key: --keyring or --key-file",
            )
        return generate_into_file(key_file) if key_file is not None else generate_into_keyring(account)
    if key_file is not None:
        return read_key_file(key_file, str(key_file))
    if env and not (os.environ.get(ENV_KEY) or os.environ.get(ENV_KEY_FILE)):
        raise errors.make_error(errors.StoreLocked, f"neither {ENV_KEY} nor {ENV_KEY_FILE} is set")
    found = read_keyring(account) if keyring else next(candidates(account, None), None)
    if found is None:
        raise errors.make_error(
            errors.StoreLocked,
            "there is no key yet: --generate makes one, in the keyring or in --key-file FILE",
        )
    return found


def generate_into_file(path: Path) -> Key:
    """Write a new key into a new file with mode 0600, and flush the file to disk before the key is used."""
    key = secrets.token_bytes(KEY_BYTES)
    home.make_private_folder(path.parent)
    try:
        descriptor = home.create_private_file(path)
    except FileExistsError:
        sentence = f"{path} exists and may contain a key; omit --generate to use it, or name another file"
        raise errors.make_error(errors.InvalidArgument, sentence) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return Key(key, str(path), os.path.realpath(path))


def generate_into_keyring(account: str) -> Key:
    """Store a new key in the keyring, and read it back before it is used, to be sure that it was stored."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        sentence = "the package `keyring` is not installed: pip install keyring, or use --key-file"
        raise errors.make_error(errors.StoreLocked, sentence) from None
    key = secrets.token_bytes(KEY_BYTES)
    try:
        if keyring.get_password(SERVICE, account) is not None:
            sentence = f"the keyring already has a key for {account}; omit --generate to use it"
            raise errors.make_error(errors.InvalidArgument, sentence)
        keyring.set_password(SERVICE, account, key.hex())
        kept = keyring.get_password(SERVICE, account) == key.hex()
    except KeyringError as problem:
        sentence = f"the keyring cannot be used ({problem}); use --key-file"
        raise errors.make_error(errors.StoreLocked, sentence) from problem
    if not kept:
        raise errors.make_error(errors.StoreLocked, "the keyring did not store the new key; use --key-file")
    return Key(key, _get_from_keyring(account))


def describe_places(account: str) -> str:
    """Describe the places in which a key is looked for. The text is for a user who has to provide a key."""
    return (
        f"set {ENV_KEY} or {ENV_KEY_FILE}, or {SETTING} in {home.get_hermes_home() / 'config.yaml'}, or"
        f" unlock {_get_from_keyring(account)}"
    )
