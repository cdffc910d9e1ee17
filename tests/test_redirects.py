"""A key is sent only to the configured address, even if that address redirects."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hermes.agent.models.endpoints import list_models
from hermes.agent.models.model import BadRequest, Request
from hermes.agent.models.openai import OpenAIModel
from hermes.cli.exit_codes import Refused
from hermes.cli.gateway.setup import check_connection
from hermes.gateway.adapter import Misconfigured
from hermes.gateway.platforms.matrix.login import read_account_settings, sign_in
from hermes.gateway.platforms.matrix.state import StateFiles
from hermes.gateway.settings import PlatformSettings
from tests import warm_command

KEY = "sk-" + "proj-" + "MadeUpForThisTest0123456789"
CODES = (301, 302, 303, 307, 308)


class Server:
    """A server that records every request. If a target is set, it answers with a redirect to the target,
    otherwise with an empty model list."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.target: str | None = None
        self.code = 307
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.seen.append((self.path, headers, body))
                payload = b'{"data": []}'
                self.send_response(200 if server.target is None else server.code)
                if server.target is not None:
                    self.send_header("Location", f"{server.target}{self.path}")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - as the library names them

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def other() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(params=["another port", "another host", "itself"])
def chosen(request: pytest.FixtureRequest, other: Server) -> Iterator[Server]:
    """Run the configured server. It redirects every request to another address."""
    server = Server()
    targets = {
        "another port": other.url,
        "another host": f"http://localhost:{other.port}",
        "itself": f"http://localhost:{server.port}",
    }
    server.target = targets[request.param]
    yield server
    server.close()


@pytest.mark.parametrize("code", CODES)
def test_a_list_of_models_is_not_fetched_elsewhere(chosen: Server, other: Server, code: int) -> None:
    chosen.code = code
    with pytest.raises(BadRequest, match="redirects to http") as refused:
        list_models(f"{chosen.url}/v1", KEY)
    assert (len(chosen.seen), other.seen) == (1, [])
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("code", CODES)
async def test_a_conversation_is_not_sent_elsewhere(chosen: Server, other: Server, code: int) -> None:
    chosen.code = code
    model = OpenAIModel("m", base_url=f"{chosen.url}/v1", key=KEY, first_pause=0.01)
    try:
        with pytest.raises(BadRequest, match="redirects to http"):
            _ = [piece async for piece in model.stream(Request([{"role": "user", "content": "hello"}]))]
    finally:
        await model.close()
    assert (len(chosen.seen), other.seen) == (1, [])


def test_setup_sends_the_key_nowhere_else(chosen: Server, other: Server, home: Path) -> None:
    for more in (("--key-env", "MY_API_KEY", "--model", "m"), ("--key-env", "MY_API_KEY")):
        words = ["setup", "--base-url", f"{chosen.url}/v1", *more]
        done = warm_command.run(words, environment={"MY_API_KEY": KEY})
        assert done.returncode == 1
        assert "redirects to http" in done.stderr
        assert KEY not in done.stdout + done.stderr
    assert {headers["authorization"] for _, headers, _ in chosen.seen} == {f"Bearer {KEY}"}
    assert other.seen == []
    assert not (home / "config.yaml").exists()


@pytest.mark.parametrize("platform", ["telegram", "matrix"])
def test_a_secret_that_is_tried_out_goes_nowhere_else(chosen: Server, other: Server, platform: str) -> None:
    telegram = {"bot_token": f"1:{KEY}", "base_url": f"{chosen.url}/bot"}
    matrix = {"access_token": KEY, "homeserver": chosen.url, "user_id": "@a:b"}
    with pytest.raises(Refused):
        check_connection(platform, telegram if platform == "telegram" else matrix)
    assert (len(chosen.seen), other.seen) == (1, [])


@pytest.mark.parametrize("secret", ["access_token", "password"])
async def test_matrix_sends_token_and_password_nowhere_else(
    chosen: Server, other: Server, home: Path, secret: str
) -> None:
    more = {"homeserver": chosen.url, "user_id": "@a:b", "encryption": False, secret: KEY}
    with pytest.raises(Misconfigured, match="redirects"):
        await sign_in(
            read_account_settings(PlatformSettings("matrix", more=more)), StateFiles(home / "matrix")
        )
    assert (len(chosen.seen), other.seen) == (1, [])
