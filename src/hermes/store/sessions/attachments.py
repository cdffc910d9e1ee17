"""Attachments in the structured content of a message: their extraction to blobs, and their restoration.

A string in the content is an attachment only if it is base64 at one of the known places (see `is_file_place`)
and if encoding its bytes again gives the same text. Everything else stays in the content. Extraction replaces
an attachment by a reference that contains the hash of the attachment, and sets the `content_kind` of the
message row to "blobs". A caller's own string that starts like a reference is escaped with a second colon, so
that restoration returns it unchanged. This module does not access the store.
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
    """Return (a copy of `content` with a reference in place of each attachment, the distinct attachments).
    `content` is the content of a message and is not changed."""
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
    """Replace the references in the decoded content of a message by the attachments that they refer to. Change
    the content in place, and return it. `load` returns the bytes of the attachment with a given hash.

    A reference to a missing attachment is replaced by a text that says so (see `format_missing`). In `foreign`
    content, which another program stored, a reference to an unknown hash stays as it is.
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
    """Return whether the content of a message row can contain references to attachments. `stored` is the value
    of the column `content`, and `kind` that of `content_kind`.

    This is so if `kind` is "blobs". It is also so if `kind` is None and the content contains the text of a
    reference, because another program can copy such a row without its kind.
    """
    return kind == KIND or (kind is None and isinstance(stored, str) and MENTION in stored)


def find_hashes(stored: object) -> list[bytes]:
    """Return the hashes of the attachments to which the content of a message row refers. `stored` is the value
    of the column `content`."""
    parts = stored.split(MENTION)[1:] if isinstance(stored, str) else []
    return [hash_ for part in parts if (hash_ := _parse_hash(part)) is not None]


def make_comparable(stored: Any, kind: str | None) -> str:
    """Return a text by which the contents of two message rows can be compared. It is equal for equal contents,
    even if the attachments of only one of them were extracted to blobs. `stored` and `kind` are the columns
    `content` and `content_kind`."""
    value = decode_column(stored, kind)
    inside = isinstance(value, list | dict) and (len(stored) > THRESHOLD or MENTION in stored)
    return repr(extract_attachments(value)[0] if inside and not has_references(stored, kind) else value)


def compute_hash(data: bytes) -> bytes:
    from hashlib import sha256  # imports OpenSSL, which lists do not need

    return sha256(data).digest()


def format_missing(hash_: bytes) -> str:
    """Return the text that a reader of a message sees in place of a lost attachment. `hash_` is the hash of the
    attachment."""
    return f"[attachment {hash_.hex()[:12]} is missing]"


def _parse_attachment(text: str, holder: Any, is_place: bool) -> tuple[str, Attachment] | None:
    """Return (beginning of `text` before its base64, attachment), or None if `text` is not an attachment. The
    beginning is that of a data URL, or empty.

    `text` is a string in the content of a message, and `holder` is the object that contains it. `is_place` is
    true if providers put files at this place of the content.
    """
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
