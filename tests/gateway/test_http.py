"""The shared HTTP server starts and stops with its task. Requests cannot exhaust its memory or its
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from hermes.gateway.adapter import Misconfigured
from hermes.gateway.http import host
from hermes.gateway.http.host import error_handlers, serve
from hermes.gateway.http.limits import BodyPool, Limits, set_limits
from tests.gateway.loopback_server import client_of, served

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(request: Request) -> Response:
    return Response(await request.body())


async def _hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def _break(request: Request) -> Response:
    raise ValueError("broken on purpose")


APP = Starlette(
    routes=[Route("/", _hello), Route("/echo", _echo, methods=["POST"]), Route("/break", _break)],
)


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        return await reader.read()


async def test_an_app_is_served_and_says_nothing_on_the_terminal(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(APP) as address, client_of(address) as client:
        assert (await client.get("/")).text == "hello"
        assert (await client.post("/echo", content=b"x" * 1000)).content == b"x" * 1000
    assert capsys.readouterr() == ("", "")
    mine = [record.getMessage() for record in caplog.records if record.name == "hermes.gateway.http.host"]
    assert mine == [f"listening on 127.0.0.1, port {address.rpartition(':')[2]}"]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_an_error_of_an_app_is_logged_and_the_next_request_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(APP) as address, client_of(address) as client:
        broken = await client.get("/break")
        assert (broken.status_code, broken.text) == (500, "Internal Server Error")
        assert (await client.get("/")).text == "hello"
    assert "broken on purpose" in caplog.text


async def test_signals_stay_with_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with served(APP):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_no_header_names_the_software() -> None:
    async with served(APP) as address, client_of(address) as client:
        assert "server" not in (await client.get("/")).headers


async def test_after_the_end_the_port_is_free_at_once() -> None:
    async with served(APP) as address, client_of(address) as client:
        await client.get("/")
        port = int(address.rpartition(":")[2])
    collected: list[int] = []
    again = asyncio.create_task(serve(APP, "127.0.0.1", port, ready=collected.append))
    async with asyncio.timeout(60):
        while not collected:
            await asyncio.sleep(0.01)
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
    assert collected == [port]


async def test_a_name_with_several_addresses_is_served_on_all_that_exist() -> None:
    async with served(APP, "localhost") as address, client_of(address) as client:
        assert (await client.get("/")).text == "hello"


async def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"^port {port} of 127.0.0.1 is in use by another program$"):
            await serve(APP, "127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "line"),
    [
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1: it is not an address of this machine"),
        ("no.such.host.invalid", 0, "cannot listen on 'no.such.host.invalid': the host cannot be resolved"),
        ("", 0, "cannot listen on '': the host cannot be resolved"),
        ("a" * 70, 0, f"cannot listen on '{'a' * 70}': the host cannot be resolved"),
        ("127.0.0.1", 99999, "invalid port 99999: the highest port is 65535"),
        ("127.0.0.1", -1, "invalid port -1: the highest port is 65535"),
    ],
)
async def test_an_address_that_cannot_be_used_is_one_clear_line(host: str, port: int, line: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        await serve(APP, host, port)
    assert str(caught.value) == line


async def test_a_request_that_is_open_at_the_end_is_still_answered() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await go_on.wait()
        return PlainTextResponse("done after all")

    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = Starlette(routes=[Route("/", slow)])
    running = asyncio.create_task(serve(app, "127.0.0.1", 0, ready=port.set_result))
    async with client_of(f"http://127.0.0.1:{await port}") as client:
        asked = asyncio.create_task(client.get("/"))
        await begun.wait()
        running.cancel()
        go_on.set()
        assert (await asked).text == "done after all"
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_request_that_does_not_end_in_time_can_send_a_last_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "GRACE_S", 0)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            ended.set()
            return PlainTextResponse("another time", 202)
        raise AssertionError

    async with served(Starlette(routes=[Route("/", endless)])) as address:
        client = client_of(address)
        connected = await client.__aenter__()
        asked = asyncio.create_task(connected.get("/"))
        await begun.wait()
    assert ended.is_set()
    answer = await asked
    assert (answer.status_code, answer.text) == (202, "another time")
    await client.__aexit__(None, None, None)


async def test_a_second_cancellation_ends_the_server_at_once() -> None:
    begun = asyncio.Event()

    async def endless(request: Request) -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = Starlette(routes=[Route("/", endless)])
    running = asyncio.create_task(serve(app, "127.0.0.1", 0, ready=port.set_result))
    reader, writer = await asyncio.open_connection("127.0.0.1", await port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await begun.wait()
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with contextlib.suppress(ConnectionResetError):
        assert await _read_all(reader) == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port.result())


async def test_a_body_that_is_announced_as_too_large_is_not_read() -> None:
    async with served(APP, largest_body=1000) as address, client_of(address) as client:
        assert (await client.post("/echo", content=b"x" * 1000)).status_code == 200
        assert (await client.post("/echo", content=b"x" * 10_000_000)).status_code == 413
        assert (await client.post("/echo", content=b"x" * 1001)).status_code == 413


async def test_a_body_that_grows_too_large_is_cut_off() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 1000

    async with served(APP, largest_body=1000) as address, client_of(address) as client:
        assert (await client.post("/echo", content=endless())).status_code == 413


async def test_an_app_says_in_its_own_words_that_a_body_is_too_large() -> None:
    async def respond(request: Request, problem: Exception) -> Response:
        return JSONResponse({"error": "too much"}, 413)

    app = Starlette(routes=[Route("/echo", _echo, methods=["POST"])], exception_handlers={413: respond})
    async with served(app, largest_body=10) as address, client_of(address) as client:
        assert (await client.post("/echo", content=b"x" * 11)).json() == {"error": "too much"}


@pytest.mark.parametrize(
    "trickle",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nX-Slow: ",
    ],
    ids=["silent", "headers that do not end", "the same on a used connection"],
)
async def test_a_connection_without_a_request_is_closed_after_a_time(
    trickle: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "REQUEST_S", 0.2)
    async with served(APP) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(trickle)
        answer = await _read_all(reader)
        assert answer.count(b"HTTP/1.1 200") == trickle.count(b"\r\n\r\n")
        writer.close()


async def test_a_connection_with_a_slow_answer_is_not_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "REQUEST_S", 0.5)

    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.7)
        return PlainTextResponse("here it is")

    app = Starlette(routes=[Route("/", slow)])
    async with served(app) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        # The second request never ends. It has its own time limit, after which the server closes the
        # connection.
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readuntil(b"here it is")
        writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        assert await _read_all(reader) == b""
        writer.close()


async def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BODY_S", 0.2)
    async with served(APP) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nonly this")
        assert (await _read_all(reader)).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_headers_without_end_are_refused() -> None:
    async with served(APP) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000)
        assert (await _read_all(reader)).startswith(b"HTTP/1.1 400 ")
        writer.close()


# --- connections and bytes shared by all servers


async def _connect(address: str, sent: bytes = b"", source: str = "127.0.0.1") -> Connected:
    port = int(address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(sent)
    return reader, writer


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionResetError):
        assert await _read_all(reader) == b""
    return True


HALF_OPEN = b"GET / HTTP/1.1\r\nX-Slow: "


async def test_the_oldest_idle_connection_makes_room_for_a_new_one() -> None:
    set_limits(Limits(connections=3))
    async with served(APP) as address, client_of(address) as client:
        first, second, third = [await _connect(address, HALF_OPEN) for _ in range(3)]
        assert (await client.get("/")).text == "hello"
        assert await _is_closed(first[0])
        second[1].write(b"x\r\nHost: x\r\n\r\n")
        assert b"hello" in await second[0].readuntil(b"hello")
        for _, writer in (first, second, third):
            writer.close()


async def test_active_connections_are_kept_and_further_ones_are_refused() -> None:
    set_limits(Limits(connections=2))
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.release()
        await go_on.wait()
        return PlainTextResponse("here it is")

    async with served(Starlette(routes=[Route("/", slow)])) as address, client_of(address) as client:
        asked = [asyncio.create_task(client.get("/")) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        reader, writer = await _connect(address)
        head, _, body = (await _read_all(reader)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 5" in head
        assert json.loads(body) == {"error": "Service Unavailable"}
        writer.close()
        go_on.set()
        assert [(await one).text for one in asked] == ["here it is"] * 2


async def test_without_idle_connections_one_that_waits_for_a_body_is_closed() -> None:
    set_limits(Limits(connections=1))
    async with served(APP) as address, client_of(address) as client:
        stalled = await _connect(address, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        await asyncio.sleep(0)
        assert (await client.get("/")).text == "hello"
        assert await _is_closed(stalled[0])
        stalled[1].close()


async def test_one_address_cannot_take_all_connections() -> None:
    set_limits(Limits(connections=10, connections_per_address=2))
    async with served(APP) as address:
        other = await _connect(address, HALF_OPEN, "127.0.0.2")
        mine = [await _connect(address, HALF_OPEN) for _ in range(4)]
        assert await _is_closed(mine[0][0])
        assert await _is_closed(mine[1][0])
        other[1].write(b"x\r\nHost: x\r\n\r\n")
        assert await other[0].readuntil(b"hello")
        for _, writer in (other, *mine):
            writer.close()


FEW_DESCRIPTORS = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from hermes.gateway.http.host import error_handlers, serve
from hermes.gateway.http.limits import BodyPool, Limits, set_limits

async def store(request):
    files = [open(sys.executable, "rb") for _ in range(40)]  # as a store with its connections does
    for one in files:
        one.close()
    return PlainTextResponse("stored")

app = Starlette(routes=[Route("/", store)])
asyncio.run(serve(app, "127.0.0.1", 0, ready=lambda port: print(port, flush=True)))
"""


async def test_more_half_open_connections_than_file_descriptors_do_not_block_others() -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FEW_DESCRIPTORS),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    address = f"http://127.0.0.1:{int(await server.stdout.readline())}"
    held = await asyncio.gather(*(_connect(address, HALF_OPEN) for _ in range(300)))
    try:
        async with client_of(address) as client:
            for _ in range(3):
                assert (await client.get("/", headers={"Connection": "close"})).text == "stored"
    finally:
        for _, writer in held:
            writer.close()
        server.kill()
        _, output = await server.communicate()
    assert b"Too many open files" not in output
    assert b"out of system resource" not in output


async def test_bytes_of_all_bodies_together_are_bounded_and_small_bodies_always_get_through() -> None:
    set_limits(Limits(bodies_mb=2))
    async with served(APP, largest_body=10_000_000) as address, client_of(address) as client:
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
        held = await _connect(address, head + b"x" * 899_999)
        large, small = b"x" * 500_000, b"x" * 50_000
        async with asyncio.timeout(60):
            while (refused := await client.post("/echo", content=large)).status_code == 200:
                await asyncio.sleep(0)  # until the first request has arrived
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert (await client.post("/echo", content=small)).content == small
        held[1].write(b"x")
        assert (await held[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await held[0].readexactly(900_000)
        assert (await client.post("/echo", content=large)).content == large  # released again
        held[1].close()


def test_one_holder_gets_half_of_the_pool() -> None:
    pool = BodyPool(100)
    assert pool.take("a", 50)
    assert not pool.take("a", 1)
    assert pool.take("b", 40)
    assert not pool.take("c", 11)
    pool.give_back("a", 50)
    assert pool.take("c", 50)


async def test_an_answer_that_is_not_read_is_discarded_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SEND_S", 0.2)
    over = asyncio.Event()

    async def large(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                for _ in range(1000):
                    yield b"x" * 100_000
            finally:
                over.set()

        return StreamingResponse(pieces())

    async with served(Starlette(routes=[Route("/", large)])) as address:
        _, writer = await _connect(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that can read
        async with asyncio.timeout(60):
            await over.wait()
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000, 400),
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"GET /break HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 500),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\nConnection: close\r\n\r\n", 413),
    ],
    ids=[
        "not HTTP",
        "long headers",
        "no such address",
        "no such method",
        "a mistake of ours",
        "a large body",
    ],
)
async def test_every_error_has_the_same_format(sent: bytes, status: int) -> None:
    app = Starlette(routes=APP.routes, exception_handlers=error_handlers())
    async with served(app) as address:
        reader, writer = await _connect(address, sent)
        head, _, body = (await _read_all(reader)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"application/json" in head
        assert json.loads(body) == {"error": HTTPStatus(status).phrase}
        writer.close()
