"""How settings and platforms are declared: a field of a section is a setting, with all that is known of it.

`config/settings_schema.py` declares the settings of the product this way, and each platform its own in its folder.
Nothing else lists a setting: reading, checks, `hermes config`, the setup and the tables in the documentation ask the
declarations.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self

import msgspec

from hermes.config.redaction import is_secret_name
from hermes.config.setting_kinds import Kind


class Question(msgspec.Struct, frozen=True):
    """How `hermes gateway setup` asks for a setting."""

    text: str
    flag: str
    """The argument that answers it: `token` is `--token`."""
    metavar: str
    expected: str | None = None
    """What an answer looks like; else what the kind expects."""
    pattern: str | None = None
    """What an answer must match; else the kind decides."""
    is_generated: bool = False
    """Whether an empty answer makes a new value."""


class Setting(msgspec.Struct, frozen=True):
    """What is known of a setting beside its name, type and default."""

    kind: Kind
    meaning: str
    """One line for the documentation."""
    variable: str | None = None
    """The environment variable that gives it. A setting of a platform has `<PLATFORM>_<NAME>` without saying so."""
    is_secret: bool = False
    """Whether nobody may see it; it belongs into `.env`. Its name must say so, because names decide what is hidden."""
    has_variable: bool = True
    """Whether a setting of a platform can be given by a variable; False for what is not a single text."""
    file_only: tuple[str, ...] = ()
    """Values that take a wall away: a person has to open the file for them."""
    question: Question | None = None


class Section(msgspec.Struct, frozen=True):
    """Settings that stand together. A field whose annotation carries a `Setting` is one; its default is the default."""

    def replace(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)


@cache
def list_settings(section: type[Section]) -> Mapping[str, Setting]:
    """The settings of a section by their names, in the order of their declaration."""
    found: dict[str, Setting] = {}
    for field in msgspec.structs.fields(section):
        for extra in getattr(field.type, "__metadata__", ()):
            if isinstance(extra, Setting):
                found[field.name] = extra
                if extra.is_secret != is_secret_name(field.name):
                    raise TypeError(
                        f"{section.__name__}.{field.name}: the name must say whether it is a secret"
                    )
    return found


Fetch = Callable[[str, str, str | None], Mapping[str, Any]]
"""(address, what to call the service in errors, bearer token): the JSON object that is answered."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """A chat platform, as everything but its adapter knows it. Reading it imports no SDK."""

    title: str
    adapter: str
    """`module:class`."""
    options: type[Section]
    """Its own settings, under `platforms.<name>`."""
    needs: tuple[tuple[str, ...], ...]
    """The options it cannot do without; of the names in one bracket one is enough."""
    extra: str
    """What to install: `telegram` is `hermes-sessions[telegram]`."""
    modules: tuple[str, ...]
    """The modules that are there if that is installed."""
    summary: str
    """What it can do, for the table in docs/gateway.md."""
    answer_format: str
    """How answers are displayed, for the model."""
    by_secret: bool = False
    """Whether a shared secret gives access, instead of lists of people."""
    announces_resets: bool = True
    """Whether a notice can be posted into a chat without a message that it answers."""
    has_personal_ids: bool = False
    """Whether ids are telephone numbers, or lead to a person: `gateway.redact_pii` hides them."""
    has_topics: bool = False
    """Whether a private chat can be divided into topics."""
    is_private_chat_user: bool = False
    """Whether a private chat has the id of the person."""
    variable_aliases: Mapping[str, str] = {}
    """Other names of settings in the environment: `home_room` for `home_channel`."""
    identify: Callable[[Mapping[str, str], Fetch], str | None] | None = None
    """Who we are there, asked by the setup; BadConfig if the values do not fit. None if nobody can be asked."""

    @property
    def settings(self) -> Mapping[str, Setting]:
        return list_settings(self.options)


def make_variable(platform: str, name: str) -> str:
    """The environment variable of a setting of a platform: `TELEGRAM_BOT_TOKEN`."""
    return f"{platform}_{name}".upper().replace("-", "_")
