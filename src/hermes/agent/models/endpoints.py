"""Model endpoints: the well-known providers, and servers on this machine.

A key is sent only to the address that it belongs to. This is the address of the key's provider, or the
address in the matching `*_BASE_URL` variable (`OPENAI_BASE_URL` for `OPENAI_API_KEY`). Another address gets a
key only if a setting names the variable of the key.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hermes.agent.models import provider_errors
from hermes.agent.models.model import BadRequest, ModelError, Unreachable
from hermes.config import dotenv
from hermes.config.setting_kinds import URL
from hermes.errors import BadConfig
from hermes.secrets import redact

PATIENCE_S = 1.0
"""How long a server on this machine may take to list its models."""
LISTING_S = 15.0


class Provider(NamedTuple):
    name: str
    title: str
    base_url: str
    key_env: str

    @property
    def url_env(self) -> str:
        """The variable that can set another address for the provider's key, such as `OPENAI_BASE_URL`."""
        return f"{self.key_env.removesuffix('_API_KEY')}_BASE_URL"


PROVIDERS = (
    Provider("openai", "OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    Provider("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    Provider("anthropic", "Anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    Provider("google", "Google", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    Provider("deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    Provider("mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    Provider("xai", "xAI", "https://api.x.ai/v1", "XAI_API_KEY"),
    Provider("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
)
OPENAI, OPENROUTER = PROVIDERS[:2]

LOCAL_SERVERS = (("Ollama", 11434), ("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000))


class Server(NamedTuple):
    """A server on this machine that responded, with its models."""

    title: str
    base_url: str
    models: tuple[str, ...]


def find_provider(base_url: str) -> Provider | None:
    host = urlsplit(base_url).hostname
    return next((provider for provider in PROVIDERS if urlsplit(provider.base_url).hostname == host), None)


def find_address(provider: Provider) -> str:
    """Return the address that the provider's key belongs to: the address in the variable `url_env` if it is
    set, otherwise the provider's own address."""
    given = dotenv.get_variable(provider.url_env)
    if given is None:
        return provider.base_url
    try:
        address: str = URL.read(given)
    except ValueError:
        raise BadConfig(f"{provider.url_env} must be {URL.expected}, not {redact(given)!r}") from None
    if urlsplit(address).hostname == urlsplit(provider.base_url).hostname:
        # ignore the path: some programs expect `/v1` in this variable, others do not
        return provider.base_url
    return address if urlsplit(address).path else f"{address}/v1"


def find_key_variable(base_url: str) -> str | None:
    """Return the environment variable whose key belongs to an address; None if no such variable is known."""
    origin = _get_origin(base_url)
    return next(
        (provider.key_env for provider in PROVIDERS if _get_origin(find_address(provider)) == origin), None
    )


def _get_origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def is_local(base_url: str) -> bool:
    """Return whether the address is on this machine or in a private network. Endpoints there count as free of
    charge."""
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local"))
    return address.is_loopback or address.is_private or address.is_link_local


def get_owner(base_url: str) -> str:
    """Return the name of the provider at an address, as it is recorded in the usage accounts. For an unknown
    provider, this is `local` or the host name."""
    known = find_provider(base_url)
    if known is not None:
        return known.name
    return "local" if is_local(base_url) else urlsplit(base_url).hostname or "unknown"


def list_models(base_url: str, key: str | None = None, *, patience: float = LISTING_S) -> list[str]:
    """Return the names of the models of an endpoint, in the order in which the endpoint lists them."""
    import json
    from http.client import HTTPException
    from urllib import error, request

    where = provider_errors.EndpointContext("", base_url, find_key_variable(base_url), key)
    headers = {"Accept": "application/json", "User-Agent": "hermes"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    proxies = request.ProxyHandler({} if is_local(base_url) else None)
    http_request = request.Request(f"{base_url.rstrip('/')}/models", headers=headers)
    try:
        with request.build_opener(proxies, make_no_redirect_handler()).open(
            http_request, timeout=patience
        ) as answer:
            listed = json.load(answer)
    except error.HTTPError as problem:
        with problem:
            body = problem.read(10_000).decode(errors="replace")
        raise provider_errors.translate_status(
            problem.code, provider_errors.find_message(body), dict(problem.headers), where
        ).error from None
    except (OSError, HTTPException) as problem:
        reason = getattr(problem, "reason", problem)
        raise Unreachable(provider_errors.format_unreachable(where, str(reason))) from None
    except (ValueError, RecursionError):
        raise BadRequest(f"{where.display_address} does not list its models as JSON") from None
    rows = listed.get("data", listed.get("models")) if isinstance(listed, dict) else listed
    known = rows if isinstance(rows, list) else []
    names = [row.get("id") or row.get("name") for row in known if isinstance(row, dict)]
    return [name.removeprefix("models/") for name in names if isinstance(name, str) and name]


def is_listed(name: str, names: Collection[str]) -> bool:
    """Return whether an endpoint that lists `names` offers the model `name`. The list must contain `name`
    itself, `name:latest`, or `name` followed by a date."""
    alias = re.compile(rf"{re.escape(name.removesuffix('-latest'))}-(\d{{4,8}}|\d{{4}}-\d\d-\d\d)")
    return name in names or f"{name}:latest" in names or any(map(alias.fullmatch, names))


def find_similar(name: str, names: Sequence[str], most: int = 5) -> list[str]:
    """Return up to `most` of the model names in `names` that are similar to `name`. Names that contain `name` come
    first."""
    begun = name.casefold()
    containing = sorted((listed for listed in names if begun in listed.casefold()), key=len)
    by_end = {listed.rpartition("/")[2].casefold(): listed for listed in reversed(names)}
    similar = [by_end[found] for found in get_close_matches(begun.rpartition("/")[2], by_end, most, 0.5)]
    return list(dict.fromkeys([*containing, *similar]))[:most]


def make_no_redirect_handler() -> Any:
    """Return a urllib handler that follows no redirects, so that a key is sent only to the chosen address."""
    from urllib.request import HTTPRedirectHandler

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    return NoRedirects()


def find_servers() -> list[Server]:
    """Return the servers on this machine that respond. They are queried in parallel with a short timeout."""
    places = [(title, f"http://127.0.0.1:{port}/v1") for title, port in LOCAL_SERVERS]
    if host := os.environ.get("OLLAMA_HOST", "").strip():
        places[0] = ("Ollama", _parse_ollama_host(host))

    def look(place: tuple[str, str]) -> Server | None:
        try:
            return Server(*place, tuple(list_models(place[1], patience=PATIENCE_S)))
        except ModelError:
            return None

    with ThreadPoolExecutor(len(places)) as several:
        return [server for server in several.map(look, places) if server is not None]


def _parse_ollama_host(value: str) -> str:
    """Return the base URL for a value of `OLLAMA_HOST`. The value may be only a host or only a port."""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host = "127.0.0.1" if parts.hostname in (None, "0.0.0.0", "::") else parts.hostname
        host_part = f"[{host}]" if ":" in host else host
        address: str = URL.read(f"{parts.scheme}://{host_part}:{parts.port or LOCAL_SERVERS[0][1]}/v1")
    except ValueError:
        raise BadConfig(
            f"OLLAMA_HOST must be an address such as 127.0.0.1:11434, not {redact(value)!r}"
        ) from None
    return address
