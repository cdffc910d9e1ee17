"""Attachments in structured content: extraction to blobs and restoration.

A string is an attachment only if it is base64 at one of the known places (see `is_file_place`) and if
encoding its bytes again gives the same text. Everything else stays in the content. Extraction replaces an
attachment by a reference that contains its hash, and sets the `content_kind` of the row to "blobs". A
caller's own string that starts like a reference is escaped with a second colon, so it is restored unchanged.
This module does not access the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from hermes.store.content import decode as decode_column
from hermes.store.content import encode as encode_column
from hermes.text import FILE_NAMES, REFERENCE, get_data_url_head, is_file_place, replace_surrogates

THRESHOLD = 4096
"""Attachments of at most this many characters stay in the message row."""

KIND = "blobs"
"""The `content_kind` of content that contains references."""
MENTION = '"\\u0000' + REFERENCE[1:]
"""The first characters of a reference in stored JSON."""
HASH_LENGTH = 64


class Attachment(NamedTuple):
    hash: bytes
    media_type: str | None
    data: bytes


def encode(content: object) -> tuple[Any, str, Iterable[Attachment]]:
    """Encode the content of a message. Return (column value, content_kind, attachments). The caller stores
    the attachments as blobs."""
    stored, kind = encode_column(content)
    if kind != "json" or len(stored) <= THRESHOLD:
        return stored, kind, ()
    short, taken = extract_attachments(content)
    return (encode_column(short)[0], KIND, taken) if taken else (stored, kind, ())


def extract_attachments(content: object) -> tuple[Any, list[Attachment]]:
    """Replace the attachments in content by references. Return (new content, distinct attachments)."""
    taken: dict[bytes, Attachment] = {}
    whole: list[Any] = [content]
    # Containers are copied before they are changed: the caller's content must not change. The loop replaces
    # recursion because content can be nested deeper than the stack allows.
    stack: list[tuple[Any, Any, bool]] = [(whole, 0, False)]
    while stack:
        holder, key, is_place = stack.pop()
        item = holder[key]
        if isinstance(item, str):
            if item.startswith(REFERENCE):
                holder[key] = f"{REFERENCE}:{item[len(REFERENCE) :]}"
            elif len(item) > THRESHOLD and (found := _parse_attachment(item, holder, is_place)) is not None:
                head, attachment = found
                taken.setdefault(attachment.hash, attachment)
                holder[key] = f"{REFERENCE}{attachment.hash.hex()}:{head}"
        elif isinstance(item, dict):
            fields = holder[key] = dict(item)
            stack.extend((fields, name, is_file_place(fields, name, is_place)) for name in fields)
        elif isinstance(item, list | tuple):
            items = holder[key] = list(item)
            stack.extend((items, at, False) for at in range(len(items)))
    return whole[0], list(taken.values())


def restore_attachments(content: Any, load: Callable[[bytes], bytes | None], *, foreign: bool = False) -> Any:
    """Replace the references in decoded content by their attachments, in place, and return the content.
    `load` returns the bytes for a hash.

    A missing attachment becomes a note. In `foreign` content, which another program stored, a reference to an
    unknown hash stays as it is.
    """
    whole = [content]
    stack: list[Any] = [whole]
    while stack:
        holder = stack.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, str):
                if item.startswith(REFERENCE):
                    holder[key] = _restore_text(item, load, foreign)
            elif isinstance(item, dict | list):
                stack.append(item)
    return whole[0]


def has_references(stored: object, kind: str | None) -> bool:
    """Return whether a row can contain references. This is so if its kind is "blobs", or if another program
    copied such a row without its kind."""
    return kind == KIND or (kind is None and isinstance(stored, str) and MENTION in stored)


def find_hashes(stored: object) -> list[bytes]:
    """Return the hashes of the references in stored content."""
    parts = stored.split(MENTION)[1:] if isinstance(stored, str) else []
    return [hash_ for part in parts if (hash_ := _parse_hash(part)) is not None]


def make_comparable(stored: Any, kind: str | None) -> str:
    """Return a text that is equal for equal content, whether or not its attachments were extracted."""
    value = decode_column(stored, kind)
    inside = isinstance(value, list | dict) and (len(stored) > THRESHOLD or MENTION in stored)
    return repr(extract_attachments(value)[0] if inside and not has_references(stored, kind) else value)


def compute_hash(data: bytes) -> bytes:
    from hashlib import sha256  # imports OpenSSL, which lists do not need

    return sha256(data).digest()


def format_missing(hash_: bytes) -> str:
    """Return the note that replaces a lost attachment."""
    return f"[attachment {hash_.hex()[:12]} is missing]"


def _parse_attachment(text: str, holder: Any, is_place: bool) -> tuple[str, Attachment] | None:
    """Return (text before the payload, attachment), or None if the text is not an attachment."""
    from binascii import a2b_base64, b2a_base64

    head = get_data_url_head(text)
    if not (head.endswith(";base64,") or (is_place and not head)):
        return None
    payload = text[len(head) :]
    try:
        data = a2b_base64(payload)
    except ValueError:
        return None
    if b2a_base64(data, newline=False).decode("ascii") != payload:
        return None
    media_type = head[len("data:") :].partition(";")[0] if head else _find_media_type(holder)
    return head, Attachment(compute_hash(data), replace_surrogates(media_type) or None, data)


def _find_media_type(holder: Mapping[str, object]) -> str:
    named = map(holder.get, FILE_NAMES)
    return next((name for name in named if isinstance(name, str)), "")


def _restore_text(text: str, load: Callable[[bytes], bytes | None], foreign: bool) -> str:
    from binascii import b2a_base64

    rest = text[len(REFERENCE) :]
    if rest.startswith(":") and not foreign:
        return REFERENCE + rest[1:]
    hash_ = _parse_hash(rest)
    if hash_ is None:
        return text
    data = load(hash_)
    if not isinstance(data, bytes):
        return text if foreign else format_missing(hash_)
    return rest[HASH_LENGTH + 1 :] + b2a_base64(data, newline=False).decode("ascii")


def _parse_hash(text: str) -> bytes | None:
    """Parse the hash of a reference. `text` is the reference after its prefix. Return None if it does not
    begin with a hash."""
    digits = text[:HASH_LENGTH]
    if (
        len(digits) < HASH_LENGTH
        or digits.strip("0123456789abcdef")
        or text[HASH_LENGTH : HASH_LENGTH + 1] != ":"
    ):
        return None
    return bytes.fromhex(digits)
