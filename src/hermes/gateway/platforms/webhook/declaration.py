"""The declaration of the webhook platform: its settings, setup questions and properties.

This module imports no HTTP library.
"""

from typing import Annotated

from hermes import clock
from hermes.config.declarations import Platform, Question, Section, Setting
from hermes.config.setting_kinds import ANY_TEXT, HOSTS, PORT, make_number


class WebhookOptions(Section, frozen=True):
    secret: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "the secret that signs requests, at least 16 characters",
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
    host: Annotated[
        str,
        Setting(ANY_TEXT, "the address to listen on; use a proxy with TLS for access from other machines"),
    ] = "127.0.0.1"
    port: Annotated[int, Setting(PORT, "the port to listen on")] = 8644
    wait_seconds: Annotated[
        float, Setting(make_number(0, clock.DAY), "the number of seconds that a request waits for its answer")
    ] = 120.0
    callback_hosts: Annotated[
        tuple[str, ...],
        Setting(HOSTS, "hosts to which answers may be sent: `example.org`, `example.org:8443`"),
    ] = ()


PLATFORM = Platform(
    title="Webhook",
    adapter="hermes.gateway.platforms.webhook.adapter:Webhook",
    options=WebhookOptions,
    needs=(("secret",),),
    extra="gateway",
    modules=("starlette", "uvicorn"),
    summary="signed HTTP requests; the answer is in the response or sent to a callback URL",
    answer_format="A program reads the answer: give what was asked for, and nothing around it.",
    by_secret=True,
    announces_resets=False,
)
