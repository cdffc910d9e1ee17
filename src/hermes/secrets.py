"""Detection and redaction of secrets in text, by a table of (name, pattern, example).

The tests use the examples. The secret is the whole match, or the group `secret` if the pattern has one.
Precision is more important than recall, because a redacted git hash makes a transcript useless. A key in an
unknown format can be removed with `scrub`. Every pattern takes linear time on hostile text, because unbounded
repetitions either cannot restart in the middle or are possessive (`++`).

The table is compiled at its first use, so that importing this module is fast.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple


class SecretPattern(NamedTuple):
    name: str
    pattern: str
    example: str
    check: Callable[[re.Match[str]], bool] | None = None
    """Returns whether a match is a secret. None if every match is one."""


class Found(NamedTuple):
    """The place of a secret in a text, and the name of the pattern that found it. The secret itself is not
    included."""

    name: str
    start: int
    end: int


CUT = "..."
"""The end of a preview that does not show the whole text."""
_LAST_WORD = re.compile(r"(?:[\d -]+|\S+)\Z")
# The folders of an absolute path, or of one below the home, which are removed so that only the file name is
# left. Text after a colon or a letter is not such a path: `https://host/a/b`, `and/or`.
_FOLDERS = re.compile(r"(?<![\w:/.])(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\'\":,;]+[/\\])*(?=[^\s/\\])")


def join_example(*parts: str) -> str:
    """Join the parts of an example of a secret. The parts are separate in this file so that secret scanners do
    not report it."""
    return "".join(parts)


def _make_key_pattern(prefix: str, rest: str) -> str:
    r"""Return the pattern of a key that begins with `prefix` and is a separate word. An escaped line end
    directly before the key is allowed (`\nsk-…` in JSON).

    The lookbehind is after the prefix, so that the search can skip from one prefix to the next.
    """
    return rf"{prefix}(?:(?<![A-Za-z0-9_-]{prefix})|(?<=\\[nrt]{prefix})){rest}(?![A-Za-z0-9_])"


def _spell_words(*words: str, rest: str = "") -> str:
    """Return a pattern that matches the lower-case, capitalised and upper-case form of each word, followed by
    the pattern `rest`. A flat list of alternatives makes the search ten times as fast."""
    return "|".join(form + rest for word in words for form in (word, word.capitalize(), word.upper()))


MADE_UP = join_example("Tr0ub4dor", "-and-3")
"""The invented password in the examples of settings."""
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

# A sentence that states a password: `my password is …`, `changed the password to …`, `密码是…`. The value
# decides, because "the password is wrong" contains no secret. A value is in quotes, or it contains a digit,
# or a symbol between letters. After "my password is" or "the admin password is", a word at the end of a
# clause is a value too, unless it is a word that people often say about passwords.
_STATED = "|".join(
    (
        _spell_words("password", "passphrase", "passcode", "passwort", "kennwort", "wachtwoord", "senha"),
        _spell_words("contraseña", "пароль", "pin code", "pin number"),
        r"PIN|pwd|(?:pw|PW|Pw)(?<![\w-]..)|[Mm]ot de passe|密码|密碼|口令|パスワード|暗証番号|비밀번호",
    )
)
_MINE = (
    r"\b(?:my|our|meine?|unser|mon|ma|notre|mi|mis|nuestra|minha|nossa|mia|nostra|mijn|onze?|ons|мой|наш|내|제|우리)"
    r"[ \t]+(?:[\w-]{1,20}[ \t]+)?$|\bthe[ \t]+(?:admin|root|wi-?fi|router|guest|server|database|login|email)[ \t]+$"
    r"|(?:我的?|我们的?|我們的?|咱们的?|私の|僕の|俺の|나의|저의)[^\W\d_]{0,8}[ \t]?$"
)
_CHANGED = r"\b(?:change|set|reset|update)d?[ \t]+\w{2,6}[ \t]+(?:[\w-]{1,20}[ \t]+)?$"
_ABOUT = r"[ \t]{1,8}(?:for|of|on|für|pour|de|du|para|do|da|voor|для|от)(?:[ \t]{1,8}[^\s:=]{1,30}){1,6}?"
_IS = (
    r"(?:[ \t]{1,8}(?:is|was|ist|war|(?P<reads>lautet)|est|es|é|è|(?P<to>to))(?:[ \t]{1,8}(?:now|still|jetzt))?"
    r"[ \t]{0,8}:?(?:[ \t]{1,8}|(?=\r?\n|\\n))|(?P<short>['’]s)[ \t]{1,8}"
    r"|[ \t]{0,8}(?:(?P<colon>[:：])|是|为|為|は|는|은)[ \t]{0,8}[:：]?[ \t]{0,8}|[ \t]{1,8}[—–-][ \t]{1,8})"
    r"(?P<line>(?:(?:\r?\n|\\n)[ \t]{0,8}){1,2})?"
)
_LINE_END = re.compile(r"[.!]?\\{0,3}[\"'`”“»’]?[.!]?[ \t]*(?:\r?\n|\\n|\\{0,3}\"|\Z)")
_VALUE = r"[^\s\"'`“”„«»‘’<>(){}\[\],;\\\u2e80-\uffff]"
_SYMBOL = r"[A-Za-z0-9][@#%^&*$!?=+][A-Za-z0-9]"
_NO_TERM = (
    r"(?!(?i:sha|md[45]|base|b64|utf|bcrypt|scrypt|argon|pbkdf|aes|rsa|hmac|rot1|x509|oauth|ldap|ntlm|[12]fa|1pass"
    r"|https?:|[0-9]{1,4}[- ]?(?:char|bit|byte|digit|letter|word|day|hour|min|month|year|st|nd|rd|th|x)))(?![/~.])"
)
_SAID_OF_PASSWORDS = """
    about above active again already also always ancient another around awful back based because before behind below
    better blank broken certainly case clear common complex complicated correct default different easy eight empty
    enough exactly expired fine first forgotten four funny garbage gone good great hard here hidden history important
    impossible inactive incorrect insecure inside invalid known later leaked like long longer lost mandatory missing
    more much neither never next none nothing obvious okay old only optional outdated over perfect personal plain
    plaintext private public quite random rather ready really ridiculous right safe same second secret secure
    sensitive seven shared short shown similar simple something somewhere stale still stolen strange strong stuck
    stupid super taken terrible that there third this three today tomorrow trivial twelve under unique unknown unsafe
    useless valid very visible weak weird what worse written wrong yesterday yours
    abgelaufen anders auch bekannt einfach falsch geheim immer kompromittiert korrekt leider lang nicht nirgends
    richtig schlecht schon schwach sicher stark unbekannt ungültig unsicher verloren vergessen wieder wirklich
    zurückgesetzt bloqué compromis correcte erroné expiré expirée faible facile faux inconnu incorrecte invalide juste
    mauvais oublié perdu périmé sécurisé simple toujours trop bastante bloqueada caducada correcta débil demasiado
    difícil errada expirada fácil forte fraca fuerte incorrecta incorreta inválida larga longa mala muito segura
    siempre sempre vieja errata sbagliata scaduta corretta debole sicura altijd correct fout geblokkeerd juist kwijt
    onjuist onveilig ongeldig sterk verkeerd verlopen vergeten veilig zwak верный неверный простой слабый сложный
    старый новый утерян забыт истёк истек
"""
_REMARK = "|".join(dict.fromkeys(_SAID_OF_PASSWORDS.split()))
_LATIN = "[A-Za-zÀ-ɏЀ-ӿ]"
_AND = "and|but|und|aber|et|mais|pero|mas|en|maar|и|а|но"
_WORD_AT_END = (
    rf"(?!(?i:{_REMARK})\b|{_LATIN}+(?:ing|ed|ly|able|ible|less)\b|ge[a-zäöü]+(?:t|en)\b){_LATIN}{{5,40}}"
    rf"(?=[.!,)]?(?:[ \t]*(?:\r?\n|\\n|\Z))|[.!,)] |[ \t]+(?:{_AND})[ \t]|[\u2e80-\uffff])"
)
_STATED_VALUE = (
    rf"(?={_VALUE}{{0,60}}?[0-9])(?={_VALUE}{{0,60}}?[A-Za-z]){_VALUE}{{4,128}}(?<![.:])"
    rf"|(?={_VALUE}{{0,60}}?{_SYMBOL}){_VALUE}{{4,128}}(?<![.:])"
    r"|[0-9]{4,12}(?![A-Za-z0-9_%/:-]|[.][0-9])"
    rf"|(?P<word>{_WORD_AT_END})"
)
# Several words in quotation marks. An apostrophe inside a word does not end them.
_PHRASE = (
    r"(?!(?i:too|not|no|so|as|in|on|at|by|to|must|set|can|cannot|please|enter|already|always|based|case|different"
    r"|expired|incorrect|invalid|longer|missing|more|never|only|same|still|very|weak|wrong)\b)\w"
    r"(?:[^\t\r\n\"'`“”»‘’\\(){}\[\]<>=;]|(?<=\w)['’](?=\w)){3,128}+(?<! )"
)
_QUOTED_VALUE = rf"(?:[^\s\"'`“”»’\\]{{4,128}}+|(?P<phrase>{_PHRASE}))(?=\\{{0,3}}[\"'`“”»’])"
# Things that people name and number after "password": `password field2`, `password policy2024`.
_NO_THING = (
    r"(?!(?i:attempt|box|case|column|cve|entry|field|file|form|group|hash|http|input|ios|iso|key|level|line|list|login"
    r"|manager|mode|nist|page|part|policy|prompt|python|reset|rfc|row|rule|salt|section|slot|step|table|test|type|user"
    rf"|var|version|v[0-9]|win)|{_VALUE}{{1,64}}@[\w-]+[.])"
)


def _is_stated(match: re.Match[str]) -> bool:
    """Return whether a match of the password pattern is a password that a person states, as in "my password is
    …".

    A plain word counts only after "my", "the admin" and the like. A value after "to" counts only after a verb
    such as "changed". A value on the next line must be alone there. Several quoted words count after a verb or
    "my".
    """
    before = match.string[max(0, match.start() - 40) : match.start()]
    is_mine = match["reads"] or re.search(_MINE, before, re.IGNORECASE)
    is_named = match["colon"] or ":" in match.string[match.start() : match.start("secret")]
    if match["word"] and (not is_mine or match["short"] or (match["line"] and not is_named)):
        return False
    if match["line"] and (
        (match["colon"] and not is_mine) or not _LINE_END.match(match.string, match.end("secret"))
    ):
        return False
    if not is_mine and ((match["phrase"] and match["colon"]) or (match["quote"] and match["short"])):
        return False
    return not match["to"] or re.search(_CHANGED, before, re.IGNORECASE) is not None


_CARD = r"[0-9]{4}(?P<gap>[ -]?)(?:[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{4}|[0-9]{6}(?P=gap)[0-9]{4,5})"
_ISSUER = r"(?:4|5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|6011|64[4-9]|65|62|35[2-8])"
_OTHER_NUMBER = (
    r"\b(?:ids?|order|invoice|ticket|ref|serial|phone)\W{0,3}(?:no|nr|number)?\W{0,3}$|[\"']\s?:\s?\[?$"
)
"""Matches the text before a number if it shows that the number is not a card number: a word such as `order`
or `phone`, or a JSON key."""


def _is_card(match: re.Match[str]) -> bool:
    """Return whether the digits are a card number: the prefix and the length are those of an issuer, and the
    check digit (Luhn) is right."""
    digits = re.sub("[ -]", "", match[0])
    before = match.string[max(0, match.start() - 16) : match.start()]
    is_issued = (
        (len(digits) == 16 and re.match(_ISSUER, digits))
        or (len(digits) == 15 and digits.startswith(("34", "37")))
        or (len(digits) == 14 and digits.startswith(("36", "38")))
    )
    if not is_issued or (not match["gap"] and re.search(_OTHER_NUMBER, before, re.IGNORECASE)):
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


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
    SecretPattern(
        "password",
        rf"(?:{_STATED})(?:{_ABOUT})?{_IS}(?P<quote>\\{{0,3}}[\"'`]|[“„«‘])?"
        rf"{_NO_PLACEHOLDER}{_NO_TERM}(?P<secret>(?(quote){_QUOTED_VALUE}|(?:{_STATED_VALUE})))",
        join_example("my password is ", MADE_UP),
        _is_stated,
    ),
    SecretPattern(
        "password",
        rf"(?:{_STATED})[ \t]{{1,4}}{_NO_PLACEHOLDER}{_NO_TERM}{_NO_THING}{_NO_NAME}"
        rf"(?:(?={_VALUE}{{0,60}}?[0-9])(?={_VALUE}{{0,60}}?[A-Za-z])|(?={_VALUE}{{0,60}}?{_SYMBOL}))"
        rf"(?P<secret>{_VALUE}{{5,128}}(?<![.:?!]))",
        join_example("user bob, password ", MADE_UP),
    ),
    SecretPattern(
        "card number",
        rf"(?:(?<![A-Za-z0-9_./#@+-])|(?<=\\[nrt])){_CARD}(?![A-Za-z0-9_@]|[.-][0-9])",
        join_example("4539 5787 ", "6362 1486"),
        _is_card,
    ),
)


def find_secrets(text: str) -> list[Found]:
    """Return the place of every secret in the text, in order. If the matches of two patterns overlap, the
    pattern that comes first in the table wins."""
    found: list[Found] = []
    for secret, pattern in _compile_patterns():
        here = [
            Found(secret.name, *_get_span(match))
            for match in pattern.finditer(text)
            if secret.check is None or secret.check(match)
        ]
        if here:
            found += here
            text = _replace_spans(text, [(start, end, "\n" * (end - start)) for _, start, end in here])
    return sorted(found, key=lambda place: place.start)


def list_names() -> list[str]:
    """Return the names of all kinds of secrets that `redact` knows, in the order of the table."""
    return list(dict.fromkeys(secret.name for secret in SECRETS))


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """Return the text with `[redacted <name>]` in place of each secret. The number of secrets with each name
    is added to `counts`."""
    while found := find_secrets(text):  # a secret may be recognised only after its neighbour was replaced
        if counts is not None:
            counts.update(secret.name for secret in found)
        text = _replace_spans(text, [(start, end, f"[redacted {name}]") for name, start, end in found])
    return text


def redact_preview(preview: str) -> str:
    """Return the preview of a message without secrets. A preview that was cut ends with `...`. Before these
    dots it can have a part of a secret, which no pattern recognises. Its last word or number is therefore left
    out."""
    if not preview.endswith(CUT):
        return redact(preview)
    return f"{redact(_LAST_WORD.sub('', preview.removesuffix(CUT)))}{CUT}"


def redact_line(text: str, longest: int = 300) -> str:
    """Return the first line of an error message, at most `longest` characters, without secrets and folder
    names. It is then safe to show to users on other machines."""
    first = next(iter(text.strip().splitlines()), "")
    return redact(_FOLDERS.sub("", first))[:longest]


def redact_value(value: Any, counts: Counter[str] | None = None) -> Any:
    """Redact content, tool calls and other nested values. A string in a mapping is checked together with its
    key, so that any value of `api_key` is redacted. The number of secrets with each name is added to
    `counts`."""
    if isinstance(value, str):
        return redact(value, counts)
    if isinstance(value, dict):
        return {key: _redact_field(key, item, counts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(item, counts) for item in value]
    return value


def _redact_field(key: object, item: Any, counts: Counter[str] | None) -> Any:
    if isinstance(key, str) and isinstance(item, str):
        before, after = f'{key}="', '"'
        found: Counter[str] = Counter()
        redacted = redact(f"{before}{item}{after}", found)
        if redacted.startswith(before) and redacted.endswith(after):
            if counts is not None:
                counts.update(found)
            return redacted[len(before) : -len(after)]
    return redact_value(item, counts)


@cache
def _compile_patterns() -> list[tuple[SecretPattern, re.Pattern[str]]]:
    return [(secret, re.compile(secret.pattern)) for secret in SECRETS]


def _get_span(match: re.Match[str]) -> tuple[int, int]:
    return match.span("secret" if "secret" in match.re.groupindex else 0)


def _replace_spans(text: str, changes: list[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, instead in changes:
        parts += [text[at:start], instead]
        at = end
    return "".join([*parts, text[at:]])
