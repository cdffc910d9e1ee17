"""Creates one file of each kind that can contain text of a person. The files are written and read with the
code of the program.
"""

from __future__ import annotations

from pathlib import Path

from hermes.agent.prompt.memory_files import Memory
from hermes.agent.prompt.skill_files import Skills
from hermes.chat.input.input_history import PromptHistory, open_history_file
from hermes.chat.input.pastes import Pastes
from hermes.conversation.agents import make_person_folder
from hermes_state import SessionDB
from tests.encrypted.conftest import SECRET

TEXT = f"Likes {SECRET}."


def input_history() -> PromptHistory:
    """Return the input history of this home."""
    file = open_history_file()
    assert file is not None
    return PromptHistory(Pastes(), file)


def room() -> Path:
    return make_person_folder("room:1")


def write_words() -> None:
    """Write one file of each kind with the code that normally writes it."""
    Memory().add("user", TEXT)
    Memory(room() / "memories").add("memory", TEXT)
    Skills().create("release", TEXT, f"Tag {SECRET}.")
    Skills().edit("release", content=f"See {SECRET}.", file="notes/more.md")
    Skills(room() / "skills").create("greet", TEXT, f"Say {SECRET}.")
    history = input_history()
    history.append_string(f"first {SECRET}\nand more")
    history.append_string("second")


def read_words() -> list[object]:
    return [
        Memory().read("user").entries,
        Memory(room() / "memories").read("memory").entries,
        Skills().all(),
        Skills().view("release"),
        Skills().view("release", "notes/more.md"),
        Skills().files("release"),
        Skills(room() / "skills").view("greet"),
        list(input_history().load_history_strings()),
    ]


def words_of(home: Path) -> dict[str, bytes]:
    """Return the path and the raw content of every file that contains text of a person."""
    folders = [home / name for name in ("memories", "skills", "people")]
    files = [
        file
        for folder in folders
        for file in folder.rglob("*")
        if file.is_file() and not file.name.startswith(".")
    ]
    return {str(file.relative_to(home)): file.read_bytes() for file in [*files, home / "chat_history"]}


def small_store(home: Path) -> Path:
    path = home / "state.db"
    with SessionDB(path) as db:
        db.create_session("s0", "cli")
        db.append_message("s0", "user", f"about {SECRET}")
    return path
