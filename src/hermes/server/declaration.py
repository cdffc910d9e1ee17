"""The declaration of the API server as a platform: its settings and properties. This module does not import
the HTTP library."""

from collections.abc import Mapping
from typing import Annotated, Any

from hermes.config.declarations import Platform, Question, Section, Setting
from hermes.config.setting_kinds import ANY_TEXT, HOSTS, ID, PORT, Kind, make_integer, make_list

LIMIT = make_integer(1, 1_000_000)
ORIGINS = make_list(ID, "addresses of pages, in a list or with commas between them")


def _check_keys(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    return value


class ApiServerOptions(Section, frozen=True):
    key: Annotated[
        str | None,
        Setting(
            ANY_TEXT,
            "the key of one person, at least 16 characters",
            is_secret=True,
            question=Question(
                "Key that clients send",
                "token",
                "T",
                expected="at least 16 characters",
                pattern=r"\S{16,}",
                is_generated=True,
            ),
        ),
    ] = None
    keys: Annotated[
        Mapping[str, Any],
        Setting(
            Kind("the names of people, each with a key", _check_keys),
            'the keys of several people: `{anna: "${ANNA_KEY}", bert: ...}`; without `key`, set `enabled: true` too',
            is_secret=True,
            has_variable=False,
        ),
    ] = {}
    host: Annotated[
        str,
        Setting(ANY_TEXT, "the address to listen on; use a proxy with TLS for access from other machines"),
    ] = "127.0.0.1"
    port: Annotated[int, Setting(PORT, "the port to listen on")] = 8642
    model_name: Annotated[str, Setting(ANY_TEXT, "the name of the agent in `/v1/models`")] = "hermes"
    cors_origins: Annotated[
        tuple[str, ...],
        Setting(ORIGINS, "web pages that may send requests from a browser: `[https://app.example]`"),
    ] = ()
    requests_per_minute: Annotated[int, Setting(LIMIT, "requests of one key per minute, to all paths")] = 600
    concurrent_requests: Annotated[
        int, Setting(LIMIT, "concurrent requests of one key; a stream counts until its end")
    ] = 32
    concurrent_turns: Annotated[
        int, Setting(LIMIT, "concurrent answers for all keys together; further requests get 503")
    ] = 64
    most_messages: Annotated[int, Setting(LIMIT, "the maximum number of messages in a request")] = 2000
    search_words: Annotated[int, Setting(LIMIT, "the maximum number of words in a search")] = 64
    picture_hosts: Annotated[
        tuple[str, ...],
        Setting(
            HOSTS,
            "hosts in your own network from which pictures may be fetched: `images.lan`, `images.lan:8443`",
        ),
    ] = ()


PLATFORM = Platform(
    title="API server",
    adapter="hermes.server.api:ApiServer",
    options=ApiServerOptions,
    needs=(("key", "keys"),),
    secret_file="api_keys.json",
    extra="gateway",
    modules=("starlette", "uvicorn"),
    summary="the OpenAI API (`/v1/chat/completions`, `/v1/responses`, `/v1/models`) for any client;"
    " sessions and their commands under `/api/sessions`",
    answer_format="A program reads the answer and may show it to a person.",
    by_secret=True,
    has_chats=False,
    announces_resets=False,
)
