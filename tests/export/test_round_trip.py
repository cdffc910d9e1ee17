"""Any store is exported, imported into an empty store and exported again. Both exports have the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.cli.main import main
from hermes_state import SessionDB
from tests.tiers import scale_examples

ODD = [
    "\0",
    "\r\n",
    "\u2028",
    "\u2029",
    "\x85",
    "\x1b[2J",
    "\ufeff",
    "日本語",
    "👩‍👩‍👧‍👦",
    "</script>",
    "\ud83d",
    "\u202e",
    '"',
    "\\",
    "\n",
]
texts = st.lists(st.sampled_from(ODD) | st.text(max_size=8), max_size=5).map("".join)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
contents = (
    st.none()
    | texts
    | st.lists(values, min_size=1, max_size=3)
    | st.dictionaries(texts, values, min_size=1, max_size=3)
)
calls = st.none() | st.lists(
    st.fixed_dictionaries({"id": texts, "function": st.fixed_dictionaries({"name": texts})}), max_size=2
)
moments = st.floats(min_value=1e9, max_value=2e9)

Draw = Callable[[st.SearchStrategy[Any]], Any]


def create(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    source = draw(st.sampled_from(["cli", "telegram", "cron", "tool", "api-server"]))
    name = f"s{which}-{draw(st.integers(0, 10**6))}"
    db.create_session(name, source, model=draw(st.none() | texts), started_at=draw(moments))


def say(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    role = draw(st.sampled_from(["user", "assistant", "tool", "system"]))
    more = {"tool_calls": draw(calls), "reasoning": draw(texts)} if role == "assistant" else {}
    db.append_message(session_id, role, draw(contents), timestamp=draw(moments), **more)


def continue_(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    if db.tip(session_id) == session_id:
        said = [row["id"] for row in db.get_messages(session_id)]
        at = draw(moments)
        db.begin_continuation(session_id, "what was said", said[-2:], head=said[:-2][:1], started_at=at)


def relate(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    verb = (db.branch, db.reset, db.delegate)[which % 3]
    verb(session_id, started_at=draw(moments))


def rewind(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    for row in db.list_recent_user_messages(session_id, limit=3)[-1:]:
        db.rewind_to_message(session_id, row["id"])


def keep(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    db.set_session_title(session_id, f"title {draw(st.integers(0, 10**6))}")
    db.add_tags(session_id, f"tag{which}")
    db.pin_session(session_id, which % 2 == 0)
    db.set_session_archived(session_id, which % 3 == 0)
    db.record_usage(session_id, model="m", input_tokens=which, estimated_cost_usd=which / 7, at=draw(moments))


def end(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    db.end_session(session_id, "cli_close")


def discard(db: SessionDB, session_id: str, which: int, draw: Draw) -> None:
    """Move a session to the trash if it has no relatives. An export does not contain the parent of a session
    if that parent is in the trash."""
    family = db.family(session_id)
    if which % 2 and family is not None and len(list(family.walk())) == 1:
        db.trash_session(session_id)
    elif which == 0:
        db.delete_session(session_id)


VERBS = (create, say, say, say, say, continue_, relate, relate, rewind, keep, end, discard)
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 9)), min_size=1, max_size=25)


@settings(max_examples=scale_examples(60), deadline=None)
@given(steps, st.data())
def test_a_second_export_after_an_import_is_identical(
    story: list[tuple[Callable[..., None], int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "a", "state.db"), Path(folder, "b", "state.db")
        before, after = Path(folder, "a.jsonl"), Path(folder, "b.jsonl")
        with SessionDB(first) as db:
            for verb, which in story:
                known = [row["id"] for row in db.search_sessions(limit=100)]
                if known or verb is create:
                    verb(db, known[which % len(known)] if known else "", which, data.draw)
        assert main(["sessions", "export", str(before), "--store", str(first)]) == 0
        assert main(["sessions", "import", "--trusted", str(before), "--store", str(second)]) == 0
        assert main(["sessions", "export", str(after), "--store", str(second)]) == 0
        assert (
            after.read_text(encoding="utf-8").splitlines()
            == before.read_text(encoding="utf-8").split("\n")[:-1]
        )
        assert main(["sessions", "import", "--trusted", str(before), "--store", str(second)]) == 0
        assert main(["sessions", "export", str(after), "--store", str(second), "--force"]) == 0
        assert after.read_bytes() == before.read_bytes()
        with SessionDB(second) as db:
            assert db.verify().ok


def test_the_continuation_of_a_subagent_keeps_its_kind(tmp_path: Path) -> None:
    """The file contains the subagent before the session that it works for. The import knows the kind of the
    subagent and of its continuation only after it has read that session."""
    with SessionDB(tmp_path / "a" / "state.db") as db:
        db.create_session("chat", "cli", started_at=1e9)
        work = db.delegate("chat", started_at=1e9 + 1)
        more = db.begin_continuation(work, "what was done", [], started_at=1e9 + 2)
        exported = [db.export_session(session_id) or {} for session_id in (work, more, "chat")]
    with SessionDB(tmp_path / "b" / "state.db") as db:
        db.import_sessions(exported)
        kinds = {row["id"]: row["kind"] for row in db.search_sessions(limit=10)}
    assert kinds == {"chat": "chat", work: "child", more: "child"}
