"""A pairing code admits one person, once, within a time limit, on one platform. The stored file does not
reveal the code.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.config.dotenv import TOOL_MARKER
from hermes.gateway.inbound.pairing import (
    ALPHABET,
    FILE,
    LENGTH,
    MOST_CODES,
    TRIES,
    Paired,
    Pairings,
    find_code,
)


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "gateway"


@pytest.fixture
def pairings(folder: Path, clock: Clock) -> Pairings:
    return Pairings(folder, clock)


def test_a_code_admits_one_person_permanently_and_is_used_up(
    pairings: Pairings, folder: Path, clock: Clock
) -> None:
    code = pairings.make_code("telegram")
    assert not pairings.is_paired("telegram", "1")
    made = pairings.try_code("telegram", "1", "ann", code)
    assert made == Paired("telegram", "1", "ann", False, clock.time)
    assert pairings.is_paired("telegram", "1")
    assert not pairings.is_owner("telegram", "1")
    assert pairings.try_code("telegram", "2", "bob", code) is None
    clock.time += 10_000_000
    assert Pairings(folder).is_paired("telegram", "1")
    assert Pairings(folder).list_people() == [made]


def test_a_code_is_eight_unambiguous_letters(pairings: Pairings) -> None:
    codes = {pairings.make_code() for _ in range(5)}
    assert len(codes) == 5
    assert all(len(code) == LENGTH == 8 and set(code) <= set(ALPHABET) for code in codes)
    assert not set("01OIL") & set(ALPHABET)


def test_a_code_is_valid_on_its_platform_or_on_all(pairings: Pairings) -> None:
    code = pairings.make_code("telegram")
    assert pairings.try_code("matrix", "@a:b", None, code) is None
    assert pairings.try_code("telegram", "1", None, code) is not None
    anywhere = pairings.make_code()
    assert pairings.try_code("matrix", "@a:b", None, anywhere) is not None
    assert not pairings.is_paired("telegram", "@a:b")


def test_an_expired_code_is_invalid(pairings: Pairings, clock: Clock) -> None:
    code = pairings.make_code(minutes=10)
    clock.time += 600
    assert pairings.try_code("telegram", "1", None, code) is None


def test_after_some_wrong_codes_not_even_the_right_one_helps_for_an_hour(
    pairings: Pairings, clock: Clock
) -> None:
    code = pairings.make_code(minutes=120)
    for _ in range(TRIES):
        assert pairings.try_code("telegram", "1", None, "AAAAAAAA") is None
        clock.time += 60
    assert pairings.try_code("telegram", "1", None, code) is None
    assert pairings.try_code("telegram", "2", None, "AAAAAAAA") is None  # attempts are counted per person
    clock.time += 3601
    assert pairings.try_code("telegram", "1", None, code) is not None


def test_after_three_wrong_codes_the_next_one_must_wait(pairings: Pairings, clock: Clock) -> None:
    code = pairings.make_code()
    for _ in range(3):
        pairings.try_code("telegram", "1", None, "AAAAAAAA")
    clock.time += 9
    assert pairings.try_code("telegram", "1", None, code) is None
    assert pairings.try_code("telegram", "2", None, "AAAAAAAA") is None
    clock.time += 1
    assert pairings.try_code("telegram", "1", None, code) is not None


def test_an_owner_stays_an_owner(pairings: Pairings, clock: Clock) -> None:
    pairings.try_code("telegram", "1", "ann", pairings.make_code())
    since = clock.time
    clock.time += 60
    pairings.try_code("telegram", "1", "ann", pairings.make_code(owner=True))
    assert pairings.is_owner("telegram", "1")
    pairings.try_code("telegram", "1", "anna", pairings.make_code())
    assert pairings.list_people() == [Paired("telegram", "1", "anna", True, since)]


def test_access_is_revoked_by_id_or_name_in_a_running_gateway(pairings: Pairings, folder: Path) -> None:
    for user, name in (("1", "ann"), ("2", "Bob"), ("3", "1")):
        pairings.try_code("telegram", user, name, pairings.make_code())
    pairings.try_code("matrix", "@ann:m.org", "ann", pairings.make_code())
    command = Pairings(folder)
    # an id takes precedence over a name
    assert [one.user_id for one in command.revoke("telegram", "1")] == ["1"]
    assert [one.user_id for one in command.revoke("telegram", "@bob")] == ["2"]
    assert command.revoke("telegram", "ann") == []
    assert [one.user_id for one in command.revoke("matrix", "@ann:m.org")] == ["@ann:m.org"]
    assert [pairings.is_paired("telegram", one) for one in "123"] == [False, False, True]
    assert not pairings.is_paired("matrix", "@ann:m.org")


def test_the_file_is_private_and_holds_no_code(pairings: Pairings, folder: Path) -> None:
    code = pairings.make_code("telegram")
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert code not in (folder / FILE).read_text().upper()


def test_the_number_of_codes_is_limited(pairings: Pairings) -> None:
    first = pairings.make_code()
    last = [pairings.make_code() for _ in range(MOST_CODES)][-1]
    assert pairings.try_code("telegram", "1", None, first) is None
    assert pairings.try_code("telegram", "1", None, last) is not None


def test_without_a_code_a_stranger_causes_no_work(pairings: Pairings, folder: Path) -> None:
    assert pairings.try_code("telegram", "1", None, "AAAAAAAA") is None
    assert not folder.exists()


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"people": [{"a": 1}], "codes": []}', '{"people": []}'])
def test_an_invalid_file_admits_nobody_and_is_not_overwritten(
    pairings: Pairings, folder: Path, text: str
) -> None:
    pairings.try_code("telegram", "1", None, pairings.make_code())
    code = pairings.make_code()
    before = (folder / FILE).read_text()
    (folder / FILE).write_text(text)
    assert pairings.is_paired("telegram", "1")
    assert not Pairings(folder).is_paired("telegram", "1")
    for change in (
        pairings.make_code,
        pairings.list_people,
        lambda: pairings.revoke("telegram", "1"),
        lambda: pairings.try_code("telegram", "2", None, code),
    ):
        with pytest.raises(errors.BadConfig, match="has invalid content"):
            change()
    assert (folder / FILE).read_text() == text
    (folder / FILE).write_text(before)
    assert pairings.is_paired("telegram", "1")


# ---------------------------------------------------------------- changes by other programs


STRANGER: dict[str, Any] = {
    "platform": "telegram",
    "user_id": "666",
    "user_name": "mallory",
    "owner": True,
    "since": 1.0,
}


def add_stranger(folder: Path) -> None:
    """Add a person to the file, as a model could with `write_file`."""
    data = json.loads((folder / FILE).read_text())
    data["people"].append(STRANGER)
    (folder / FILE).write_text(json.dumps(data))


def actions(home: Path) -> list[str]:
    return [json.loads(line)["action"] for line in (home / "audit.log").read_text().splitlines()]


def test_a_person_added_by_another_program_is_not_admitted(
    pairings: Pairings, folder: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairings.try_code("telegram", "1", "ann", pairings.make_code(owner=True))
    code = pairings.make_code()
    add_stranger(folder)
    for _ in range(3):
        assert not pairings.is_paired("telegram", "666")
        assert not pairings.is_owner("telegram", "666")
        assert pairings.is_owner("telegram", "1")
    assert len(caplog.records) == 1
    assert "was changed by another program" in caplog.text
    assert "was changed by another program" in str(pairings.check())
    with pytest.raises(errors.BadConfig):
        pairings.try_code("telegram", "2", None, code)
    assert not Pairings(folder).is_paired("telegram", "1")
    assert actions(home).count("pairing.ignored") == 2


def test_a_running_gateway_accepts_no_other_key(pairings: Pairings, folder: Path, home: Path) -> None:
    pairings.hold_key()
    pairings.try_code("telegram", "1", None, pairings.make_code())
    (home / "seal.key").write_text("00" * 32)
    other = Pairings(folder)
    other.accept([*pairings.list_known()])
    add_stranger(folder)
    other.accept([Paired(**one) for one in json.loads((folder / FILE).read_text())["people"]])
    assert Pairings(folder).is_owner("telegram", "666")
    assert not pairings.is_paired("telegram", "666")
    assert pairings.is_paired("telegram", "1")


def test_an_older_version_of_the_file_does_not_restore_access(pairings: Pairings, folder: Path) -> None:
    pairings.try_code("telegram", "1", None, pairings.make_code())
    older = (folder / FILE).read_text()
    Pairings(folder).revoke("telegram", "1")
    assert not pairings.is_paired("telegram", "1")
    (folder / FILE).write_text(older)
    assert not pairings.is_paired("telegram", "1")
    (folder / FILE).unlink()
    assert pairings.make_code()


def test_the_file_of_an_older_version_is_adopted_once(folder: Path, home: Path) -> None:
    folder.mkdir(parents=True)
    ann: dict[str, Any] = {
        "platform": "telegram",
        "user_id": "1",
        "user_name": "ann",
        "owner": True,
        "since": 5.0,
    }
    (folder / FILE).write_text(json.dumps({"codes": [], "people": [ann]}))
    assert not Pairings(folder).is_paired("telegram", "1")
    assert Pairings(folder).adopt_unsealed() == [Paired(**ann)]
    assert Pairings(folder).is_owner("telegram", "1")
    assert stat.S_IMODE((home / "seal.key").stat().st_mode) == 0o600
    data = json.loads((folder / FILE).read_text())
    del data["seal"]
    data["people"].append(STRANGER)
    (folder / FILE).write_text(json.dumps(data))
    assert Pairings(folder).adopt_unsealed() is None
    (home / "seal.key").unlink()  # the audit log still shows that there was a key
    assert Pairings(folder).adopt_unsealed() is None
    assert not Pairings(folder).is_paired("telegram", "666")
    assert actions(home).count("pairing.adopted") == 1


def test_a_tool_neither_makes_a_code_nor_adopts_a_file(
    folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(parents=True)
    monkeypatch.setenv(TOOL_MARKER, "1")
    with pytest.raises(errors.StartedByTool):
        Pairings(folder).make_code(owner=True)
    with pytest.raises(errors.StartedByTool):
        Pairings(folder).revoke("telegram", "1")
    (folder / FILE).write_text(json.dumps({"codes": [], "people": [STRANGER]}))
    assert Pairings(folder).adopt_unsealed() is None
    assert not Pairings(folder).is_paired("telegram", "666")
    with pytest.raises(errors.StartedByTool):
        Pairings(folder).accept([Paired(**STRANGER)])


def test_each_change_of_who_is_let_in_is_recorded(pairings: Pairings, home: Path) -> None:
    code = pairings.make_code("telegram", owner=True)
    pairings.try_code("telegram", "1", "ann", code)
    pairings.revoke("telegram", "ann")
    assert actions(home) == ["seal.created", "pairing.code", "pairing.used", "pairing.revoked"]
    text = (home / "audit.log").read_text()
    assert code not in text
    used = json.loads(text.splitlines()[2])["details"]
    assert used == {"platform": "telegram", "user": "1", "user_name": "ann", "owner": True}


def _pair(folder: str, code: str, user: str) -> bool:
    return Pairings(Path(folder)).try_code("telegram", user, None, code) is not None


def test_only_one_of_several_concurrent_uses_of_a_code_succeeds(folder: Path) -> None:
    pairings = Pairings(folder)
    one, other = pairings.make_code(), pairings.make_code()
    tries = [(str(folder), code, f"{code}{number}") for number in range(3) for code in (one, other)]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        let_in = pool.starmap(_pair, tries)
    assert sum(let_in) == 2
    assert sorted(user.user_id[:LENGTH] for user in pairings.list_people()) == sorted([one, other])
    assert os.listdir(folder).count(FILE) == 1


# ---------------------------------------------------------------- codes in messages


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("/pair ABCD2345", "ABCD2345"),
        ("/pair@my_bot abcd-2345 ", "ABCD2345"),
        (" abcd 2345\n", "ABCD2345"),
        ("/pair", None),
        ("/pair ABCD234", None),
        ("/pair ABCD0OIL", None),  # characters that codes do not contain
        ("hello, what is the code?", None),
        ("/pairABCD2345", None),
    ],
)
def test_the_code_in_a_message(text: str, code: str | None) -> None:
    assert find_code(text) == code


def test_from_people_with_access_only_the_command_is_a_code() -> None:
    assert find_code("tpmqrrpw", alone=False) is None
    assert find_code("/pair tpmqrrpw", alone=False) == "TPMQRRPW"


@given(st.text())
def test_any_text_contains_a_code_or_none(text: str) -> None:
    code = find_code(text)
    assert code is None or (len(code) == LENGTH and set(code) <= set(ALPHABET))
