"""What a request to the webhook says, and whether whoever sent it has the secret.

Two signatures are known: our own, which covers the time and is good for five minutes, and GitHub's, which covers the
body alone and is good for ever. So what is not numbered by its sender is numbered by what was signed: the same request
again is the same message again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from hermes.errors import HermesError
from hermes.gateway.events import CHAT_TYPES, Event, Offered, Source

OURS = "X-Hermes-Signature"
GITHUB = "X-Hub-Signature-256"
GITHUB_ID = "X-GitHub-Delivery"
WINDOW_S = 300
LONGEST_FOREIGN = 20_000
"""Characters of somebody's own JSON that become a message."""
LONGEST_ID = 200
UNNAMED = "webhook"
KINDS = ("image", "audio", "video")

Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_ID)] | Number
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]


class NotUnderstood(HermesError):
    """The request is signed, and makes no sense."""


class Proof(NamedTuple):
    """That a request was made by somebody who has the secret."""

    signature: str
    digest: str
    """Of all that was signed."""


class Asked(NamedTuple):
    event: Event
    offered: tuple[Offered, ...]
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


def signature(secret: bytes, body: bytes, at: float) -> str:
    """Our own, as its header has it."""
    return f"t={at:.0f},v1={_hex(secret, _dated(f'{at:.0f}', body))}"


def is_signed(headers: Mapping[str, str]) -> bool:
    return OURS in headers or GITHUB in headers


def proof_of(secret: bytes, headers: Mapping[str, str], body: bytes, now: float) -> Proof | None:
    """None if anything is wrong with it; nobody is told what."""
    given = headers.get(OURS)
    if given is not None:
        parts = dict(part.strip().partition("=")[::2] for part in given.split(","))
        at, claimed = parts.get("t", ""), parts.get("v1", "")
        signed = _dated(at, body)
        if not (at.isascii() and at.isdigit() and len(at) < 16 and abs(now - int(at)) <= WINDOW_S):
            return None
    else:
        kind, _, claimed = headers.get(GITHUB, "").partition("=")
        signed = body
        if kind != "sha256":
            return None
    # As bytes: of text the comparison takes ASCII only.
    if not hmac.compare_digest(claimed.encode(), _hex(secret, signed).encode()):
        return None
    return Proof(OURS if given is not None else GITHUB, hashlib.sha256(signed).hexdigest()[:32])


def read(body: bytes, proof: Proof, headers: Mapping[str, str], route: str | None, now: float) -> Asked:
    """The message in a request. A route is a chat, if the body names none."""
    try:
        told = msgspec.json.decode(body)
        if isinstance(told, dict) and ("text" in told or "attachments" in told):
            said = msgspec.convert(told, Body)
        else:
            said = _foreign(told, body)
    except (ValueError, RecursionError) as problem:  # msgspec's errors are ValueErrors
        raise NotUnderstood(f"the body is not understood: {problem}") from problem
    if not said.text.strip() and not said.attachments:
        raise NotUnderstood("the body has no text")
    if said.message_id is None and proof.signature == GITHUB and GITHUB_ID not in headers:
        raise NotUnderstood(f"with {GITHUB} the body needs a message_id")
    event = Event(_source(said, proof, route), said.text, now, reply_to=said.reply_to)
    return Asked(event, tuple(_offered(file) for file in said.attachments), said.callback_url, said.wait)


def _source(said: Body, proof: Proof, route: str | None) -> Source:
    user = None if said.user is None else str(said.user)
    chat = route if said.chat is None else str(said.chat)
    if chat and len(chat) > LONGEST_ID:
        raise NotUnderstood(f"the name of the chat is longer than {LONGEST_ID} characters")
    # Who is in a chat that has a name is not known; a person without one is alone with us.
    kind = said.chat_type or ("group" if chat else "dm")
    if kind not in CHAT_TYPES:
        raise NotUnderstood(f"chat_type is one of {', '.join(CHAT_TYPES)}")
    return Source(
        "webhook",
        chat or user or UNNAMED,
        chat_type=kind,
        user_id=user,
        user_name=said.user_name,
        thread_id=None if said.thread is None else str(said.thread),
        message_id=proof.digest if said.message_id is None else str(said.message_id),
    )


def _foreign(told: Any, body: bytes) -> Body:
    """Somebody's own JSON is the text itself. Whoever sends such waits for no answer."""
    given = told.get("message_id") if isinstance(told, dict) else None
    known = given if type(given) in (str, int) and 0 < len(str(given)) <= LONGEST_ID else None
    text = msgspec.json.format(body, indent=2).decode()
    if len(text) > LONGEST_FOREIGN:
        text = f"{text[:LONGEST_FOREIGN]}\n… ({len(text) - LONGEST_FOREIGN} more characters)"
    return Body(text, message_id=known, wait=False)


def _offered(file: File) -> Offered:
    async def fetch() -> bytes:
        return file.data

    kind = file.media_type.partition("/")[0].lower()
    name = file.name or "file"
    return Offered(kind if kind in KINDS else "file", name, file.media_type, len(file.data), fetch)


def _dated(at: str, body: bytes) -> bytes:
    return b"%s.%s" % (at.encode(), body)


def _hex(secret: bytes, signed: bytes) -> str:
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()
