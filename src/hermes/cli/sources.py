"""The sources of sessions: the command that makes them, the forms of their ids and session keys, and their retention.

docs/sources.md contains them as a table. Chat platforms come from their registry. Kind and visibility follow from the
name of a source, so they are not declared.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes.config.declarations import Platform
from hermes.config.platforms import list_platforms
from hermes.session_kinds import Kind, classify_session
from hermes.store.sessions.listing import HIDDEN_KINDS

NEW_ID = "YYYYmmdd_HHMMSS_<8 hex>"


class SessionSource(NamedTuple):
    """A source. In a form, `<...>` stands for a value, and `[...]` contains an optional part."""

    name: str
    command: str
    id_forms: tuple[str, ...] = (NEW_ID,)
    """The forms of the id of a new conversation."""
    key_form: str | None = None
    """The form of the session key. None if the source has no chats."""
    is_ended: bool = True
    """Whether the session ends with the conversation. Pruning deletes only ended sessions."""
    retention: str = "pruned"
    """What deletes a session, for the documentation."""

    @property
    def kind(self) -> Kind:
        return classify_session(self.name, child=False)

    @property
    def is_listed(self) -> bool:
        """Whether lists show sessions of this source if no source is named."""
        return self.kind not in HIDDEN_KINDS


TERMINAL = SessionSource("cli", "hermes")
OTHERS = (
    SessionSource("acp", "hermes acp", ("<uuid4>",), retention="pruned; the editor can move it to the trash"),
    SessionSource(
        "cron",
        "hermes cron run",
        ("cron_<job>_YYYYmmdd_HHMMSS",),
        retention="deleted with its run: a job keeps its `--keep` newest runs; also pruned",
    ),
    SessionSource("batch", "hermes batch run", (f"{NEW_ID}_<number>",)),
    SessionSource("tool", "hermes --source tool"),
)


def list_sources() -> dict[str, SessionSource]:
    """Return every source by its name."""
    platforms = (_make_platform_source(*entry) for entry in list_platforms().items())
    return {source.name: source for source in (TERMINAL, *platforms, *OTHERS)}


def _make_platform_source(name: str, platform: Platform) -> SessionSource:
    source = SessionSource(name, "hermes gateway", is_ended=False)
    if platform.has_chats:
        return source._replace(
            key_form=f"agent:main:{name}:<type>:<chat>[:<thread>][:<person>]",
            retention="kept while it is the current session of its chat; then pruned",
        )
    return source._replace(
        id_forms=(NEW_ID, "<name>_<12 hex>"),
        retention="kept until `/new` ends it; then pruned; a client can move it to the trash",
    )
