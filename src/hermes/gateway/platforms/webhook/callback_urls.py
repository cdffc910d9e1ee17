"""Callback URLs, stored from the request until the answer is delivered.

A request may name only URLs on hosts that the operator configured. Otherwise a sender could make the gateway call
hosts in networks that only this machine can access (see `http/address_rules`). The URL is written to a private file
before the message is accepted, so that the answer is delivered even after a crash.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock

import httpx2

from hermes import clock, home
from hermes.atomic_files import clear_partials, replace_file
from hermes.gateway.adapter import DeliveryUnknown, RateLimited, Undeliverable, Unreachable
from hermes.gateway.http.address_rules import AllowedHosts
from hermes.gateway.http.retry_after import parse_retry_after
from hermes.gateway.inbound_events import Source
from hermes.logs import get_logger

log = get_logger(__name__)

MOST = 1000
OLDEST_S = 7 * clock.DAY
EVERY = 100
"""How many URLs are stored between two calls of `tidy`."""
WHOLE_S = 30
AGAIN = (408, 425)
LIMITED_S = 30.0
"""Seconds to wait after a rate-limit response that does not say how long."""


class Callbacks:
    def __init__(self, folder: Path, hosts: Iterable[str]) -> None:
        self._folder = folder
        self._hosts = AllowedHosts("platforms.webhook.callback_hosts", hosts)
        self._since_tidied = 0
        self._lock = Lock()

    def allows(self, url: str) -> bool:
        return self._hosts.allows(url)

    def keep(self, source: Source, url: str) -> bool:
        """Store `url` as the callback URL of the message in `source`. Return True if the message had none.
        Otherwise replace its URL and return False."""
        home.make_private_folder(self._folder)
        file = self._file(source, source.message_id)
        is_new = not file.exists()
        replace_file(file, json.dumps({"url": url}).encode())
        with self._lock:
            self._since_tidied += 1
            is_time = self._since_tidied >= EVERY
        if is_time:
            self.tidy()
        return is_new

    def find(self, source: Source, message_id: str | None) -> str | None:
        try:
            return str(json.loads(self._file(source, message_id).read_bytes())["url"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as problem:
            log.warning("cannot read a callback URL: %s", problem)
            return None

    def drop(self, source: Source, message_id: str | None) -> None:
        with suppress(OSError):
            self._file(source, message_id).unlink()

    def tidy(self) -> None:
        """Remove callback URLs that are older than `OLDEST_S` seconds. If more than `MOST` remain, remove the
        oldest ones too."""
        with self._lock:
            self._since_tidied = 0
        if not self._folder.is_dir():
            return
        clear_partials(self._folder)
        aged: list[tuple[float, Path]] = []
        for file in self._folder.glob("*.json"):
            with suppress(OSError):  # deleted in the meantime
                aged.append((file.stat().st_mtime, file))
        aged.sort(reverse=True)
        latest = clock.now() - OLDEST_S
        for place, (at, file) in enumerate(aged):
            if place >= MOST or at < latest:
                with suppress(OSError):
                    file.unlink()

    def _file(self, source: Source, message_id: str | None) -> Path:
        # Senders choose their own message ids, so two people in one chat may use the same id.
        name = json.dumps([source.chat_id, source.thread_id, source.user_id, message_id])
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:40]}.json"


async def post_callback(
    client: httpx2.AsyncClient, url: str, body: bytes, headers: Mapping[str, str]
) -> None:
    """Send a request to a callback URL. Raise an `AdapterError` on failure. The response body is not read."""
    where = httpx2.URL(url).host  # the rest of the URL may be secret
    try:
        async with asyncio.timeout(WHOLE_S):
            async with client.stream("POST", url, content=body, headers=dict(headers)) as answer:
                status, pause = answer.status_code, answer.headers.get("retry-after", "")
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as problem:
        raise Unreachable(f"{where} cannot be reached: {str(problem) or type(problem).__name__}") from problem
    except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL) as problem:
        raise Undeliverable(f"cannot send a request to {where}: {problem}") from problem
    except (httpx2.TransportError, TimeoutError) as problem:
        raise DeliveryUnknown(
            f"{where} did not respond to the callback: {type(problem).__name__}"
        ) from problem
    if 200 <= status < 300:
        return
    line = f"{where} responded with status {status}"
    wait = parse_retry_after(pause)
    if status == 429 or (wait is not None and (status >= 500 or status in AGAIN)):
        raise RateLimited(line, LIMITED_S if wait is None else wait)
    if status >= 500 or status in AGAIN:
        raise Unreachable(line)
    raise Undeliverable(line)
