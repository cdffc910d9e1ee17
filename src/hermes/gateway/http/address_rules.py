"""The rules for addresses that somebody else names and we connect to: callbacks of the webhook, pictures of the API.

Hosts that the operator named are trusted. Any other address must be public, with https on its usual port; its name is
resolved once and the connection goes to the address that was checked, so that a name cannot mean another address a
moment later. Redirects are never followed by the client itself, and proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import httpx2

from hermes.errors import HermesError
from hermes.gateway.adapter import Misconfigured

DEFAULT_PORTS = {"http": 80, "https": 443}
TIMEOUT = httpx2.Timeout(15, connect=5)
MOST_ADDRESSES = 4
"""Of one name, that are tried one after the other."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""All addresses of a host."""


class Forbidden(HermesError):
    """An address that we do not connect to."""


class Target(NamedTuple):
    """A checked address, ready to be requested."""

    url: httpx2.URL
    headers: dict[str, str]
    extensions: dict[str, str]


class AllowedHosts:
    """Hosts that the operator named: `example.org`, `example.org:8443`."""

    def __init__(self, setting: str, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(_parse_host(setting, host) for host in hosts)

    def allows(self, url: str) -> bool:
        """A host that was named without a port is allowed on the ports that everybody uses."""
        try:
            # The same reader as the one that will connect: two readers may see two hosts in one text.
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, UnicodeError):
            return False
        usual = DEFAULT_PORTS.get(parsed.scheme)
        if usual is None or parsed.userinfo:
            return False
        port = parsed.port or usual
        return (parsed.host, port) in self._hosts or (port == usual and (parsed.host, None) in self._hosts)


def open_client() -> httpx2.AsyncClient:
    """No redirects: they would lead past the hosts that are allowed. And no proxy or .netrc of the environment.

    A connection is used once: of one that the other side has closed meanwhile nobody could tell what arrived. And the
    library keeps quiet: its log would have every address, and there may be a key in one.
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    idempotency_key = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(
        timeout=TIMEOUT, limits=idempotency_key, follow_redirects=False, trust_env=False
    )


async def resolve(host: str, port: int) -> list[str]:
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in addresses))


async def resolve_targets(url: str, hosts: AllowedHosts, look_up: Resolve = resolve) -> list[Target]:
    """Where to connect for this address, the best place first; `Forbidden` if nowhere."""
    try:
        parsed = httpx2.URL(url)
        if hosts.allows(url):
            return [Target(parsed, {}, {})]
        if parsed.scheme != "https" or parsed.userinfo or not parsed.host or (parsed.port or 443) != 443:
            raise Forbidden("not a public https address")
        host = parsed.raw_host.decode("ascii")
        addresses = await look_up(host.strip("[]"), 443)
    except (httpx2.InvalidURL, UnicodeError, OSError) as problem:
        raise Forbidden("not an address that can be found") from problem
    if not addresses or not all(is_public(address) for address in addresses):
        raise Forbidden("not a public address")
    # The host stays in the Host header and in TLS, where the certificate is checked against it.
    headers, extensions = {"Host": parsed.netloc.decode("ascii")}, {"sni_hostname": host}
    return [
        Target(parsed.copy_with(host=address), headers, extensions) for address in addresses[:MOST_ADDRESSES]
    ]


def is_public(text: str) -> bool:
    """Whether an IP address is one of the public internet, also where an IPv4 address hides in it."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address in _NAT64:
            inside = ipaddress.IPv4Address(address.packed[-4:])
        if inside is not None:
            return is_public(str(inside))
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _parse_host(setting: str, text: str) -> tuple[str, int | None]:
    try:
        url = httpx2.URL(f"callback://{text}")
    except (httpx2.InvalidURL, UnicodeError) as problem:
        raise Misconfigured(f"{setting}: {text!r} is no host: {problem}") from problem
    if not url.host or url.path not in ("", "/") or url.userinfo or url.query:
        raise Misconfigured(f"{setting}: {text!r} is no host, nor host:port")
    return url.host, url.port
