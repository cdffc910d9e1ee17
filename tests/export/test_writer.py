"""The writer of exports: what it reads, which files it writes, and how it ends when it is complete, fails or
is cancelled.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import ExportCancelled, OutputExists, OutputRefused
from hermes.export.ancestry import plan_ancestry
from hermes.export.background import write_in_thread
from hermes.export.formats import FORMATS, JSON_DOCUMENT
from hermes.export.output_file import Replace
from hermes.export.plan import Plan, plan_conversation, plan_selection, plan_session
from hermes.export.writer import Destination, Export, Options, Progress
from hermes.store.sessions.selection import EVERYTHING, Selection
from hermes_state import SessionDB
from tests.export.conftest import T, compressed, talk


@pytest.fixture
def stored(db: SessionDB) -> SessionDB:
    """Create a conversation of two sessions with a branch, and another conversation."""
    tip = compressed(db)
    db.branch(tip, session_id="branched", end_parent=False, started_at=T + 200)
    db.append_message("branched", "user", "epsilon", timestamp=T + 201)
    talk(db, "other", ("user", "zeta"), started_at=T - 100)
    return db


def list_ids(plan: Plan) -> list[list[str]]:
    return [[segment.id for segment in conversation.segments] for conversation in plan.conversations]


def list_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def test_plans(stored: SessionDB) -> None:
    assert list_ids(plan_session(stored, "first")) == [["first"]]
    assert list_ids(plan_conversation(stored, "first")) == [["first", "second"]]
    assert list_ids(plan_conversation(stored, "second", lineage=True)) == [["first", "second"], ["branched"]]
    assert list_ids(plan_selection(stored, EVERYTHING)) == [["branched"], ["first", "second"], ["other"]]
    assert list_ids(plan_selection(stored, Selection(until=T))) == [["other"]]
    found = plan_ancestry(stored, "branched")
    assert found is not None
    assert list_ids(found) == [["first", "second", "branched"]]
    assert plan_ancestry(stored, "nobody") is None
    assert plan_conversation(stored, "nobody").conversations == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_a_stream_and_chunks_hold_the_same(stored: SessionDB, folder: Path, name: str) -> None:
    plan, options = plan_selection(stored, EVERYTHING), Options(FORMATS[name])
    stream = io.BytesIO()
    streamed = Export(plan, options).write_stream(stream)
    assert b"".join(Export(plan, options).iterate_chunks()) == stream.getvalue()
    destination = Destination(folder / "all", stored.db_path)
    written = Export(plan, options).write_files(destination)
    assert list_files(folder) == {"all": stream.getvalue()}
    assert written == streamed._replace(files=(folder / "all",))
    assert (written.sessions, written.messages, written.bytes) == (4, 7, len(stream.getvalue()))
    assert Export(plan, options).measure(destination) == written


@pytest.mark.parametrize("name", FORMATS)
def test_the_progress_grows_to_the_end(stored: SessionDB, name: str) -> None:
    plan = plan_selection(stored, EVERYTHING)
    seen: list[Progress] = []
    Export(plan, Options(FORMATS[name]), report=seen.append).write_stream(io.BytesIO())
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert seen[-1] == (plan.total, plan.total)


def test_a_session_that_is_deleted_meanwhile_is_reported(stored: SessionDB, folder: Path) -> None:
    plan = plan_selection(stored, EVERYTHING)
    stored.delete_session("other")
    result = Export(plan, Options()).write_files(Destination(folder / "all.jsonl", stored.db_path))
    assert (result.sessions, result.missing) == (3, ("other",))


def test_a_json_document_is_one_object_with_every_message(stored: SessionDB) -> None:
    plan = plan_ancestry(stored, "branched", [{"role": "user", "content": "not stored"}])
    assert plan is not None
    text = b"".join(Export(plan, Options(JSON_DOCUMENT)).iterate_chunks()).decode()
    document = json.loads(text)
    assert text == json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    assert (document["session_id"], document["message_count"]) == ("branched", 7)
    assert document["sessions"] == ["first", "second", "branched"]
    said = [(message["session_id"], message["content"]) for message in document["messages"]]
    assert said == [
        ("first", "alpha"),
        ("first", "beta"),
        ("first", "gamma"),
        ("second", "the summary"),
        ("second", "delta"),
        ("branched", "epsilon"),
        ("branched", "not stored"),
    ]


class TestReplace:
    def test_an_empty_export(self, stored: SessionDB, folder: Path) -> None:
        (folder / "empty").touch()
        (folder / "link").symlink_to("elsewhere")
        export = Export(plan_session(stored, "first"), Options())
        for name in ("empty", "link"):
            with pytest.raises(OutputExists, match="exists; name another file"):
                export.write_files(Destination(folder / name, stored.db_path, Replace.NOTHING))
        assert (folder / "empty").read_bytes() == b""

    def test_only_an_earlier_export_is_replaced(self, stored: SessionDB, folder: Path) -> None:
        plan = plan_session(stored, "first")
        destination = Destination(folder / "a.jsonl", stored.db_path)
        before = list_files(folder)
        Export(plan, Options()).write_files(destination)
        again = Export(plan, Options()).write_files(destination)
        assert again.backups == (folder / "a.jsonl~",)
        destination.path.write_text("mine")
        before = list_files(folder)
        with pytest.raises(OutputExists, match="is not an earlier export"):
            Export(plan, Options()).write_files(destination)
        assert list_files(folder) == before
        Export(plan, Options()).write_files(destination._replace(replace=Replace.ANYTHING))
        assert list_files(folder) == {"a.jsonl": before["a.jsonl~"], "a.jsonl~": before["a.jsonl~"]}

    @pytest.mark.parametrize("replace", Replace)
    def test_the_store_is_never_replaced(self, stored: SessionDB, replace: Replace) -> None:
        export = Export(plan_session(stored, "first"), Options())
        for ending in ("", "-journal", ".lock", ".backups/x"):
            with pytest.raises(OutputRefused):
                export.write_files(Destination(Path(f"{stored.db_path}{ending}"), stored.db_path, replace))

    def test_a_pipe_is_never_replaced(self, stored: SessionDB) -> None:
        destination = Destination(Path("/dev/null"), stored.db_path, Replace.ANYTHING)
        with pytest.raises(OutputRefused, match="a device or a pipe"):
            Export(plan_session(stored, "first"), Options()).write_files(destination)


EARLIER = b"# x\n<!-- Exported by Hermes Sessions -->\n"
FOREIGN = {
    "first.md": b"mine",
    "other.md": b"",
    "second.md": EARLIER,
    "second.md~": EARLIER.replace(b"# x", b"# y"),
}


@given(steps=st.integers(0, 40), replace=st.sampled_from([Replace.EXPORTS, Replace.ANYTHING]))
def test_a_cancelled_export_leaves_every_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, steps: int, replace: Replace
) -> None:
    """An export of several files either writes all of them or none. This also applies if some of them replace
    existing files."""
    folder = tmp_path_factory.mktemp("out")
    with SessionDB(tmp_path_factory.mktemp("store") / "state.db", durability="normal") as db:
        for name in ("first", "second", "third", "other"):
            talk(db, name, ("user", f"said in {name}"))
        for name, content in FOREIGN.items():
            if replace is Replace.ANYTHING or name != "first.md":
                (folder / name).write_bytes(content)
        before, left = list_files(folder), iter(range(steps))
        export = Export(
            plan_selection(db, EVERYTHING),
            Options(FORMATS["md"]),
            is_cancelled=lambda: next(left, None) is None,
        )
        try:
            result = export.write_files(Destination(folder, db.db_path, replace))
        except ExportCancelled:
            assert list_files(folder) == before
        else:
            assert set(list_files(folder)) == {path.name for path in (*result.files, *result.backups)}
            assert (folder / "second.md~").read_bytes() == FOREIGN["second.md"]
            assert b"said in first" in (folder / "first.md").read_bytes()


class TestBesideAnEventLoop:
    @pytest.mark.parametrize("by_task", [False, True])
    async def test_an_export_can_be_cancelled(self, db: SessionDB, folder: Path, by_task: bool) -> None:
        talk(db, "long", *[("user", f"{number}") for number in range(50)])
        began, may_go, stop = threading.Event(), threading.Event(), threading.Event()

        def make_plan() -> Plan:
            plan = plan_conversation(db, "long")

            def read(session_id: str) -> dict[str, object] | None:
                began.set()
                assert may_go.wait(30)
                return plan.read(session_id)

            return plan._replace(read=read)

        destination = Destination(folder / "a.md", db.db_path)
        task = asyncio.create_task(write_in_thread(make_plan, Options(FORMATS["md"]), destination, stop=stop))
        await asyncio.to_thread(began.wait, 30)
        assert len(list_files(folder)) == 1  # hidden and incomplete
        if by_task:
            task.cancel()
            await asyncio.sleep(0)
        else:
            stop.set()
        may_go.set()
        with pytest.raises(asyncio.CancelledError if by_task else ExportCancelled):
            await task
        assert list_files(folder) == {}

    async def test_progress_is_reported_in_the_event_loop(self, db: SessionDB, folder: Path) -> None:
        talk(db, "long", ("user", "x"))
        reported: list[Progress] = []
        may_go = threading.Event()

        def report(progress: Progress) -> None:
            asyncio.get_running_loop()
            reported.append(progress)
            may_go.set()

        def make_plan() -> Plan:
            assert may_go.wait(30)
            return plan_conversation(db, "long")

        result = await write_in_thread(
            make_plan, Options(), Destination(folder / "a.jsonl", db.db_path), report=report
        )
        assert (result.sessions, reported[0]) == (1, (0, 0))
