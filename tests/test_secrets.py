"""Each secret pattern finds only its own example, in linear time. Text that was redacted is not changed by a
second redaction."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import uuid
from hashlib import sha1, sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.secrets import (
    MADE_UP,
    SECRETS,
    SecretPattern,
    find_secrets,
    list_names,
    redact,
    redact_value,
)

by_name = pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.name)
AROUND = (
    "I pasted {} by mistake.",
    "{}",
    "first line\n{}\nlast line",
    "({})",
    "see `{}`, please",
)


def the_secret_in(example: str) -> str:
    """Return the secret part of an example. In a setting, only the value is secret. A key is secret as a
    whole."""
    for prefix in ("AccountKey=", "access_key = "):
        if prefix in example:
            return example.partition(prefix)[2]
    return MADE_UP if MADE_UP in example else example


@by_name
def test_a_pattern_finds_exactly_its_example(secret: SecretPattern) -> None:
    for around in AROUND:
        text = around.format(secret.example)
        found = find_secrets(text)
        assert [(one.name, text[one.start : one.end]) for one in found] == [
            (secret.name, the_secret_in(secret.example))
        ], around
        assert redact(text) == text.replace(the_secret_in(secret.example), f"[redacted {secret.name}]")


@by_name
def test_a_secret_in_json_is_found_and_the_json_stays_valid(secret: SecretPattern) -> None:
    document = json.dumps({"arguments": json.dumps({"text": f"line\n{secret.example}\nline"}), "n": 1})
    text = redact(document)
    assert the_secret_in(secret.example).splitlines()[0] not in text or "-----" in secret.example
    assert f"[redacted {secret.name}]" in json.loads(json.loads(text)["arguments"])["text"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("my password is hunter2.", "hunter2"),
        ("My password is: hunter2", "hunter2"),
        ("My password is swordfish.", "swordfish"),
        ("hi, our wifi password was swordfish, thanks", "swordfish"),
        ("the password for the router at home is Blue-Horse-42, ok?", "Blue-Horse-42"),
        ("I changed my password to P@$$w0rd!", "P@$$w0rd!"),
        ('my passphrase is "correct-horse-battery"', "correct-horse-battery"),
        ("My PIN is 4821.", "4821"),
        ("the pin code is 4821", "4821"),
        ("mein Passwort ist geheim123", "geheim123"),
        ("Das Kennwort lautet „geheim“.", "geheim"),
        ("mon mot de passe est Soleil2024", "Soleil2024"),
        ("mi contraseña es Gato#99", "Gato#99"),
        ("minha senha é abc12345", "abc12345"),
        ("mijn wachtwoord is fiets2000", "fiets2000"),
        ("мой пароль: qwerty12", "qwerty12"),
        ("我的密码是hunter2谢谢", "hunter2"),
        ("密码：123456，谢谢", "123456"),
        ("パスワードはsakura99です", "sakura99"),
        ("비밀번호는 abcd1234", "abcd1234"),
        ("my password is qwertyuiop and my name is Bob", "qwertyuiop"),
        ("my password is qwertyuiop but do not tell", "qwertyuiop"),
        ("my password is qwertyuiop, my name is Bob", "qwertyuiop"),
        ("my password is 'abc def ghi'", "abc def ghi"),
        ('the password is "correct horse battery staple", ok?', "correct horse battery staple"),
        ("my passphrase: “don't feed the cat”", "don't feed the cat"),
        ("my password's hunter2", "hunter2"),
        ("the admin password is swordfish9", "swordfish9"),
        ("the wifi password is sunflower, enjoy", "sunflower"),
        ("mein Passwort lautet Sonnenschein", "Sonnenschein"),
        ("Mein Passwort ist Sonnenschein und ich heiße Bob", "Sonnenschein"),
        ("mon mot de passe est soleil.", "soleil"),
        ("mi contraseña es girasol", "girasol"),
        ("minha senha é girassol", "girassol"),
        ("mijn wachtwoord is zonnebloem", "zonnebloem"),
        ("мой пароль: солнышко", "солнышко"),
        ("我的密码是sunflower谢谢", "sunflower"),
        ("私のパスワードはsunflowerです", "sunflower"),
        ("내 비밀번호는 sunflower", "sunflower"),
        ("my password is\nhunter2", "hunter2"),
        ("My password is:\n\n  sunflower\n\nThanks", "sunflower"),
        ("pw: hunter2", "hunter2"),
        ("user bob, pw is hunter2", "hunter2"),
        ("password hunter2", "hunter2"),
        ("log in as bob with password P@ssword, please", "P@ssword"),
        ("密码 hunter2", "hunter2"),
    ],
)
def test_a_password_in_a_sentence_is_found(text: str, secret: str) -> None:
    assert redact(text) == text.replace(secret, "[redacted password]")


DETERMINERS = ["my", "My", "the", "your", "Our", "a", "her new", "my wifi", "the admin"]
NOUNS = ["password", "Password", "passphrase", "PIN", "passcode", "password for the router", "Passwort"]
REMARKS = """
    wrong; required; not working; in 1Password; stored in /etc/app2/secrets; SHA256-hashed; base64; hashed with bcrypt;
    12-character; 8-64 characters long; too short; case-sensitive; expired 3 days ago; the same as before; "required";
    reset by ann@x.example; set in config.py; ${DB_PASSWORD}; <your password>; xxxx; changing every 90 days;
    already taken; null; required by RFC2617; safe; weak; leaked; `null`; 2FA-protected; utf-8; at https://example.org/a1;
    really bad; encrypted; something that 4 people know; known to 2 of us; what I forgot; "too short"; 'not working';
    broken and old; wrong but fine; stolen; "required by the server"
""".split(";")


@given(
    st.sampled_from(DETERMINERS),
    st.sampled_from(NOUNS),
    st.sampled_from([" is", " was", " is now", " is still"]),
    st.sampled_from(REMARKS),
    st.sampled_from(["", ".", "!", ", sorry", "\n", " and 12 more"]),
)
def test_a_remark_about_a_password_stays(
    determiner: str, noun: str, verb: str, remark: str, end: str
) -> None:
    text = f"{determiner} {noun}{verb} {remark.strip()}{end}"
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "my password's length and strength",
        "my password's 12-character limit",
        "the password's 'strength' is shown",
        "mein Passwort ist falsch und abgelaufen",
        "mein Passwort ist gesperrt",
        "mon mot de passe est incorrect",
        "mi contraseña es incorrecta y vieja",
        "mijn wachtwoord is verlopen",
        "мой пароль: неверный",
        "I forgot what my password is\nThanks\n",
        "I forgot what my password is\n12345 files are here",
        "Password:\nLast login: 2024-01-01 on tty1",
        "Enter password:\n48211\n",
        'password: "must be at least 8 characters"',
        "print('the password is ' + name + ' again')",
        "password field2, password policy2024, password SHA256, password RFC2617, password CVE-2023-1234",
        "password for user1, password ann@x.example, password reset2 form.password1 password user_name2",
        "see password /etc/app2/secrets and password https://example.org/a1",
        "httpw: abc123 and my-pw: abc123",
    ],
)
def test_other_sentences_about_passwords_stay(text: str) -> None:
    assert redact(text) == text


PREFIXES = ["4", "51", "55", "2221", "2720", "6011", "65", "34", "37", "36", "3530", "62"]
LENGTHS = {"34": 15, "37": 15, "36": 14}


def check_digit(digits: str) -> str:
    values = [int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(digits))]
    return str(-sum(value - 9 if value > 9 else value for value in values) % 10)


def group(digits: str, gap: str) -> str:
    sizes = [4, 4, 4, 4] if len(digits) == 16 else [4, 6, len(digits) - 10]
    parts = [digits[sum(sizes[:place]) : sum(sizes[: place + 1])] for place in range(len(sizes))]
    return gap.join(parts)


@given(
    st.sampled_from(PREFIXES),
    st.text("0123456789", min_size=16, max_size=16),
    st.sampled_from(["", " ", "-"]),
    st.sampled_from(
        ["card {} 12/28 123", "{}", "pay with {}, please", "Kartennummer: {}.", "卡号{}谢谢", "({})"]
    ),
)
def test_a_card_number_is_found_and_a_mistyped_one_is_not(
    prefix: str, rest: str, gap: str, around: str
) -> None:
    first = (prefix + rest)[: LENGTHS.get(prefix, 16) - 1]
    right = first + check_digit(first)
    assert redact(around.format(group(right, gap))) == around.format("[redacted card number]")
    wrong = first + str((int(right[-1]) + 1) % 10)
    text = around.format(group(wrong, gap))
    assert redact(text) == text


@given(
    st.integers(10**12, 10**20),
    st.sampled_from(["", "id: ", "order number ", '{"n": ', "/status/", "msg_", "1."]),
)
def test_other_long_numbers_stay(number: int, before: str) -> None:
    """Times in nanoseconds, message ids and numbers in JSON are not redacted. Only a number that stands alone
    can be taken for a card number."""
    text = f"{before}{number}{'}' if before.startswith('{') else ''}"
    looks_like_a_card = not before and check_digit(str(number)[:-1]) == str(number)[-1]
    assert looks_like_a_card or redact(text) == text


def test_the_documentation_lists_every_kind() -> None:
    page = (Path(__file__).parent.parent / "docs/cli.md").read_text(encoding="utf-8")
    section = page.partition("### What redaction masks")[2].partition("\n## ")[0]
    assert [name for name in list_names() if name not in section] == []


def test_the_examples_can_stand_in_a_public_repository() -> None:
    source = Path("src/hermes/secrets.py")
    text = (Path(__file__).parent.parent / source).read_text(encoding="utf-8")
    assert [
        one for one in find_secrets(text) if one.name not in ("password", "secret value", "setting")
    ] == []


PROSE = """
The password is required. Password: please enter it twice. A token is the smallest unit; tokens: 4096. My secret: none.
Her secret is safe with me, and the key to the garden hangs at the door. Basic authorization, bearer of bad news.
Authorization: Bearer <token> -- Authorization: Bearer YOUR_TOKEN_HERE -- Authorization: Basic $CREDENTIALS
Set OPENAI_API_KEY=<your key>, ANTHROPIC_API_KEY=xxx, GITHUB_TOKEN=${GITHUB_TOKEN}, TOKEN=$(pass show x), PASSWORD=***
password: "<your password>", api_key: "your-api-key-here", password=changeme, secret: '...', token="${TOKEN}"
Keys start with sk-ant-, ghp_ or xoxb-; AKIA begins an access key id; PEM begins -----BEGIN PRIVATE KEY----- and so on.
https://user:password@example.org/ https://user:${PASS}@example.org postgres://user:***@localhost/db
http://localhost:8080/path@2x.png https://example.org:443/a:b@c ssh://git@github.com:22/a/b.git mailto:me@example.org
sk-circle-fade-dot sk-learn-contrib-something-very-long-indeed ask-me-anything-about-the-new-features-in-2026
DATABASE_URL=postgresql://localhost/notes PWD=/home/me/work2 TOKEN=/run/secrets/token1
"""
CODE = """
def connect(user, password=None, *, token: str = "", api_key: Optional[str] = None):
    token = next_token; token = utf8_bytes; password = form.password1
    secret = sha256_hex(value)
    password = getpass.getpass("password: ")
    api_key = os.environ["OPENAI_API_KEY"]; token = self.tokens[0]; token == other_token_2
    return Client(user=user, password=password, token=token, api_key=config.api_key)
const token = await getToken2(request); if (token === undefined) { secret = process.env.SECRET_2; }
type Login = { password: string; token: string | null, apiKey: ApiKey }
{"password": {"type": "string"}, "token": "string", "secret": true, "api_key": null, "token_type": "bearer"}
SELECT password FROM users WHERE token = ? AND api_key = $1;
input_tokens=1200 output_tokens: 340 max_tokens = 4096 token_count=12345678 PRIMARY KEY (session_id, tag)
"""
PICTURES = [base64.b64encode(sha256(bytes([n])).digest() * 40).decode() for n in range(20)]
OTHERS = "\n".join(
    [
        *(str(uuid.UUID(int=n * 7919**8)) for n in range(50)),
        *(sha1(bytes([n])).hexdigest() for n in range(50)),
        *(sha256(bytes([n])).hexdigest() for n in range(50)),
        *(f"data:image/png;base64,{picture}" for picture in PICTURES),
        *(base64.urlsafe_b64encode(bytes(range(n, n + 90))).decode() for n in range(60)),
        "/usr/lib/python3.11/site-packages/hermes/store/secrets.py:120: in token",
        r"C:\\Users\\me\\token\\password1.txt",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 (HEAD -> main)",
        "https://example.org/a?id=1234567890&page=2#top https://example.org/9fceb02d0ae598e95dc970b74767f19372d61af8",
        "20260101_120000_abcdef12 agent:main:telegram:dm:123456789 +49 170 1234567 2026-01-01T12:00:00+01:00",
    ]
)


@pytest.mark.parametrize("text", [PROSE, CODE, OTHERS], ids=["prose", "code", "others"])
def test_ordinary_text_is_not_redacted(text: str) -> None:
    assert [text[max(0, one.start - 20) : one.end] for one in find_secrets(text)] == []
    assert redact(text) == text


def test_the_sources_of_this_project_are_not_redacted() -> None:
    for file in Path(__file__).parent.parent.joinpath("src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert redact(text) == text, file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export TOKEN=abcdefghijk", "export TOKEN=[redacted exported value]"),
        ("password: hunter22x\nuser: me", "password: [redacted setting]\nuser: me"),
        ('{"password": "correcthorse"}', '{"password": "[redacted password]"}'),
        ("https://me:hunter2@host/x", "https://me:[redacted URL password]@host/x"),
        ("redis://:p4ssw0rd@h:1/0", "redis://:[redacted database password]@h:1/0"),
        ('x = {\\"api_key\\": \\"abcd1234efgh\\"}', 'x = {\\"api_key\\": \\"[redacted secret value]\\"}'),
        ("DB_PASSWORD='s3cr3t!pass' next", "DB_PASSWORD='[redacted password]' next"),
        ("authorization: bearer abcdef.ghijk", "authorization: bearer [redacted authorization]"),
    ],
)
def test_only_the_value_of_a_setting_is_redacted(text: str, expected: str) -> None:
    assert redact(text) == expected


HOSTILE = [
    "a",
    "A_",
    "-",
    "\\",
    "://",
    "://a:",
    "eyJ",
    "eyJa.",
    "sk-",
    "sk-a-",
    "-----BEGIN PRIVATE KEY-----",
    "0:AA",
]
HOSTILE += [
    "password=",
    "password: ",
    "my password is ",
    "my password is\n",
    f"my password is{' ' * 300}",
    "my password is 'a ",
    "password a1",
    "password for a ",
    "密码",
    "4111 ",
    "token=a",
    "token=a_",
    "TOKEN=",
    "[redacted ",
    '"',
    " \t",
    "Authorization: ",
]
HOSTILE += [
    "-----BEGIN PRIVATE KEY----- a",
    "password='",
    "M.",
    "token:=a1",
    "AccountKey=",
    "ghp_",
    "aA0_-./+=:@",
]


@pytest.mark.timeout(60)  # a pattern with backtracking would take minutes or longer
@pytest.mark.parametrize(
    "begin",
    [
        "",
        *(
            pytest.param(begin, marks=pytest.mark.full)
            for begin in ("token=", "password: '", "://me:", "-----BEGIN PRIVATE KEY-----", "eyJ")
        ),
    ],
)
def test_hostile_text_is_read_once(begin: str) -> None:
    for unit in HOSTILE:
        text = begin + (unit * 100_000)[:100_000] + "!"
        for secret in SECRETS:
            assert len(re.compile(secret.pattern).findall(text)) <= len(text), (unit, secret.name)


PIECES = [secret.example for secret in SECRETS] + [
    "password=",
    "token: ",
    '"',
    "'",
    " ",
    "\n",
    "sk-",
    "://",
    ":",
    "@",
]
PIECES += [
    "Bearer ",
    "Authorization: ",
    "[redacted ",
    "]",
    "a1b2c3d4e5",
    "eyJ",
    ".",
    "-----BEGIN PRIVATE KEY-----",
    "=",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=8).map("".join))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert find_secrets(once) == []


@given(st.text())
def test_any_text_is_accepted_and_every_match_is_inside_it(text: str) -> None:
    found = find_secrets(text)
    assert all(0 <= one.start < one.end <= len(text) for one in found)
    assert found or redact(text) == text


@given(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
def test_text_without_secrets_is_unchanged(text: str) -> None:
    at = 0
    for kept in re.split(r"\[redacted [A-Za-z ]+\]", redact(text)):
        at = text.index(kept, at) + len(kept)


def test_nested_values_keep_their_shape() -> None:
    key = SECRETS[3].example
    value = {
        "calls": [{"name": "run", "arguments": json.dumps({"api_key": "abcd1234efgh", "n": 1})}],
        "api_key": "abcd1234efgh",
        "text": f"see {key}",
        "password": "two words, no secret",
        "n": 3,
        "none": None,
        "pair": (key, 1),
    }
    assert redact_value(value) == {
        "calls": [{"name": "run", "arguments": '{"api_key": "[redacted secret value]", "n": 1}'}],
        "api_key": "[redacted secret value]",
        "text": "see [redacted Anthropic key]",
        "password": "two words, no secret",
        "n": 3,
        "none": None,
        "pair": ["[redacted Anthropic key]", 1],
    }
    assert redact_value(redact_value(value)) == redact_value(value)


def test_nothing_is_compiled_by_importing() -> None:
    program = "import re, hermes.secrets as s; print(s._compile_patterns.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "0", done.stderr
