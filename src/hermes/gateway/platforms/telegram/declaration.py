"""The declaration of the Telegram platform: its settings, setup questions and properties.

This module imports no SDK.
"""

from collections.abc import Mapping
from typing import Annotated

from hermes.config.declarations import Fetch, Platform, Question, Section, Setting
from hermes.config.setting_kinds import ANY_TEXT, PORT, URL, make_choice


class TelegramOptions(Section, frozen=True):
    bot_token: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "the token of the bot, issued by @BotFather",
            is_secret=True,
            question=Question(
                "Bot token from @BotFather", "token", "T", expected="as 123456:ABC…", pattern=r"\d+:\S+"
            ),
        ),
    ] = None
    base_url: Annotated[str, Setting(URL, "the URL of the Bot API server")] = "https://api.telegram.org/bot"
    respond: Annotated[
        str,
        Setting(
            make_choice("addressed", "all"),
            "which messages in groups are answered: those addressed to the agent, or all",
        ),
    ] = "addressed"
    webhook_url: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "receive updates by webhook: the public HTTPS URL of your proxy in front of the gateway;"
            " default: polling",
        ),
    ] = None
    webhook_secret: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "required with `webhook_url`: up to 256 letters, digits, `_` and `-`; requests without it are refused",
            is_secret=True,
        ),
    ] = None
    webhook_host: Annotated[
        str, Setting(ANY_TEXT, "the address on which the gateway listens for webhook requests")
    ] = "127.0.0.1"
    webhook_port: Annotated[
        int, Setting(PORT, "the port on which the gateway listens for webhook requests")
    ] = 8443


def identify_bot(values: Mapping[str, str], fetch: Fetch) -> str | None:
    base = values.get("base_url", TelegramOptions().base_url).removesuffix("/bot")
    answer = fetch(f"{base}/bot{values['bot_token']}/getMe", "Telegram", None)
    name = (answer.get("result") or {}).get("username")
    return f"@{name}" if isinstance(name, str) else None


PLATFORM = Platform(
    title="Telegram",
    adapter="hermes.gateway.platforms.telegram.adapter:Telegram",
    options=TelegramOptions,
    needs=(("bot_token",),),
    extra="telegram",
    modules=("telegram",),
    summary="private chats, groups, topics as threads, files; streamed answers; buttons for approvals",
    answer_format="Markdown is shown; a message holds about 4,096 characters, and a longer answer comes in parts."
    " There are no tables and no headings: use lists.",
    has_personal_ids=True,
    has_topics=True,
    is_private_chat_user=True,
    identify=identify_bot,
)
