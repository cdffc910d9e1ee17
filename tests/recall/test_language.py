"""The query language for people: groups, parts, fields and dates. Everything else is plain text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes.recall.query.dates import read_date
from hermes.recall.query.operators import parse
from hermes.recall.query.prompt_language import FIELDS, Field, Reading, read
from hermes.store.query_tree import And, Literal, MessageText, Node, Not, Or, Part, Phrase, Word, matches
from hermes.store.values import MessageFilter
from tests.recall.test_query import TYPED

NOW = 1_779_000_000.0  # 17 May 2026
A, B, C, D = (Word(letter, (letter,)) for letter in "abcd")
AB = Phrase("a b", ("a", "b"))


def tree(query: str) -> Node | None:
    return read(query, NOW).tree


def wanted(query: str) -> MessageFilter:
    return read(query, NOW).message_filter


@pytest.mark.parametrize(
    ("query", "meaning"),
    [
        ("(a OR b) c", And((Or((A, B)), C))),
        ("c (a OR b)", And((C, Or((A, B))))),
        ("( a OR b ) c", And((Or((A, B)), C))),
        ("a NOT (b OR c)", And((A, Not(Or((B, C)))))),
        ("a NOT (b NOT c)", And((A, Not(And((B, Not(C))))))),
        ("a NOT (NOT b)", And((A, B))),
        ("a (b c)", And((A, B, C))),
        ("a OR (b OR c)", Or((A, B, C))),
        ("((a OR b) c) OR d", Or((And((Or((A, B)), C)), D))),
        ('("a b" OR c) d', And((Or((AB, C)), D))),
        ("((a))", A),
        ("a () b", And((A, Literal("()", "()"), B))),
        ("(OR)", None),
    ],
)
def test_groups(query: str, meaning: Node | None) -> None:
    assert tree(query) == meaning


@pytest.mark.parametrize(
    "query",
    [
        *("foo(bar)", "foo(bar", ":)", "(x", "x)", ") (", "f(a)(b)", "(a)(b)", "main() {", "if (x", "rm -rf"),
        *(
            "-word",
            "git commit -m",
            "*ab*",
            "*ab",
            "*->*",
            "TODO:",
            "http://x",
            "foo:bar",
            "std::vector<int>",
            "Source:cli",
        ),
        *(
            "source:",
            "role:nobody",
            "kind:strange",
            "has:hope",
            "is:it",
            "before:foo",
            "on:call",
            "after:2026-13",
        ),
        *('"source:x"', '"(a OR b)"', 'x:"y z"', 'title:""', '"*part*"', "a:b:c", "C:\\Users\\demo", "12:30"),
    ],
)
def test_everything_else_is_text_as_in_the_documented_language(query: str) -> None:
    reading = read(query, NOW)
    assert reading.tree == parse(query)
    assert reading.message_filter == MessageFilter()
    assert reading.fields == ()


@pytest.mark.parametrize("token", TYPED.split())
def test_every_token_is_found_as_typed(token: str) -> None:
    found = tree(token)
    assert found is not None
    assert matches(found, MessageText.of(TYPED))
    assert not matches(found, MessageText.of("something else"))


@pytest.mark.parametrize(
    ("query", "meaning"),
    [
        ("*func*", Part("func", "func")),
        ("**Func**", Part("Func", "func")),
        ("*func_*", Part("func_", "func", "func_")),
        ("*_func*", Word("_func", ("func",), prefix_last=True, literal="_func")),
        ("*unc_na*", Word("unc_na", ("na",), prefix_last=True, literal="unc_na")),
        ("*服*", Word("服", ("服",), prefix_last=True)),
        ("*服务端*", Word("服务端", ("服务", "务端"))),
        ("*er服*", Word("er服", ("服",), prefix_last=True, literal="er服")),
        ("*...*", Literal("...", "...")),
    ],
)
def test_parts(query: str, meaning: Node) -> None:
    assert tree(query) == meaning


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("source:cli", {"sources": ("cli",)}),
        ("source:cli OR source:Telegram", {"sources": ("cli", "Telegram", "telegram")}),
        ("NOT source:cron", {"exclude_sources": ("cron",)}),
        ("role:user role:tool", {"roles": ("user", "tool")}),
        ("NOT role:tool", {"roles": ("user", "assistant", "system")}),
        ("role:user NOT role:user", {"sources": ()}),
        ("kind:job", {"kinds": ("job",)}),
        ("NOT kind:job", {"kinds": ("chat", "child", "tool")}),
        ("tool:terminal", {"tool": "terminal"}),
        ('title:"my plan"', {"title": "my plan"}),
        ('(title:"my plan")', {"title": "my plan"}),
        ("model:gpt-5", {"model": "gpt-5"}),
        ("workspace:/home/me/project/", {"workspace": "/home/me/project"}),
        ("has:error", {"errors_only": True}),
        ("has:tool is:pinned", {"calls_only": True, "pinned": True}),
        ("is:archived NOT is:pinned", {"archived": True, "pinned": False}),
        ("NOT is:archived", {"archived": False}),
        ("is:pinned NOT is:pinned", {"sources": (), "pinned": True}),
        ('tag:Später tag:"to do" NOT tag:old', {"tags": ("später", "to do"), "exclude_tags": ("old",)}),
    ],
)
def test_fields(query: str, fields: dict[str, object]) -> None:
    assert wanted(query) == MessageFilter(**fields)  # type: ignore[arg-type]
    assert tree(query) is None
    reading = read(f"retry {query} budget", NOW)
    assert reading.tree == parse("retry budget")
    assert reading.ignored == ()
    assert reading.words == ("retry", "budget")


def test_dates_restrict_from_their_beginning() -> None:
    day, month = read_date("2026-05-02", NOW), read_date("2026-05", NOW)
    fortnight, week = read_date("2w", NOW), read_date("last week", NOW)
    assert day is not None
    assert month is not None
    assert fortnight is not None
    assert week is not None
    assert wanted("on:2026-05-02") == MessageFilter(after=day.start, before=day.end)
    assert wanted("after:2026-05-02") == MessageFilter(after=day.start)
    assert wanted("before:2026-05-02") == MessageFilter(before=day.start)
    assert wanted("before:2w") == MessageFilter(before=fortnight.start)
    assert wanted("after:2026-05 before:2026-06") == MessageFilter(after=month.start, before=month.end)
    assert wanted("on:2026-05 after:2026-05-02") == MessageFilter(after=day.start, before=month.end)
    assert (
        wanted('on:"last week"') == wanted("on:last week") == MessageFilter(after=week.start, before=week.end)
    )
    assert wanted("on:May 2 2026") == wanted("on:2026-05-02")
    assert tree("on:May 2 apples") == parse("apples")
    assert tree("(on:May 2) apples") == parse("apples")
    assert tree("on:May apples 2") == parse("apples 2")


def test_a_field_keeps_the_typed_text() -> None:
    reading = read('NOT source:cron title:"my plan" x foo:bar has:hope', NOW)
    assert reading.fields == (Field("source", "cron", True), Field("title", "my plan"))
    assert [str(field) for field in reading.fields] == ["NOT source:cron", 'title:"my plan"']
    assert reading.ignored == ("foo:bar", "has:hope")
    assert reading.words == ("x", "foo:bar", "has:hope")


def test_an_invalid_field_is_text() -> None:
    assert tree("title:one title:two") == parse("title:two")
    assert wanted("title:one title:two") == MessageFilter(title="one")
    assert tree("x NOT has:error") == parse("x NOT has:error")
    assert read("x NOT has:error", NOW).ignored == ("has:error",)


def test_an_empty_query() -> None:
    for query in ("", "  ", '""', "OR", "NOT"):
        assert read(query, NOW).is_empty
    assert not read("source:cli", NOW).is_empty


def test_a_thousand_parentheses_are_read_and_no_deeper_than_can_be_searched() -> None:
    query = "(" * 1000 + "a OR b" + ")" * 1000
    assert isinstance(tree(query), Or)
    nested = "".join(f"(x{n} OR (y{n} " for n in range(500)) + "z" + "))" * 500
    assert tree(nested) is not None


WORDS = st.text(st.characters(exclude_characters='()":*'), min_size=1, max_size=8)
PLAIN = st.lists(
    WORDS | st.sampled_from(["AND", "OR", "NOT", '"a b"', "dep*", "foo(bar)", "x:y"]), max_size=6
)


@given(PLAIN.map(" ".join))
@example("NOT a")
@example("a NOT NOT b")
@example('a NOT "" b')
def test_without_groups_parts_and_fields_it_is_the_documented_language(query: str) -> None:
    reading = read(query, NOW)
    assert reading.tree == parse(query)
    assert reading.message_filter == MessageFilter()


MIXED = st.lists(
    st.sampled_from(
        [
            *(f"{name}:" for name in sorted(FIELDS)),
            "(",
            ")",
            '"',
            "*",
            " ",
            " ",
            "AND",
            "OR",
            "NOT",
            "a",
            "foo",
            *("cli", "2w", "May", "2", "error", "服务", "::", "//", "\ud800", "\0", "\u0301", "\u200d", "ि"),
        ]
    ),
    max_size=14,
).map("".join)


@given(st.text() | MIXED)
@example('title:"')
@example("((")
@example("on:")
def test_any_string_is_a_query(query: str) -> None:
    reading = read(query, NOW)
    assert isinstance(reading, Reading)
    if reading.tree is not None:
        matches(reading.tree, MessageText.of("some text", "tool"))
    assert read(query, NOW) == reading
