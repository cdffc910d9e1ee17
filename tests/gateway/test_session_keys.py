"""Session keys have every documented form. Every chat has its own row, whatever its ids are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from hermes.gateway.inbound_events import Event, Source
from hermes.gateway.sessions.session_keys import (
    is_shared_multi_user_session,
    make_chat,
    make_chat_key,
)
from hermes.gateway.settings import Keying
from hermes.store.chats.origins import Chat
from hermes.store.chats.routing import Route
from hermes_state import SessionDB
from tests.gateway.documented_key import make_session_key
from tests.tiers import scale_examples

DM = Source("telegram", "42", user_id="7")
GROUP = Source("telegram", "-100", chat_type="group", user_id="7")
THREAD = GROUP._replace(thread_id="5")
CHANNEL = Source("discord", "900", chat_type="channel", user_id="7")

TOGETHER = Keying(group_sessions_per_user=False)
APART = Keying(thread_sessions_per_user=True)
THREADS_ONLY = Keying(group_sessions_per_user=False, thread_sessions_per_user=True)
KEYINGS = st.sampled_from((Keying(), TOGETHER, APART, THREADS_ONLY))

IDS = st.sampled_from(
    ["1", "2", "1:2", "%", "%3A", "1%3A2", "-100", "ü", "日本", "a/b", "..", " ", "@a:b.c", "dm", "\0"]
)
MAYBE = st.none() | IDS
PLATFORMS = st.sampled_from(["telegram", "discord", "whatsapp", "api-server", "matrix"])
TYPES = st.sampled_from(["dm", "group", "channel", "thread"])
SOURCES = st.builds(
    Source,
    PLATFORMS,
    st.just("") | IDS,
    chat_name=MAYBE,
    chat_type=TYPES,
    user_id=MAYBE,
    user_name=MAYBE,
    thread_id=MAYBE,
    chat_topic=MAYBE,
    user_id_alt=MAYBE,
    chat_id_alt=MAYBE,
    guild_id=MAYBE,
    parent_chat_id=MAYBE,
    message_id=MAYBE,
    handle=MAYBE,
    is_bot=st.just(False),
)
FEW = st.sampled_from(["", "1", "2"])
CHATS = st.builds(Chat, st.just("telegram"), st.sampled_from(["dm", "group"]), FEW, FEW, FEW)


# --- the documented forms


@pytest.mark.parametrize(
    ("source", "keying", "key"),
    [
        (DM, Keying(), "telegram:dm:42"),
        (DM._replace(platform="discord"), Keying(), "discord:dm:42"),
        (DM._replace(thread_id="5"), Keying(), "telegram:dm:42:5"),
        (DM._replace(chat_id="", thread_id="5"), Keying(), "telegram:dm:5"),
        (DM._replace(chat_id=""), Keying(), "telegram:dm:7"),
        (DM._replace(chat_id="", user_id=None), Keying(), "telegram:dm"),
        (DM, TOGETHER, "telegram:dm:42"),
        (Source("whatsapp", "+49170:3@s.whatsapp.net"), Keying(), "whatsapp:dm:49170"),
        (GROUP, Keying(), "telegram:group:-100:7"),
        (GROUP, TOGETHER, "telegram:group:-100"),
        (GROUP, APART, "telegram:group:-100:7"),
        (GROUP, THREADS_ONLY, "telegram:group:-100"),
        (GROUP._replace(user_id=None), Keying(), "telegram:group:-100"),
        (GROUP._replace(user_id_alt="uuid"), Keying(), "telegram:group:-100:uuid"),
        (GROUP._replace(chat_id=""), Keying(), "telegram:group:7"),
        (THREAD, Keying(), "telegram:group:-100:5"),
        (THREAD, TOGETHER, "telegram:group:-100:5"),
        (THREAD, APART, "telegram:group:-100:5:7"),
        (THREAD, THREADS_ONLY, "telegram:group:-100:5:7"),
        (THREAD._replace(user_id=None), APART, "telegram:group:-100:5"),
        (THREAD._replace(chat_type="thread"), Keying(), "telegram:group:-100:5"),
        (THREAD._replace(chat_type="thread"), APART, "telegram:group:-100:5:7"),
        (CHANNEL, Keying(), "discord:channel:900:7"),
        (CHANNEL, TOGETHER, "discord:channel:900"),
        (CHANNEL._replace(user_id=None), Keying(), "discord:channel:900"),
        (Source("api_server", "1"), Keying(), "api-server:dm:1"),
        (Source("matrix", "!a:b.c"), Keying(), "matrix:dm:!a%3Ab.c"),
        (Source("matrix", "50%"), Keying(), "matrix:dm:50%25"),
    ],
)
def test_every_documented_form(source: Source, keying: Keying, key: str) -> None:
    assert make_session_key(source, keying) == f"agent:main:{key}"


@pytest.mark.parametrize(
    ("source", "keying", "shared"),
    [
        (DM, TOGETHER, False),
        (DM._replace(user_id=None), Keying(), False),
        (GROUP, Keying(), False),
        (GROUP, TOGETHER, True),
        (GROUP._replace(user_id=None), Keying(), True),
        (CHANNEL, Keying(), False),
        (CHANNEL, TOGETHER, True),
        (THREAD, Keying(), True),
        (THREAD, APART, False),
        (THREAD, THREADS_ONLY, False),
        (GROUP, THREADS_ONLY, True),
        (THREAD._replace(user_id=None), THREADS_ONLY, True),
        (THREAD._replace(user_id=None), APART, True),
    ],
)
def test_which_chats_are_shared(source: Source, keying: Keying, shared: bool) -> None:
    assert is_shared_multi_user_session(source, **asdict(keying)) == shared


@given(SOURCES, KEYINGS)
def test_a_session_is_shared_exactly_if_its_key_is_the_same_for_somebody_else(
    source: Source, keying: Keying
) -> None:
    somebody = source._replace(user_id="one", user_id_alt=None)
    other = source._replace(user_id="another", user_id_alt=None)
    if source.chat_type != "dm":
        together = make_chat(somebody, keying) == make_chat(other, keying)
        assert together == is_shared_multi_user_session(somebody, **asdict(keying))


@pytest.mark.parametrize(
    "name", ["chat_name", "user_name", "chat_topic", "chat_id_alt", "guild_id", "message_id"]
)
def test_a_name_or_topic_does_not_change_the_chat(name: str) -> None:
    assert make_session_key(Source.from_dict(THREAD.to_dict() | {name: "other"})) == make_session_key(THREAD)


# --- two chats with the same documented key


def first_come(chats: list[Chat]) -> dict[str, Chat]:
    """Give the chats keys in the given order, and return the chats by key. If two chats have the same
    documented key, only the first gets that key."""
    rows: dict[str, Chat] = {}
    for chat in chats:
        if chat not in rows.values():
            key = make_chat_key(chat, rows.get)
            assert key not in rows
            rows[key] = chat
    return rows


def test_a_thread_and_a_person_with_the_same_id_have_different_keys() -> None:
    thread, person = Chat.of("telegram", "group", 1, 2, None), Chat.of("telegram", "group", 1, None, 2)
    assert make_chat_key(thread) == make_chat_key(person) == "agent:main:telegram:group:1:2"
    assert list(first_come([thread, person])) == [
        make_chat_key(thread),
        f"{make_chat_key(person)}:%chat+participant",
    ]
    assert list(first_come([person, thread])) == [
        make_chat_key(person),
        f"{make_chat_key(thread)}:%chat+thread",
    ]


@given(CHATS)
def test_a_chat_that_is_alone_has_its_documented_key(chat: Chat) -> None:
    assert (
        make_chat_key(chat, lambda key: None) == make_chat_key(chat, lambda key: chat) == make_chat_key(chat)
    )


@given(st.lists(CHATS, max_size=30))
def test_no_key_is_given_twice_in_any_order(chats: list[Chat]) -> None:
    rows = first_come(chats)
    assert set(rows.values()) == set(chats)
    # the first of the chats that have the same documented key
    assert {make_chat_key(chat) for chat in chats} <= set(rows)


@given(st.lists(st.builds(make_chat, SOURCES, KEYINGS), max_size=20))
def test_no_key_is_given_twice_with_hostile_ids(chats: list[Chat]) -> None:
    assert set(first_come(chats).values()) == set(chats)


def test_no_id_can_be_written_like_a_mark() -> None:
    thread, person = Chat.of("telegram", "group", 1, 2, None), Chat.of("telegram", "group", 1, None, 2)
    hostile = [
        Chat.of("telegram", "group", 1, 2, name) for name in ("%chat+thread", "%25chat", "chat+thread")
    ]
    assert len(first_come([thread, person, *hostile])) == 5


# --- rows in a real store


def opened(db: SessionDB, chat: Chat) -> Route:
    """Return the routing row of a chat. If it is missing, create it as the gateway does."""
    route = db.routing.find(*chat)
    if route is not None:
        return route
    key = make_chat_key(chat, db.routing.find_chat)
    session_id = db.create_session(f"s{db.session_count()}", chat.platform)
    return db.routing.route(key, *chat, session_id)


def as_documented(source: Source, keying: Keying) -> tuple[str, ...]:
    """Return the identity of a chat as the documentation defines it."""
    kind = "group" if source.chat_type == "thread" else source.chat_type
    person, thread = source.user_id_alt or source.user_id or "", source.thread_id or ""
    if kind == "dm":
        named = "" if source.chat_id or thread else person
    else:
        by_person = keying.thread_sessions_per_user if thread else keying.group_sessions_per_user
        named = person if by_person else ""
    return source.platform, kind, source.chat_id, thread, named


def as_numbers(source: Source) -> Source:
    """Return the source with integer ids, as some platforms send them."""
    values = source.to_dict()
    for name in ("chat_id", "user_id", "thread_id", "user_id_alt"):
        value = values.get(name)
        if isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii():
            values[name] = int(value)
    return Source.from_dict(values)


def from_the_inbox(source: Source) -> Source:
    """Return the source after it was stored in the inbox."""
    return Event.from_dict(json.loads(json.dumps(Event(source, "hi", 1.0).to_dict()))).source


NOT_WHATSAPP = SOURCES.filter(lambda source: source.platform != "whatsapp")


@settings(max_examples=scale_examples(100))
@given(st.lists(NOT_WHATSAPP, min_size=1, max_size=12), KEYINGS)
def test_the_same_chat_is_the_same_row_and_another_chat_is_another(
    sources: list[Source], keying: Keying
) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.db"
        with_rows: dict[tuple[str, ...], str] = {}
        with SessionDB(file) as db:
            for source in sources:
                with_rows[as_documented(source, keying)] = opened(db, make_chat(source, keying)).session_id
            assert len(set(with_rows.values())) == len(with_rows) == len(db.routing.list_routes())
        with SessionDB(file) as db:  # after a restart, with each form of the source
            shapes: tuple[Callable[[Source], Source], ...] = (lambda one: one, as_numbers, from_the_inbox)
            for source in sources:
                row = with_rows[as_documented(source, keying)]
                for shape in shapes:
                    route = opened(db, make_chat(shape(source), keying))
                    assert route.session_id == row
                    assert db.routing.find_live_session(route.session_key) == row
            assert len(db.routing.list_routes()) == len(with_rows)


# --- stored sources


@given(SOURCES)
def test_a_source_is_read_back_unchanged(source: Source) -> None:
    values = source.to_dict()
    assert Source.from_dict(json.loads(json.dumps(values))) == source
    always = {
        "platform",
        "chat_id",
        "chat_name",
        "chat_type",
        "user_id",
        "user_name",
        "thread_id",
        "chat_topic",
    }
    assert always <= set(values)
    assert all(values[name] for name in set(values) - always)


def test_whether_it_is_a_bot_is_not_stored() -> None:
    assert "is_bot" not in DM._replace(is_bot=True).to_dict()


def test_numbers_become_text_and_what_is_missing_is_nothing() -> None:
    assert Source.from_dict({"platform": "telegram", "chat_id": 42, "user_id": 0}) == Source(
        "telegram", "42", user_id="0"
    )
    assert Source.from_dict({"platform": "api_server", "chat_id": None, "more": 1}) == Source(
        "api-server", ""
    )


@pytest.mark.parametrize(
    "told", [{"platform": "telegram", "chat_type": "forum"}, {"chat_id": "1"}, {"platform": ""}]
)
def test_an_invalid_chat_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Source.from_dict(told)
