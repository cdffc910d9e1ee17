"""Text is folded and split into index terms. A query is split in the same way."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.store.query_tree import MessageText, make_word, matches
from hermes.terms import (
    MAX_TERM,
    SEPARATOR,
    QueryTerms,
    find_token_spans,
    fold,
    index_text,
    index_texts,
    is_spaceless,
    make_query_terms,
)

SCRIPTS = [
    "aZ09",
    "éÜßİıſ",
    "άΣςᾳ",
    "ёЙѝ",
    "हिन्दी",
    "\u200d\u200c",
    "عَر",
    "修改服",
    "ひカｶﾞー",
    "한글ㅋ",
    "สวัด",
    "😀️⃣",
]
texts = (
    st.text(alphabet=st.sampled_from([*"".join(SCRIPTS), *" -_./|'\n\0\x1f\u0301\u0345\u093c\ufe0f"]))
    | st.text()
)


@given(texts)
def test_folding_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.full
def test_folding_is_idempotent_for_every_character_with_a_mark() -> None:
    for code in range(0x30000):
        for text in (chr(code), f"{chr(code)}\u0301", f"א{chr(code)}\u0345\ufe0f"):
            assert fold(fold(text)) == fold(text), hex(code)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Hello WORLD", "hello world"),
        ("Straße", "strasse"),
        ("İIıi", "iiıi"),
        ("Ünïcödé", "unicode"),
        ("Ωμέγα", "ωμεγα"),
        ("ᾳ", "α"),
        ("Ёлка и Йод", "елка и иод"),
        ("हिन्दी", "हिन्दी"),
        ("が", "が"),
        ("か\u3099", "が"),
        ("ｶﾞ", "ガ"),
        ("ＡＢＣ１２", "abc12"),
        ("ﬁx²", "fix2"),
        ("한글", "한글"),
        ("a\0\u2028", "a\0\u2028"),
    ],
)
def test_fold(text: str, folded: str) -> None:
    assert fold(text) == folded


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("my_func_name v1.2.3", "my func name v1 2 3"),
        ("don't — 50%…", "don t 50"),
        ("修改youer服务端", "修改 改 youer 服务 务端 端"),
        ("에러코드ab확인", "에러 러코 코드 드 ab 확인 인"),
        ("第3章", "第 3 章"),
        ("カタカナ・ひら", "カタ タカ カナ ナ ひら ら"),
        ("हिन्दी र्\u200dय", "हिन्दी र्\u200dय"),
        ("1️⃣ 👩\u200d💻 ok", "1 ok"),
        ("\u0301abc \u093cd", "abc d"),
        ("Ünï-Ёлка", "uni елка"),
        ("", ""),
        ("... —", ""),
    ],
)
def test_words(text: str, words: str) -> None:
    assert index_text(text)[0] == words


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("getUserName", "get user name"),
        ("HTMLParser parseHTTP2", "html parser ¦ parse http2"),
        ("HTTP2Server utf8Text X509Certificate", "http2 server ¦ utf8 text ¦ x509 certificate"),
        ("plain Title UPPER 3D A1B2 0xFF", "0x ff"),
        ("получитьИмя getÜberName", "получить имя ¦ get uber name"),
        ("修改getUser服务", "get user"),
        ("snake_case", ""),
    ],
)
def test_parts_of_identifiers(text: str, parts: str) -> None:
    assert index_text(text)[1] == parts


def test_fields_are_kept_apart() -> None:
    assert index_texts("a getUser", "", "b", "putName") == ("a getuser ¦ b ¦ putname", "get user ¦ put name")
    assert index_texts() == ("", "")


@given(texts)
def test_the_fast_paths_split_like_the_slow_path(text: str) -> None:
    # a Thai letter at the end forces the slow path
    words, parts = index_text(text + " ก")
    assert index_text(text) == (words.removesuffix("ก").rstrip(" "), parts)


@pytest.mark.full
def test_the_fast_paths_split_every_character_like_the_slow_path() -> None:
    for code in (*range(0x1F000), *range(0xE0000, 0xE0200)):
        for text in (f"a{chr(code)}b", f"中{chr(code)}文 가{chr(code)}", f"x {chr(code)}Ab 中"):
            assert index_text(text)[0] == index_text(f"{text} ก")[0][:-2], hex(code)


@given(texts)
def test_no_term_contains_a_separator_of_the_tokenizer(text: str) -> None:
    for stream in index_text(text):
        assert stream == " ".join(stream.split(" "))
        for term in stream.split(" ") if stream else ():
            assert term
            assert all(ord(char) > 32 and char != "\x7f" for char in term)
            assert SEPARATOR not in term or term == SEPARATOR
            assert len(term) <= MAX_TERM


@given(texts)
def test_tokens_of_folded_text_are_its_words(text: str) -> None:
    folded = fold(text)
    terms: list[str] = []
    for start, end in find_token_spans(folded):
        token = folded[start:end]
        terms += (
            [token[at : at + 2] for at in range(len(token))] if is_spaceless(token) else [token[:MAX_TERM]]
        )
    assert index_text(folded)[0] == " ".join(terms)


@pytest.mark.parametrize(
    ("word", "prefix", "demanded"),
    [
        ("Deploy", False, QueryTerms(("deploy",), False, True)),
        ("dep", True, QueryTerms(("dep",), True, True)),
        ("foo-", True, QueryTerms(("foo",), False, False)),
        ("foo(bar)", False, QueryTerms(("foo", "bar"), False, False)),
        ("服", False, QueryTerms(("服",), True, True)),
        ("服务端", False, QueryTerms(("服务", "务端"), False, True)),
        ("服务", True, QueryTerms(("服务",), False, True)),
        ("修改youer", False, QueryTerms(("修改", "改", "youer"), False, True)),
        ("youer服", False, QueryTerms(("youer", "服"), True, True)),
        ("youer服务", False, QueryTerms(("youer", "服务"), False, True)),
        ("a服务b", False, QueryTerms(("a", "服务", "务", "b"), False, True)),
        ("a b", False, QueryTerms(("a", "b"), False, True)),
        ("->", False, QueryTerms((), False, False)),
        ("x" * 300, False, QueryTerms(("x" * MAX_TERM,), False, False)),
    ],
)
def test_query_terms(word: str, prefix: bool, demanded: QueryTerms) -> None:
    assert make_query_terms(word, prefix=prefix) == demanded


def test_a_token_that_is_too_long_is_cut_and_not_split_as_an_identifier() -> None:
    assert index_text("aB" * 200) == (("ab" * 200)[:MAX_TERM], "")


def test_every_part_of_a_run_without_spaces_is_found() -> None:
    run = "修改服务端的重试预算한국어สวัสดี"
    text = MessageText.of(f"x {unicodedata.normalize('NFD', run)}.")
    for start in range(len(run)):
        for end in range(start + 1, len(run) + 1):
            leaf = make_word(run[start:end])
            assert leaf is not None
            assert matches(leaf, text), run[start:end]
