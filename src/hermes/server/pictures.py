"""Pictures that a request names by URL. The server fetches them and stores them as data URLs.

The endpoint of the model must not fetch the URLs, because clients could then reach the network of the endpoint. Also,
the content behind a URL can change, and the conversation must keep the picture that the model saw.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import httpx2

from hermes.gateway.http.address_rules import (
    AllowedHosts,
    Forbidden,
    Resolve,
    Target,
    open_client,
    resolve,
    resolve_targets,
)
from hermes.message_content import detect_picture_type
from hermes.server.api_errors import Refused, bad_request
from hermes.server.message_format import ChatMessage, RequestMessages

MOST_PICTURES = 16
"""The maximum number of picture URLs in one request."""
WHOLE_S = 30.0
"""The time limit in seconds for fetching all pictures of a request."""
MOST_REDIRECTS = 3
REDIRECTS = (301, 302, 303, 307, 308)
KEPT_S = 600.0
"""How long a fetched picture is cached, in seconds. Clients send the whole conversation with every request, so the same
URLs occur again."""
KEPT_BYTES = 32 * 1024 * 1024

Hold = Callable[[int], None]
"""A function that counts bytes that a request holds in memory. It raises an error if there are too many."""


class Pictures:
    def __init__(self, hosts: AllowedHosts, largest_mb: float, look_up: Resolve = resolve) -> None:
        self._hosts, self._largest, self._look_up = hosts, int(largest_mb * 1_000_000), look_up
        self._kept: OrderedDict[tuple[str, str], tuple[float, str]] = OrderedDict()
        self._kept_bytes = 0

    async def inline(self, key: str, request: RequestMessages, hold: Hold) -> RequestMessages:
        """Return the request with data URLs in place of picture URLs. Raise a 400 error if a picture cannot be fetched.
        Pictures are cached per API key; `key` is its name."""
        messages = (*request.before, request.new)
        addresses = list(
            dict.fromkeys(url for message in messages for url in _find_addresses(message.content))
        )
        if not addresses:
            return request
        if len(addresses) > MOST_PICTURES:
            raise bad_request(
                f"more than {MOST_PICTURES} pictures by their address in one request", "image_url"
            )
        data: dict[str, str] = {}
        try:
            async with asyncio.timeout(WHOLE_S), open_client() as client:
                for url in addresses:
                    data[url] = await self._get(client, key, url, hold)
        except (Forbidden, httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError):
            # The message is the same for every reason, so it does not reveal which hosts exist in the
            # server's network.
            raise self._fetch_error() from None
        *before, new = (
            ChatMessage(message.role, _replace_addresses(message.content, data)) for message in messages
        )
        return request._replace(before=tuple(before), new=new)

    async def _get(self, client: httpx2.AsyncClient, key: str, url: str, hold: Hold) -> str:
        now = asyncio.get_running_loop().time()
        until, cached = self._kept.get((key, url), (0.0, ""))
        if until > now:
            hold(len(cached))
            return cached
        content = await self._fetch(client, url, hold)
        media_type = detect_picture_type(content)
        if media_type is None:
            raise Forbidden("not a picture")
        data_url = f"data:{media_type};base64,{base64.b64encode(content).decode()}"
        self._keep((key, url), now + KEPT_S, data_url)
        return data_url

    async def _fetch(self, client: httpx2.AsyncClient, url: str, hold: Hold) -> bytes:
        for _ in range(MOST_REDIRECTS + 1):
            async with AsyncExitStack() as stack:
                answer = await self._request(
                    client, await resolve_targets(url, self._hosts, self._look_up), stack
                )
                if answer.status_code in REDIRECTS:
                    url = str(httpx2.URL(url).join(answer.headers.get("location", "")))
                    continue
                if (
                    answer.status_code != 200
                    or answer.headers.get("content-encoding", "identity") != "identity"
                ):
                    raise Forbidden(f"answered {answer.status_code}")
                return await self._read(answer, hold)
        raise Forbidden("too many redirects")

    async def _request(
        self, client: httpx2.AsyncClient, targets: Sequence[Target], stack: AsyncExitStack
    ) -> httpx2.Response:
        """Send the HTTP request for a picture to the first network address that accepts a connection."""
        headers = {"Accept": "image/*", "Accept-Encoding": "identity"}
        for number, target in enumerate(targets):
            try:
                return await stack.enter_async_context(
                    client.stream(
                        "GET", target.url, headers=headers | target.headers, extensions=target.extensions
                    )
                )
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(targets) - 1:
                    raise
        raise Forbidden("no address")

    async def _read(self, answer: httpx2.Response, hold: Hold) -> bytes:
        content = bytearray()
        async for chunk in answer.aiter_raw():
            hold(len(chunk) * 4 // 3)
            content += chunk
            if len(content) > self._largest:
                raise Forbidden("too large")
        return bytes(content)

    def _keep(self, name: tuple[str, str], until: float, data: str) -> None:
        _, old = self._kept.pop(name, (0.0, ""))
        self._kept[name] = (until, data)
        self._kept_bytes += len(data) - len(old)
        while self._kept_bytes > KEPT_BYTES:
            _, (_, removed) = self._kept.popitem(last=False)
            self._kept_bytes -= len(removed)

    def _fetch_error(self) -> Refused:
        return bad_request(
            "a picture could not be fetched: its address must be public, with https, and lead to a PNG, JPEG, GIF"
            f" or WebP of at most {self._largest / 1_000_000:g} MB",
            "image_url",
            "invalid_image_url",
        )


def _find_addresses(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else ()
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [url for url in urls if not url.startswith("data:")]


def _replace_addresses(content: Any, data: dict[str, str]) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {
            "type": "image_url",
            "image_url": {"url": data.get(part["image_url"]["url"], part["image_url"]["url"])},
        }
        if part["type"] == "image_url"
        else part
        for part in content
    ]
