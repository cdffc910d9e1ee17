"""Commands of an incognito conversation work in memory and leave no trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from hermes.agent.events import Event, Moved
from hermes.agent.models.model import Used
from hermes.agent.transcript import Record
from tests.chat.conftest import Typing
from tests.chat.echo import PARTS


def list_files(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


async def test_messages_are_undone_and_redone(typing: Typing, home: Path) -> None:
    (home / "config.yaml").write_text("approvals:\n  destructive_slash_confirm: false\n")
    before = list_files(home)
    shown = await typing(
        *("one", "two", "/undo", "\x03context", "/undo 5", "\x03/redo", "context"), incognito=True
    )
    assert "Took back “two” (2 messages)." in shown
    assert "4 messages" in shown
    assert "Took back “one” and all after it (4 messages)." in shown
    assert "Brought back 4 messages." in shown
    assert "6 messages" in shown
    assert list_files(home) == before


async def test_undo_and_redo_without_messages_say_so(typing: Typing) -> None:
    shown = await typing("/undo", "/redo", "/branch", "/compress", "/retry", incognito=True)
    assert "There is nothing to take back." in shown
    assert "There is nothing to bring back." in shown
    assert "There is nothing to branch from." in shown
    assert "There is nothing to compress." in shown
    assert "There is nothing to ask again." in shown


async def test_a_branch_leaves_the_original_and_both_can_be_resumed(typing: Typing, home: Path) -> None:
    (home / "config.yaml").write_text("approvals:\n  destructive_slash_confirm: false\n")
    shown = await typing("one", "/branch", "two", "context", incognito=True)
    assert "On a branch now" in shown
    assert "6 messages" in shown
    shown = await typing("one", "/new", "/undo", "context", incognito=True)
    assert "The new start is undone." in shown
    assert "4 messages" in shown


class HalvingCompressor:
    """Replaces all but the last message by a summary."""

    def __init__(self, record: Record) -> None:
        self.record = record

    async def is_due(self, rows: Sequence[dict[str, Any]], used: Used | None) -> bool:
        return False

    def fit_rows(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        return rows

    def compress(self, *, overflow: bool) -> AsyncIterator[Event]:
        return self.compress_by_hand()

    async def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]:
        rows = await self.record.context()
        await self.record.continue_with("a summary", head=[], carried=[rows[-1]["id"]], prompt="Repeat.")
        yield Moved(self.record.session_id, len(rows), 2)


async def test_the_context_is_compressed_in_memory(typing: Typing, home: Path) -> None:
    before = list_files(home)
    parts = PARTS._replace(make_compressor=lambda record, _inputs: HalvingCompressor(record))
    shown = await typing("one", "two", "/compress", "context", parts=parts, incognito=True)
    assert "4 → 2 messages" in shown
    assert list_files(home) == before


async def test_a_saved_conversation_is_not_reported_as_lost(typing: Typing, tmp_path: Path) -> None:
    shown = await typing("one", "/save talk.md", incognito=True)
    assert (tmp_path / "talk.md").read_text().count("one") >= 1
    assert "Nothing of this was kept, except what you saved:" in shown
    assert "talk.md." in shown.rpartition("except what you saved:")[2]
    assert "Nothing of this was kept." not in shown
