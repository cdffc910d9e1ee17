"""The declaration of the Matrix platform: its settings, setup questions and properties.

This module imports no SDK.
"""

from collections.abc import Mapping
from typing import Annotated

from hermes import errors
from hermes.config.declarations import Fetch, Platform, Question, Section, Setting
from hermes.config.setting_kinds import ANY_TEXT, SERVER, SWITCH, make_choice


class MatrixOptions(Section, frozen=True):
    homeserver: Annotated[
        str | None,
        Setting(
            SERVER,
            "the homeserver of the bot",
            question=Question("Homeserver, such as https://matrix.org", "homeserver", "URL"),
        ),
    ] = None
    user_id: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "the user id of the bot, such as `@bot:matrix.org`",
            question=Question(
                "User id of the bot, such as @bot:matrix.org",
                "user_id",
                "ID",
                expected="as @name:server",
                pattern=r"@\S+:\S+",
            ),
        ),
    ] = None
    access_token: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "the access token of the bot",
            is_secret=True,
            question=Question(
                "Access token of the bot, or empty", "token", "T", expected="a token", pattern=r"\S+"
            ),
        ),
    ] = None
    password: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "the password of the bot, instead of a token",
            is_secret=True,
            question=Question("Password of the bot", "password", "W", expected="a password", pattern=".+"),
        ),
    ] = None
    respond: Annotated[
        str,
        Setting(
            make_choice("addressed", "all"),
            "which messages in groups are answered: those addressed to the agent, or all",
        ),
    ] = "addressed"
    encryption: Annotated[bool, Setting(SWITCH, "take part in encrypted rooms")] = True
    device_name: Annotated[str, Setting(ANY_TEXT, "the name of the bot's device")] = "Hermes"


def identify_bot(values: Mapping[str, str], fetch: Fetch) -> str | None:
    server = values["homeserver"]
    if "access_token" not in values:  # each password login would create a new device
        fetch(f"{server}/_matrix/client/versions", "the homeserver", None)
        return None
    address = f"{server}/_matrix/client/v3/account/whoami"
    name = fetch(address, "the homeserver", values["access_token"]).get("user_id")
    if name != values["user_id"]:
        raise errors.BadConfig(f"the access token belongs to {name}, not to {values['user_id']}")
    return str(name)


PLATFORM = Platform(
    title="Matrix",
    adapter="hermes.gateway.platforms.matrix.adapter:Matrix",
    options=MatrixOptions,
    needs=(("homeserver",), ("user_id",), ("access_token", "password")),
    extra="matrix",
    modules=("nio",),
    summary="rooms, private chats, threads, files, encrypted rooms",
    answer_format="Markdown is shown; a message holds about 16,000 characters, and a longer answer comes in parts."
    " Tables and code are shown, too.",
    variable_aliases={"home_room": "home_channel"},
    identify=identify_bot,
)
