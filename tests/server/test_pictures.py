"""The server fetches pictures that a request names by URL. It fetches from public addresses only and stores
the pictures as data.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes.gateway.adapter import Misconfigured
from hermes.gateway.http.address_rules import AllowedHosts, Forbidden, is_public, resolve_targets
from hermes.message_content import detect_picture_type
from tests.gateway.loopback_server import served
from tests.server.api_gateway import ApiGateway, ask, assistant, open_api_gateway, user
from tests.server.picture_server import GIF, PNG, PictureServer, listening

NOBODY = AllowedHosts("test", ())


@asynccontextmanager
async def pictures(**settings: Any) -> AsyncIterator[tuple[PictureServer, str, ApiGateway]]:
    server = PictureServer()
    async with (
        served(server.app) as there,
        open_api_gateway({"picture_hosts": [there.removeprefix("http://")]}, **settings) as gateway,
    ):
        yield server, there, gateway


def showing(url: str) -> Any:
    return {
        "role": "user",
        "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}],
    }


async def _refused(gateway: ApiGateway, url: str) -> str:
    async with gateway.http() as client:
        body = {"model": "hermes", "messages": [showing(url)]}
        answer = await client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_image_url"), url
    return str(answer.json()["error"]["message"])


async def test_a_picture_is_stored_as_data_and_its_url_extends_the_conversation() -> None:
    async with pictures() as (server, there, gateway):
        answer, session = await ask(gateway, [showing(f"{there}/x.png")])
        assert answer == "1 pictures"
        (row, _) = gateway.db.get_messages(session)
        url = row["content"][1]["image_url"]["url"]
        assert url == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        server.picture = GIF  # the content of a URL may change, but not the stored message
        more = [showing(f"{there}/x.png"), assistant(answer), user("hi")]
        assert (await ask(gateway, more))[1] == session
        assert server.asked == ["/x.png"]


async def test_each_key_has_its_own_pictures() -> None:
    keys = {"keys": {"bert": "bert has a key of his own"}}
    server = PictureServer()
    async with served(server.app) as there, open_api_gateway({"picture_hosts": there[7:], **keys}) as gateway:
        await ask(gateway, [showing(f"{there}/x.png")])
        await ask(gateway, [showing(f"{there}/x.png")], key="bert has a key of his own")
    assert len(server.asked) == 2


async def test_addresses_of_this_machine_are_not_fetched() -> None:
    async with listening() as private, open_api_gateway() as gateway:
        port = private.port
        lines = {
            await _refused(gateway, url)
            for url in (
                f"http://127.0.0.1:{port}/x.png",
                f"https://127.0.0.1:{port}/x.png",
                f"https://localhost:{port}/x.png",
                "https://localhost/x.png",
                "https://127.0.0.1/x.png",
                "https://[::1]/x.png",
                "https://[::ffff:127.0.0.1]/x.png",
                "https://2130706433/x.png",
                "https://0/x.png",
                "https://169.254.169.254/latest/meta-data/",
                "https://10.0.0.1/x.png",
                "https://no.such.host.invalid/x.png",
                "https://user:pw@example.org/x.png",
                "http://example.org/x.png",
                "https://example.org:8443/x.png",
                "https://" + "a" * 70 + ".org/x.png",
                "https:///x.png",
            )
        }
        assert len(lines) == 1  # the error does not reveal what exists in the local network
        assert private.came == 0
        assert gateway.db.session_count() == 0


async def test_a_redirect_to_a_private_address_is_refused() -> None:
    async with listening() as private, pictures() as (server, there, gateway):
        for server.elsewhere in (
            f"http://127.0.0.1:{private.port}/x.png",
            "https://localhost/x.png",
            "file:///etc/passwd",
            "//[",
        ):
            await _refused(gateway, f"{there}/away")
        await _refused(gateway, f"{there}/round")
        assert private.came == 0
        assert (await ask(gateway, [showing(f"{there}/moved")]))[0] == "1 pictures"


async def test_a_file_that_is_not_a_picture_or_too_large_is_refused() -> None:
    async with pictures(largest_attachment_mb=0.01) as (server, there, gateway):
        for path in ("page.png", "packed.png", "missing"):
            await _refused(gateway, f"{there}/{path}")
        server.picture = PNG + bytes(10_000)
        assert "at most 0.01 MB" in await _refused(gateway, f"{there}/x.png")


async def test_a_request_has_a_limit_of_pictures() -> None:
    async with pictures() as (server, there, gateway), gateway.http() as client:
        messages = [showing(f"{there}/{number}.png") for number in range(17)]
        answer = await client.post("/v1/chat/completions", json={"model": "hermes", "messages": messages})
        assert (answer.status_code, server.asked) == (400, [])


async def test_a_name_is_resolved_once_and_the_checked_address_is_used() -> None:
    """If the name were resolved again for the connection, it could resolve to a public address for the check
    and to a private one for the connection."""
    answers = [["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"], ["127.0.0.1"]]
    asked: list[tuple[str, int]] = []

    async def look_up(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return answers.pop(0)

    targets = await resolve_targets("https://Example.org/x.png?a=1", NOBODY, look_up)
    assert [str(one.url) for one in targets] == [
        "https://93.184.216.34/x.png?a=1",
        "https://[2606:2800:220:1:248:1893:25c8:1946]/x.png?a=1",
    ]
    assert all(one.headers == {"Host": "example.org"} for one in targets)
    assert all(one.extensions == {"sni_hostname": "example.org"} for one in targets)
    assert asked == [("example.org", 443)]
    with pytest.raises(Forbidden):
        await resolve_targets("https://example.org/x.png", NOBODY, look_up)


async def test_a_name_that_means_public_and_private_addresses_is_refused() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(Forbidden):
        await resolve_targets("https://example.org/x.png", NOBODY, look_up)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("2001:0:53aa:64c:0:7bff:80ff:fffe", False),
        ("nonsense", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_picture_is_known_by_its_bytes() -> None:
    assert detect_picture_type(PNG) == "image/png"
    assert detect_picture_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert detect_picture_type(GIF) == "image/gif"
    assert detect_picture_type(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    for other in (b"", b"<svg", b"RIFF\0\0\0\0WAVE", b"\x89PNG", b"%PDF-1.7"):
        assert detect_picture_type(other) is None


def test_an_invalid_host_is_reported_in_one_line() -> None:
    with pytest.raises(
        Misconfigured, match=r"^platforms.api-server.picture_hosts: 'https://x/y' is not a host"
    ):
        AllowedHosts("platforms.api-server.picture_hosts", ["https://x/y"])
