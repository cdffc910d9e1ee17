"""Rules for requests to URLs that other people chose: webhook callbacks and images in API requests.

Hosts that the operator configured are trusted. Any other URL must use https on port 443, and all addresses of
its host must be public. The host name is resolved once, and the connection goes to the checked IP address, so
that a DNS change cannot redirect it. The client follows no redirects and ignores the proxy settings of the
environment.
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
"""Maximum number of IP addresses of one host that are tried, one after the other."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns all IP addresses of a host."""


class Forbidden(HermesError):
    """Raised for a URL that must not be connected to."""


class Target(NamedTuple):
    """A URL that passed the rules of this module, with the headers and TLS options for the request."""

    url: httpx2.URL
    headers: dict[str, str]
    extensions: dict[str, str]


class AllowedHosts:
    """Hosts that the operator configured, such as `example.org` or `example.org:8443`."""

    def __init__(self, setting: str, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(_parse_host(setting, host) for host in hosts)

    def allows(self, url: str) -> bool:
        """Return whether the URL is on one of the allowed hosts. A host that was configured without a port is
        allowed only on the default port of the URL's scheme."""
        try:
            # Use the parser of the HTTP client. Another parser might find a different host in the same text.
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, UnicodeError):
            return False
        usual = DEFAULT_PORTS.get(parsed.scheme)
        if usual is None or parsed.userinfo:
            return False
        port = parsed.port or usual
        return (parsed.host, port) in self._hosts or (port == usual and (parsed.host, None) in self._hosts)


def open_client() -> httpx2.AsyncClient:
    """Open a client that follows no redirects and uses no proxies and no `.netrc`. A redirect could lead to a host
    that is not allowed.
    Connections are not reused. If the server has closed a reused connection, the client cannot tell whether the
    request arrived. The request log of the library is turned off, because URLs may contain keys.
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(timeout=TIMEOUT, limits=limits, follow_redirects=False, trust_env=False)


async def resolve(host: str, port: int) -> list[str]:
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in addresses))


async def resolve_targets(url: str, hosts: AllowedHosts, look_up: Resolve = resolve) -> list[Target]:
    """Return the targets for a request to `url`, in the order in which they should be tried. A URL on one of the
    allowed `hosts` has one target. Any other URL has one for each IP address of its host. Raise `Forbidden` if the
    URL is not allowed."""
    try:
        parsed = httpx2.URL(url)
        if hosts.allows(url):
            return [Target(parsed, {}, {})]
        if parsed.scheme != "https" or parsed.userinfo or not parsed.host or (parsed.port or 443) != 443:
            raise Forbidden("not a public https address")
        host = parsed.raw_host.decode("ascii")
        addresses = await look_up(host.strip("[]"), 443)
    except (httpx2.InvalidURL, UnicodeError, OSError) as problem:
        raise Forbidden("the address cannot be resolved") from problem
    if not addresses or not all(is_public(address) for address in addresses):
        raise Forbidden("not a public address")
    # Keep the host name in the Host header and in TLS, so that the certificate is checked against it.
    headers, extensions = {"Host": parsed.netloc.decode("ascii")}, {"sni_hostname": host}
    return [
        Target(parsed.copy_with(host=address), headers, extensions) for address in addresses[:MOST_ADDRESSES]
    ]


def is_public(text: str) -> bool:
    """Return whether an IP address is public. IPv4 addresses embedded in IPv6 are checked too."""
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
        raise Misconfigured(f"{setting}: {text!r} is not a host: {problem}") from problem
    if not url.host or url.path not in ("", "/") or url.userinfo or url.query:
        raise Misconfigured(f"{setting}: {text!r} is not a host or host:port")
    return url.host, url.port
