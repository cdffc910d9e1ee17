"""A report is rendered as text, as a chat message and as a page. Untrusted text has no effect in any of them."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.insights import InsightsEngine
from hermes.insights.chat_report import format_markdown
from hermes.insights.html_report import render_page
from hermes.insights.number_format import (
    format_dollars,
    format_duration,
    format_hour,
    format_price,
    shorten_number,
)
from hermes_state import SessionDB

DAY = 86_400.0
HOSTILE = (
    '</script><script>alert("x")</script><img src=https://evil.example/x onerror=alert(1)> & \x1b[31m\u202e'
)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (45, "45s"),
        (59.9, "1m"),
        (60, "1m"),
        (720, "12m"),
        (3599, "1h"),
        (11_100, "3h 5m"),
        (86_399, "1.0d"),
        (181_440, "2.1d"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


@given(st.floats(0, 1e9))
def test_durations_never_say_sixty_of_anything(seconds: float) -> None:
    assert not re.search(r"\b(60s|60m|24h)", format_duration(seconds))


def test_other_words() -> None:
    assert [shorten_number(n) for n in (0, 999, 999.9, 1000, 12_345, 999_950, 4_500_000, 2e9)] == [
        *("0", "999", "1.0K", "1.0K", "12.3K", "1.0M", "4.5M", "2.0B"),
    ]
    assert [format_hour(n) for n in (0, 3, 12, 15, 23)] == ["12AM", "3AM", "12PM", "3PM", "11PM"]
    assert [format_dollars(n) for n in (0.0, 0.004, 0.5, 1234.5)] == ["$0.00", "<$0.01", "$0.50", "$1,234.50"]
    told = [
        (None, "unknown"),
        (0.0, "included"),
        (0.0, "none"),
        (2.0, "estimated"),
        (2.0, "actual"),
        (2.0, "partial"),
    ]
    assert [format_price(*one) for one in told] == ["unknown", "included", "—", "~$2.00", "$2.00", "$2.00+"]


@pytest.fixture
def hostile(db: SessionDB) -> dict[str, Any]:
    """Return a report in which every text from outside is an attack."""
    db.create_session(HOSTILE, HOSTILE, model=HOSTILE, started_at=time.time() - DAY)
    db.set_session_title(HOSTILE, HOSTILE[:90])
    arguments = json.dumps({"name": HOSTILE})
    calls = [{"function": {"name": name, "arguments": arguments}} for name in (HOSTILE, "skill_view")]
    db.append_message(HOSTILE, "assistant", HOSTILE, tool_calls=calls)
    db.append_message(HOSTILE, "tool", HOSTILE, tool_name=HOSTILE)
    db.record_usage(HOSTILE, model=HOSTILE, input_tokens=1, estimated_cost_usd=1.0)
    return InsightsEngine(db).generate(30, HOSTILE)


class Elements(HTMLParser):
    """The elements of a page as a browser parses it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("script", "style"):
            self.scripts.append(data)


def test_a_hostile_text_is_only_text_on_the_page(hostile: dict[str, Any]) -> None:
    text = render_page(hostile)
    elements = Elements(text)
    assert [tag for tag, _ in elements.tags].count("script") == 3
    assert not {"img", "a", "iframe", "link", "object", "form", "base"} & {tag for tag, _ in elements.tags}
    for _tag, attributes in elements.tags:
        assert not {"src", "href", "style"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    assert html.escape("<img src=https://evil.example/x onerror=alert(1)>") in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_page_forbids_the_network_and_every_script_but_its_own(hostile: dict[str, Any]) -> None:
    text = render_page(hostile)
    elements = Elements(text)
    (policy,) = [
        a["content"] or "" for _, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    style, _data, library, ours = elements.scripts
    assert rules["script-src"].split() == [hashed(library), hashed(ours)]
    assert rules["style-src"] == hashed(style)
    assert "uPlot" in library
    assert "MIT License" in library, "the licence goes where the code goes"
    for script in (style, ours):
        assert "http" not in script
    assert set(re.findall(r"https?://[^\s\"')]*", library)) == {"https://github.com/leeoniya/uPlot"}, (
        "a comment"
    )


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_charts_get_a_value_for_every_day_hour_and_weekday(
    db: SessionDB, in_zone: Callable[[str], None]
) -> None:
    in_zone("UTC")  # a time zone in which every day has 24 hours
    now = time.time()
    for age in (0, 3, 10):
        db.create_session(f"s{age}", "cli", started_at=now - age * DAY)
        db.record_usage(f"s{age}", model="m", input_tokens=100 + age, estimated_cost_usd=0.5)
    elements = Elements(render_page(InsightsEngine(db).generate()))
    data = json.loads(elements.scripts[1])
    assert {tag["data-chart"] for _, tag in elements.tags if "data-chart" in tag} == {
        *("sessions", "tokens", "cost", "hours", "weekdays"),
    }
    assert len(data["hours"]) == 24
    assert len(data["weekdays"]) == len(data["weekdayNames"]) == 7
    assert len(data["days"]) == len(data["sessions"]) == len(data["tokens"]) == len(data["cost"]) == 11
    assert {later - earlier for earlier, later in zip(data["days"], data["days"][1:], strict=False)} == {
        86_400
    }
    assert (sum(data["sessions"]), sum(data["tokens"]), sum(data["cost"])) == (3, 313, 1.5)


def test_below_a_chart_is_a_line_of_text_and_no_control(db: SessionDB) -> None:
    db.create_session("s", "cli")
    elements = Elements(render_page(InsightsEngine(db).generate()))
    charts = [at for at, (_, attributes) in enumerate(elements.tags) if "data-chart" in attributes]
    assert [elements.tags[at + 1] for at in charts] == [("p", {"class": "reading"})] * len(charts)
    *_, ours = elements.scripts
    assert "legend: { show: false }" in ours
    assert not {"button", "select", "input", "a"} & {tag for tag, _ in elements.tags}


def test_an_unknown_cost_is_not_shown_as_zero(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.record_usage("s", model="m", input_tokens=100)
    text = render_page(InsightsEngine(db).generate())
    assert json.loads(Elements(text).scripts[1])["cost"] == [None]
    assert "Cost unknown for 1 session" in text
    assert "$0" not in text.split("<body>")[1].split("<script")[0]


def test_a_page_about_nothing_says_so(db: SessionDB) -> None:
    text = render_page(InsightsEngine(db).generate(7, "cli"))
    assert "No sessions found in the last 7 days (source: cli)." in text
    assert Elements(text).scripts[1:] == ["{}"]


def test_a_chart_shows_a_limited_number_of_days(db: SessionDB) -> None:
    db.create_session("first", "cli", started_at=0.0)
    db.create_session("last", "cli")
    data = json.loads(Elements(render_page(InsightsEngine(db).generate(40_000))).scripts[1])
    assert 1000 < len(data["days"]) < 1200
    assert data["sessions"][-1] == 1


def test_the_message_for_chats_is_short(db: SessionDB) -> None:
    now = time.time() - DAY
    for at in range(7):
        db.create_session(f"s{at}", "telegram" if at else "cli", model=f"vendor/model-{at}", started_at=now)
        calls = [{"function": {"name": f"tool_{n}", "arguments": '{"name": "x"}'}} for n in range(10)]
        db.append_message(f"s{at}", "assistant", None, tool_calls=calls)
        db.record_usage(f"s{at}", model=f"vendor/model-{at}", input_tokens=1000 - at, estimated_cost_usd=0.25)
    db.create_session("silent", "cli", model="vendor/model-0")
    db.append_message("silent", "assistant", "hi")
    told = format_markdown(InsightsEngine(db).generate()).splitlines()
    assert told[0] == "**Hermes Insights** · last 30 days"
    assert "**8 sessions** · 8 messages · 70 tool calls · 7.0K tokens" in told
    assert "Cost: $1.75+ · cost unknown for 1 session" in told
    assert [line for line in told if line.startswith("- `model")] == [
        "- `model-0`: 2 sessions, 1.0K tokens, $0.25+",
        *(f"- `model-{at}`: 1 session, {1000 - at} tokens, ~$0.25" for at in range(1, 5)),
    ]
    assert len([line for line in told if line.startswith("- `tool")]) == 8
    assert told.count("- … and 2 more") == 2
    assert "- `telegram`: 6 sessions, 6 messages" in told
    assert len(told) < 45


def test_no_name_leaves_its_code_span_in_a_chat(hostile: dict[str, Any]) -> None:
    for name in ("a`b*c*", "[link](https://evil.example)", "line\nbreak", "\x1b[2Jx"):
        hostile["models"][0]["model"] = name
        (line,) = [line for line in format_markdown(hostile).splitlines() if "1 session, 1 tokens" in line]
        assert re.fullmatch(r"- `[^`]*`: 1 session, 1 tokens, ~\$1\.00", line)
        assert "\x1b" not in line
    empty = {"empty": True, "days": 3, "source_filter": "*a*_b_"}
    assert format_markdown(empty) == "No sessions found in the last 3 days (source: \\*a\\*\\_b\\_)."
