"""Finds the address of a client, even behind a proxy. The header `X-Forwarded-For` is used only if the connection
comes from a proxy that the operator trusts, because anybody can send the header."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache

from starlette.requests import HTTPConnection

from hermes.gateway.http.limits import current_guard

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MOST_HOPS = 16


def find_client_address(request: HTTPConnection) -> str:
    """Return the address of the client. Behind an untrusted proxy, this is the address of that proxy."""
    peer = request.client.host if request.client else ""
    trusted = parse_networks(current_guard().limits.trusted_proxies)
    return choose_address(peer, request.headers.getlist("x-forwarded-for"), trusted)


def choose_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """Return the last address of the chain that is not a trusted proxy.
    The chain consists of the values of `X-Forwarded-For` (`forwarded`), followed by `peer`, the address of the
    connection.
    """
    if not _is_trusted(peer, trusted):
        return peer
    hops = [hop.strip() for value in forwarded for hop in value.split(",")]
    chosen = peer
    for hop in reversed(hops[-MOST_HOPS:]):
        try:
            chosen = str(ipaddress.ip_address(hop))
        except ValueError:  # a trusted proxy writes only valid addresses
            break
        if not _is_trusted(chosen, trusted):
            break
    return chosen


@lru_cache(maxsize=8)
def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inside = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return any(parsed in network or (inside is not None and inside in network) for network in trusted)
