"""Parses shell text into simple commands with the grammar of bash (tree-sitter).

The result is None if the effect of the text cannot be determined, that is, if the text contains a
substitution, a function, a loop, an assignment, a redirection to a file or a background job. `shlex` is not
enough: it parses `ls foo#; rm -rf x` as one `ls` command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Tokens between commands and around groups of commands. "&" is left out, because it starts a background job.
CONNECTORS = frozenset({";", "&&", "||", "|", "\n", "(", ")", "!", "[", "]", "[[", "]]", ";;"})
GROUPS = frozenset({"program", "list", "pipeline", "subshell", "negated_command", "redirected_statement"})
TESTS = frozenset(
    {
        "test_command",
        "unary_expression",
        "binary_expression",
        "parenthesized_expression",
        "negation_expression",
    }
)
BARE = re.compile(r"[\w./:=,@%+^~*?\[\]-]+", re.ASCII)
"""The characters that an unquoted word may have. Braces, backslashes and `!` are left out, because the shell
interprets them."""
ESCAPED = frozenset({r"\(", r"\)", r"\!", r"\;"})
"""The only words with a backslash that are accepted. They are operands of `find`."""
NUMBER = re.compile(r"\d{1,3}")
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]"
)
NULL = "/dev/null"


class Word(NamedTuple):
    text: str
    literal: bool = True
    """False if the word contains a variable, whose value is unknown."""
    glob: bool = False


class SimpleCommand(NamedTuple):
    words: tuple[Word, ...]
    reads: tuple[Word, ...] = ()
    """The files from which the command's input is redirected."""

    @property
    def program(self) -> str:
        return self.words[0].text

    @property
    def is_literal(self) -> bool:
        return all(word.literal for word in (*self.words, *self.reads))


class _Opaque(Exception):
    """The effect of the parsed shell text cannot be determined."""


def parse_shell(text: str) -> list[SimpleCommand] | None:
    """Return the simple commands of a shell text in their order.

    Return None if the shell text does more than run simple commands, or if it cannot be parsed.
    """
    if CONTROL.search(text) or "\\\n" in text or not text.strip():
        return None
    parser = _get_parser()
    if parser is None:
        return None
    data = text.encode("utf-8", "replace")
    root = parser.parse(data).root_node
    if root.has_error:
        return None
    try:
        return list(_walk_commands(root, ()))
    except _Opaque:
        return None


@cache
def _get_parser() -> Parser | None:
    """Return the parser; None if tree-sitter is not installed. Without it, no command counts as read-only."""
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


def is_parser_installed() -> bool:
    return _get_parser() is not None


def _walk_commands(node: Node, reads: tuple[Word, ...]) -> Iterator[SimpleCommand]:
    match node.type:
        case "command":
            yield SimpleCommand(tuple(_walk_words(node)), reads)
        case "comment":
            return
        case "redirected_statement":
            read = tuple(
                word
                for child in node.children
                if child.type == "file_redirect"
                for word in _walk_read_files(child)
            )
            for child in node.children:
                if child.type != "file_redirect":
                    yield from _walk_commands(child, (*reads, *read))
        case kind if kind in TESTS:
            yield SimpleCommand((Word("test"), *_walk_tested(node)), reads)
        case kind if kind in GROUPS:
            for child in node.children:
                if child.is_named:
                    yield from _walk_commands(child, reads)
                elif child.type not in CONNECTORS:
                    raise _Opaque
        case _:
            raise _Opaque


def _walk_words(node: Node) -> Iterator[Word]:
    for child in node.children:
        if child.type == "command_name":
            yield _make_word(child.children[0])
        elif child.is_named:
            yield _make_word(child)
        else:
            raise _Opaque


def _walk_tested(node: Node) -> Iterator[Word]:
    """Yield the words of a test such as `[ -f x ]`."""
    for child in node.children:
        if child.type in TESTS:
            yield from _walk_tested(child)
        elif child.is_named:
            yield Word(_decode_text(child)) if child.type == "test_operator" else _make_word(child)
        elif child.type not in {*CONNECTORS, "=", "==", "!=", "&&", "||", "-a", "-o"}:  # [ a > b ] writes b
            raise _Opaque


def _walk_read_files(node: Node) -> Iterator[Word]:
    """Yield the name of the file that a redirection reads, if it reads one.

    Raise `_Opaque` for a redirection that writes, except to /dev/null or to another file descriptor.
    """
    operator = next((child.type for child in node.children if not child.is_named), "")
    targets = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
    if len(targets) != 1:
        raise _Opaque
    target = _decode_text(targets[0])
    if operator in (">&", "<&") and NUMBER.fullmatch(target):
        return
    if operator == "<":
        yield _make_word(targets[0])
    elif target != NULL or operator not in (">", ">>", "&>", "&>>"):
        raise _Opaque


def _make_word(node: Node) -> Word:
    text = _decode_text(node)
    match node.type:
        case "word" | "number":
            if text in ESCAPED:
                return Word(text[1:])
            if not BARE.fullmatch(text):
                raise _Opaque
            return Word(text, glob=any(sign in text for sign in "*?["))
        case "raw_string":
            return Word(text[1:-1])
        case "string":
            if any(child.type not in ('"', "string_content", "simple_expansion") for child in node.children):
                raise _Opaque
            if "\\" in text or "`" in text:
                raise _Opaque
            literal = "$" not in text
            return Word(text[1:-1], literal)
        case "simple_expansion":
            return Word(text, literal=False)
        case "concatenation":
            parts = [_make_word(child) for child in node.children]
            return Word(
                "".join(part.text for part in parts),
                all(part.literal for part in parts),
                any(part.glob for part in parts),
            )
    raise _Opaque


def _decode_text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
