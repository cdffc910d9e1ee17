"""Reads a webhook request, checks its signature, and ensures that it is accepted only once.

Two kinds of signatures are supported. The signature of Hermes (`X-Hermes-Signature`) covers the time and the body,
and is valid for five minutes. The signature of GitHub covers only the body and does not expire. If a request has no
message id, the id is derived from the signed content, so that a repeated request gets the same id. `SeenRequests`
records the signed requests to all paths.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, NamedTuple

import msgspec

from hermes import append_files, atomic_files, clock, home
from hermes.errors import HermesError
from hermes.gateway.http.json_body import check_depth, check_value_count
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.session_kinds import CHAT_TYPES

OURS = "X-Hermes-Signature"
GITHUB = "X-Hub-Signature-256"
GITHUB_ID = "X-GitHub-Delivery"
WINDOW_S = 300
REMEMBERED_S = {OURS: 2 * WINDOW_S, GITHUB: 90 * clock.DAY}
"""For each signature header: how many seconds a signed request is remembered."""
LONGEST_FOREIGN = 20_000
"""Maximum number of characters of a message whose body is JSON in the format of another program."""
LONGEST_ID = 200
UNNAMED = "webhook"
KINDS = ("image", "audio", "video")
_HEX = re.compile("[0-9a-f]{64}")

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID)] | Number
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
MOST_REMEMBERED = 100_000
"""Maximum number of remembered requests. The oldest are forgotten first."""
SPARE_LINES = 10_000


class NotUnderstood(HermesError):
    """Raised for a request whose signature is valid and whose content is not."""


class Proof(NamedTuple):
    """What is known about a request whose signature is valid. `signature` is the name of the header that contained
    it."""

    signature: str
    digest: str
    """Digest of the signed content."""
    mark: str
    """Identifies the signed request, independently of the path to which it is sent."""


class Claim(NamedTuple):
    """The signature from the header of a request. It is well-formed and was not compared with the body yet."""

    signature: str
    """The name of the header with the signature."""
    prefix: bytes
    """Bytes before the body that the signature also covers."""
    hex: str


class WebhookMessage(NamedTuple):
    event: Event
    offered: tuple[OfferedFile, ...]
    callback_url: str | None
    wait: bool


class File(msgspec.Struct):
    data: bytes
    name: Name = "file"
    media_type: Name = "application/octet-stream"


class Body(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(max_length=1_000_000)] = ""
    user: Id | None = None
    user_name: Name | None = None
    chat: Id | None = None
    chat_type: str | None = None
    thread: Id | None = None
    message_id: Id | None = None
    reply_to: str | None = None
    callback_url: Annotated[str, msgspec.Meta(max_length=2000)] | None = None
    attachments: Annotated[list[File], msgspec.Meta(max_length=20)] = []
    wait: bool = True


def sign(secret: bytes, body: bytes, at: float) -> str:
    """Return the value of the header `X-Hermes-Signature` for a request with this body. `at` is the time at which
    the request is sent."""
    return f"t={at:.0f},v1={_hex_digest(secret, _date_prefix(f'{at:.0f}'), body)}"


def read_claim(headers: Mapping[str, str], now: float) -> Claim | None:
    """Parse the signature in the headers of a request, before the body is read. Return None if the signature is
    missing, malformed or expired."""
    header = headers.get(OURS)
    if header is None:
        kind, _, claimed = headers.get(GITHUB, "").partition("=")
        return Claim(GITHUB, b"", claimed) if kind == "sha256" and _HEX.fullmatch(claimed) else None
    parts = dict(part.strip().partition("=")[::2] for part in header.split(","))
    at, claimed = parts.get("t", ""), parts.get("v1", "")
    if not _HEX.fullmatch(claimed):
        return None
    if not (at.isascii() and at.isdigit() and len(at) < 16 and abs(now - int(at)) <= WINDOW_S):
        return None
    return Claim(OURS, _date_prefix(at), claimed)


def check_signature(
    secret: bytes, headers: Mapping[str, str], body: bytes | bytearray, now: float
) -> Proof | None:
    """Check the signature of a request against its body. Return None if the signature is invalid. The result does
    not say why, because the sender must not learn it."""
    claim = read_claim(headers, now)
    if claim is None:
        return None
    if not hmac.compare_digest(claim.hex, _hex_digest(secret, claim.prefix, body)):
        return None
    signed = hashlib.sha256(claim.prefix)
    signed.update(body)
    # Hash the signature, not the body: without the secret, the mark does not reveal which body it belongs to.
    mark = hashlib.sha256(claim.hex.encode()).hexdigest()
    return Proof(claim.signature, signed.hexdigest()[:32], mark)


def read_message(
    body: bytes, proof: Proof, headers: Mapping[str, str], route: str | None, now: float
) -> WebhookMessage:
    """Parse the message in the body of a signed request. If the body names no chat, `route`, the last part of the
    URL path, is used as the chat. Raise `NotUnderstood` if the body is invalid."""
    try:
        check_value_count(body)
        data = msgspec.json.decode(body)
        check_depth(data)
        if isinstance(data, dict) and ("text" in data or "attachments" in data):
            fields = msgspec.convert(data, Body)
        else:
            fields = _wrap_foreign_json(data, body)
    except (ValueError, RecursionError) as problem:  # msgspec's errors are ValueErrors
        raise NotUnderstood(f"the body is invalid: {problem}") from problem
    if not fields.text.strip() and not fields.attachments:
        raise NotUnderstood("the body has no text")
    if fields.message_id is None and proof.signature == GITHUB and GITHUB_ID not in headers:
        raise NotUnderstood(f"with {GITHUB} the body needs a message_id")
    event = Event(_make_source(fields, proof, route), fields.text, now, reply_to=fields.reply_to)
    return WebhookMessage(
        event, tuple(_offer_file(file) for file in fields.attachments), fields.callback_url, fields.wait
    )


def _make_source(fields: Body, proof: Proof, route: str | None) -> Source:
    user = None if fields.user is None else str(fields.user)
    chat = route if fields.chat is None else str(fields.chat)
    if chat and len(chat) > LONGEST_ID:
        raise NotUnderstood(f"the name of the chat is longer than {LONGEST_ID} characters")
    # The members of a named chat are unknown, so it is a group. A message without a chat name is a private
    # chat.
    kind = fields.chat_type or ("group" if chat else "dm")
    if kind not in CHAT_TYPES:
        raise NotUnderstood(f"chat_type must be one of {', '.join(CHAT_TYPES)}")
    return Source(
        "webhook",
        chat or user or UNNAMED,
        chat_type=kind,
        user_id=user,
        user_name=fields.user_name,
        thread_id=None if fields.thread is None else str(fields.thread),
        message_id=proof.digest if fields.message_id is None else str(fields.message_id),
    )


def _wrap_foreign_json(data: Any, body: bytes) -> Body:
    """Return a message for a body whose JSON has the format of another program, such as a GitHub event. The text of
    the message is the JSON itself. The HTTP request does not wait for the answer."""
    message_id = data.get("message_id") if isinstance(data, dict) else None
    valid_id = (
        message_id if type(message_id) in (str, int) and 0 < len(str(message_id)) <= LONGEST_ID else None
    )
    text = msgspec.json.format(body, indent=2).decode()
    if len(text) > LONGEST_FOREIGN:
        text = f"{text[:LONGEST_FOREIGN]}\n… ({len(text) - LONGEST_FOREIGN} more characters)"
    return Body(text, message_id=valid_id, wait=False)


def _offer_file(file: File) -> OfferedFile:
    async def fetch() -> bytes:
        return file.data

    kind = file.media_type.partition("/")[0].lower()
    name = file.name or "file"
    return OfferedFile(kind if kind in KINDS else "file", name, file.media_type, len(file.data), fetch)


def _date_prefix(at: str) -> bytes:
    return b"%s." % at.encode()


def _hex_digest(secret: bytes, prefix: bytes, body: bytes | bytearray) -> str:
    digest = hmac.new(secret, prefix, hashlib.sha256)
    digest.update(body)
    return digest.hexdigest()


# ---------------------------------------------------------------- replay protection


class SeenRequest(NamedTuple):
    chat: str
    """A hash that identifies the chat to which the request belongs."""
    until: float
    is_accepted: bool


class SeenRequests:
    """Signed requests that were received before, for replay protection.

    A signature covers the body but not the path. Without protection, an attacker could send the same request to
    another path, and it would become a message in another chat. Therefore each signed request belongs to the chat to
    which it was first sent, and is accepted once.

    A request is recorded before its message is passed to the gateway, and again when the message is accepted.
    A request that was not accepted can be repeated to the same chat. If its message is already in the inbox,
    the inbox recognises the duplicate.

    The file has one line per change. For each request, the last line is valid. The file contains only hashes
    and times, no message texts.
    """

    def __init__(self, file: Path, most: int = MOST_REMEMBERED) -> None:
        self._file, self._most = file, most
        self._seen: OrderedDict[str, SeenRequest] = OrderedDict()
        self._lines = 0
        self._lock = Lock()

    def load(self) -> None:
        with self._lock:
            self._seen.clear()
            self._lines = 0
            with suppress(FileNotFoundError):
                for line in self._file.read_bytes().splitlines():
                    self._lines += 1
                    with suppress(ValueError, TypeError):  # an incomplete line after a crash
                        mark, chat, until, is_accepted = json.loads(line)
                        self._note(str(mark), SeenRequest(str(chat), float(until), bool(is_accepted)))

    def begin(self, mark: str, chat: str, seconds: float) -> bool:
        """Record a signed request before its message is passed to the gateway, and remember it for `seconds`.
        `mark` is the field `mark` of its `Proof`. Return False if the request was accepted before, or was first
        sent to another chat than `chat`."""
        place, now = hashlib.sha256(chat.encode()).hexdigest()[:16], clock.now()
        with self._lock:
            earlier = self._seen.get(mark)
            if earlier is not None and earlier.until >= now:
                return earlier.chat == place and not earlier.is_accepted
            self._write(mark, SeenRequest(place, now + seconds, is_accepted=False))
            return True

    def accept(self, mark: str) -> None:
        """Record that the message of the signed request `mark` is in the inbox."""
        with self._lock:
            request = self._seen.get(mark)
            if request is not None and not request.is_accepted:
                self._write(mark, request._replace(is_accepted=True))

    def _write(self, mark: str, seen: SeenRequest) -> None:
        """Record the state of the signed request `mark`, first on disk and then in memory. If the write to disk
        fails, raise the error, so that the request is not accepted."""
        line = json.dumps([mark, *seen]).encode() + b"\n"
        home.make_private_folder(self._file.parent)
        has_room = self._lines <= 2 * len(self._seen) + SPARE_LINES
        if has_room and append_files.append_line(self._file, line):
            self._lines += 1
            self._note(mark, seen)
            return
        requests = OrderedDict(self._seen)
        requests[mark] = seen
        atomic_files.replace_file(
            self._file,
            b"".join(json.dumps([name, *request]).encode() + b"\n" for name, request in requests.items()),
        )
        self._lines = len(requests)
        self._note(mark, seen)

    def _note(self, mark: str, seen: SeenRequest) -> None:
        self._seen.pop(mark, None)
        self._seen[mark] = seen
        now = clock.now()
        # Lifetimes differ, so expired requests are not always first. Check the oldest few.
        for name in [name for name, _ in zip(self._seen, range(4), strict=False)]:
            if self._seen[name].until < now:
                del self._seen[name]
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
