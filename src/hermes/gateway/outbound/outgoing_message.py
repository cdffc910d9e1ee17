"""A message to a platform, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hermes.gateway.adapter import Adapter, Choice, SendsFiles
from hermes.gateway.inbound_events import Source
from hermes.gateway.outbound.splitting import Measure, split_text

DEFAULT_MAX_LENGTH = 4000
"""Maximum length of a part if the platform is not connected and its own limit is therefore unknown."""
MOST_PARTS = 10
"""Maximum number of parts on platforms that accept files. A longer text is sent as its beginning and a file."""
FILE = "answer.md"
IN_FILE = "\n\nⓘ This is the beginning. The whole text is in the attached file."


class OutgoingMessage(NamedTuple):
    """A message to a platform, as stored in the outbox."""

    to: Source
    text: str
    reply_to: str | None = None
    silent: bool = False
    edits: str | None = None
    """The id of the message that this text replaces."""
    choices: tuple[Choice, ...] = ()
    """Buttons. Ignored on platforms without buttons."""
    file: str | None = None
    """If the text is sent as a file: the name of the file."""

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "to": self.to.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OutgoingMessage:
        choices = tuple(Choice(*choice) for choice in data.get("choices", ()))
        return cls(**{**data, "to": Source.from_dict(data["to"]), "choices": choices})


def divide_message(message: OutgoingMessage, adapter: Adapter | None) -> list[OutgoingMessage]:
    """Divide a message into parts that each fit into one message of the adapter's platform. A text of more than
    `MOST_PARTS` parts is sent as a file if the platform accepts files."""
    longest = DEFAULT_MAX_LENGTH if adapter is None else adapter.capabilities.max_length
    measure: Measure = len if adapter is None else adapter.measure
    parts = split_text(message.text, longest, measure)
    following = message._replace(reply_to=None, edits=None)
    takes_files = isinstance(adapter, SendsFiles)
    if len(parts) > MOST_PARTS and takes_files:
        beginning = split_text(message.text, longest - measure(IN_FILE), measure)[0]
        return [
            message._replace(text=f"{beginning}{IN_FILE}"),
            following._replace(choices=(), file=FILE),
        ]
    return [
        (message if number == 0 else following)._replace(
            text=text, choices=message.choices if number == len(parts) - 1 else ()
        )
        for number, text in enumerate(parts)
    ]
