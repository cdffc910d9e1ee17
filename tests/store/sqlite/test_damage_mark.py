"""The file that marks a store as damaged."""

from __future__ import annotations

from pathlib import Path

from hermes.store.sqlite.damage_mark import mark_damaged
from tests.test_home_check import check_planted_link


def test_a_planted_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    check_planted_link(
        home, tmp_path, "state.db.damaged", lambda folder: mark_damaged(folder / "state.db", "damage")
    )
