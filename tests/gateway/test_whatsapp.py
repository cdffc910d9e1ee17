"""WhatsApp identifies a person by telephone number or by LID. If a known mapping joins a number and a LID,
both mean the same person.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.session_keys import (
    canonical_whatsapp_identifier,
    expand_whatsapp_aliases,
    normalize_whatsapp_identifier,
)
from tests.gateway.documented_key import make_session_key

PHONE, LID = "4917012345", "99887766554433"


@pytest.fixture
def mappings(home: Path) -> Path:
    folder = home / "whatsapp" / "session"
    folder.mkdir(parents=True)
    return folder


def map_to(folder: Path, name: str, value: object, *, reverse: bool = False) -> None:
    (folder / f"lid-mapping-{name}{'_reverse' if reverse else ''}.json").write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("4917012345", "4917012345"),
        ("+4917012345", "4917012345"),
        ("  +4917012345 ", "4917012345"),
        ("4917012345@s.whatsapp.net", "4917012345"),
        ("4917012345:12@s.whatsapp.net", "4917012345"),
        ("99887766554433@lid", "99887766554433"),
        ("++49", "+49"),
        ("", ""),
        ("@s.whatsapp.net", ""),
    ],
)
def test_an_identifier_without_plus_device_and_server(given: str, normal: str) -> None:
    assert normalize_whatsapp_identifier(given) == normal


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("known", [PHONE, LID])
def test_a_mapping_in_either_file_is_used(mappings: Path, known: str, reverse: bool) -> None:
    other = LID if known == PHONE else PHONE
    map_to(mappings, known, f"{other}@s.whatsapp.net", reverse=reverse)
    assert expand_whatsapp_aliases(f"{known}:3@lid") == {PHONE, LID}
    assert canonical_whatsapp_identifier(known) == PHONE


def test_chains_and_cycles_of_mappings_are_followed(mappings: Path) -> None:
    map_to(mappings, "aaa", "bbb")
    map_to(mappings, "bbb", "cc", reverse=True)
    map_to(mappings, "cc", "aaa")
    assert expand_whatsapp_aliases("aaa") == {"aaa", "bbb", "cc"}
    assert {canonical_whatsapp_identifier(name) for name in ("aaa", "bbb", "cc")} == {"cc"}


def test_of_two_equally_short_identifiers_the_first_is_used(mappings: Path) -> None:
    map_to(mappings, "222", "111")
    assert canonical_whatsapp_identifier("222") == "111"


def test_an_empty_identifier_has_no_names() -> None:
    assert expand_whatsapp_aliases("  ") == set()
    assert canonical_whatsapp_identifier("@lid") == ""


@pytest.mark.parametrize(
    "content", ["", "{", "5", '{"a": "b"}', '["x"]', '"../../secret"', '"a b"', '""', "[" * 100_000, "\udcff"]
)
def test_an_invalid_mapping_is_ignored(mappings: Path, content: str) -> None:
    (mappings / f"lid-mapping-{LID}.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert expand_whatsapp_aliases(LID) == {LID}


@pytest.mark.parametrize(
    "name", ["x/../../secret", "../secret", "a/b", "..", "\0", "a" * 5000, "ü", "a b", "-"]
)
def test_no_identifier_leads_out_of_the_folder(mappings: Path, name: str) -> None:
    (mappings.parent / "secret.json").write_text('"1"')
    (mappings / "lid-mapping-x").mkdir()
    assert expand_whatsapp_aliases(name) == {name}


@given(st.text(max_size=30))
def test_the_identifier_of_a_person_is_stable(identifier: str) -> None:
    once = canonical_whatsapp_identifier(identifier)
    assert once == normalize_whatsapp_identifier(identifier)


def test_a_private_chat_has_one_key_whichever_name_whatsapp_uses(mappings: Path) -> None:
    map_to(mappings, LID, PHONE)
    map_to(mappings, PHONE, LID, reverse=True)
    names = (PHONE, f"+{PHONE}", f"{PHONE}@s.whatsapp.net", f"{LID}@lid", f"{LID}:5@lid")
    assert {make_session_key(Source("whatsapp", name)) for name in names} == {
        f"agent:main:whatsapp:dm:{PHONE}"
    }


def test_a_person_in_a_group_has_one_key_and_the_group_keeps_its_id(mappings: Path) -> None:
    map_to(mappings, LID, PHONE)
    group = Source("whatsapp", "123-456@g.us", chat_type="group")
    keys = {
        make_session_key(group._replace(user_id=name)) for name in (f"{PHONE}@s.whatsapp.net", f"{LID}@lid")
    }
    assert keys == {f"agent:main:whatsapp:group:123-456@g.us:{PHONE}"}


def test_other_platforms_do_not_use_the_mappings(mappings: Path) -> None:
    map_to(mappings, LID, PHONE)
    assert make_session_key(Source("signal", LID)) == f"agent:main:signal:dm:{LID}"


def test_identifiers_that_normalise_to_nothing_are_different_chats() -> None:
    keys = {make_session_key(Source("whatsapp", name)) for name in ("@a", "@b", ":1@lid")}
    assert len(keys) == 3
