"""The webhook without its HTTP library: its settings, what the setup asks, and how it differs from other platforms."""

from typing import Annotated

from hermes import clock
from hermes.config.declarations import Platform, Question, Section, Setting
from hermes.config.setting_kinds import ANY_TEXT, HOSTS, PORT, make_number


class WebhookOptions(Section, frozen=True):
    secret: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "what requests are signed with, at least 16 characters",
            is_secret=True,
            question=Question(
                "Secret that signs requests",
                "token",
                "T",
                expected="at least 16 characters",
                pattern=r"\S{16,}",
                is_generated=True,
            ),
        ),
    ] = None
    host: Annotated[str, Setting(ANY_TEXT, "for other machines, put a server with TLS in front of it")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Setting(PORT, "where it listens")] = 8644
    wait_seconds: Annotated[
        float, Setting(make_number(0, clock.DAY), "how long a request waits for its answer")
    ] = 120.0
    callback_hosts: Annotated[
        tuple[str, ...], Setting(HOSTS, "where answers may be sent: `example.org`, `example.org:8443`")
    ] = ()


PLATFORM = Platform(
    title="Webhook",
    adapter="hermes.gateway.platforms.webhook.adapter:Webhook",
    options=WebhookOptions,
    needs=(("secret",),),
    extra="gateway",
    modules=("starlette", "uvicorn"),
    summary="signed HTTP in; the answer in the response, or to a callback address",
    answer_format="A program reads the answer: give what was asked for, and nothing around it.",
    by_secret=True,
    announces_resets=False,
)
