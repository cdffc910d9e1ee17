"""Mutants are small changes after which the source can still be parsed. They are the same in every run."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.mutation.mutants import choose_mutants, list_mutants

SOURCE = '''\
"""Größe: not only ASCII stands before what is changed."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nothing

LIMIT: int = 3


class Shelf:
    def put(self, book: str, *, first: bool = False) -> None:
        if len(self.books) >= LIMIT and not first:
            raise ValueError(f"{LIMIT} books")
        self.books.append(book)
        self.last = book
'''
CHANGES = {
    (None, "changed constant", "(4)"),
    ("Shelf.put", "changed constant", "(True)"),
    ("Shelf.put", "negated condition", "(not (len(self.books) >= LIMIT and (not first)))"),
    ("Shelf.put", "swapped and/or", "(len(self.books) >= LIMIT or not first)"),
    ("Shelf.put", "flipped comparison", "(len(self.books) > LIMIT)"),
    ("Shelf.put", "removed statement", "pass"),
}


def write_source(folder: Path) -> Path:
    for name in ("store", "recall"):
        (folder / "hermes" / name).mkdir(parents=True)
        (folder / "hermes" / name / "shelf.py").write_text(SOURCE, encoding="utf-8")
    return folder


def test_every_kind_of_change_is_made_and_parses(tmp_path: Path) -> None:
    mutants = list_mutants(write_source(tmp_path), "store")
    assert {(mutant.function, mutant.kind, mutant.text) for mutant in mutants} == CHANGES
    assert len([mutant for mutant in mutants if mutant.kind == "removed statement"]) == 3
    for mutant in mutants:
        changed = mutant.apply(SOURCE.encode())
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), mutant


def test_a_seed_chooses_the_same_mutants_in_equal_shares(tmp_path: Path) -> None:
    sources = write_source(tmp_path)
    chosen = choose_mutants(sources, ["store", "recall"], 7, seed=1)
    assert chosen == choose_mutants(sources, ["store", "recall"], 7, seed=1)
    assert [mutant.folder for mutant in chosen] == ["store"] * 4 + ["recall"] * 3
    assert len(set(chosen)) == 7
