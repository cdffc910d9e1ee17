"""The recipes of docs/extending.md work: they are applied to a copy of the source, which is then used."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.recipes import ChangedCopy, Recipe, matches, read_recipes
from tests.terminal import ENTER, LEAVE, Terminal

ROOT = Path(__file__).parent.parent
RECIPES = {
    recipe.title: recipe
    for recipe in read_recipes((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))
}
COPIED = ("src", "docs", "tools")
PATIENCE_S = 60


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> ChangedCopy:
    """Return a copy of the source with every recipe applied. Also return a home whose store was created
    before that."""
    folder = tmp_path_factory.mktemp("extending")
    home = folder / "home"
    home.mkdir(mode=0o700)
    with SessionDB(home / "state.db") as db:
        for name in ("first", "second"):
            db.create_session(name, "cli")
            db.append_message(name, "user", f"This is the {name} conversation")
        db.set_session_title("first", "Pinned before")
        db.pin_session("first", True)
    root = folder / "copy"
    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for recipe in RECIPES.values():
        for change in recipe.changes:
            change.apply(root)
    return ChangedCopy(root, home)


def test_there_is_a_recipe_for_each_usual_change() -> None:
    assert list(RECIPES) == [
        "A setting",
        "A column",
        "A search field",
        "An export format",
        "A slash command",
        "A tool",
        "A platform",
    ]
    assert all(recipe.changes for recipe in RECIPES.values())


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_the_commands_print_what_the_page_shows(recipe: Recipe, changed: ChangedCopy) -> None:
    for session in recipe.sessions:
        for command, expected in session.commands:
            output = changed.run(command)
            assert matches(expected, output), f"$ {command}\n{output}"


def test_a_setting_takes_effect_and_stands_in_the_table(changed: ChangedCopy) -> None:
    changed.run("hermes config set display.list_limit 1")
    assert "Pinned before" not in changed.run("hermes sessions list")
    assert "Pinned before" in changed.run("hermes sessions list --limit 20")
    changed.run("python -m tools.settings_tables")
    assert "`display.list_limit`" in (changed.root / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_a_slash_command_answers_in_the_terminal(
    changed: ChangedCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**changed.environment, "HERMES_MODEL": "offline"}.items():
        monkeypatch.setenv(name, value)
    with Terminal([sys.executable, "-m", "hermes"]) as terminal:
        terminal.is_raw()
        terminal.types("/pinned", ENTER)
        terminal.sees("Pinned before")
        terminal.types(LEAVE)
        terminal.ends()


def test_a_platform_answers(changed: ChangedCopy) -> None:
    letters = changed.root / "letters"
    letters.mkdir(exist_ok=True)
    changed.run("hermes gateway setup --platform letterbox --folder letters")
    changed.run("hermes config set platforms.letterbox.allowed_users ann")
    environment = {
        **changed.environment,
        "HERMES_MODEL": "offline",
        "LETTERBOX_FOLDER": str(letters),
    }
    changed.run("hermes config set gateway.health_port 0")
    with subprocess.Popen(
        [sys.executable, "-m", "hermes", "gateway"], env=environment, stdin=subprocess.DEVNULL
    ) as gateway:
        try:
            assert "I am the offline model" in exchange(letters, "help")
            assert "/pinned" in exchange(letters, "/help")
        finally:
            gateway.terminate()


def exchange(letters: Path, text: str) -> str:
    """Put a message into the folder that the platform `letterbox` reads, and return the answer."""
    answer = letters / "ann.answer"
    answer.unlink(missing_ok=True)
    (letters / "new").write_text(text, encoding="utf-8")
    (letters / "new").rename(letters / "ann.txt")
    deadline = time.monotonic() + PATIENCE_S
    while not answer.exists():
        assert time.monotonic() < deadline, "no answer came"
        time.sleep(0.05)
    return answer.read_text(encoding="utf-8")


def test_the_changed_source_passes_the_checks(changed: ChangedCopy) -> None:
    programs = Path(sys.executable).parent
    for words in ("ruff check src", "ruff format --check src", "lint-imports"):
        done = subprocess.run(
            [str(programs / words.split()[0]), *words.split()[1:]],
            cwd=changed.root,
            env=changed.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
