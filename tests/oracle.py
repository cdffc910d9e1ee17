"""A slow and simple implementation of queries. Tests compare the search with it.

It shares no code with the product: it examines characters one by one, by their Unicode names, and compares
tokens instead of index terms. If the two disagree, one of them is wrong.

1. The text of a message is its content (the strings of structured content), its tool name and its tool calls.
   Case and diacritics are folded on both sides, diacritics on Latin, Greek and Cyrillic letters only.
2. Tokens are runs of letters and digits of one script family. An identifier also yields its camelCase parts.
3. The punctuation of a sentence around a word is left out. A word matches if its tokens occur side by side as
   whole tokens. If it contains punctuation, it must also occur literally. A word of only punctuation matches literally.
4. In scripts without spaces a run matches as a substring.
5. `prefix*` matches the start of a token.
6. `*part*` matches inside a token. With punctuation, or across script families, it must occur literally.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

LONGEST = 255  # only this many characters of a token are compared; a longer word must also occur literally
SPACELESS = (
    "CJK UNIFIED",
    "CJK COMPATIBILITY IDEOGRAPH",
    "HIRAGANA",
    "KATAKANA",
    "COMBINING KATAKANA",
    "HANGUL",
    "THAI ",
    "LAO ",
    "KHMER ",
    "MYANMAR ",
)
ITERATION_MARKS = "々〆〇〻"
QUOTES = "'`“”„‟‘’‚«»‹›"
PAIRS = ("()", "[]", "{}", "（）", "「」", "『』", "【】", "《》")
DROPPED = ("COMBINING ", "VARIATION SELECTOR-")


def oracle_matches(query: str, message: dict[str, Any]) -> bool:
    """Return whether the message is among the results of the query."""
    fields = fields_of(message)
    items = read_query(query.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    group: list[bool] = []
    groups: list[list[bool]] = [group]
    for at, item in enumerate(items):
        if item == "OR":
            group = []
            groups.append(group)
        elif isinstance(item, tuple):
            found = leaf_matches(item, fields)
            negated = items[at - 1] == "NOT" and any(isinstance(before, tuple) for before in items[:at])
            group.append(found != negated if at else found)
    return any(all(one) for one in groups if one)


# The query


def read_query(query: str) -> list[str | tuple[str, bool]]:
    """Return the tokens of a query: operators as strings, and words and phrases as (text, whether a star
    follows).

    Parts of the query that have no meaning are left out.
    """
    items: list[str | tuple[str, bool]] = []
    while query:
        if query[0] == '"' and '"' in query[1:]:
            phrase, query = query[1:].split('"', 1)
            if fold(phrase).strip():
                items.append((phrase.strip(), False))
        elif query[0] == '"' or query[0].isspace():
            query = query[1:]
        else:
            size = 0
            while size < len(query) and query[size] != '"' and not query[size].isspace():
                size += 1
            word, query = query[:size], query[size:]
            if word in ("AND", "OR", "NOT"):
                items.append(word)
                continue
            stem = word = within_sentence(word)
            while stem.endswith("*"):
                stem = stem[:-1]
            if fold(stem).strip():
                items.append((within_sentence(stem), stem != word))
    return items


def within_sentence(word: str) -> str:
    """Return the word without the punctuation of the sentence around it. Remove one sign at a time."""
    rest = word
    while rest:
        dots = len(rest) - len(rest.rstrip("."))
        lone_ending = rest[-1] in ".;:" and rest[-2:] != rest[-1] * 2
        too_many = [pair for pair in PAIRS if rest.count(pair[1]) > rest.count(pair[0])]
        too_few = [pair for pair in PAIRS if rest.count(pair[0]) > rest.count(pair[1])]
        if dots >= 3:
            rest = rest[:-dots]
        elif (
            lone_ending
            or rest[-1] in "?!,？！؟…。，、；：" + QUOTES
            or rest[-1] in [pair[1] for pair in too_many]
        ):
            rest = rest[:-1]
        elif rest[0] in "¿¡" + QUOTES or rest[0] in [pair[0] for pair in too_few]:
            rest = rest[1:]
        elif rest[0] == "(" and rest[-1] == ")" and encloses(rest):
            rest = rest[1:-1]
        else:
            break
    return rest if any(char.isalnum() for char in rest) else word


def encloses(word: str) -> bool:
    """Return whether the first parenthesis is closed by the last one."""
    depths = [word[: at + 1].count("(") - word[: at + 1].count(")") for at in range(len(word))]
    return depths.index(0) == len(word) - 1


# One word or phrase


def leaf_matches(leaf: tuple[str, bool], fields: list[str]) -> bool:
    text, starred = leaf
    plain = without_diacritics(text)
    tokens = tokens_of(plain)
    literal = one_space(fold(text))
    says_it = any(literal in one_space(fold(field)) for field in fields)
    if not tokens:
        return says_it
    punctuated = any(
        not inside for inside, char in zip(inside_tokens(plain), plain, strict=True) if not char.isspace()
    )
    prefix = starred and inside_tokens(plain)[-1]
    wanted = [token.casefold() for token in tokens]
    beside = any(
        stand_side_by_side(wanted, sequence, prefix) for field in fields for sequence in sequences_of(field)
    )
    return beside and (says_it or not (punctuated or max(map(len, wanted)) > LONGEST))


def part_matches(part: str, fields: list[str]) -> bool:
    """Return whether one of the fields contains `part` (the query `*part*`)."""
    plain = without_diacritics(part)
    tokens = tokens_of(plain)
    literal = one_space(fold(part))
    if len(tokens) != 1 or not all(inside_tokens(plain)) or kind(tokens[0][0]) == "spaceless":
        return any(literal in one_space(fold(field)) for field in fields)
    words = [token.casefold()[:LONGEST] for field in fields for token in tokens_of(without_diacritics(field))]
    return any(tokens[0].casefold() in word for word in words)


def sequences_of(field: str) -> list[list[str]]:
    """Return the tokens of a field as one list, and the parts of each identifier in the field as further
    lists."""
    tokens = tokens_of(without_diacritics(field))
    identifiers = [camel_parts(token) for token in tokens if len(token) <= LONGEST]
    sequences = [tokens, *[parts for parts in identifiers if len(parts) > 1]]
    return [[token.casefold() for token in sequence] for sequence in sequences]


def stand_side_by_side(wanted: list[str], tokens: list[str], prefix: bool) -> bool:
    return any(
        all(
            token_matches(want, tokens[at + nth], nth == 0, nth == len(wanted) - 1, prefix)
            for nth, want in enumerate(wanted)
        )
        for at in range(len(tokens) - len(wanted) + 1)
    )


def token_matches(want: str, token: str, first: bool, last: bool, prefix: bool) -> bool:
    if kind(want[0]) == "spaceless":
        if kind(token[0]) != "spaceless":
            return False
        if first and last:
            return want in token
        return token.endswith(want) if first else token.startswith(want) if last else token == want
    want, token = want[:LONGEST], token[:LONGEST]
    return token.startswith(want) if last and prefix else token == want


# Characters


def kind(char: str) -> str:
    """Return the kind of a character: letter, spaceless, mark, joiner or other."""
    name, category = unicodedata.name(char, ""), unicodedata.category(char)
    if category[0] in "LMN" and (name.startswith(SPACELESS) or char in ITERATION_MARKS):
        return "spaceless"
    if category[0] in "LN":
        return "letter"
    if category in ("Mn", "Mc") and not name.startswith("VARIATION SELECTOR-"):
        return "mark"
    return "joiner" if name in ("ZERO WIDTH JOINER", "ZERO WIDTH NON-JOINER") else "other"


def inside_tokens(plain: str) -> list[bool]:
    """Return for each character whether it belongs to a token."""
    inside: list[bool] = []
    family = "other"
    for at, char in enumerate(plain):
        now = kind(char)
        if now in ("letter", "spaceless"):
            family = now
        elif now == "joiner":
            rest = [kind(following) for following in plain[at:]]
            after = next((following for following in rest if following != "joiner"), "other")
            if after not in (family, "mark"):
                family = "other"
        elif now == "other":
            family = "other"
        inside.append(family != "other")
    return inside


def tokens_of(plain: str) -> list[str]:
    tokens: list[str] = []
    family = "other"
    for char, inside in zip(plain, inside_tokens(plain), strict=True):
        now = kind(char) if inside else "other"
        if now in ("letter", "spaceless") and now != family:
            tokens.append(char)
        elif now != "other":
            tokens[-1] += char
        family = now if now in ("letter", "spaceless", "other") else family
    return tokens


def camel_parts(token: str) -> list[str]:
    parts = [token[0]]
    for at in range(1, len(token)):
        back = at - 1
        while back > 0 and token[back].isdecimal():
            back -= 1
        follows_lower = token[back].islower()
        starts_word = token[back].isupper() and token[at + 1 : at + 2].islower()
        if token[at].isupper() and (follows_lower or starts_word):
            parts.append("")
        parts[-1] += token[at]
    return parts


def without_diacritics(text: str) -> str:
    kept = ""
    on_letter = False
    for char in unicodedata.normalize("NFKD", text):
        name = unicodedata.name(char, "")
        if name == "COMBINING GREEK YPOGEGRAMMENI":
            continue
        if name.startswith(DROPPED) and not name.startswith("COMBINING KATAKANA"):
            if not on_letter:
                kept += char
            continue
        on_letter = name.startswith(("LATIN ", "GREEK ", "CYRILLIC ")) and char.isalpha()
        kept += char
    return unicodedata.normalize("NFC", kept)


def fold(text: str) -> str:
    plain = unicodedata.normalize("NFD", without_diacritics(text))
    return unicodedata.normalize("NFC", plain.casefold())


def one_space(text: str) -> str:
    squeezed = ""
    for char in text:
        if not char.isspace():
            squeezed += char
        elif not squeezed.endswith(" "):
            squeezed += " "
    return squeezed


# The message


def fields_of(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    return [
        "\n".join(content_strings(message.get("content"))),
        message.get("tool_name") or "",
        "\n".join(call_strings(calls)) if calls is not None else "",
    ]


def content_strings(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return [one for item in content for one in part_strings(item)]
    if isinstance(content, dict):
        return part_strings(content)
    return []


def part_strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [] if value.startswith("data:") else [value]
    if isinstance(value, dict):
        kept = [item for key, item in value.items() if not (key == "type" and isinstance(item, str))]
        return [one for item in kept for one in part_strings(item)]
    if isinstance(value, list):
        return [one for item in value for one in part_strings(item)]
    return []


def call_strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = []
        for key, item in value.items():
            found.append(key)
            if key == "arguments" and isinstance(item, str):
                try:
                    inner = json.loads(item)
                except ValueError:
                    inner = None
                item = inner if isinstance(inner, dict | list) else item
            found += call_strings(item)
        return found
    if isinstance(value, list):
        return [one for item in value for one in call_strings(item)]
    if isinstance(value, str):
        return [value]
    return [str(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
