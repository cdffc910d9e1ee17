"""The list for people has pages of conversations. It gives the total number and the reason why conversations
are hidden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.store.sessions.listing import find_job
from hermes.store.sessions.selection import Selection
from hermes_state import SessionDB
from tests.tiers import scale_examples


@pytest.fixture
def talk(db: SessionDB) -> SessionDB:
    """Create three chats (one archived), two jobs, a tool session and a subagent of the oldest chat."""
    for at, (name, source) in enumerate(
        (
            ("chat", "cli"),
            ("phone", "telegram"),
            ("old", "cli"),
            ("job", "cron"),
            ("run", "batch"),
            ("tool", "tool"),
        )
    ):
        db.create_session(name, source, started_at=100.0 * at)
        db.append_message(name, "user", f"said in {name}", timestamp=1000.0 - at)
    db.create_session("sub", "cli", parent_session_id="chat", started_at=900.0)
    db.set_session_archived("old", True)
    return db


def ids(db: SessionDB, **asked: Any) -> list[str]:
    return [row["id"] for row in db.list_conversations(**asked).rows]


def test_sessions_without_a_person_and_archived_ones_are_hidden_and_counted(talk: SessionDB) -> None:
    page = talk.list_conversations()
    assert [row["id"] for row in page.rows] == ["chat", "phone"]
    assert page.total == 2
    assert page.hidden == {"cron": 1, "batch": 1, "tool": 1, "child": 1, "archived": 1}


def test_everything_is_shown_on_demand(talk: SessionDB) -> None:
    page = talk.list_conversations(include_hidden=True)
    assert {row["id"] for row in page.rows} == {"chat", "phone", "old", "job", "run", "tool", "sub"}
    assert (page.total, page.hidden) == (7, {})


def test_naming_a_source_or_a_kind_shows_it(talk: SessionDB) -> None:
    assert ids(talk, sources=["cron"]) == ["job"]
    assert ids(talk, sources=["tool", "batch"]) == ["run", "tool"]
    assert ids(talk, kinds=["job"]) == ["job", "run"]
    assert ids(talk, kinds=["child"]) == ["sub"]
    assert talk.list_conversations(sources=["cli"]).hidden == {"child": 1, "archived": 1}
    assert talk.list_conversations(kinds=["chat"]).hidden == {"archived": 1}
    assert ids(talk, sources=[]) == ids(talk, kinds=[]) == []


def test_archived_conversations_can_be_required_or_ignored(talk: SessionDB) -> None:
    assert ids(talk, archived=True) == ["old"]
    page = talk.list_conversations(archived=False)
    assert ([row["id"] for row in page.rows], "archived" in page.hidden) == (["chat", "phone"], False)


def test_an_archived_job_is_counted_once_as_a_job(talk: SessionDB) -> None:
    talk.set_session_archived("job", True)
    assert talk.list_conversations().hidden == {"cron": 1, "batch": 1, "tool": 1, "child": 1, "archived": 1}
    assert talk.list_conversations(kinds=["job"]).hidden == {"archived": 1}


def test_sources_can_be_left_out(talk: SessionDB) -> None:
    page = talk.list_conversations(exclude_sources=["telegram", "cron"])
    assert [row["id"] for row in page.rows] == ["chat"]
    assert page.hidden["batch"] == 1


def test_tags_pins_times_and_workspaces_filter(talk: SessionDB, tmp_path: Path) -> None:
    talk.add_tags("phone", "Später")
    talk.add_tags("job", "später")
    talk.pin_session("chat")
    (tmp_path / ".git").mkdir()
    (tmp_path / "inside").mkdir()
    talk.set_session_workspace("phone", tmp_path / "inside")
    page = talk.list_conversations(tag="SPÄTER")
    assert ([row["id"] for row in page.rows], page.total, page.hidden) == (["phone"], 1, {"cron": 1})
    assert page.rows[0]["tags"] == ["später"]
    assert ids(talk, tag="nobody's") == []
    assert ids(talk, pinned_only=True) == ["chat"]
    assert ids(talk, since=1000.0) == ["chat"]
    assert ids(talk, until=1000.0) == ["phone"]
    assert ids(talk, since=999.0, until=1000.0, include_hidden=True) == ["phone"]
    assert ids(talk, workspace=tmp_path) == ids(talk, workspace=tmp_path / "inside") == ["phone"]


def test_orders(talk: SessionDB) -> None:
    talk.create_session("untitled", "cli", started_at=50.0)
    for name, title in (("chat", "beta"), ("phone", "Alpha")):
        talk.set_session_title(name, title)
    assert ids(talk) == ["chat", "phone", "untitled"]
    assert ids(talk, order="started") == ["phone", "untitled", "chat"]
    assert ids(talk, order="title") == ["phone", "chat", "untitled"]
    talk.pin_session("untitled")
    assert ids(talk) == ["chat", "phone", "untitled"]
    for order, rest in (
        ("activity", ["chat", "phone"]),
        ("started", ["phone", "chat"]),
        ("title", ["phone", "chat"]),
    ):
        assert ids(talk, order=order, pinned_first=True) == ["untitled", *rest]


def test_a_conversation_is_one_row_shown_as_its_live_tip(talk: SessionDB) -> None:
    talk.end_session("chat", "compression")
    talk.create_session("chat2", "cli", parent_session_id="chat", started_at=950.0)
    talk.append_message("chat2", "user", "went on", timestamp=2000.0)
    talk.set_session_title("chat2", "zeta")
    talk.add_tags("chat2", "kept")
    row = talk.list_conversations().rows[0]
    assert (row["id"], row["_lineage_root_id"], row["title"], row["tags"]) == (
        "chat2",
        "chat",
        "zeta",
        ["kept"],
    )
    assert talk.list_conversations().total == 2
    rich = {**talk.list_sessions_rich(order_by_last_active=True)[0], "tags": ["kept"]}
    for name in ("message_count", "tool_call_count"):
        rich[name] = rich.pop(f"conversation_{name}")
    assert row == rich


def test_the_documented_list_and_count_hide_nothing(talk: SessionDB) -> None:
    assert {row["id"] for row in talk.list_sessions_rich()} == {"chat", "phone", "old", "job", "run", "tool"}
    assert talk.session_count() == 7


def test_pages(talk: SessionDB) -> None:
    pages = [talk.list_conversations(limit=1, offset=at) for at in range(3)]
    assert [[row["id"] for row in page.rows] for page in pages] == [["chat"], ["phone"], []]
    assert {page.total for page in pages} == {2}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"order": "size"}, "order"),
        ({"kinds": ["chats"]}, "kind"),
        ({"kinds": "chat"}, "kinds"),
        ({"sources": "cli"}, "sources"),
        ({"since": "yesterday"}, "since"),
        ({"limit": None}, "limit"),
        ({"tag": ""}, "tag"),
        ({"workspace": ""}, "directory"),
    ],
)
def test_arguments_are_checked(talk: SessionDB, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        talk.list_conversations(**wrong)


# ---------------------------------------------------------------- comparison with a list made by hand

SESSIONS = st.lists(
    st.tuples(
        st.sampled_from(["cli", "telegram", "cron", "tool"]),
        st.integers(0, 3),  # when it was used last
        st.booleans(),  # archived, pinned
        st.booleans(),  # pinned
        st.sampled_from([None, "x", "y"]),  # tag
        st.booleans(),  # a subagent of the first
    ),
    max_size=8,
)
QUESTION = st.fixed_dictionaries(
    {},
    optional={
        "sources": st.lists(st.sampled_from(["cli", "telegram", "cron"]), max_size=2),
        "exclude_sources": st.lists(st.sampled_from(["cli", "tool"]), max_size=2),
        "kinds": st.lists(st.sampled_from(["chat", "job", "child", "tool"]), max_size=2),
        "since": st.integers(0, 4),
        "until": st.integers(0, 4),
        "tag": st.sampled_from(["X", "y"]),
        "pinned_only": st.booleans(),
        "archived": st.booleans(),
        "include_hidden": st.booleans(),
    },
)


@settings(max_examples=scale_examples(160), suppress_health_check=[HealthCheck.too_slow])
@given(sessions=SESSIONS, questions=st.lists(QUESTION, min_size=1, max_size=6))
def test_rows_total_and_hidden_are_those_of_a_list_made_by_hand(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[Any], questions: list[dict[str, Any]]
) -> None:
    with SessionDB(tmp_path_factory.mktemp("lists") / "state.db", durability="normal") as db:
        known: list[dict[str, Any]] = []
        for number, (source, used, archived, pinned, tag, child) in enumerate(sessions):
            name = f"s{number}"
            child = child and number > 0
            db.create_session(name, source, started_at=float(used), parent_session_id="s0" if child else None)
            if archived:
                db.set_session_archived(name, True)
            if pinned:
                db.pin_session(name)
            if tag:
                db.add_tags(name, tag)
            kind = "child" if child else {"cron": "job", "tool": "tool"}.get(source, "chat")
            known.append(
                {
                    "id": name,
                    "source": source,
                    "used": used,
                    "archived": archived,
                    "pinned": pinned,
                    "tag": tag,
                    "kind": kind,
                }
            )
        for question in questions:
            listed, hidden = expected(known, **question)
            page = db.list_conversations(limit=99, **question)
            assert {row["id"] for row in page.rows} == listed
            assert (page.total, page.hidden) == (len(listed), hidden)


def expected(known: list[dict[str, Any]], **asked: Any) -> tuple[set[str], dict[str, int]]:
    listed: set[str] = set()
    hidden: dict[str, int] = {}
    for entry in known:
        fits = (
            ("sources" not in asked or entry["source"] in asked["sources"])
            and entry["source"] not in asked.get("exclude_sources", ())
            and ("kinds" not in asked or entry["kind"] in asked["kinds"])
            and asked.get("since", -1) <= entry["used"] < asked.get("until", 99)
            and ("tag" not in asked or entry["tag"] == asked["tag"].lower())
            and (entry["pinned"] or not asked.get("pinned_only"))
            and ("archived" not in asked or entry["archived"] == asked["archived"])
        )
        if not fits:
            continue
        secret: tuple[str, ...] = ("job", "child", "tool") if "sources" not in asked else ("child",)
        if asked.get("include_hidden") or "kinds" in asked:
            secret = ()
        reason = (
            {"job": entry["source"]}.get(entry["kind"], entry["kind"]) if entry["kind"] in secret else None
        )
        if (
            reason is None
            and entry["archived"]
            and "archived" not in asked
            and not asked.get("include_hidden")
        ):
            reason = "archived"
        if reason is None:
            listed.add(entry["id"])
        else:
            hidden[reason] = hidden.get(reason, 0) + 1
    return listed, hidden


def test_the_counts_are_those_of_all_segments(talk: SessionDB) -> None:
    call = [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}]
    talk.append_message("chat", "assistant", tool_calls=call)
    tip = talk.begin_continuation("chat", "a summary", session_id="chat2")
    talk.append_message(tip, "user", "went on")
    row = next(row for row in talk.list_conversations().rows if row["id"] == "chat2")
    whole = sum(talk.message_count(segment) for segment in ("chat", "chat2"))
    assert (row["message_count"], row["tool_call_count"]) == (whole, 1)
    rich = next(row for row in talk.list_sessions_rich() if row["id"] == "chat2")
    assert (rich["message_count"], rich["conversation_message_count"]) == (talk.message_count("chat2"), whole)
    talk.trash_session("chat", segment=True)
    row = next(row for row in talk.list_conversations().rows if row["id"] == "chat2")
    assert row["message_count"] == talk.message_count("chat2")


def test_a_conversation_that_was_just_compressed_keeps_its_name(talk: SessionDB) -> None:
    talk.begin_continuation("chat", "a summary", session_id="chat2")
    for rows in (talk.list_conversations().rows, talk.list_sessions_rich()):
        row = next(row for row in rows if row["id"] == "chat2")
        assert (row["title"], row["preview"]) == (None, "said in chat")
    talk.set_session_title("chat", "the plan")
    talk.set_session_title("phone", "another")
    row = talk.list_conversations(order="title").rows[1]
    assert (row["id"], row["title"]) == ("chat2", "the plan")
    talk.append_message("chat2", "user", "went on")
    talk.set_session_title("chat2", "later")
    row = talk.list_conversations(order="title").rows[1]
    assert (row["title"], row["preview"]) == ("later", "went on")


@pytest.mark.parametrize("attached", ["[file notes.txt]\n```\nmilk\n```", "[picture cat.png]"])
@pytest.mark.parametrize("as_parts", [False, True])
def test_a_preview_is_what_the_person_typed(db: SessionDB, attached: str, as_parts: bool) -> None:
    text = f"see this\nand that\n\n{attached}"
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "x"}}]
    db.create_session("s", source="cli")
    said = db.append_message("s", "user", content if as_parts else text)
    assert db.list_sessions_rich()[0]["preview"] == "see this and that"
    db.rewind_to_message("s", said)
    db.restore_rewound("s")
    assert db.list_sessions_rich()[0]["preview"] == "see this and that"
    assert db.verify().ok


def test_a_conversation_is_read_by_any_of_its_sessions(talk: SessionDB) -> None:
    talk.begin_continuation("chat", "a summary", session_id="chat2")
    talk.add_tags("chat", "kept")
    listed = next(row for row in talk.list_conversations().rows if row["id"] == "chat2")
    assert talk.get_conversation("chat") == talk.get_conversation("chat2") == listed
    assert talk.get_conversation("nobody") is None
    talk.trash_session("chat")
    assert talk.get_conversation("chat2") is None


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("hermes", ["chat", "phone"]),
        ("me/hermes/", ["chat"]),
        ("/home/me/hermes", ["chat"]),
        ("home/me/hermes", ["chat"]),
        ("ermes", []),
        ("/hermes", []),
        ("./hermes", []),
        (Path("hermes"), []),
    ],
)
def test_a_workspace_is_named_by_its_path_or_the_end_of_it(
    talk: SessionDB, named: Path | str, found: list[str]
) -> None:
    talk.set_session_workspace("chat", "/home/me/hermes")
    talk.set_session_workspace("phone", "/srv/hermes")
    assert ids(talk, workspace=named) == found
    assert sorted(talk.select_sessions(Selection(workspace=named))) == found


NEAR_IDS = ("cron_job-1_20260101_090000", "", "_", "-", "x", "X", "1", "é", "\u0661", "cron_", "a" * 41)


@settings(max_examples=scale_examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 26), st.integers(0, 3), st.sampled_from(NEAR_IDS)), min_size=1, max_size=12
    ),
    source=st.sampled_from(["cron", "cli"]),
)
def test_runs_of_jobs_are_recognised_as_the_groups_of_lists_are(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, str]], source: str
) -> None:
    run = NEAR_IDS[0]
    names = {run, *(run[:at] + text + run[at + cut :] for at, cut, text in edits)}
    with SessionDB(tmp_path_factory.mktemp("jobs") / "state.db", durability="normal") as db:
        for name in names:
            db.create_session(name, source)
        rows = db.list_conversations(limit=99, include_hidden=True).rows
        of_jobs = {row["id"] for row in rows if find_job(row) is not None}
        assert (run in of_jobs) == (source == "cron")
        assert set(ids(db, limit=99, include_hidden=True, job_runs=True)) == of_jobs
        assert set(ids(db, limit=99, include_hidden=True, job_runs=False)) == names - of_jobs
