"""`config.yaml` and `.env` are read, changed without losing comments, and kept private."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.config import config_file, dotenv

WRITTEN = """\
# What I like.
model:
  default: "gpt-5"   # the good one
  # at work it is another
  base_url: https://api.openai.com/v1

# Looks.
display:
    resume_display: minimal
empty:
list:
  - one   # kept
  - two
text: |
  several
  lines
# the end
"""
FILE = Path("config.yaml")


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


def test_missing_files_are_read_as_empty() -> None:
    assert config_file.read() == {}
    assert config_file.read_setting("sessions", "spool") is None
    assert dotenv.read() == {}


def test_a_value_is_found_by_its_path() -> None:
    values = config_file.parse_text(WRITTEN, FILE)
    assert config_file.get_value(values, "display.resume_display") == "minimal"
    assert config_file.get_value(values, "display.nothing") is None
    assert config_file.get_value(values, "text.nothing") is None


def test_a_change_touches_one_value_and_nothing_else() -> None:
    assert config_file.change_text(WRITTEN, "model.default", "small", FILE) == WRITTEN.replace(
        '"gpt-5"', "small"
    )
    assert config_file.change_text(WRITTEN, "display.resume_display", "full", FILE) == WRITTEN.replace(
        "minimal", "full"
    )


def test_a_new_value_is_added_to_its_section_with_the_same_indentation() -> None:
    changed = config_file.change_text(WRITTEN, "model.timeout_seconds", 9, FILE)
    assert "base_url: https://api.openai.com/v1\n  timeout_seconds: 9\n\n# Looks." in changed
    changed = config_file.change_text(WRITTEN, "display.colour", False, FILE)
    assert "    resume_display: minimal\n    colour: false\nempty:" in changed


def test_a_new_section_is_added_at_the_end() -> None:
    changed = config_file.change_text(WRITTEN, "agent.max_steps", 9, FILE)
    assert config_file.get_value(config_file.parse_text(changed, FILE), "agent.max_steps") == 9
    assert comments(changed) == comments(WRITTEN)
    assert config_file.change_text("", "agent.max_steps", 9, FILE) == "agent:\n  max_steps: 9\n"
    assert config_file.change_text("# only this", "a.b", 1, FILE) == "# only this\na:\n  b: 1\n"


def test_an_empty_section_gets_its_first_value() -> None:
    changed = config_file.change_text(WRITTEN, "empty.inner.deep", "x", FILE)
    assert "empty:\n  inner:\n    deep: x\nlist:" in changed


def test_removing_a_value_keeps_the_comments_of_others() -> None:
    changed = config_file.change_text(WRITTEN, "model.base_url", None, FILE)
    assert changed == WRITTEN.replace("  base_url: https://api.openai.com/v1\n", "")
    assert config_file.change_text(WRITTEN, "text", None, FILE) == WRITTEN.replace(
        "text: |\n  several\n  lines\n", ""
    )
    assert config_file.change_text(WRITTEN, "nothing.there", None, FILE) == WRITTEN


def test_a_flow_mapping_is_not_edited() -> None:
    with pytest.raises(errors.BadConfig, match="use `hermes config edit`"):
        config_file.change_text("model: {default: a}\n", "model.base_url", "http://x", FILE)


NAMES = st.sampled_from(["default", "base_url", "new", "other"])
KEYS = st.builds(
    lambda section, name: f"{section}.{name}", st.sampled_from(["model", "display", "empty", "fresh"]), NAMES
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.sampled_from(
        ["true", "null", "~", "7", "1e3", "a: b", "a #b", "- x", "{x}", "yes", "2026-01-01", "a:"]
    ),
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6))
def test_any_changes_are_read_back_and_keep_every_comment(changes: list[tuple[str, Any]]) -> None:
    text, wanted = WRITTEN, {"model.default": "gpt-5", "model.base_url": "https://api.openai.com/v1"}
    wanted["display.resume_display"] = "minimal"
    for key, value in changes:
        text = config_file.change_text(text, key, value, FILE)
        wanted.pop(key, None)
        wanted |= {} if value is None else {key: value}
    values = config_file.parse_text(text, FILE)
    for section in ("model", "display", "empty", "fresh"):
        fields = {f"{section}.{name}": value for name, value in (values.get(section) or {}).items()}
        assert fields == {key: value for key, value in wanted.items() if key.startswith(f"{section}.")}
    kept = [line for line in WRITTEN.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in text.splitlines() if line in kept] == kept


def test_an_invalid_file_is_named_in_one_line(home: Path) -> None:
    home.mkdir()
    for text in ("model: [", "just text", "a: b: c", "\tx: 1"):
        (home / "config.yaml").write_text(text)
        with pytest.raises(errors.BadConfig) as caught:
            config_file.read()
        assert str(home / "config.yaml") in str(caught.value)
        assert "\n" not in str(caught.value)
    (home / "config.yaml").write_bytes(b"model: \xff")
    with pytest.raises(errors.BadConfig, match="not UTF-8"):
        config_file.read()


def test_files_become_private_when_they_are_written(home: Path) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(WRITTEN)
    os.chmod(home / "config.yaml", 0o644)
    config_file.change("model.default", "small")
    dotenv.change("OPENAI_API_KEY", "secret")
    for name in ("config.yaml", ".env"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    os.chmod(home / ".env", 0o644)
    assert dotenv.read() == {"OPENAI_API_KEY": "secret"}
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600


def test_a_symbolic_link_is_kept(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    for name in ("config.yaml", ".env"):
        (home / name).symlink_to(tmp_path / "dotfiles" / name)
    config_file.change("model.default", "small")
    dotenv.change("X_API_KEY", "secret")
    assert (home / "config.yaml").is_symlink()
    assert (home / ".env").is_symlink()
    assert config_file.read() == {"model": {"default": "small"}}
    assert dotenv.read() == {"X_API_KEY": "secret"}


def _set_many(name: str) -> None:
    for count in range(10):
        config_file.change(f"model.{name}", count)
        dotenv.change(f"{name}_API_KEY", str(count))


def test_concurrent_changes_lose_nothing(home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.map(_set_many, ["A", "B", "C"])
    assert config_file.read() == {"model": {"A": 9, "B": 9, "C": 9}}
    assert dotenv.read() == {"A_API_KEY": "9", "B_API_KEY": "9", "C_API_KEY": "9"}


# ---------------------------------------------------------------- .env

KEPT = "# my keys\nexport OLD_API_KEY='a b'  # from work\n\nnonsense\nOTHER=\"x\\ny\"\nPLAIN=a#b # c\n"


def test_the_usual_ways_to_write_a_variable(home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text(KEPT + "EMPTY=\nTWICE=1\nTWICE=2\r\n")
    assert dotenv.read() == {
        "OLD_API_KEY": "a b",
        "OTHER": "x\ny",
        "PLAIN": "a#b",
        "EMPTY": "",
        "TWICE": "2",
    }


def test_the_environment_wins_unless_it_is_blank(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dotenv.change("X_API_KEY", "file")
    assert dotenv.get_variable("X_API_KEY") == "file"
    monkeypatch.setenv("X_API_KEY", " ")
    assert dotenv.get_variable("X_API_KEY") == "file"
    monkeypatch.setenv("X_API_KEY", "here")
    assert dotenv.get_variable("X_API_KEY") == "here"
    assert dotenv.get_variable("NOWHERE_API_KEY") is None


def test_an_invalid_variable_name_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="not a valid variable name"):
        dotenv.change("a b", "x")


@given(
    st.sampled_from(["OLD_API_KEY", "NEW_API_KEY", "PLAIN"]),
    st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
)
def test_any_value_is_read_back_and_nothing_else_is_touched(name: str, value: str | None) -> None:
    def read(text: str) -> dict[str, str]:
        return {one: told for one, told in map(dotenv._parse_line, text.split("\n")) if one}

    after = dotenv.change_text(KEPT, name, value)
    wanted = {one: told for one, told in read(KEPT).items() if one != name}
    assert read(after) == wanted | ({} if value is None else {name: value})
    assert after.startswith("# my keys\n")
    assert "\nnonsense\n" in after
