"""A large attachment is stored once, as bytes, as long as a message refers to it. It is read back unchanged."""

from __future__ import annotations

import json
import random
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.store.sessions import attachments
from hermes.text import extract_searchable_text, make_preview
from hermes_state import SessionDB
from tests.stored_rows import change_rows, read_rows


def picture(seed: object, size: int = 6000) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64(data)}"


def picture_content(data: bytes, text: str = "look at this") -> list[Any]:
    """Return the content of a message with a picture."""
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url(data)}}]


CAT, DOG = picture("cat"), picture("dog", 9001)
PAYLOAD = base64(CAT)

FORMATS: dict[str, Any] = {
    "OpenAI image": [{"type": "image_url", "image_url": {"url": url(CAT), "detail": "low"}}],
    "OpenAI file": [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": url(CAT, "application/pdf")}}
    ],
    "OpenAI audio": [{"type": "input_audio", "input_audio": {"data": PAYLOAD, "format": "wav"}}],
    "Anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PAYLOAD}},
    "MCP": {"content": [{"type": "image", "data": PAYLOAD, "mimeType": "image/png"}]},
    "snake case": [{"mime_type": "image/png", "data": PAYLOAD}],
    "Google": {"parts": [{"inlineData": {"mimeType": "image/png", "data": PAYLOAD}}]},
    "Google, no type": {"parts": [{"inlineData": {"data": PAYLOAD}}]},
    "parameters": [url(CAT, "text/plain;charset=utf-8")],
    "in a tool result": [{"type": "tool_result", "content": [{"deep": [{"er": url(CAT)}]}]}],
}
LEFT_ALONE: dict[str, Any] = {
    "plain text": PAYLOAD,
    "plain text that is a URL": url(CAT),
    "text that happens to be base64": [{"type": "text", "text": PAYLOAD}],
    "data of nothing": [{"data": PAYLOAD, "name": "x"}],
    "a document of text": {"type": "text", "media_type": "text/plain", "data": PAYLOAD},
    "short": [{"mimeType": "image/png", "data": base64(CAT[:3000])}],
    "not canonical": [{"mimeType": "image/png", "data": "A" * 5001}],
    "bits beyond the end": [{"mimeType": "image/png", "data": "A" * 5002 + "B="}],
    "in lines": [{"mimeType": "image/png", "data": PAYLOAD[:76] + "\n" + PAYLOAD[76:]}],
    "the other alphabet": [{"mimeType": "image/png", "data": urlsafe_b64encode(CAT).decode()}],
    "not in base64": ["data:image/svg+xml," + "a" * 5000],
    "a name": {url(CAT): "as a key"},
}


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    db.create_session("a", "cli")
    return db


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """Open one store for all examples of a property test."""
    with SessionDB(tmp_path_factory.mktemp("shelf") / "state.db", durability="normal") as store:
        yield store
        assert store.verify().ok


_numbers = count(1)


def new_session(db: SessionDB) -> str:
    return db.create_session(f"s{next(_numbers)}", "cli")


def contents(db: SessionDB, session_id: str = "a") -> list[Any]:
    return [row["content"] for row in db.get_messages(session_id)]


def rows(db: SessionDB, sql: str, *values: object) -> list[tuple[Any, ...]]:
    return read_rows(db, sql, *values)


def held(db: SessionDB) -> set[bytes]:
    """Return the bytes of all blobs. Check that each has the right hash and size."""
    found = rows(db, "SELECT hash, bytes, size FROM blobs")
    assert all(sha256(data).digest() == name and len(data) == size for name, data, size in found)
    return {data for _, data, _ in found}


# -------------------------------------------------------------------- removed from the content and restored


@pytest.mark.parametrize("name", FORMATS)
def test_an_attachment_is_kept_as_bytes_and_read_back_unchanged_everywhere(a: SessionDB, name: str) -> None:
    content = FORMATS[name]
    a.append_message("a", "user", content)
    assert held(a) == {CAT}
    ((stored, kind),) = rows(a, "SELECT content, content_kind FROM messages")
    assert (kind, stored[:6]) == ("blobs", "\0json:")
    assert len(stored) < 400
    assert PAYLOAD[:40] not in stored
    assert contents(a) == [content]
    assert [said["content"] for said in a.get_messages_as_conversation("a")] == [content]
    assert [said["content"] for said in a.get_messages_as_conversation("a", include_ancestors=True)] == [
        content
    ]
    for exported in (a.export_session("a"), next(a.export_each()), a.export_all()[0]):
        assert exported is not None
        assert [row["content"] for row in exported["messages"]] == [content]
    assert a.verify().ok


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_everything_else_stays_in_the_content(a: SessionDB, name: str) -> None:
    content = LEFT_ALONE[name]
    a.append_message("a", "user", content)
    assert held(a) == set()
    assert rows(a, "SELECT content_kind FROM messages") == [("text" if isinstance(content, str) else "json",)]
    assert contents(a) == [content]


def test_the_text_beside_a_picture_stays_where_other_programs_look_for_it(a: SessionDB) -> None:
    a.append_message("a", "user", picture_content(CAT, "what a cat"))
    ((stored,),) = rows(a, "SELECT content FROM messages")
    assert json.loads(stored.removeprefix("\0json:"))[0] == {"type": "text", "text": "what a cat"}


def test_the_media_type_is_recorded(a: SessionDB) -> None:
    a.append_message("a", "user", [url(CAT, "image/webp"), {"data": base64(DOG), "format": "wav"}])
    assert set(rows(a, "SELECT media_type, size FROM blobs")) == {("image/webp", 6000), ("wav", 9001)}


def test_the_content_of_the_caller_is_not_changed(a: SessionDB) -> None:
    content = picture_content(CAT)
    a.append_message("a", "user", content)
    a.replace_messages("a", [{"role": "user", "content": content}])
    assert content == picture_content(CAT)


FILES = st.sampled_from([CAT, DOG, picture("tiny", 30), picture("odd", 5001)])
REFERENCE = "\0blob:" + sha256(CAT).hexdigest() + ":data:image/png;base64,"
LOOK_ALIKES = st.sampled_from(
    [
        "\0blob:",
        "\0blob::",
        "\0blob:::x",
        REFERENCE,
        REFERENCE[:70],
        "\0blob:" + REFERENCE,
        "data:",
        "data:,x",
    ]
)
STRINGS = st.text(max_size=8) | LOOK_ALIKES | FILES.map(url) | FILES.map(base64)
KEYS = st.sampled_from(["data", "mimeType", "format", "inlineData", "type", "text", "\0blob:x"]) | st.text(
    max_size=3
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
PARTS = st.fixed_dictionaries(
    {"data": FILES.map(base64)}, optional={"mimeType": STRINGS, "format": STRINGS, "type": st.just("text")}
)
STRUCTURES = st.lists(JSON | PARTS, max_size=4) | st.dictionaries(KEYS, JSON | PARTS, max_size=4)


@given(STRUCTURES)
def test_any_structure_is_read_back_unchanged(content: Any) -> None:
    before = repr(content)
    stored, kind, taken = attachments.encode(content)
    bytes_of = {one.hash: one.data for one in taken}
    assert repr(content) == before
    assert len(bytes_of) == len(list(taken))
    assert set(attachments.find_hashes(stored)) == set(bytes_of) or kind == "json"
    decoded = json.loads(stored.removeprefix("\0json:"))
    assert extract_searchable_text(decoded) == extract_searchable_text(content)
    assert make_preview(decoded) == make_preview(content)
    assert (attachments.restore_attachments(decoded, bytes_of.get) if kind == "blobs" else decoded) == content
    inline = "\0json:" + json.dumps(content)
    assert attachments.make_comparable(stored, kind) == attachments.make_comparable(inline, "json")


@given(st.lists(STRUCTURES, min_size=1, max_size=3), st.lists(STRUCTURES, min_size=1, max_size=3))
def test_every_write_is_read_back_and_no_blob_is_left_behind(
    shelf: SessionDB, first: list[Any], second: list[Any]
) -> None:
    session_id = new_session(shelf)
    for content in first:
        shelf.append_message(session_id, "user", content)
    assert contents(shelf, session_id) == first
    shelf.replace_messages(session_id, [{"role": "user", "content": content} for content in second])
    assert contents(shelf, session_id) == second
    exported = json.loads(json.dumps(shelf.export_session(session_id)))
    shelf.delete_session(session_id)
    assert held(shelf) == set()
    assert shelf.import_sessions([exported]).added == (session_id,)
    assert contents(shelf, session_id) == second
    assert shelf.import_sessions([exported]).skipped == (session_id,)
    shelf.clear_messages(session_id)
    assert held(shelf) == set()
    assert rows(shelf, "SELECT * FROM blob_refs") == []


def test_content_nested_as_deep_as_can_be_stored_keeps_its_picture(a: SessionDB) -> None:
    content: Any = url(CAT)
    for _ in range(400):
        content = [content]
    a.append_message("a", "user", content)
    assert held(a) == {CAT}
    assert contents(a) == [content]


# -------------------------------------------------------------------- stored once, while a message refers to
# it


def test_the_same_picture_is_stored_once(a: SessionDB) -> None:
    a.create_session("b", "cli")
    a.append_message("a", "user", picture_content(CAT) + picture_content(CAT))
    a.append_message("a", "user", FORMATS["Anthropic"])
    a.append_message("b", "user", picture_content(CAT))
    assert rows(a, "SELECT count(*) FROM blobs") == [(1,)]
    assert rows(a, "SELECT count(*) FROM blob_refs") == [(3,)]
    assert contents(a) == [picture_content(CAT) + picture_content(CAT), FORMATS["Anthropic"]]


def test_a_blob_is_removed_with_its_last_message_and_not_before(a: SessionDB) -> None:
    a.create_session("b", "cli")
    a.append_message("a", "user", picture_content(CAT))
    a.append_message("b", "user", picture_content(CAT))
    a.append_message("b", "user", picture_content(DOG))
    a.delete_session("a")
    assert held(a) == {CAT, DOG}
    a.clear_messages("b")
    assert held(a) == set()


def test_pruning_removes_blobs_of_old_conversations_only(a: SessionDB) -> None:
    a.create_session("old", "cli", started_at=1.0)
    a.append_message("old", "user", picture_content(CAT), timestamp=2.0)
    a.append_message("old", "user", picture_content(DOG), timestamp=2.0)
    a.end_session("old", "user_exit")
    a.append_message("a", "user", picture_content(DOG))
    assert a.prune_sessions(1) == 1
    assert held(a) == {DOG}
    assert contents(a) == [picture_content(DOG)]


def test_replacing_keeps_unchanged_rows_and_drops_unused_blobs(a: SessionDB) -> None:
    for data in (CAT, DOG):
        a.append_message("a", "user", picture_content(data))
    first, second = a.get_messages("a")
    a.replace_messages(
        "a", [{"role": "user", "content": picture_content(CAT)}, {"role": "user", "content": "no dog"}]
    )
    kept, written = a.get_messages("a")
    assert (kept, written["id"]) == (first, second["id"])
    assert held(a) == {CAT}
    a.replace_messages(
        "a", [{"role": "user", "content": "new"}, {"role": "user", "content": picture_content(CAT)}]
    )
    assert held(a) == {CAT}
    assert contents(a) == ["new", picture_content(CAT)]
    assert a.verify().ok


def test_carried_messages_are_read_with_their_pictures(a: SessionDB) -> None:
    message = a.append_message("a", "user", picture_content(CAT))
    a.end_session("a", "compression")
    a.create_session("b", "cli", parent_session_id="a")
    a.append_message("b", "user", picture_content(DOG))
    change_rows(a, "INSERT INTO carried_context VALUES ('b', 0, ?, ?)", message, message)
    expected = [picture_content(CAT), picture_content(DOG)]
    assert [said["content"] for said in a.get_messages_as_conversation("b")] == expected
    assert [
        said["content"] for said in a.get_messages_as_conversation("b", include_ancestors=True)
    ] == expected
    a.delete_session("a")
    assert [said["content"] for said in a.get_messages_as_conversation("b")] == expected
    assert held(a) == {CAT, DOG}


def test_an_append_that_is_refused_leaves_no_blob(db: SessionDB) -> None:
    with pytest.raises(errors.UnknownSession):
        db.append_message("nobody", "user", picture_content(CAT))
    assert held(db) == set()


# -------------------------------------------------------------------- search and previews


@pytest.mark.parametrize("data", [CAT, CAT[:300]], ids=["taken out", "left in"])
@pytest.mark.parametrize("indexed", [True, False])
def test_text_is_found_and_base64_never_is(a: SessionDB, data: bytes, indexed: bool) -> None:
    payload = base64(data)
    content = [
        {"type": "text", "text": "a pelican at sea"},
        {"type": "image_url", "image_url": {"url": url(data)}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": payload}},
    ]
    a.append_message("a", "user", content)
    a.append_message("a", "user", "an answer about herons")
    if indexed:
        a.optimize()
    (found,) = a.search_messages("pelican")
    assert "pelican" in found["snippet"].replace(">", "").replace("<", "")
    (neighbour,) = a.search_messages("herons")
    everything = str((found, neighbour, a.list_sessions_rich()))
    assert payload[:40] not in everything
    assert "blob" not in everything
    assert a.search_messages(payload[:20]) == []
    assert a.search_messages(sha256(data).hexdigest()) == []
    assert a.search_messages("blob") == []
    assert a.list_sessions_rich()[0]["preview"] == "a pelican at sea image/png"
    assert a.verify().ok


def test_a_picture_alone_has_no_words_to_show(a: SessionDB) -> None:
    a.append_message("a", "user", [{"type": "image_url", "image_url": {"url": url(CAT)}}])
    a.append_message("a", "assistant", "a heron")
    assert a.list_sessions_rich()[0]["preview"] == ""
    assert a.search_messages("heron")[0]["context"][0]["content"] == "[multimodal content]"


def test_text_that_only_begins_like_a_file_is_found(a: SessionDB) -> None:
    a.append_message("a", "user", [{"type": "text", "text": "data: seven herons"}])
    a.append_message("a", "user", [{"media_type": "text/plain", "data": "a heron flies by"}])
    assert len(a.search_messages("heron*")) == 2
