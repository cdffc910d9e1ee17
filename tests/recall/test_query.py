"""The query grammar, and its results compared with the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hermes.recall.query.operators import parse, sanitize_fts5_query
from hermes.store.query_tree import (
    And,
    Literal,
    MessageText,
    Not,
    Or,
    Phrase,
    Word,
    list_positive_leaves,
    make_phrase,
    matches,
    needs_check,
)
from hermes.text import extract_searchable_text, extract_tool_call_text, replace_surrogates
from tests.oracle import oracle_matches
from tests.tiers import scale_examples

FRAGMENTS = [
    *(
        "deploy",
        "Deploy",
        "budget",
        "get",
        "user",
        "name",
        "getUserName",
        "HTMLParser",
        "parseHTTP2",
        "utf8Text",
    ),
    *(
        "my_func_name",
        "A1B2",
        "3D",
        "iOS",
        "é",
        "café",
        "cafe\u0301",
        "Ünïcode",
        "straße",
        "STRASSE",
        "İ",
        "I",
        "ı",
    ),
    *(
        "ﬁ",
        "Å",
        "Σς",
        "άλφα",
        "ᾳ",
        "Ёлка",
        "елка",
        "получитьИмя",
        "हिन्दी",
        "हि",
        "न्दी",
        "र्\u200dय",
        "عربى",
        "עִבְרִית",
    ),
    *(
        "修改",
        "服务端",
        "服",
        "桂林",
        "广西",
        "々",
        "ひらがな",
        "カタカナ",
        "ｶﾞ",
        "ガ",
        "ー",
        "한국어",
        "에러",
        "ㅋㅋ",
    ),
    *("สวัสดี", "ดี", "ลาว", "ລາວ", "ខ្មែរ", "မြန်မာ", "葛\U000e0100", "第", "章"),
    *("😀", "👩\u200d💻", "1️⃣", "2", "42", "３", "①", "½", "x²", "º", "…", "—", "’", "'", "¨", "ͺ"),
    *(
        "-",
        "_",
        ".",
        "/",
        "::",
        "<",
        ">",
        "(",
        ")",
        "$",
        "%",
        "#",
        "@",
        "\\",
        "|",
        "*",
        "&",
        "=",
        "?",
        "data:",
    ),
    *(
        " ",
        " ",
        " ",
        "\n",
        "\t",
        "\u3000",
        "\u00a0",
        "\u200b",
        "\u200d",
        "\u200c",
        "\u0301",
        "\u0308",
        "\ufe0f",
    ),
    *("\0", "\x1f", "\u2028", "\ufffd", "\ud800", "\u0345", "\u093c", "\u3099", "AND", "NOT", "or"),
]
fragments = st.sampled_from(FRAGMENTS)
texts = st.lists(fragments, max_size=10).map("".join)


SEPARATORS = ["", "", " ", " ", "-", "_", "\n", "  ", "\u200d"]


@st.composite
def searches(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a message and a query. Both consist of the same few fragments, so that the query often matches or
    almost matches."""
    pool = st.sampled_from(draw(st.lists(fragments, min_size=1, max_size=4)))
    between = st.sampled_from(draw(st.lists(st.sampled_from(SEPARATORS), min_size=1, max_size=3)))

    def some(most: int) -> str:
        return "".join(draw(pool) + draw(between) for _ in range(draw(st.integers(1, most))))

    content = some(8)
    shapes = ["{}", "{}", "{}*", '"{}"', '"{}', "NOT {}", "OR {}", "AND {}", "OR NOT {}"]
    pieces: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        piece = draw(st.sampled_from([some(3), some(3), content[start : start + draw(st.integers(1, 9))]]))
        piece = draw(st.sampled_from([piece, piece, piece.upper(), piece.lower(), piece.strip()]))
        pieces.append(draw(st.sampled_from(shapes)).format(piece))
    tool_name = draw(st.none() | pool)
    return draw(st.sampled_from([" ", " ", ""])).join(pieces), {
        "content": content,
        "tool_name": tool_name,
        "tool_calls": None,
    }


def found(query: str, *fields: str | None) -> bool:
    tree = parse(query)
    return tree is not None and matches(tree, MessageText.of(*fields))


def agrees(query: str, message: dict[str, Any]) -> None:
    fields = (
        extract_searchable_text(message["content"]),
        message["tool_name"],
        extract_tool_call_text(message["tool_calls"]),
    )
    clean = message | {
        "content": extract_searchable_text(message["content"]),
        "tool_name": extract_searchable_text(message["tool_name"]),
    }
    assert found(query, fields[0], extract_searchable_text(fields[1]), fields[2]) == oracle_matches(
        query, clean
    )


@settings(max_examples=scale_examples(500))
@given(searches())
@example(("修改youer", {"content": "请修改youer服务端", "tool_name": None, "tool_calls": None}))
@example(("a-b", {"content": "a b xa-bx", "tool_name": None, "tool_calls": None}))
def test_the_result_is_that_of_the_oracle(search: tuple[str, dict[str, Any]]) -> None:
    agrees(*search)


@given(st.text(), st.text())
def test_the_result_is_that_of_the_oracle_for_any_text(query: str, content: str) -> None:
    agrees(query, {"content": content, "tool_name": None, "tool_calls": None})


SENTENCES = [
    "{}?",
    "{}!",
    "{}.",
    "{},",
    "{};",
    "{}...",
    "({}",
    "{})",
    "({})",
    "'{}'",
    "“{}”,",
    "¿{}?!",
    "{}？",
]
WORDS = ["budget", "getUserName", "$5", "v1.2.3", "foo(bar)", "café", "桂林", "std::vector<int>", "50%"]


@given(st.sampled_from(WORDS), st.lists(st.sampled_from(SENTENCES), max_size=3, unique=True), texts)
def test_the_punctuation_of_a_sentence_never_hides_a_word(word: str, shapes: list[str], around: str) -> None:
    typed = word
    for shape in shapes:
        typed = shape.format(typed)
    assert parse(typed) == parse(word)
    assert found(typed, f"{around} {word} {around}")


@given(st.text())
def test_quotes_make_all_punctuation_count(text: str) -> None:
    text = text.replace('"', "")
    assert parse(f'"{text}"') == make_phrase(replace_surrogates(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | fragments | st.just('{"path": "src/main.py", "n": 42}'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "arguments", "name"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(fragments, JSON, JSON)
@example("main", None, [{"function": {"name": "read", "arguments": '{"path": "src/main.py"}'}}])
def test_structured_content_and_tool_calls_are_searched_as_the_oracle_does(
    query: str, content: Any, calls: Any
) -> None:
    fields = extract_searchable_text(content), extract_tool_call_text(calls)
    if isinstance(calls, str):  # tool calls that are text are parsed as JSON, which the oracle does not do
        calls = None
        fields = fields[0], ""
    clean = {"content": fields[0] if isinstance(content, str) else content, "tool_calls": calls}
    assume("\\ud800" not in repr((query, clean)))  # the store never accepts lone surrogates
    assert found(query, *fields) == oracle_matches(query, clean)


@given(st.text())
@example('"')
@example('"" "')
@example('NOT NOT OR AND * ** "*"')
def test_any_string_is_a_query_and_always_the_same_one(query: str) -> None:
    tree = parse(query)
    assert parse(query) == tree
    if tree is not None:
        assert isinstance(needs_check(tree), bool)
        assert list_positive_leaves(tree) or isinstance(tree, Not)


TYPED = (
    r"deploy wrong-book TODO: fix src/main.py issue #123 alice@example.com don't 50% $5 a,b C:\Users\demo "
    r"my_func_name v1.2.3 std::vector<int> key=value https://ex.org/p?q=1 rm -rf foo(bar)"
)


@pytest.mark.parametrize("token", TYPED.split())
def test_every_token_is_found_as_typed(token: str) -> None:
    assert found(token, TYPED)
    assert found(token.upper(), TYPED)
    assert not found(token, "nothing of the kind")


def test_the_whole_line_is_a_query_too() -> None:
    assert found(TYPED, TYPED)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("func", "my_func_name"),
        ("user", "getUserName"),
        ('"user name"', "getUserName"),
        ("parser", "HTMLParser"),
        ("http2", "parseHTTP2"),
        ("имя", "получитьИмя"),
        ("cafe", "Café"),
        ("CAFÉ", "cafe"),
        ("strasse", "Straße"),
        ("istanbul", "İstanbul"),
        ("елка", "Ёлка"),
        ("ＡＢＣ", "abc"),
        ("youer", "修改youer服务端"),
        ("服务", "修改youer服务端"),
        ("服", "修改youer服务端"),
        ("改youer服", "修改youer服务端"),
        ("修改youer", "修改youer服务端"),
        ("ab확", "에러코드ab확인"),
        ("코드", "에러코드ab확인"),
        ("广西 桂林", "桂林在广西"),
        ("สดี", "สวัสดีครับ"),
        ("dep*", "deployment"),
        ("use*", "getUserName"),
        ("src/ma*", "see src/main.py"),
        ("*args", "def f(*args)"),
        ("**bold**", "a **bold** word"),
        ("->", "def f() -> None"),
        ('"a,  b"', "see a, b"),
        ('"retry budget"', "the retry\n budget"),
        ("python NOT java script", "python script"),
        ("a AND NOT b", "a c"),
    ],
)
def test_found(query: str, text: str) -> None:
    assert found(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("deploy", "deployment"),
        ("हि", "हिन्दी"),
        ("50%", "50 of 100"),
        ("src/main.py", "src main.py"),
        ("务改", "修改youer服务端"),
        ("修youer", "修改youer服务端"),
        ("youer务", "修改youer服务端"),
        ("改服", "修改youer服务端"),
        ("ment*", "deployment"),
        ('"budget retry"', "the retry budget"),
        ("python NOT java", "python and java"),
        ("don't", "do not"),
        ("name html", "getUserName"),
        ('"name html"', "getUserName HTMLParser"),
    ],
)
def test_not_found(query: str, text: str) -> None:
    assert not found(query, text)


def test_a_phrase_does_not_run_from_one_field_into_the_next() -> None:
    assert found('"retry budget"', "the retry budget")
    assert not found('"retry budget"', "the retry", "budget")
    assert found("retry budget", "the retry", "budget")


def test_operators_bind_not_before_and_before_or() -> None:
    a, b, c = Word("a", ("a",)), Word("b", ("b",)), Word("c", ("c",))
    assert parse("a b OR c") == Or((And((a, b)), c))
    assert parse("a NOT b c") == And((a, Not(b), c))
    assert parse("a AND NOT b OR c") == Or((And((a, Not(b))), c))
    assert parse("a and b") == And((a, Word("and", ("and",)), b))


@pytest.mark.parametrize("query", ["", "  ", '"', '""', "AND", "OR NOT", "***", '" "', "\u3000"])
def test_an_empty_query_is_none(query: str) -> None:
    assert parse(query) is None


@pytest.mark.parametrize(
    "query",
    ["AND a", "a OR", "a NOT", "NOT a", "OR OR a AND AND", "a *", '"a', 'a "', "a NOT OR", "OR NOT a"],
)
def test_meaningless_parts_are_dropped(query: str) -> None:
    tree = parse(query)
    assert isinstance(tree, Word)
    assert tree.terms == ("a",)


def test_leaves_say_what_the_index_can_and_cannot_decide() -> None:
    assert parse("deploy*") == Word("deploy", ("deploy",), prefix_last=True)
    assert parse("Foo(Bar)") == Word("Foo(Bar)", ("foo", "bar"), literal="foo(bar)")
    assert parse('"Foo  Bar"') == Phrase("Foo  Bar", ("foo", "bar"))
    assert parse("->") == Literal("->", "->")
    assert parse("服") == Word("服", ("服",), prefix_last=True)
    assert parse("修改youer服务") == Word("修改youer服务", ("修改", "改", "youer", "服务"))


@pytest.mark.parametrize(
    ("query", "check"),
    [
        ("a b", False),
        ("a-b", True),
        ("->", True),
        ("a ->", True),
        ("a OR ->", True),
        ("a NOT b", False),
        ("a OR NOT b", False),
    ],
)
def test_whether_the_index_suffices(query: str, check: bool) -> None:
    tree = parse(query)
    assert tree is not None
    assert needs_check(tree) == check


def test_a_word_longer_than_a_term_is_still_found_exactly() -> None:
    long = "x" * 300
    assert found(long, f"see {long} there")
    assert not found(long, "see " + "x" * 299 + " there")
    assert found("x" * 280 + "*", f"see {long} there")


@pytest.mark.parametrize(
    ("query", "clean"),
    [
        ("docker-compose", '"docker-compose"'),
        ("chat-send", '"chat-send"'),
        ("my_func.name", '"my_func.name"'),
        ("hello AND", "hello"),
        ("or hello", "hello"),
        ('"hello world', "hello world"),
        ('"exact phrase" NOT draft', '"exact phrase" NOT draft'),
        ('"a-b" c-d', '"a-b" "c-d"'),
        ("***", ""),
        ("deploy**", "deploy*"),
        ("* deploy", "deploy"),
        ("foo(bar) {x} ^y +z", "foo bar   x   y  z"),
        ("AND", ""),
        ("", ""),
    ],
)
def test_the_documented_sanitiser(query: str, clean: str) -> None:
    assert sanitize_fts5_query(query) == clean


@given(st.text(alphabet='ab"*.-_ \0ANDORT()'))
def test_the_sanitiser_never_raises_and_leaves_quotes_balanced(query: str) -> None:
    assert sanitize_fts5_query(query).count('"') % 2 == 0
