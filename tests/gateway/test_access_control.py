"""Access, owners, pairing and rate limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import audit_log
from hermes.clock import RecentEvents
from hermes.gateway.inbound import access_log
from hermes.gateway.inbound.access_control import AccessControl, describe_access
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.inbound_events import Source
from hermes.gateway.rate_limit import TokenBuckets
from hermes.gateway.settings import GatewaySettings, PlatformSettings

ANN = Source("telegram", "10", chat_type="dm", user_id="1", user_name="Ann Smith", handle="Ann")
MATRIX = Source("matrix", "!room:m.org", chat_type="group", user_id="@ann:m.org", user_name="Ann")


class Clock:
    time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def door(home: Path, per_minute: int = 20, **platforms: Any) -> AccessControl:
    """Return access control with these settings: `door(home, telegram={"allow_all": True})`."""
    made = {
        name.replace("_", "-"): PlatformSettings(
            name.replace("_", "-"), **{key: _fixed(value) for key, value in told.items()}
        )
        for name, told in platforms.items()
    }
    settings = GatewaySettings(platforms=made, messages_per_minute=per_minute)
    return AccessControl(settings, Pairings(home / "gateway"))


def _fixed(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list) else value


def test_nobody_has_access_by_default(home: Path) -> None:
    assert not door(home, telegram={}).is_admitted(ANN)
    assert not door(home).is_admitted(ANN)
    assert not door(home, telegram={"allow_all": True}).is_admitted(MATRIX)


@pytest.mark.parametrize("named", ["1", "@ann", "ANN"])
def test_people_are_listed_by_id_or_by_telegram_name(home: Path, named: str) -> None:
    assert door(home, telegram={"allowed_users": [named]}).is_admitted(ANN)


@pytest.mark.parametrize("named", ["10", "2", "an", "@anna", "-1", "@1"])
def test_a_person_who_is_not_listed_has_no_access(home: Path, named: str) -> None:
    assert not door(home, telegram={"allowed_users": [named]}).is_admitted(ANN)


def test_a_name_that_is_a_number_is_not_taken_for_an_id(home: Path) -> None:
    impostor = ANN._replace(user_id="666", handle="1")
    assert not door(home, telegram={"allowed_users": ["1"]}).is_admitted(impostor)


def test_a_person_listed_by_name_has_access_after_the_message_was_stored(home: Path) -> None:
    keeper = door(home, telegram={"owners": ["@ann"]})
    assert keeper.is_owner(Source.from_dict(ANN.to_dict()))


def test_a_display_name_gives_no_access(home: Path) -> None:
    eve = ANN._replace(user_id="666", user_name="@ann", handle=None)
    assert not door(home, telegram={"allowed_users": ["@ann"]}).is_admitted(eve)
    assert not door(home, telegram={"allowed_users": ["@ann"]}).is_admitted(eve._replace(handle="eve"))
    keeper = door(home, matrix={"allowed_users": ["@ann:m.org", "Ann"], "owners": ["@root:m.org"]})
    assert keeper.is_admitted(MATRIX)
    assert not keeper.is_admitted(MATRIX._replace(user_id="@eve:evil.org"))
    assert not keeper.is_admitted(MATRIX._replace(user_id="@eve:evil.org", user_name="@ann:m.org"))
    assert not keeper.is_owner(MATRIX._replace(user_name="@root:m.org"))


def test_an_alternative_id_gives_access(home: Path) -> None:
    assert door(home, telegram={"allowed_users": ["lasting"]}).is_admitted(
        ANN._replace(user_id_alt="lasting")
    )


def test_bots_never_have_access(home: Path) -> None:
    keeper = door(home, telegram={"allow_all": True, "owners": ["1"]}, webhook={})
    assert keeper.is_admitted(ANN)
    assert not keeper.is_admitted(ANN._replace(is_bot=True))
    assert not keeper.is_owner(ANN._replace(is_bot=True))
    assert not keeper.is_admitted(Source("webhook", "x", is_bot=True))


def test_a_request_with_a_secret_has_access(home: Path) -> None:
    keeper = door(home, webhook={}, api_server={"owners": ["*"]})
    assert keeper.is_admitted(Source("webhook", "x"))
    assert keeper.is_admitted(Source("api-server", "x"))
    assert not keeper.is_owner(Source("webhook", "x"))
    assert keeper.is_owner(Source("api-server", "x"))


def test_owners_have_access_and_others_are_not_owners(home: Path) -> None:
    keeper = door(home, telegram={"owners": ["1"], "allowed_users": ["2"]})
    assert keeper.is_admitted(ANN)
    assert keeper.is_owner(ANN)
    bob = ANN._replace(user_id="2", handle="bob")
    assert keeper.is_admitted(bob)
    assert not keeper.is_owner(bob)
    assert not door(home, telegram={"owners": ["*"]}).is_owner(bob)


# ---------------------------------------------------------------- pairing


def test_a_code_in_a_private_chat_gives_access_at_once(home: Path) -> None:
    keeper = door(home, telegram={}, matrix={})
    code = Pairings(home / "gateway").make_code("telegram", owner=True)
    assert keeper.try_pairing(ANN._replace(chat_type="group"), f"/pair {code}") is None
    assert keeper.try_pairing(ANN._replace(is_bot=True), f"/pair {code}") is None
    assert keeper.try_pairing(ANN._replace(user_id=None), f"/pair {code}") is None
    assert keeper.try_pairing(ANN, "hello") is None
    assert not keeper.is_admitted(ANN)
    paired = keeper.try_pairing(ANN, code.lower())
    assert paired is not None
    assert paired.user_name == "Ann"
    assert keeper.is_admitted(ANN)
    assert keeper.is_owner(ANN)
    Pairings(home / "gateway").revoke("telegram", "1")
    assert not keeper.is_admitted(ANN)
    assert not keeper.is_owner(ANN)


def test_a_person_with_access_must_use_the_pair_command(home: Path) -> None:
    keeper = door(home, telegram={"allowed_users": ["1"]})
    code = Pairings(home / "gateway").make_code(owner=True)
    assert keeper.try_pairing(ANN, code) is None
    assert keeper.try_pairing(ANN, f"/pair {code}") is not None
    assert keeper.is_owner(ANN)


def test_an_invalid_file_does_not_stop_the_gateway(home: Path) -> None:
    keeper = door(home, telegram={})
    code = Pairings(home / "gateway").make_code()
    (home / "gateway" / "pairing.json").write_text("{")
    assert keeper.try_pairing(ANN, f"/pair {code}") is None
    assert not keeper.is_admitted(ANN)


def test_the_people_with_access_are_described_in_one_line(home: Path) -> None:
    pairings = Pairings(home / "gateway")

    def describe(**platform: Any) -> str:
        made = PlatformSettings("telegram", **{key: _fixed(value) for key, value in platform.items()})
        ((name, line),) = describe_access(GatewaySettings(platforms={"telegram": made}), pairings)
        assert name == "telegram"
        return line

    assert describe(allow_all=True) == "everybody (allow_all)"
    assert describe(allowed_users=["2"], owners=["1"]) == "1, 2"
    assert describe().startswith("nobody yet: `hermes gateway pair telegram` makes a code")
    pairings.try_code("telegram", "1", None, pairings.make_code())
    assert describe() == "1 by pairing"
    assert describe(allowed_users=["@b"]) == "@b and 1 by pairing"


# ---------------------------------------------------------------- rate limits


def test_messages_over_the_rate_limit_get_one_notice(home: Path) -> None:
    clock = Clock()
    settings = GatewaySettings(messages_per_minute=3)
    keeper = AccessControl(settings, Pairings(home / "gateway"), clock)
    assert [keeper.check_rate(ANN) for _ in range(5)] == [
        (True, False),
        (True, False),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert keeper.check_rate(ANN._replace(user_id="2")) == (True, False)
    assert keeper.check_rate(ANN._replace(platform="matrix")) == (True, False)
    clock.time += 20
    assert keeper.check_rate(ANN) == (True, False)
    assert keeper.check_rate(ANN) == (False, False)
    clock.time += 59
    assert [keeper.check_rate(ANN)[0] for _ in range(3)] == [True, True, False]
    clock.time -= 1000  # the clock is set back
    assert keeper.check_rate(ANN) == (False, True)


def test_a_limit_of_zero_means_no_limit(home: Path) -> None:
    keeper = door(home, per_minute=0)
    assert all(keeper.check_rate(ANN) == (True, False) for _ in range(100))


@given(st.integers(1, 30), st.lists(st.floats(0, 30), max_size=80))
def test_at_most_twice_the_limit_passes_in_any_minute(per_minute: int, pauses: list[float]) -> None:
    buckets, now, let_through = TokenBuckets(per_minute), 0.0, []
    for pause in pauses:
        now += pause
        if buckets.take("ann", now)[0]:
            let_through.append(now)
    for start in let_through:
        assert sum(start <= then < start + 60 for then in let_through) <= 2 * per_minute


def test_the_memory_use_is_limited() -> None:
    buckets, recently = TokenBuckets(1, most=3), RecentEvents(60, most=3)
    for number in range(10):
        buckets.take(str(number), 0.0)
        recently.add(str(number), 0.0)
    assert buckets.take("9", 0.0) == (False, True)
    assert buckets.take("0", 0.0) == (True, False)
    assert [recently.count(who, 1.0) for who in ("9", "0")] == [1, 0]
    assert recently.count("9", 60.0) == 0


# ---------------------------------------------------------------- blocked people, and the audit log


def test_a_blocked_person_has_no_access_of_any_kind(home: Path) -> None:
    pairings = Pairings(home / "gateway")
    settings = GatewaySettings(
        platforms={"telegram": PlatformSettings("telegram", allow_all=True, owners=frozenset({"1"}))}
    )
    access = AccessControl(settings, pairings)
    assert access.is_owner(ANN)
    Pairings(home / "gateway").block("telegram", "@ANN")  # another process, by the handle
    assert (access.is_admitted(ANN), access.is_owner(ANN), access.can_approve(ANN)) == (False, False, False)
    assert access.try_pairing(ANN, pairings.make_code()) is None
    assert access.is_admitted(ANN._replace(user_id="2", handle="Bob"))
    assert not access.is_admitted(ANN._replace(chat_type="group", chat_id="-1"))
    Pairings(home / "gateway").unblock("telegram", "ann")
    assert access.is_owner(ANN)


def test_the_handle_of_a_paired_person_blocks_the_id_too(home: Path) -> None:
    pairings = Pairings(home / "gateway")
    pairings.try_code("telegram", "1", "Ann", pairings.make_code())
    assert [entry.user for entry in pairings.block("telegram", "@ann")] == ["@ann", "1"]
    access = door(home, telegram={"allow_all": True})
    assert not access.is_admitted(ANN._replace(handle="renamed"))
    assert len(pairings.unblock("telegram", "@ann")) == 2
    assert access.is_admitted(ANN)


def test_a_block_survives_pairing_and_revoking(home: Path) -> None:
    pairings = Pairings(home / "gateway")
    pairings.block("telegram", "9")
    pairings.try_code("telegram", "1", "Ann", pairings.make_code())
    pairings.revoke("telegram", "1")
    assert [entry.user for entry in Pairings(home / "gateway").list_blocked()] == ["9"]


def test_the_audit_log_says_who_was_admitted_and_refused_once_an_hour(home: Path) -> None:
    access = door(home, telegram={"allowed_users": {"1"}})
    for _ in range(3):
        assert access.admit(ANN)
        assert not access.admit(ANN._replace(user_id="2", handle=None))
    assert not access.admit(ANN._replace(user_id="3", is_bot=True))
    access.access_log.flush()
    told = [
        (entry["action"], entry["details"]["user"], entry["details"]["reason"]) for entry in audit_log.read()
    ]
    assert told == [("access.admitted", "1", "allowed_users"), ("access.refused", "2", "no access")]


def test_a_crowd_of_strangers_does_not_fill_the_audit_log(home: Path) -> None:
    access = door(home, telegram={"allowed_users": {"1"}})
    for number in range(access_log.MOST_PER_HOUR + 50):
        access.admit(ANN._replace(user_id=f"stranger {number}", handle=None))
    access.access_log.flush()
    assert len(audit_log.read()) >= access_log.MOST_PER_HOUR
    assert len(audit_log.read()) <= access_log.MOST_PER_HOUR + 1  # the hour may end meanwhile


def test_wrong_codes_are_counted_and_recorded_without_the_code(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access, counted = door(home, telegram={}), list[str]()
    access.on_wrong_code = counted.append
    Pairings(home / "gateway").make_code()
    for _ in range(7):
        assert access.try_pairing(ANN, "/pair AAAAAAAA") is None
    assert counted == ["telegram"] * 7
    wrong = [entry["details"] for entry in audit_log.read() if entry["action"] == "pairing.wrong"]
    # the third wrong code begins a pause in which no code is checked
    assert [(entry["user"], entry["times"]) for entry in wrong] == [("1", 1), ("1", 2), ("1", 3)]
    assert "wrong pairing code from telegram:1, number 3 in an hour" in caplog.text
    assert "AAAAAAAA" not in caplog.text + str(wrong)
