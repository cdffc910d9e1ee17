"""`hermes memory` and `hermes skills`: read and edit the agent's memory and skills.

If the store is encrypted, these files may be encrypted too. In that case, an editor alone cannot open them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hermes import home
from hermes.agent.prompt.memory_files import FILES, Memory
from hermes.agent.prompt.skill_files import Skills
from hermes.cli.command import Access, Command, Words, add_commands
from hermes.cli.exit_codes import DONE, Refused
from hermes.cli.io.editor import edit_file
from hermes.cli.io.output import print_lines
from hermes.text import make_printable

HERE = "hermes.cli.memory"
MEMORY_COMMANDS = {
    "show": Command(f"{HERE}:define_memory_show", "print what the agent remembers", Access.READS),
    "edit": Command(f"{HERE}:define_memory_edit", "edit the memory in your editor", Access.PERSON),
}
SKILL_COMMANDS = {
    "list": Command(f"{HERE}:define_skills_list", "list the skills, and what each is for", Access.READS),
    "show": Command(f"{HERE}:define_skills_show", "print a skill, or one of its files", Access.READS),
    "edit": Command(
        f"{HERE}:define_skills_edit", "edit a skill, or one of its files, in your editor", Access.PERSON
    ),
}


def define_memory(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, MEMORY_COMMANDS, words)


def define_skills(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, SKILL_COMMANDS, words)


def _add_person_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--person",
        metavar="FOLDER",
        help="use the files of a person or room of the gateway: a folder below people/",
    )


def _find_folder(arguments: argparse.Namespace, name: str) -> Path | None:
    """Return the folder `name` (`memories` or `skills`) of the person or room that `--person` names. Return
    None without `--person`, which means the memory or skills of the home."""
    if arguments.person is None:
        return None
    people = home.get_hermes_home() / "people"
    if Path(arguments.person).name != arguments.person or not (people / arguments.person).is_dir():
        raise Refused(f"there is no folder {arguments.person!r} in {people}")
    folder: Path = people / arguments.person / name
    return folder


# ---------------------------------------------------------------- memory


def define_memory_show(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_memory)
    parser.add_argument("which", nargs="?", choices=tuple(FILES), help="about the work, or about the person")
    _add_person_option(parser)


def define_memory_edit(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=edit_memory)
    parser.add_argument("which", choices=tuple(FILES), help="about the work, or about the person")
    _add_person_option(parser)


def show_memory(arguments: argparse.Namespace) -> int:
    memory = Memory(_find_folder(arguments, "memories"))
    for target in [arguments.which] if arguments.which else FILES:
        there = memory.read(target)
        print_lines([f"# {target}: {there.fullness}", *map(make_printable, there.text.splitlines())])
    return DONE


def edit_memory(arguments: argparse.Namespace) -> int:
    memory = Memory(_find_folder(arguments, "memories"))
    changed = edit_file(memory.folder / FILES[arguments.which], memory.folder)
    fullness = memory.read(arguments.which).fullness
    print_lines([f"{arguments.which} {'is saved' if changed else 'is unchanged'}: {fullness}"])
    return DONE


# ---------------------------------------------------------------- skills


def define_skills_list(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=list_skills)
    _add_person_option(parser)


def define_skills_show(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=show_skill)
    _add_skill_argument(parser)


def define_skills_edit(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.set_defaults(run=edit_skill)
    _add_skill_argument(parser)


def _add_skill_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the skill")
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file beside its SKILL.md")
    _add_person_option(parser)


def list_skills(arguments: argparse.Namespace) -> int:
    skills = Skills(_find_folder(arguments, "skills")).all()
    print_lines(
        [make_printable(f"{skill.name}  {skill.description}") for skill in skills] or ["No skills yet."]
    )
    return DONE


def show_skill(arguments: argparse.Namespace) -> int:
    text = Skills(_find_folder(arguments, "skills")).view(arguments.name, arguments.file)
    print_lines(make_printable(line) for line in text.splitlines())
    return DONE


def edit_skill(arguments: argparse.Namespace) -> int:
    skills = Skills(_find_folder(arguments, "skills"))
    file = skills.path_of(arguments.name, arguments.file)
    changed = edit_file(file, skills.folder)
    print_lines([f"{make_printable(str(file))} {'is saved' if changed else 'is unchanged'}"])
    return DONE
