"""Mutants are small changes after which the source can still be parsed. They are the same in every run, and in every
tree that contains the changed function. The tests that call a mutant are run, the fastest first."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutation.call_map import CallMap
from tools.mutation.mutants import Mutant, choose_mutants, list_mutants
from tools.mutation_run import Outcomes, compare, report

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


def test_a_function_that_moved_has_the_same_mutants_in_both_trees(tmp_path: Path) -> None:
    old, new = write_source(tmp_path / "old"), write_source(tmp_path / "new")
    shelf = new / "hermes" / "store" / "shelf.py"
    shelf.with_name("library.py").write_text(
        SOURCE.replace(
            "def put", "def take(self) -> None:\n        del self.books[0]\n\n    def put"
        ).replace("self.last = book", "self.last = book  # may be lent"),
        encoding="utf-8",
    )
    shelf.unlink()
    in_old = choose_mutants(old, ["store"], 4, 1, other=new)
    in_new = choose_mutants(new, ["store"], 4, 1, other=old)
    assert {mutant.name for mutant in in_old} == {mutant.name for mutant in in_new}
    assert {mutant.function for mutant in in_new} == {"Shelf.put"}
    assert {mutant.file for mutant in in_new} == {"hermes/store/library.py"}


def test_a_changed_function_has_no_mutants_in_common(tmp_path: Path) -> None:
    old, new = write_source(tmp_path / "old"), write_source(tmp_path / "new")
    shelf = new / "hermes" / "store" / "shelf.py"
    shelf.write_text(SOURCE.replace("append(book)", "insert(0, book)"), encoding="utf-8")
    assert choose_mutants(new, ["store"], 4, 1, other=old) == []


def make_mutant(function: str | None, name: str = "a") -> Mutant:
    return Mutant("hermes/store/shelf.py", function, 9, "changed constant", 0, 1, "(2)", name)


CALLS = CallMap(
    {"test_a.py::slow": 3.0, "test_a.py::quick": 1.0, "test_a.py::near": 0.5, "test_b.py::far": 0.1},
    {
        "hermes/store/shelf.py:put": ["test_a.py::slow", "test_a.py::quick", "test_a.py::failed"],
        "hermes/store/shelf.py:take": ["test_b.py::far"],
    },
)


@pytest.mark.parametrize(
    ("function", "seconds", "expected"),
    [
        ("put", 9.0, ["test_a.py::quick", "test_a.py::slow", "test_a.py::near"]),
        ("put", 2.0, ["test_a.py::quick"]),
        ("put", 0.1, ["test_a.py::quick"]),
        ("take", 9.0, ["test_b.py::far"]),
        (None, 9.0, ["test_b.py::far", "test_a.py::quick", "test_a.py::slow", "test_a.py::near"]),
    ],
)
def test_callers_run_first_and_then_their_modules(
    function: str | None, seconds: float, expected: list[str]
) -> None:
    assert CALLS.list_tests(make_mutant(function), seconds) == expected


def test_calls_are_recorded_in_every_process_of_a_test(tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text("def put():\n    take()\n\ndef take():\n    pass\n")
    record = tmp_path / "calls.txt"
    program = (
        "import os, sys\n"
        "from tools.mutation import recorder\n"
        f"recorder.start({str(record)!r}, {str(tmp_path)!r})\n"
        f"sys.path.append({str(tmp_path)!r})\n"
        "import shelf\n"
        "shelf.take(), shelf.take()\n"
        "if not os.fork():\n"
        "    os.environ['PYTEST_CURRENT_TEST'] = 't::y[a b] (setup)'\n"
        "    shelf.put()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTEST_CURRENT_TEST": "t::x (call)"},
        capture_output=True,
        text=True,
    )
    if not hasattr(sys, "monitoring"):
        assert done.stderr == "mutation: recording calls needs Python 3.12 or newer (--python)\n"
        return
    assert record.read_text().splitlines() == [
        "t::x\tshelf.py:<module>",
        "t::x\tshelf.py:take",
        "t::y[a b]\tshelf.py:put",
        "t::y[a b]\tshelf.py:take",
    ]


def test_the_map_is_collected_from_all_processes_and_kept(tmp_path: Path) -> None:
    record, durations = tmp_path / "calls.txt", tmp_path / "durations"
    record.write_text("t::x[a b]\tf.py:put\nt::y\tf.py:put\nt::y\tf.py:put\n")
    durations.mkdir()
    for number, test in enumerate(("t::x[a b]", "t::y")):
        (durations / f"{number}.json").write_text(json.dumps({test: 0.5}))
    collected = CallMap.collect(record, durations)
    assert collected == CallMap({"t::x[a b]": 0.5, "t::y": 0.5}, {"f.py:put": ["t::x[a b]", "t::y"]})
    collected.write(tmp_path / "map.json")
    assert CallMap.read(tmp_path / "map.json") == collected


def test_what_only_one_tree_kills_is_named() -> None:
    mutants = [make_mutant("put", name) for name in "abc"]
    ours: Outcomes = {"a": "killed", "b": "survived", "c": "hung"}
    theirs: Outcomes = {"a": "killed", "b": "killed", "c": "not called"}
    named = "  hermes/store/shelf.py:9: changed constant: (2)"
    assert compare(mutants, ours, theirs).splitlines() == [
        *("both: 1 of 3 killed", "only these tests: 1 killed", named),
        *("only the other tests: 1 killed", named),
    ]
    assert report(mutants, ours).splitlines()[-1] == "all: 2 of 3 killed"
