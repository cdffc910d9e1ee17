"""Mutants: small changes to a source file, one at a time, each of which changes the behaviour of the program.

Only the text of the changed node is replaced. The rest of the file does not change.

Two versions of a tree have many functions in common. A mutant of such a function has the same name in both trees, even
if the function moved to another file, so that the same mutants can be tried with the tests of both.
"""

from __future__ import annotations

import ast
import hashlib
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.ClassDef


@dataclass(frozen=True)
class Mutant:
    file: str
    """The path below the source folder, such as `hermes/store/engine.py`."""
    function: str | None
    """The qualified name of the outermost function that contains the change. None for code that runs at
    import."""
    line: int
    kind: str
    start: int
    """The bytes from `start` to `end` of the file are replaced by `text`."""
    end: int
    text: str
    name: str
    """The name of the mutant: the folder, the function, a digest of the function's code, and the number of the change
    in the function. Outside of functions, the file takes the place of the function."""

    @property
    def folder(self) -> str:
        return self.file.split("/")[1]

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def list_mutants(sources: Path, folder: str) -> list[Mutant]:
    """Return every mutant of `sources/hermes/FOLDER`, in the order of the files."""
    return [
        mutant
        for path in sorted((sources / "hermes" / folder).rglob("*.py"))
        for mutant in _Finder(path.relative_to(sources).as_posix(), path.read_bytes()).find()
    ]


def choose_mutants(
    sources: Path, folders: list[str], count: int, seed: int, other: Path | None = None
) -> list[Mutant]:
    """Return `count` mutants, in equal shares from the folders and of as many kinds as possible. The result
    depends only on `seed` and the source.

    With `other`, only functions are changed that are the same in both source folders. The mutants have the same names
    if the source folders are exchanged.
    """
    chosen: list[Mutant] = []
    for number, folder in enumerate(folders):
        share = count // len(folders) + (number < count % len(folders))
        mutants = list_mutants(sources, folder)
        if other is not None:
            mutants = _keep_common(mutants, list_mutants(other, folder))
        chosen += _choose_share(mutants, share, random.Random(f"{seed} {folder}"))
    return chosen


def _keep_common(mutants: list[Mutant], others: list[Mutant]) -> list[Mutant]:
    """Return the mutants of functions that are in both lists, in the order of their names. Of a function that a
    folder contains twice, nobody knows which is which."""
    names, other_names = (Counter(mutant.name for mutant in some) for some in (mutants, others))
    return sorted(
        (
            mutant
            for mutant in mutants
            if mutant.function is not None and names[mutant.name] == other_names[mutant.name] == 1
        ),
        key=lambda mutant: mutant.name,
    )


def _choose_share(mutants: list[Mutant], count: int, chance: random.Random) -> list[Mutant]:
    """Choose `count` mutants. The kinds are taken in turn, so that frequent kinds do not displace the
    others."""
    kinds: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.kind, []).append(mutant)
    for same_kind in kinds.values():
        chance.shuffle(same_kind)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(kinds.values()):
        chosen += [same_kind.pop() for _, same_kind in sorted(kinds.items()) if same_kind]
    return sorted(chosen[:count], key=lambda mutant: (mutant.file, mutant.start))


class _Finder:
    """Walks one file and collects its mutants."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._line_starts = [0]
        for line in source.split(b"\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self._scopes: list[Scope] = []
        self._mutants: list[Mutant] = []
        self._counts: Counter[str] = Counter()

    def find(self) -> list[Mutant]:
        self._visit(ast.parse(self._source))
        return self._mutants

    def _visit(self, node: ast.AST) -> None:
        self._mutate(node)
        scopes = self._scopes
        if isinstance(node, Scope):
            self._scopes = [*scopes, node]
        for child in _list_children(node):
            self._visit(child)
        self._scopes = scopes

    def _mutate(self, node: ast.AST) -> None:
        match node:
            case ast.Compare(left=left, ops=[operator, *others], comparators=comparators):
                flipped = FLIPPED[type(operator)]()
                self._add("flipped comparison", node, ast.Compare(left, [flipped, *others], comparators))
            case ast.BoolOp(op=operator, values=values):
                other = ast.Or() if isinstance(operator, ast.And) else ast.And()
                self._add("swapped and/or", node, ast.BoolOp(other, values))
            case ast.Constant(value=bool(value)):
                self._add("changed constant", node, ast.Constant(not value))
            case ast.Constant(value=int(value) | float(value)):
                self._add("changed constant", node, ast.Constant(value + 1))
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                self._add("negated condition", test, ast.UnaryOp(ast.Not(), test))
            case ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Expr(value=ast.Call() | ast.Await()):
                self._add("removed statement", node, ast.Pass())
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                self._add("removed statement", node, ast.Pass())
            case _:
                pass

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: ast.expr | ast.stmt) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset
        text = ast.unparse(ast.fix_missing_locations(new))
        if isinstance(new, ast.expr):
            text = f"({text})"
        function, place = self._get_place()
        self._counts[place] += 1
        name = f"{place} {self._counts[place]}"
        self._mutants.append(Mutant(self._file, function, node.lineno, kind, start, end, text, name))

    def _get_place(self) -> tuple[str | None, str]:
        """Return the name of the outermost function that is being visited, prefixed with the classes that
        contain it, and the start of the names of its mutants."""
        folder = self._file.split("/")[1]
        for depth, scope in enumerate(self._scopes):
            if not isinstance(scope, ast.ClassDef):
                function = ".".join(outer.name for outer in self._scopes[: depth + 1])
                return function, f"{folder} {function} {_digest(scope)}"
        return None, f"{folder} {self._file}"


def _digest(function: Function) -> str:
    """Return a short digest of the code of a function. Its docstring, comments and layout do not matter."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    code = "".join(ast.dump(part) for part in (function.args, *function.decorator_list, *body))
    return hashlib.sha256(code.encode()).hexdigest()[:8]


def _list_children(node: ast.AST) -> list[ast.AST]:
    """Return the child nodes that are executed: without annotations, checks for type checkers and f-strings.

    Before Python 3.12, the parts of an f-string have no reliable position.
    """
    match node:
        case ast.JoinedStr() | ast.arg():
            return []
        case ast.AnnAssign(value=value):
            return [] if value is None else [value]
        case ast.FunctionDef(args=arguments, body=body) | ast.AsyncFunctionDef(args=arguments, body=body):
            return [arguments, *body]
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
            return [*orelse]
        case _:
            return list(ast.iter_child_nodes(node))
