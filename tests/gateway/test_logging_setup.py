"""The log has one line for each event, as text or JSON. It contains no secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from hermes.gateway.ops.logging_setup import redact_all, set_up_logs

TOKEN = "123456:" + "MadeUpForThisTest"
KEY = "sk-" + "proj-" + "MadeUpForThisTest0123456789"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, ours, client = logging.getLogger(), logging.getLogger("hermes"), logging.getLogger("httpx")
    before = root.handlers[:], root.level, ours.level
    client_level = client.level
    client.setLevel(logging.NOTSET)  # the Telegram adapter of another test may have changed its level
    yield
    client.setLevel(client_level)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.captureWarnings(False)


def test_a_line_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs()
    logging.getLogger("hermes.gateway").info("%s: connected", "telegram", extra={"chats": 3})
    logging.getLogger("httpx").warning("slow\nhermes: all is \x1b[31mwell")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(" info telegram: connected chats=3")
    assert second.endswith(" warning httpx: slow hermes: all is well")


def test_a_line_for_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(as_json=True, secrets=[TOKEN])
    try:
        raise OSError(f"https://api.telegram.org/bot{TOKEN}/getMe")
    except OSError:
        logging.getLogger("hermes.gateway").exception(
            "failed with %s", KEY, extra={"token": TOKEN, "chats": 3}
        )
    (line,) = capsys.readouterr().err.splitlines()
    data = json.loads(line)
    assert (data["level"], data["logger"], data["chats"]) == ("error", "hermes.gateway", 3)
    assert "Traceback" in data["error"]
    assert TOKEN not in line
    assert "MadeUp" not in line


def test_secrets_are_in_no_line_wherever_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(verbose=True, secrets=[TOKEN, "a-plain-password"])
    logging.getLogger("httpx").info("HTTP Request: GET https://api.telegram.org/bot%s/getMe", TOKEN)
    logging.getLogger("hermes").debug("login with a-plain-password and %s", KEY)
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 2
    assert not [secret for secret in (TOKEN, "MadeUp", "a-plain-password") if secret in output]


def test_an_unknown_token_in_an_address_is_hidden() -> None:
    assert redact_all([], f"GET /bot{TOKEN}/getMe") == "GET /bot123456:[redacted Telegram bot address]/getMe"


def test_a_secret_is_hidden_as_it_stands_in_an_address_too() -> None:
    assert redact_all(["s3/cr t"], "GET /?t=s3%2Fcr%20t and s3/cr t") == "GET /?t=[redacted] and [redacted]"


def test_libraries_do_not_log_messages_of_people(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in (False, True):
        set_up_logs(verbose=verbose)
        logging.getLogger("telegram.ext").debug("Update(message=Message(text='my secret wish'))")
    set_up_logs()
    logging.getLogger("nio").info("my secret wish")
    assert capsys.readouterr().err == ""


def test_a_second_setup_does_not_duplicate_lines(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs()
    set_up_logs()
    logging.getLogger("hermes").warning("once")
    assert capsys.readouterr().err.count("once") == 1
