"""Detection and redaction of secrets in text, by a table of (name, pattern, example).

The tests use the examples. The secret is the whole match, or its group `secret` if only a value is secret.
Precision is more important than recall: a redacted git hash makes a transcript useless, and `scrub` removes
keys in unknown formats. Every pattern takes linear time on hostile text, because unbounded repetitions either
cannot restart in the middle or are possessive (`++`).

The table is compiled at its first use, so that importing this module is fast.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple


class SecretPattern(NamedTuple):
    name: str
    pattern: str
    example: str


class Found(NamedTuple):
    """The place of a secret in a text, without the secret itself."""

    name: str
    start: int
    end: int


# The folders of an absolute path, or of one below the home, which are removed so that only the file name is
# left. Text after a colon or a letter is not such a path: `https://host/a/b`, `and/or`.
_FOLDERS = re.compile(r"(?<![\w:/.])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\":,;]+[/\\])*(?=[^\s/\\])")


def join_example(*parts: str) -> str:
    """Join the parts of an example. They are separate so that secret scanners do not report this file."""
    return "".join(parts)


def _make_key_pattern(prefix: str, rest: str) -> str:
    r"""Return the pattern of a key with this prefix that is a separate word, also after an escaped line end
    (`\nsk-…` in JSON).

    The lookbehind is after the prefix, so that the search can skip from one prefix to the next.
    """
    return rf"{prefix}(?:(?<![A-Za-z0-9_-]{prefix})|(?<=\\[nrt]{prefix})){rest}(?![A-Za-z0-9_])"


def _spell_words(*words: str, rest: str = "") -> str:
    """Return alternatives for the usual spellings of the words. One flat list of alternatives is searched ten
    times as fast."""
    return "|".join(form + rest for word in words for form in (word, word.capitalize(), word.upper()))


MADE_UP = join_example("Tr0ub4dor", "-and-3")
"""The value in the examples of settings."""
_HEX = "0123456789abcdef"
_WORD = "MadeUpForThisTable0123456789abcdefABCDEF"
_LONG = _WORD * 3

# Placeholders of secrets in documentation and templates. The output of `redact` begins with a bracket too.
_NO_PLACEHOLDER = (
    r"(?!(?i:x{3}|\*{3}|\.{3}|…|<|\$|%|\{|\[|your|my[_-]|the[_-]|some[_-]|insert|example|sample|dummy|fake|change[_-]?me"
    r"|replace|placeholder|redacted|none\b|null\b|nil\b|true\b|false\b|undefined\b|string\b|required\b|optional\b"
    r"|os\.|env\.|process\.|self\.|password\b|passwd\b|pass\b|secret\b|token\b|api[_-]?key\b|bearer\b))"
)
_PASSWORD = _spell_words("password", "passwd", "passphrase", "pwd")
_KEY = _spell_words(
    "api", "access", "secret", "private", "signing", "encryption", "auth", rest="[_-]?(?i:key(?:[_-]?base)?)"
)
_SECRET = "|".join((_spell_words("secret", "token", "credentials", "credential"), _KEY))
_SET_TO = r"[\"'\\]{0,4}[ \t]{0,4}(?::=|=>|=(?!=)|:)[ \t]{0,4}"
_QUOTE = r"\\{0,3}[\"'`]"
_BARE = r"[^\s\"'`,;&<>(){}\[\]$*|\\]"
# A path or a name in a program is not a value: letters only, or words joined by dots or underscores.
_NO_NAME = r"(?![/~.]|(?>[A-Za-z]\w*?[._][\w.]*+|[A-Za-z_]++)(?![^\s,;)]))"
_LETTER_AND_DIGIT = rf"(?={_BARE}{{0,200}}?[0-9])(?={_BARE}{{0,200}}?[A-Za-z])"

SECRETS: tuple[SecretPattern, ...] = (
    SecretPattern(
        "private key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]*+(?:-(?!----)[^-]*+)*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:(?:\s|\\[nr])++[A-Za-z0-9+/=]{32,}+)++)",
        join_example(
            "-----BEGIN OPENSSH ", "PRIVATE KEY-----\n", _WORD, "\n-----END OPENSSH ", "PRIVATE KEY-----"
        ),
    ),
    SecretPattern(
        "age key",
        _make_key_pattern("AGE-SECRET-KEY-", "1[0-9A-Z]{58}"),
        join_example("AGE-SECRET-", "KEY-1", "QZ" * 29),
    ),
    SecretPattern(
        "JSON web token",
        _make_key_pattern("eyJ", r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
        join_example("eyJ", "hbGciOiJub25l.", "eyJ", "zdWIiOiJtYWRldXAi.", _WORD),
    ),
    SecretPattern(
        "Anthropic key",
        _make_key_pattern("sk-ant-", "[A-Za-z0-9_-]{20,}+"),
        join_example("sk-", "ant-api03-", _LONG),
    ),
    SecretPattern(
        "OpenRouter key",
        _make_key_pattern("sk-or-", "[A-Za-z0-9_-]{20,}+"),
        join_example("sk-", "or-v1-", _HEX * 4),
    ),
    SecretPattern(
        "OpenAI key",
        _make_key_pattern(
            "sk-",
            "(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})",
        ),
        join_example("sk-", "proj-", _LONG),
    ),
    SecretPattern(
        "API key",
        _make_key_pattern("sk-", "(?:[a-z]{2,12}-){0,2}[A-Za-z0-9]{24,}+"),
        join_example("sk-", _HEX * 2),
    ),
    SecretPattern(
        "Google API key", _make_key_pattern("AIza", "[A-Za-z0-9_-]{35}"), join_example("AI", "za", _WORD[:35])
    ),
    SecretPattern(
        "Google OAuth secret",
        _make_key_pattern("GOCSPX-", "[A-Za-z0-9_-]{28}"),
        join_example("GOC", "SPX-", _WORD[:28]),
    ),
    SecretPattern(
        "AWS access key id",
        _make_key_pattern("A(?:KI|SI)A", "[A-Z2-7]{16}"),
        join_example("AK", "IA", "MADEUP22" * 2),
    ),
    SecretPattern(
        "AWS secret access key",
        r"[Ss]ecret_?[Aa]ccess_?[Kk]ey[\"'\\]{0,4}\s{0,4}[=:]\s{0,4}[\"'\\]{0,4}"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        join_example("aws_secret_", "access_key = ", MADE_UP.replace("-", "/") * 2, "MadeUp0000"),
    ),
    SecretPattern(
        "GitHub token",
        _make_key_pattern("gh[pousr]_", "[A-Za-z0-9]{36,}+"),
        join_example("gh", "p_", _WORD[:36]),
    ),
    SecretPattern(
        "GitHub token",
        _make_key_pattern("github_pat_", "[A-Za-z0-9_]{36,}+"),
        join_example("github_", "pat_", _LONG[:82]),
    ),
    SecretPattern(
        "GitLab token",
        _make_key_pattern("gl(?:pat|ptt|cbt|imt)-", "[A-Za-z0-9_-]{20,}+"),
        join_example("gl", "pat-", _WORD[:20]),
    ),
    SecretPattern(
        "Slack token",
        _make_key_pattern("xox[abeoprs]-", "[A-Za-z0-9-]{10,}+"),
        join_example("xox", "b-0000-", _WORD[:24]),
    ),
    SecretPattern(
        "Slack token",
        _make_key_pattern("xapp-", "[A-Za-z0-9-]{10,}+"),
        join_example("xa", "pp-1-A0-0000-", _WORD),
    ),
    SecretPattern(
        "Discord bot token",
        _make_key_pattern("[MNO]", r"[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"),
        join_example(_WORD[:24], ".", _WORD[:6], ".", _WORD[:38]),
    ),
    SecretPattern(
        "Telegram bot token",
        _make_key_pattern("[0-9]", "[0-9]{7,9}:AA[A-Za-z0-9_-]{33}"),
        join_example("1234567", "890:", "AA", _WORD[:33]),
    ),
    SecretPattern(
        "Telegram bot address",
        r"/bot[0-9]{1,20}+(?::|%3A)(?P<secret>[A-Za-z0-9_-]{6,}+)",
        join_example("https://api.telegram.org", "/bot", "1234567", "890:", MADE_UP, "/getMe"),
    ),
    SecretPattern(
        "Stripe key",
        _make_key_pattern("[sr]k_(?:live|test)_", "[A-Za-z0-9]{16,}+"),
        join_example("sk_", "live_", _WORD[:24]),
    ),
    SecretPattern(
        "Stripe webhook secret",
        _make_key_pattern("whsec_", "[A-Za-z0-9]{24,}+"),
        join_example("wh", "sec_", _WORD[:32]),
    ),
    SecretPattern("Twilio key", _make_key_pattern("SK", "[0-9a-f]{32}"), join_example("S", "K", _HEX * 2)),
    SecretPattern(
        "SendGrid key",
        _make_key_pattern("SG[.]", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
        join_example("SG", ".", _WORD[:22], ".", _LONG[:43]),
    ),
    SecretPattern(
        "npm token", _make_key_pattern("npm_", "[A-Za-z0-9]{36}"), join_example("np", "m_", _WORD[:36])
    ),
    SecretPattern(
        "PyPI token", _make_key_pattern("pypi-", "[A-Za-z0-9_-]{50,}+"), join_example("py", "pi-", _LONG)
    ),
    SecretPattern(
        "Hugging Face token",
        _make_key_pattern("hf_", "[A-Za-z0-9]{30,}+"),
        join_example("h", "f_", _WORD[:34]),
    ),
    SecretPattern(
        "DigitalOcean token",
        _make_key_pattern("do[opr]_v1_", "[0-9a-f]{64}"),
        join_example("do", "p_v1_", _HEX * 4),
    ),
    SecretPattern(
        "Azure key",
        r"(?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})",
        join_example("DefaultEndpointsProtocol=https;AccountName=madeup;Account", "Key=", _LONG[:86], "=="),
    ),
    SecretPattern(
        "authorization",
        r"[Aa](?i:uthorization)[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}(?i:bearer|basic|token)\s{1,4}"
        rf"{_NO_PLACEHOLDER}(?P<secret>[A-Za-z0-9._~+/=-]{{8,}}+)",
        join_example("Authorization: ", "Bearer ", MADE_UP),
    ),
    SecretPattern(
        "database password",
        r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|oracle|clickhouse|cockroachdb)(?:\+[a-z0-9]{1,20})?"
        rf"://[^\s/:@\"'<>\\]{{0,128}}:{_NO_PLACEHOLDER}(?P<secret>[^\s/@\"'<>\[\\]{{3,256}}+)@",
        join_example("postgresql+psycopg://", "me:", MADE_UP, "@db.example.org:5432/notes"),
    ),
    SecretPattern(
        "URL password",
        rf"://[^\s/:@\"'<>\\]{{0,128}}:{_NO_PLACEHOLDER}(?P<secret>[^\s/@\"'<>\[\\]{{3,256}}+)@",
        join_example("https://", "me:", MADE_UP, "@example.org/notes.git"),
    ),
    SecretPattern(
        "password",
        rf"(?:{_PASSWORD}){_SET_TO}(?P<quote>{_QUOTE}){_NO_PLACEHOLDER}(?P<secret>[^\s\"'`\\]{{6,256}}+)(?P=quote)",
        join_example('"password": "', MADE_UP, '"'),
    ),
    SecretPattern(
        "secret value",
        rf"(?:{_SECRET}){_SET_TO}(?P<quote>{_QUOTE}){_NO_PLACEHOLDER}(?![A-Za-z_.-]+[\"'`\\])"
        r"(?P<secret>[^\s\"'`\\]{8,1024}+)(?P=quote)",
        join_example("api_key: '", MADE_UP, "'"),
    ),
    SecretPattern(
        "exported value",
        r"(?:PASSWORD|PASSWD|SECRET|TOKEN|(?:API|ACCESS|SECRET|PRIVATE|SIGNING|ENCRYPTION)_?KEY)="
        rf"{_NO_PLACEHOLDER}(?![/~.]|[A-Z][A-Z_]*+(?![^\s,;)]))(?P<secret>{_BARE}{{6,1024}}+)(?![(\[{{])",
        join_example("export MADE_UP_", "TOKEN=", MADE_UP),
    ),
    SecretPattern(
        "setting",
        rf"(?:{_PASSWORD}|{_SECRET}){_SET_TO}{_NO_PLACEHOLDER}{_NO_NAME}{_LETTER_AND_DIGIT}"
        rf"(?P<secret>{_BARE}{{6,1024}}+)(?![(\[{{])",
        join_example("password=", MADE_UP),
    ),
)


def find_secrets(text: str) -> list[Found]:
    """Return every secret in the text, in order. If two patterns overlap, the first in the table wins."""
    found: list[Found] = []
    for name, pattern in _compile_patterns():
        here = [Found(name, *_get_span(match)) for match in pattern.finditer(text)]
        if here:
            found += here
            text = _replace_spans(
                text, [(*secret[1:], "\n" * (secret.end - secret.start)) for secret in here]
            )
    return sorted(found, key=lambda secret: secret.start)


def redact(text: str) -> str:
    """Return the text with `[redacted <name>]` in place of each secret."""
    while found := find_secrets(text):  # a secret may be recognised only after its neighbour was replaced
        text = _replace_spans(text, [(start, end, f"[redacted {name}]") for name, start, end in found])
    return text


def redact_line(text: str, longest: int = 300) -> str:
    """Return the first line of an error for users elsewhere, without secrets and without folders of this
    machine."""
    first = next(iter(text.strip().splitlines()), "")
    return redact(_FOLDERS.sub("", first))[:longest]


def redact_value(value: Any) -> Any:
    """Redact content, tool calls and other nested values. A string under a key such as `api_key` is treated
    as its value."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_field(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(item) for item in value]
    return value


def _redact_field(key: object, item: Any) -> Any:
    if isinstance(key, str) and isinstance(item, str):
        before, after = f'{key}="', '"'
        redacted = redact(f"{before}{item}{after}")
        if redacted.startswith(before) and redacted.endswith(after):
            return redacted[len(before) : -len(after)]
    return redact_value(item)


@cache
def _compile_patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [(secret.name, re.compile(secret.pattern)) for secret in SECRETS]


def _get_span(match: re.Match[str]) -> tuple[int, int]:
    return match.span("secret" if "secret" in match.re.groupindex else 0)


def _replace_spans(text: str, changes: list[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, instead in changes:
        parts += [text[at:start], instead]
        at = end
    return "".join([*parts, text[at:]])
