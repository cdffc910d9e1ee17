"""Declarations of settings and platforms. Each annotated field of a section declares one setting.

`config/settings_schema.py` declares the settings of the product. Each platform declares its own settings in
its folder. There is no other list of settings: the reader, the checks, `hermes config`, the setup and the
tables in the documentation all use the declarations.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self

import msgspec

from hermes.config.redaction import is_secret_name
from hermes.config.setting_kinds import Kind


class Question(msgspec.Struct, frozen=True):
    """The question about a setting that `hermes gateway setup` asks."""

    text: str
    flag: str
    """The name of the command-line option that gives the answer: `token` means `--token`."""
    metavar: str
    expected: str | None = None
    """A description of a valid answer. None means the description of the setting's kind."""
    pattern: str | None = None
    """A regular expression that an answer must match. None means the check of the setting's kind."""
    is_generated: bool = False
    """Whether a new value is generated if the answer is empty."""


class Setting(msgspec.Struct, frozen=True):
    """The properties of a setting beside its name, type and default."""

    kind: Kind
    meaning: str
    """What the setting does, in one line, for the documentation."""
    variable: str | None = None
    """The environment variable of the setting. Platform settings leave it out: their variable is always
    `<PLATFORM>_<NAME>`."""
    is_secret: bool = False
    """Whether the value is a secret, which is hidden and belongs in `.env`. Redaction recognises secrets by
    name, so `is_secret_name` must accept the name of the setting."""
    has_variable: bool = True
    """For a platform setting: whether an environment variable can set it. False if the value is not a single
    text."""
    file_only: tuple[str, ...] = ()
    """Values of the setting that switch off a safeguard. A person can set them only by editing the file, not
    with a command."""
    question: Question | None = None


class Section(msgspec.Struct, frozen=True):
    """A group of settings. Each field with a `Setting` in its annotation is a setting, and the default of the
    field is the default of the setting."""

    def replace(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)


@cache
def list_settings(section: type[Section]) -> Mapping[str, Setting]:
    """Return the settings of a section by name, in the order of declaration."""
    found: dict[str, Setting] = {}
    for field in msgspec.structs.fields(section):
        for extra in getattr(field.type, "__metadata__", ()):
            if isinstance(extra, Setting):
                found[field.name] = extra
                if extra.is_secret != is_secret_name(field.name):
                    raise TypeError(
                        f"{section.__name__}.{field.name}: the name must show whether it is a secret"
                    )
    return found


Fetch = Callable[[str, str, str | None], Mapping[str, Any]]
"""Fetches a JSON object. Arguments: URL, name of the service for errors, bearer token."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a chat platform: everything that the program must know about the platform, except
    the code of the adapter. A declaration imports no SDK."""

    title: str
    adapter: str
    """The adapter class, as `module:class`."""
    options: type[Section]
    """The platform's own settings, under `platforms.<name>`."""
    needs: tuple[tuple[str, ...], ...]
    """The required settings. Each inner tuple lists alternatives, of which at least one must be set."""
    secret_file: str | None = None
    """A file below `<home>/gateway` with secrets. If the file exists, the required settings need not be
    set."""
    extra: str
    """The package extra to install: `telegram` means `hermes-sessions[telegram]`."""
    modules: tuple[str, ...]
    """The modules that the extra installs."""
    summary: str
    """A summary for the table in docs/gateway.md."""
    answer_format: str
    """A text that tells the model how the platform displays answers."""
    by_secret: bool = False
    """Whether everybody who knows a shared secret has access to the platform. If False, lists of people
    determine access."""
    has_chats: bool = True
    """Whether people write in chats, each with a session key. If False, a request selects its session."""
    announces_resets: bool = True
    """Whether the gateway can post a notice that is not an answer to a message, for example about a reset."""
    has_personal_ids: bool = False
    """Whether the platform's ids are telephone numbers or identify a person in another way.
    `gateway.redact_pii` hides such ids."""
    has_topics: bool = False
    """Whether a private chat can have topics."""
    is_private_chat_user: bool = False
    """Whether the id of a private chat is the id of the person."""
    variable_aliases: Mapping[str, str] = {}
    """Other names of settings in environment variables, such as `home_room` for `home_channel`."""
    identify: Callable[[Mapping[str, str], Fetch], str | None] | None = None
    """Returns the account name of the bot for the setup; None if it is unknown. Raises `BadConfig` if the
    given values are wrong."""

    @property
    def settings(self) -> Mapping[str, Setting]:
        return list_settings(self.options)


def make_variable(platform: str, name: str) -> str:
    """Return the environment variable of a platform setting, such as `TELEGRAM_BOT_TOKEN`."""
    return f"{platform}_{name}".upper().replace("-", "_")
