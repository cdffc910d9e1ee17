"""The agent's skills: a folder per skill, `skills/<name>/SKILL.md`, with optional further files.

The front matter of SKILL.md contains the name and a one-line description. Only these are part of every
prompt; the text is read on demand. A skill name is always a plain folder name, so no name can refer to a path
outside `skills/`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hermes import clock, errors, home, secrets
from hermes.atomic_files import lock_private_folder
from hermes.recall.tool.prompt_safety import to_one_line
from hermes.store.engine_choice import sealed_files
from hermes.text import make_printable, make_readable

MAIN = "SKILL.md"
DELETED = ".deleted"
"""The folder to which deleted skills are moved, so that a person can restore them."""
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 300
LONGEST_AUTHOR = 120
LARGEST_FILE = 100_000
MOST_SKILLS, MOST_FILES = 200, 100
FRONT = re.compile(r"\A---[ \t]*\r?\n(?P<front>.{0,8000}?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class Skill(NamedTuple):
    name: str
    description: str
    author: str = ""
    """The author, in a room that several people share: `Ann #1f3a5c7e9b2d4f60`."""

    @property
    def line(self) -> str:
        """The line that describes the skill in a list for the model."""
        by = f" (by {to_one_line(self.author)})" if self.author else ""
        return f"{self.name}: {to_one_line(self.description, LONGEST_DESCRIPTION)}{by}"


class Skills:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        return self._folder or home.get_hermes_home() / "skills"

    def all(self) -> list[Skill]:
        """Return all skills, sorted by name. An unreadable skill is listed with a note."""
        try:
            known = sorted(
                folder
                for folder in self.folder.iterdir()
                if _is_name(folder.name) and (folder / MAIN).is_file()
            )
        except OSError:
            return []
        return [Skill(folder.name, *self._read_description(folder)) for folder in known[:MOST_SKILLS]]

    def author(self, name: str) -> str:
        """Return the author of a skill; empty if the skill names no author."""
        return self._read_description(self._find_existing(name))[1]

    def view(self, name: str, file: str | None = None) -> str:
        """Return the text of SKILL.md of the skill `name`, or of another file of this skill if `file` is given."""
        return make_readable(_read(self.path_of(name, file)))

    def path_of(self, name: str, file: str | None = None) -> Path:
        """Return the path of SKILL.md or of another file of the skill. The file need not exist."""
        return self._locate_file(self._find_existing(name), file)

    def files(self, name: str) -> list[str]:
        """Return the relative paths of the files of a skill, without SKILL.md and hidden files."""
        folder = self._find_existing(name)
        found = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file())
        return [path for path in found if path != MAIN and f"/{path}".find("/.") < 0][:MOST_FILES]

    def create(self, name: str, description: str, content: str, *, author: str = "") -> None:
        folder = self._locate_folder(name)
        text = _format_skill(name, description, content, author)
        with lock_private_folder(self.folder):
            if folder.exists():
                raise _make_error(f"there is already a skill {name!r}; edit it")
            home.make_private_folder(folder)
            try:
                sealed_files().write(folder / MAIN, text)
            except BaseException:  # an empty folder would block the name
                with suppress(OSError):
                    folder.rmdir()
                raise

    def edit(
        self,
        name: str,
        *,
        description: str | None = None,
        content: str | None = None,
        file: str | None = None,
    ) -> None:
        """Change the description of a skill, its text, or both. With `file`, write `content` to that file of
        the skill instead."""
        with lock_private_folder(self.folder):
            folder = self._find_existing(name)
            if file is not None:
                if content is None or description is not None:
                    raise _make_error("for a file other than SKILL.md, pass content and no description")
                path = self._locate_file(folder, file)
                if path == folder / MAIN:  # only this program writes the front matter
                    raise _make_error(
                        f"{MAIN} is the main file of the skill; to write it, pass content without file"
                    )
                home.make_private_folder(path.parent)
                sealed_files().write(path, _check_text(content))
                return
            old = _read(folder / MAIN)
            front = FRONT.match(old)
            described, author = self._read_description(folder)
            sealed_files().write(
                folder / MAIN,
                _format_skill(
                    name,
                    described if description is None else description,
                    (old[front.end() :] if front else old) if content is None else content,
                    author,
                ),
            )

    def delete(self, name: str, file: str | None = None) -> None:
        """Move a skill or one of its files to `.deleted`, from where a person can restore it."""
        with lock_private_folder(self.folder):
            folder = self._find_existing(name)
            gone = folder if file is None else self._locate_file(folder, file)
            if file is not None and (gone == folder / MAIN or not gone.is_file()):
                raise _make_error(
                    f"skill {name!r} has no additional file {make_printable(file)[:80]!r} to delete"
                )
            kept = self.folder / DELETED
            home.make_private_folder(kept)
            gone.rename(kept / f"{clock.format_stamp()}_{clock.make_uid()[-6:]}_{gone.name}")

    def _locate_folder(self, name: str) -> Path:
        if not _is_name(name):
            raise _make_error(
                f"{make_printable(name)[:80]!r} is not a valid skill name; use at most {LONGEST_NAME}"
                " lower-case letters, digits and hyphens"
            )
        return self.folder / name

    def _find_existing(self, name: str) -> Path:
        folder = self._locate_folder(name)
        if not (folder / MAIN).is_file() or not folder.resolve().is_relative_to(self.folder.resolve()):
            known = ", ".join(skill.name for skill in self.all()[:20])
            raise _make_error(
                f"there is no skill {name!r}; {f'there are {known}' if known else 'there are none yet'}"
            )
        return folder

    def _locate_file(self, folder: Path, file: str | None) -> Path:
        """Return the path of a file of the skill. Raise an error if the path leads outside the skill's
        folder, even through a link."""
        relative = PurePosixPath(file or MAIN)
        usable = relative.parts and "\0" not in str(relative) and len(str(relative)) <= 200
        if not usable or relative.is_absolute() or any(part.startswith(".") for part in relative.parts):
            raise _make_error(f"{make_printable(str(file))[:80]!r} is not a valid file name in a skill")
        path = folder / relative
        if not path.resolve().is_relative_to(folder.resolve()):
            raise _make_error(f"{make_printable(str(file))[:80]!r} is outside the folder of the skill")
        return path

    def _read_description(self, folder: Path) -> tuple[str, str]:
        """Return the description and the author of a skill from the front matter of its SKILL.md."""
        try:
            found = FRONT.match(_read(folder / MAIN))
            front = _read_front_matter(found["front"] if found else "")
        except errors.HermesError:
            return "(cannot be read)", ""
        line, author = (
            " ".join(make_printable(str(front.get(key) or "")).split()) for key in ("description", "author")
        )
        return line[:LONGEST_DESCRIPTION] or "(no description)", author[:LONGEST_AUTHOR]


def _is_name(name: str) -> bool:
    return re.fullmatch(rf"[a-z0-9][a-z0-9_-]{{0,{LONGEST_NAME - 1}}}", name) is not None


def _read_front_matter(text: str) -> dict[str, object]:
    """Parse front matter. If it is not valid YAML, for example because of a colon in an unquoted description,
    read it line by line."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        read = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        read = dict(re.findall(r"^(name|description|author):[ \t]*(.*)$", text, re.MULTILINE))
    return read if isinstance(read, dict) else {}


def _format_skill(name: str, description: str, content: str, author: str = "") -> bytes:
    """Return the content of SKILL.md. The description is quoted as JSON, which is valid YAML for any text."""
    import json

    line = " ".join(make_printable(description).split())
    if not line or len(line) > LONGEST_DESCRIPTION:
        raise _make_error(
            f"description must be one line of at most {LONGEST_DESCRIPTION} characters"
            " that says what the skill is for"
        )
    if not content.strip():
        raise _make_error("content must not be empty; pass the text of the skill")
    front = FRONT.match(content)
    body = content[front.end() :] if front else content
    quoted = json.dumps(line, ensure_ascii=False)
    by = f"author: {json.dumps(author, ensure_ascii=False)}\n" if author else ""
    return _check_text(f"---\nname: {name}\ndescription: {quoted}\n{by}---\n\n{body.strip()}\n")


def _check_text(text: str) -> bytes:
    if found := secrets.find_secrets(text):
        raise _make_error(
            f"the text contains a secret ({found[0].name}); save only where the secret can be found"
        )
    data = make_readable(text).encode()
    if len(data) > LARGEST_FILE:
        raise _make_error(f"the text has {len(data):,} bytes; the limit is {LARGEST_FILE:,}")
    return data


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            raise _make_error(f"there is no file {path.name!r} in that skill")
        if sealed_files().size(path) > LARGEST_FILE:
            raise _make_error(f"{path.name} is too large to be read")
        return sealed_files().read(path).decode()
    except UnicodeDecodeError as problem:
        raise _make_error(f"{path.name} is not text") from problem
    except OSError as problem:
        raise _make_error(f"{path.name} cannot be read: {problem.strerror or problem}") from problem


def _make_error(sentence: str) -> errors.HermesError:
    return errors.make_error(errors.InvalidArgument, sentence)
