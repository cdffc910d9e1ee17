"""Each pattern finds only its own example in linear time, and redacting twice has the same result as once."""

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

from hermes.secrets import MADE_UP, SECRETS, SecretPattern, find_secrets, redact, redact_value

by_name = pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.name)
AROUND = (
    "I pasted {} by mistake.",
    "{}",
    "first line\n{}\nlast line",
    "({})",
    "see `{}`, please",
)


def the_secret_in(example: str) -> str:
    """Return the secret part of an example. In a setting only the value is secret. A key is secret as a
    whole."""
    for prefix in ("AccountKey=", "access_key = "):
        if prefix in example:
            return example.partition(prefix)[2]
    return MADE_UP if MADE_UP in example else example


@by_name
@pytest.mark.parametrize("around", AROUND)
def test_a_pattern_finds_exactly_its_example(secret: SecretPattern, around: str) -> None:
    text = around.format(secret.example)
    found = find_secrets(text)
    assert [(one.name, text[one.start : one.end]) for one in found] == [
        (secret.name, the_secret_in(secret.example))
    ]
    assert redact(text) == text.replace(the_secret_in(secret.example), f"[redacted {secret.name}]")


@by_name
def test_a_secret_in_json_is_found_and_the_json_stays_valid(secret: SecretPattern) -> None:
    document = json.dumps({"arguments": json.dumps({"text": f"line\n{secret.example}\nline"}), "n": 1})
    text = redact(document)
    assert the_secret_in(secret.example).splitlines()[0] not in text or "-----" in secret.example
    assert f"[redacted {secret.name}]" in json.loads(json.loads(text)["arguments"])["text"]


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
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert [text[max(0, one.start - 20) : one.end] for one in find_secrets(text)] == []
    assert redact(text) == text


def test_our_own_sources_are_left_alone() -> None:
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
def test_only_the_value_of_a_setting_goes(text: str, expected: str) -> None:
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


@pytest.mark.timeout(20)  # a pattern with backtracking would take minutes or longer
@pytest.mark.parametrize(
    "begin", ["", "token=", "password: '", "://me:", "-----BEGIN PRIVATE KEY-----", "eyJ"]
)
@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_is_read_once(begin: str, unit: str) -> None:
    text = begin + (unit * 100_000)[:100_000] + "!"
    for secret in SECRETS:
        assert len(re.compile(secret.pattern).findall(text)) <= len(text)


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
def test_any_text_is_taken_and_found_places_lie_in_it(text: str) -> None:
    found = find_secrets(text)
    assert all(0 <= one.start < one.end <= len(text) for one in found)
    assert found or redact(text) == text


@given(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
def test_what_is_no_secret_stays_byte_for_byte(text: str) -> None:
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
