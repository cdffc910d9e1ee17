"""A scoped handle shows a person only their own sessions. Sessions of other people do not exist for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.db.scoped_store import ScopedLeases, ScopedStore
from hermes.recall.tool.message_excerpt import Bounds
from hermes.recall.tool.passages import Passages
from hermes.store.chats.leases import Holder, Lease
from hermes.store.people import Principal, find_person
from hermes.store.sessions.selection import Selection
from hermes.store.values import MessageFilter, SearchRequest
from hermes_state import SessionDB
from tests.stored_rows import read_rows
from tests.tiers import scale_examples

ANN = Principal("telegram", "ann", "dm-ann")
BOB = Principal("telegram", "bob", "dm-bob")
ANN_IN_ROOM = Principal("telegram", "ann", "room", chat_type="group")
BOB_IN_ROOM = Principal("telegram", "bob", "room", chat_type="group")
ANN_IN_THREAD = Principal("telegram", "ann", "room", "t1", "thread")
ANN_ELSEWHERE = Principal("discord", "ann", "dm-ann")


@pytest.fixture
def ann(db: SessionDB) -> ScopedStore:
    return db.scoped(ANN)


def test_a_person_sees_only_their_own_sessions_and_those_of_their_room(db: SessionDB) -> None:
    db.create_session("local", "cli")
    private = {who: db.scoped(who).create_session() for who in (ANN, BOB, ANN_ELSEWHERE)}
    room = db.scoped(ANN_IN_ROOM).create_session(shared=True)
    thread = db.scoped(ANN_IN_THREAD).create_session(shared=True)

    def seen(who: Principal) -> set[str]:
        return {row["id"] for row in db.scoped(who).list_sessions_rich()}

    assert seen(ANN) == {private[ANN]}
    assert seen(BOB) == {private[BOB]}
    assert seen(ANN_ELSEWHERE) == {private[ANN_ELSEWHERE]}
    assert seen(ANN_IN_ROOM) == {private[ANN], room}
    assert seen(BOB_IN_ROOM) == {private[BOB], room}
    assert seen(ANN_IN_THREAD) == {private[ANN], thread}
    assert {row["id"] for row in db.list_sessions_rich()} == {"local", room, thread, *private.values()}


@pytest.mark.parametrize(
    "sly",
    [
        Principal("telegram", "ann:x"),
        Principal("telegram", "ann%3Ax"),
        Principal("telegram:user", "ann"),
        Principal("telegram", None, "user:ann"),
        Principal("telegram", "%"),
        Principal("telegram", "ANN"),
        Principal("", "telegram:user:ann"),
    ],
)
def test_no_spelling_makes_one_person_another(db: SessionDB, sly: Principal) -> None:
    db.scoped(ANN).create_session()
    assert not set(sly.owners) & set(ANN.owners)
    assert db.scoped(sly).list_sessions_rich() == []


@given(*[st.tuples(*[st.sampled_from(["", "a", ":", "%", "a:", ":a", "%3A", "room"])] * 4)] * 2)
def test_different_people_and_rooms_have_different_owners(one: Any, other: Any) -> None:
    first, second = Principal(*one), Principal(*other)
    if first.person and first.person == second.person:
        assert (first.platform, first.user) == (second.platform, second.user)
    if first.room and first.room == second.room:
        assert (first.platform, first.chat, first.thread or "") == (
            second.platform,
            second.chat,
            second.thread or "",
        )
    assert first.person != second.room or not first.person


@given(st.text(st.sampled_from(":%3A25x"), min_size=1), st.text(st.sampled_from(":%person"), min_size=1))
def test_the_person_can_be_read_from_the_owner(user: str, chat: str) -> None:
    assert find_person(Principal("telegram", user).person) == user
    assert find_person(Principal("telegram", None, chat).room) is None
    assert find_person("") is None


def test_an_empty_principal_gets_no_handle(db: SessionDB) -> None:
    with pytest.raises(ValueError, match="neither a person nor a room"):
        db.scoped(Principal("telegram"))
    with pytest.raises(ValueError, match="no person"):
        db.scoped(Principal("telegram", None, "room")).create_session()
    with pytest.raises(ValueError, match="no room"):
        db.scoped(Principal("telegram", "ann")).create_session(shared=True)


def test_titles_are_unique_per_person_and_reveal_nothing_of_others(db: SessionDB, ann: ScopedStore) -> None:
    bob = db.scoped(BOB)
    mine, theirs = ann.create_session(), bob.create_session()
    assert ann.set_session_title(mine, "plans")
    assert bob.set_session_title(theirs, "plans")
    assert (ann.tip("plans"), bob.tip("plans")) == (mine, theirs)
    again = ann.create_session()
    assert ann.set_auto_title_if_empty(again, "plans") == "plans (2)"
    with pytest.raises(ValueError, match=f"already in use by session {mine}"):
        ann.set_session_title(again, "plans")
    db.create_session("local", "cli")
    assert db.set_session_title("local", "plans")
    assert db.resolve_session_by_title("plans") == "local"
    child = ann.begin_continuation(mine, "summary")
    assert ann.get_session_title(child) == "plans #2"


def test_creating_a_session_does_not_reveal_ids_of_other_people(db: SessionDB, ann: ScopedStore) -> None:
    db.create_session("api-1234", "cli")
    theirs, mine = db.scoped(BOB).create_session("api-1234"), ann.create_session("api-1234")
    assert len({theirs, mine, "api-1234"}) == 3
    assert ann.create_session("api-1234") == mine
    assert mine.removeprefix("api-1234") == ann.create_session("free").removeprefix("free")
    with pytest.raises(ValueError, match="cannot be set"):
        ann.branch(mine, session_id=theirs)


def test_a_child_that_another_program_makes_belongs_to_its_parents_owner(
    db: SessionDB, ann: ScopedStore
) -> None:
    mine = ann.create_session()
    db.create_session("task", "telegram", parent_session_id=mine)
    db.end_session(mine, "compression")
    db.create_session("next", "telegram", parent_session_id=mine)
    assert ann.tip(mine) == "next"
    assert {row["id"] for row in ann.search_sessions()} == {mine, "task", "next"}
    assert set(ann.trash_session(mine)) == {mine, "task", "next"}


def test_a_child_stays_with_its_owner_and_place(db: SessionDB, ann: ScopedStore) -> None:
    start = ann.create_session(session_key="k")
    for child in (
        ann.begin_continuation(start, "s"),
        ann.branch(start),
        ann.reset(start),
        ann.delegate(start),
    ):
        row = ann.get_session(child)
        assert row is not None
        assert (row["owner"], row["chat_id"], row["session_key"]) == (ANN.person, "dm-ann", "k")
        assert db.scoped(BOB).get_session(child) is None


def test_the_usage_of_other_people_is_not_visible(db: SessionDB, ann: ScopedStore) -> None:
    bob = db.scoped(BOB)
    bob.record_usage(bob.create_session(), model="m", input_tokens=7)
    assert bob.usage_of_owner(BOB.person or "", 0.0).tokens == 7
    assert ann.usage_of_owner(BOB.person or "", 0.0).tokens == 0


# Every verb that takes a session id, with its other arguments.
VERBS: dict[str, Any] = {
    "get_session": lambda s, i: s.get_session(i),
    "session_count": lambda s, i: s.session_count(),
    "resolve_session_id": lambda s, i: s.resolve_session_id(i),
    "resolve_prefix": lambda s, i: s.resolve_session_id(i[:-1]),
    "append_message": lambda s, i: s.append_message(i, "user", "mark of the writer"),
    "get_messages": lambda s, i: s.get_messages(i),
    "conversation": lambda s, i: s.get_messages_as_conversation(i),
    "ancestors": lambda s, i: s.get_messages_as_conversation(i, include_ancestors=True),
    "message_count": lambda s, i: s.message_count(i),
    "message_count_all": lambda s, i: s.message_count(),
    "rewind": lambda s, i: s.rewind_to_message(i, 1),
    "redact": lambda s, i: s.redact_message(i, "p1"),
    "restore": lambda s, i: s.restore_rewound(i),
    "restore_last": lambda s, i: s.restore_last_rewind(i),
    "recent": lambda s, i: s.list_recent_user_messages(i),
    "set_title": lambda s, i: s.set_session_title(i, "another"),
    "claim_title": lambda s, i: s.claim_auto_title(i),
    "auto_title": lambda s, i: s.set_auto_title_if_empty(i, "another"),
    "get_title": lambda s, i: s.get_session_title(i),
    "by_title": lambda s, i: s.get_session_by_title("secret title"),
    "resolve_title": lambda s, i: s.resolve_session_by_title("secret title"),
    "compression_tip": lambda s, i: s.get_compression_tip(i),
    "root": lambda s, i: s.get_conversation_root(i),
    "get_conversation": lambda s, i: s.get_conversation(i),
    "drop_partial": lambda s, i: s.drop_partial(i, 1),
    "resume": lambda s, i: s.resolve_resume_session_id(i),
    "tip": lambda s, i: s.tip(i),
    "get_context": lambda s, i: s.get_context(i),
    "search_conversations": lambda s, i: [row["session_id"] for row in s.search_conversations("hello")],
    "named": lambda s, i: s.named(i),
    "starting_with": lambda s, i: s.starting_with(i),
    "select_sessions": lambda s, i: i in s.select_sessions(Selection()),
    "outlines": lambda s, i: s.outlines([i]) + s.outlines([i], whole=True),
    "family": lambda s, i: s.family(i),
    "continue": lambda s, i: s.begin_continuation(i, "summary"),
    "branch": lambda s, i: s.branch(i),
    "branch_at": lambda s, i: s.branch(i, 1),
    "reset": lambda s, i: s.reset(i),
    "undo_reset": lambda s, i: s.undo_reset(i),
    "delegate": lambda s, i: s.delegate(i),
    "child_of": lambda s, i: s.create_session(parent_session_id=i),
    "end": lambda s, i: s.end_session(i, "x"),
    "reopen": lambda s, i: s.reopen_session(i),
    "prompt": lambda s, i: s.update_system_prompt(i, "x"),
    "tokens": lambda s, i: s.update_token_counts(i, input_tokens=5),
    "acquire": lambda s, i: s.leases.acquire(i, "chat"),
    "take_over": lambda s, i: s.leases.take_over(i, "chat"),
    "renew": lambda s, i: s.leases.renew(lease_on(i)),
    "release": lambda s, i: s.leases.release(lease_on(i)),
    "holder": lambda s, i: s.leases.find_holder(i),
    "follow": lambda s, i: s.follow(i),
    "route": lambda s, i: s.route(f"key of {i}", i),
    "routed": lambda s, i: s.get_route(f"key of {i}"),
    "live": lambda s, i: s.find_live_session(f"key of {i}"),
    "switch": lambda s, i: s.switch_session(f"key of {i}", i),
    "recover": lambda s, i: s.recover_session(),
    "pin": lambda s, i: s.pin_session(i),
    "archive": lambda s, i: s.set_session_archived(i, True),
    "tag": lambda s, i: s.add_tags(i, "mark"),
    "untag": lambda s, i: s.remove_tags(i, "secret tag"),
    "tags": lambda s, i: s.tags_of(i),
    "all_tags": lambda s, i: s.all_tags(),
    "trash": lambda s, i: s.trash_session(i),
    "untrash": lambda s, i: s.restore_session(i),
    "list_trash": lambda s, i: s.list_trash(),
    "cost": lambda s, i: s.record_usage(i, model="m", input_tokens=1),
    "usage": lambda s, i: s.usage_of(i, family=True),
    "usage_of_owner": lambda s, i: s.usage_of_owner(BOB.person or "", 0.0),
    "usages": lambda s, i: s.usage_by_model(),
    "activity": lambda s, i: acted(s.activity(0.0)),
    "conversations": lambda s, i: s.list_conversations(include_hidden=True),
    "tagged": lambda s, i: s.list_conversations(tag="secret tag"),
    "auxiliary": lambda s, i: s.record_auxiliary_usage(i, model="m"),
    "place": lambda s, i: s.set_session_workspace(i, "/"),
    "model": lambda s, i: s.set_session_model(i, "other"),
    "model_config": lambda s, i: s.set_session_model_config(i, {"model": "other"}),
    "seen": lambda s, i: s.has_platform_message_id(i, "m1"),
    "list": lambda s, i: s.list_sessions_rich(limit=100),
    "list_all": lambda s, i: s.list_sessions_rich(limit=100, include_children=True),
    "sessions": lambda s, i: s.search_sessions(limit=100),
    "search": lambda s, i: list(s.search_messages("secret OR mark", limit=100)),
    "search_not": lambda s, i: list(s.search_messages("NOT nothing", limit=100)),
    "find": lambda s, i: (
        found := s.search("*ecre* OR mark", limit=100),
        found.cut,
        found.reading.message_filter,
    ),
    "find_not": lambda s, i: list(s.search("source:telegram NOT *nothing*", limit=100)),
    "search_oldest": lambda s, i: list(s.search_messages("secret OR mark", limit=100, sort="oldest")),
    "nearest": lambda s, i: list(s.search_messages("which secret was the mark of it?", limit=100)),
    "ranked": lambda s, i: list(s.search_sessions_ranked("secret mark of bob, room", include_hidden=True)),
    "ranked_but": lambda s, i: list(s.search_sessions_ranked("secrets marked", exclude_session=i)),
    "ranked_today": lambda s, i: list(s.search_sessions_ranked("what was it today?")),
    "export": lambda s, i: s.export_session(i),
    "export_all": lambda s, i: s.export_all(),
    "export_each": lambda s, i: list(s.export_each()),
    "replace": lambda s, i: s.replace_messages(i, [{"role": "user", "content": "mark"}]),
    "clear": lambda s, i: s.clear_messages(i),
    "recall": lambda s, i: list(s.passages.search(["secrets marked"], SearchRequest(MessageFilter(), 9), i)),
    "segment": lambda s, i: s.passages.segment(i),
    "scene": lambda s, i: s.passages.scene(i, 1, 5, Bounds(9, 9, 9)),
    "around": lambda s, i: s.passages.around(i, 1, 5, Bounds(9, 9, 9)),
    "page": lambda s, i: s.passages.page(i, 0, 999, Bounds(9, 9, 9)),
    "page_before": lambda s, i: s.passages.page_before(i, 999, 999, Bounds(9, 9, 9)),
    "transcript": lambda s, i: s.passages.transcript(i, 1, 999, Bounds(9, 9, 9)),
    "recent_pieces": lambda s, i: s.passages.recent(9, source=None, since=None, until=None),
    "conversation_of": lambda s, i: s.passages.conversation_of(i),
}


def lease_on(session_id: str) -> Lease:
    """Return a lease that the store did not issue."""
    return Lease(session_id, session_id, 1, Holder("host", 1, None, "chat"), 1.0, 2e10)


def test_a_person_finds_their_own_trash_with_its_title(db: SessionDB, ann: ScopedStore) -> None:
    mine = ann.create_session()
    ann.set_session_title(mine, "old plans")
    assert ann.trash_session(mine) == [mine]
    assert [row["title"] for row in ann.list_trash()] == ["old plans"]
    assert db.scoped(BOB).list_trash() == []
    assert db.scoped(BOB).restore_session(mine) == []
    assert ann.restore_session(mine) == [mine]
    assert ann.tip("old plans") == mine


def acted(activity: Any) -> list[Any]:
    with activity as seen:
        sessions = list(seen.list_sessions())
        whole = [seen.read_whole(session.conversation) for session in sessions]
        return [sessions, whole, seen.count_messages(), list(seen.list_calls())]


def outcome(verb: Any, store: ScopedStore, session_id: str) -> str:
    """Return the result or the error of a verb as text. The session id that was passed is replaced, so that
    outcomes can be compared."""
    try:
        outcome_text = repr(verb(store, session_id))
    except errors.HermesError as problem:
        outcome_text = f"{type(problem).__name__}: {problem}"
    return outcome_text.replace(session_id, "<id>").replace(session_id[:-1], "<id")


def test_every_verb_of_the_handle_is_tried() -> None:
    public = {name for name in dir(ScopedStore) if not name.startswith("_")} - {
        "principal",
        "create_session",
        "workspace_of",
    }
    import inspect

    tried = "".join(inspect.getsource(verb) for verb in VERBS.values())
    assert not [name for name in public - {"passages", "leases"} if f".{name}(" not in tried]
    for name, its_verbs in (("passages", Passages), ("leases", ScopedLeases)):
        pieces = {verb for verb in dir(its_verbs) if not verb.startswith("_")}
        assert not [verb for verb in pieces if f".{name}.{verb}(" not in tried]


def add_secrets(db: SessionDB) -> dict[str, str]:
    """Create a session of Bob, one of the room and one of the machine, each with all kinds of data."""
    owners = {"bob": db.scoped(BOB), "room": db.scoped(BOB_IN_ROOM)}
    ids = {
        name: store.create_session(f"{name}-session", shared=name == "room") for name, store in owners.items()
    }
    db.create_session("local-session", "telegram", user_id="ann")
    ids["local"] = "local-session"
    for name, session_id in ids.items():
        db.append_message(session_id, "user", f"secret of {name}")
        db.set_session_title(session_id, "secret title")
        db.append_message(session_id, "assistant", "secret answer", tool_calls=[{"id": "secret call"}])
        db.search_messages("secret")
        db.leases.acquire(session_id, "terminal")
        db.add_tags(session_id, "secret tag")
        db.record_usage(session_id, model="secret model", input_tokens=1000)
        db.routing.route(f"key of {session_id}", "telegram", "dm", f"chat of {name}", "", "", session_id)
    return ids


@pytest.fixture
def secrets(db: SessionDB) -> dict[str, str]:
    return add_secrets(db)


@pytest.mark.parametrize("whose", ["bob", "room", "local"])
def test_a_foreign_session_looks_like_a_missing_one(
    db: SessionDB, ann: ScopedStore, secrets: dict[str, str], whose: str
) -> None:
    before = db.export_session(secrets[whose])
    wrong: dict[str, str] = {}
    for name, verb in VERBS.items():
        foreign = outcome(verb, ann, secrets[whose])
        is_like_not_found = foreign == outcome(verb, ann, "no-such-session")
        is_silent = "secret" not in foreign.replace("secret title", "")
        if not (is_like_not_found and is_silent and db.export_session(secrets[whose]) == before):
            wrong[name] = foreign
    assert wrong == {}


PRINCIPALS = [ANN, BOB, ANN_IN_ROOM, BOB_IN_ROOM, ANN_IN_THREAD, ANN_ELSEWHERE]


@settings(max_examples=scale_examples(240), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.sampled_from([*VERBS, "create", "create_shared"]), st.integers(0, 30)
        ),
        min_size=5,
        max_size=40,
    )
)
def test_random_people_never_see_data_of_others(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, int]]
) -> None:
    """Every row contains a mark of its owner. No person may ever receive the mark of another person."""
    with SessionDB(db_path=tmp_path_factory.mktemp("people") / "state.db") as db:
        owner_of: dict[str, str] = {}
        for who, verb, which in steps:
            principal = PRINCIPALS[who]
            store = db.scoped(principal)
            if verb.startswith("create"):
                shared = verb == "create_shared"
                made = store.create_session(shared=shared)
                owner = principal.room if shared else principal.person
                owner_of[made] = owner
                store.append_message(made, "user", f"secret {mark(owner)}")
                continue
            known = sorted(owner_of)
            session_id = known[which % len(known)] if known else "none"
            result = outcome(VERBS[verb], store, session_id)
            for other in set(owner_of.values()) - set(principal.owners):
                assert mark(other) not in result
            for row in read_rows(db, "SELECT id, owner FROM sessions"):
                owner_of.setdefault(row[0], row[1])
            for known_id, owner in owner_of.items():
                if owner not in principal.owners and known_id != session_id:
                    assert known_id not in result


def mark(owner: str) -> str:
    return "owned" + owner.encode().hex()
