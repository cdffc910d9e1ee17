"""The approval policy of one workspace. It decides whether an action of a tool runs at once, runs after an
approval, or is refused.

A command that stays in the sandbox needs no approval if it only reads. A command that changes something needs
an approval, unless a stored grant covers it or `approvals.mode` is `auto`. Leaving the sandbox always needs
an approval. If no sandbox is available, every command needs an approval, except a command that only reads
files that the tools may read (see `hermes.agent.sandbox.file_view`). If `approvals.mode` is `off`, nothing
needs an approval and there is no sandbox.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from hermes.agent.approvals.grants import Grants
from hermes.agent.approvals.read_only import CHANGES_FOLDER, is_read_only
from hermes.agent.approvals.request import ALLOW_ONCE, ApprovalRequest, Approve, Decision, Scope
from hermes.agent.approvals.shell import SimpleCommand, parse_shell
from hermes.agent.sandbox.programs import is_replaceable
from hermes.agent.sandbox.sandbox import Sandbox
from hermes.errors import HermesError
from hermes.logs import get_logger

_log = get_logger(__name__)

ASK, AUTO, OFF = "ask", "auto", "off"
VIRTUAL = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Virtual file systems that expose the machine and its processes, including this process's environment."""
LONGEST_OPTION = 200
"""The length limit of a short option, in characters. An option of this length or more is treated as if it
named the root folder `/`."""
SUBCOMMANDS = frozenset(
    """
    apt apt-get brew bun bundle cargo composer conda dart deno docker dotnet flutter gh git glab go gradle hatch
    helm just kubectl make mix mvn nox npm nx pdm pip pip3 pnpm podman poetry rails rake rustup swift systemctl
    terraform tofu tox turbo uv yarn zig
    """.split()
)
"""Programs whose first operand selects what they do, such as `git commit`."""
INTERPRETERS = frozenset(
    """
    bun deno lua node perl php python python3 ruby tsx
    """.split()
)
"""Programs that run a script file, or a module with `-m`. The prefix of a grant includes the script or the
module."""
WRAPPERS = frozenset(
    """
    . alias ash at awk bash batch builtin bunx busybox chroot command coproc csh dash dbus-run-session doas emacs env
    entr eval ex exec expect export fakeroot fd find firejail fish flock gawk gdb ionice ksh ltrace mawk mksh nawk nice
    nohup npx nsenter numactl parallel perf pipx pkexec pnpx prlimit proot pwsh rsync runuser screen script sed setarch
    setpriv setsid sh source ssh sshpass start-stop-daemon stdbuf strace su sudo systemd-run tar taskset tcsh time
    timeout tmux toybox trap unshare uvx valgrind vi vim watch xargs xvfb-run zsh
    """.split()
)
"""Programs that run another program, which an argument or an option names. A prefix grant for such a program
would allow every command."""
RUNNERS = frozenset(
    """
    bundle_exec conda_run docker_exec docker_run git_bisect git_submodule hatch_run kubectl_exec npm_exec npm_x pdm_run
    pnpm_dlx pnpm_exec podman_exec podman_run poetry_run rustup_run uv_run yarn_dlx yarn_exec
    """.split()
)
"""Subcommands that run another program. The prefix of a grant for such a subcommand includes the name of that
program."""
EXECUTING = (
    "--checkpoint-action", "--config-env", "--eval", "--exec", "--exec-path", "--init-file", "--open-files-in-pager",
    "--pre", "--rcfile", "--receive-pack", "--rsh", "--script-shell", "--shell", "--to-command", "--toolexec",
    "--upload-pack", "--use-compress-program",
)  # fmt: skip
"""Options that start another program. A prefix grant does not cover a command with such an option."""
EXECUTING_SHORT = {"git": ("-x", "-O"), "go": ("-exec", "-toolexec", "-vettool"), "make": ("-E",)}
"""Further options that start another program, for each program that has them. An argument that begins with
such an option counts, too."""
VERSION = re.compile(r"-?[0-9][0-9.]*$")
"""A version at the end of a program's name, as in `python3.12`."""
PRIVATE = ("/tmp", "TMPDIR", "XDG_CACHE_HOME")
"""Ways to name the private temporary folder in a command. Files in this folder were written without approval,
so a prefix grant does not cover a command that names it."""


class Walls(IntEnum):
    """The kind of isolation in which a command runs."""

    NONE = 0
    SANDBOX = 1
    READ_ONLY = 2
    """The sandbox without network and without write access to the workspace. Used for commands that run
    without approval."""


class Refused(Exception):
    """The action is refused. The model receives the text of this error."""


class Policy:
    def __init__(self, sandbox: Sandbox, mode: str = ASK, grants: Grants | None = None) -> None:
        self.sandbox, self.view, self._mode = sandbox, sandbox.view, mode
        self._grants = grants or Grants()
        self._files_allowed: set[Path] = set()

    def locate(self, path: Path) -> Path:
        """Return the real path for a path that a tool received. If commands see the private temporary folder
        as `/tmp`, a path in `/tmp` means that folder."""
        is_private = self.sandbox.has_private_tmp and self._mode != OFF
        return self.view.locate(path) if is_private else path.resolve()

    # ---------------------------------------------------------------- commands

    async def check_command(
        self, command: str, approve: Approve, *, outside: str | None = None, folder: Path | None = None
    ) -> Walls:
        """Return the isolation for a command. Raise `Refused` if the command must not run.

        `outside` says which resource outside the sandbox the command needs; None if it needs none. `folder`
        is the real path of the command's working directory; None means the agent's working directory. If
        `folder` is not the agent's working directory, the approval request shows it, and a stored grant
        covers the command only in that folder.
        """
        folder = self.view.directory if folder is None else folder
        subject = command if folder == self.view.directory else f"cd {shlex.quote(str(folder))}\n{command}"
        if self._mode == OFF:
            return Walls.NONE
        if outside is not None and self.sandbox.is_there:
            await self._ask(
                ApprovalRequest(
                    subject, f"leaves the sandbox: {outside}", command=command, leaves_sandbox=True
                ),
                approve,
                "this command",
            )
            return Walls.NONE
        commands = await asyncio.to_thread(parse_shell, command)
        if self._is_read_only(commands, folder):
            return Walls.READ_ONLY if self.sandbox.is_there else Walls.NONE
        if not self.sandbox.is_there:
            reason = f"runs without a sandbox ({self.sandbox.reason})"
            await self._ask(
                ApprovalRequest(subject, reason, command=command, leaves_sandbox=True),
                approve,
                "this command",
            )
            return Walls.NONE
        if self._mode == AUTO or await asyncio.to_thread(self._is_granted, subject, commands, folder):
            return Walls.SANDBOX
        prefix = " ".join(_suggest_prefix(commands)) if commands else ""
        scopes = (Scope.COMMAND, Scope.PREFIX) if prefix else (Scope.COMMAND,)
        request = ApprovalRequest(
            subject,
            "may change files of the workspace",
            scopes,
            prefix,
            command=command,
            is_granted=lambda: self._is_granted(subject, commands, folder),
        )
        decision = await self._ask(request, approve, "this command")
        if decision.scope is not None:
            text = prefix if decision.scope is Scope.PREFIX else subject.strip()
            await asyncio.to_thread(self._grants.add, self.view.workspace, decision.scope, text)
        return Walls.SANDBOX

    def _is_read_only(self, commands: Sequence[SimpleCommand] | None, folder: Path) -> bool:
        if commands is None:
            return False
        inside = self.sandbox.is_there
        return all(
            is_read_only(command, sandboxed=inside)
            and not is_replaceable(command.program, self.view)
            and (inside or self._is_in_view(command, folder))
            for command in commands
        )

    def _is_in_view(self, command: SimpleCommand, folder: Path) -> bool:
        """Return whether a command that runs without a sandbox reads only files that the tools may read.

        Without a sandbox, a path in `/tmp` means the machine's shared `/tmp`. Only in a sandbox does it mean the
        private temporary folder.
        """
        words = (*command.words[1:], *command.reads)
        return (
            self.view.can_read(folder)
            and not any(word.glob for word in words)
            and all(
                self.view.can_read((folder / Path(part).expanduser()).resolve())
                for word in words
                for part in _list_possible_paths(word.text)
            )
        )

    def _is_granted(self, command: str, commands: Sequence[SimpleCommand] | None, folder: Path) -> bool:
        try:
            grants = self._grants.list_for(self.view.workspace)
        except HermesError as problem:  # if the grants cannot be read, none applies
            _log.error("%s", problem)
            return False
        if any(grant.scope is Scope.COMMAND and grant.text == command.strip() for grant in grants):
            return True
        prefixes = [grant.text.split(" ") for grant in grants if grant.scope is Scope.PREFIX]
        if commands is None or not prefixes or not self._is_in_workspace(commands, folder):
            return False
        return _is_covered(prefixes, commands)

    def _is_in_workspace(self, commands: Sequence[SimpleCommand], folder: Path) -> bool:
        """Return whether all commands run in the workspace and outside the private temporary folder.

        Prefix grants require this. In the private folder, a granted `make test` could run a makefile that was
        written without approval.
        """
        places = [folder]
        for command in commands:
            if command.program == CHANGES_FOLDER:
                word = command.words[1].text if len(command.words) > 1 else "~"
                places.append(self.view.locate(places[-1] / Path(word).expanduser()))
        temporary = self.view.temporary
        return all(
            place.is_relative_to(self.view.workspace) and not place.is_relative_to(temporary)
            for place in places
        )

    # ---------------------------------------------------------------- files

    async def check_edit(self, path: Path, diff: str, approve: Approve) -> None:
        """Raise `Refused` if the file must not be changed. `path` is a real path."""
        if self.view.is_of_agent(path):
            raise Refused(f"{path} belongs to this program; memories and skills have tools of their own")
        if self._mode == OFF:
            return
        request = ApprovalRequest(f"write {path}", "", diff=diff)
        if not self.view.can_write(path):
            await self._ask(request._replace(reason=self._explain_outside(path)), approve, "this edit")
            return
        if path.is_relative_to(self.view.temporary) or self._mode == AUTO:
            return
        if await asyncio.to_thread(self._has_edits):
            return
        request = request._replace(
            reason="changes a file of the workspace", scopes=(Scope.EDITS,), is_granted=self._has_edits
        )
        decision = await self._ask(request, approve, "this edit")
        if decision.scope is Scope.EDITS:
            await asyncio.to_thread(self._grants.add, self.view.workspace, Scope.EDITS)

    def _has_edits(self) -> bool:
        try:
            return self._grants.has(self.view.workspace, Scope.EDITS)
        except HermesError as problem:
            _log.error("%s", problem)
            return False

    def _explain_outside(self, path: Path) -> str:
        if self.view.is_hidden(path):
            return "is where you keep keys or private data"
        if any(path.is_relative_to(folder) for folder in self.view.own_program):
            return "is part of this program"
        if ".git" in map(str.lower, path.parts):
            return "is part of git, which may start programs"
        if path.is_relative_to(self.view.person) and any(
            part.startswith(".") for part in path.relative_to(self.view.person).parts[:1]
        ):
            return "is a settings file of your account"
        return "is outside the workspace"

    async def check_read(self, path: Path, approve: Approve) -> None:
        """Raise `Refused` if the file must not be read. `path` is a real path."""
        if self.view.is_of_agent(path):
            raise Refused(f"{path} belongs to this program; use session_search, memory or skill_view")
        if self._mode == OFF or path in self._files_allowed:
            return
        if self.view.is_hidden(path) or any(path.is_relative_to(folder) for folder in VIRTUAL):
            raise Refused(f"{path} holds the person's keys or private data, which you may not read")
        if self.view.can_read(path):
            return
        await self._ask(ApprovalRequest(f"read {path}", "is outside the workspace"), approve, "this file")
        self._files_allowed.add(path)

    # ---------------------------------------------------------------- approval requests

    async def _ask(self, request: ApprovalRequest, approve: Approve, what: str) -> Decision:
        decision = await approve(request._replace(workspace=str(self.view.workspace)))
        if not decision.allowed:
            why = f": {decision.note}" if decision.note else ""
            raise Refused(
                f"{what} was not allowed{why}. Do not try the same in other words; find another way, or ask."
            )
        return decision if decision.scope in request.scopes else ALLOW_ONCE


def _list_possible_paths(text: str) -> list[str]:
    """Return the parts of a word of a command line that can be a path.

    An operand is returned whole. Of a long option, the value after the `=` is returned. Of a short option such as
    `-nfNAME`, every suffix after the first letter is returned, because it is unknown where the value begins.
    """
    if text.startswith("--"):
        _, equals, value = text.partition("=")
        return [value] if equals else []
    if text.startswith("-"):  # it is unknown which letter of `-nfNAME` takes a value
        return [text[place:] for place in range(2, len(text))] if len(text) < LONGEST_OPTION else ["/"]
    return [text]


# ---------------------------------------------------------------- grants for commands with a prefix


def find_prefix(text: str) -> str:
    """Return the words of the command in `text`, joined by spaces, for use as the prefix of a grant.

    Return an empty text if `text` is not exactly one simple command, or if its words must not become a prefix,
    for example because they would allow every command.
    """
    commands = parse_shell(text)
    if commands is None or len(commands) != 1:
        return ""
    words = [word.text if word.literal and not word.glob else "" for word in commands[0].words]
    beginning = _find_beginning(words)
    is_prefix = (
        beginning and all(words) and len(words) >= len(beginning) and not _is_running_other(commands[0])
    )
    return " ".join(words) if is_prefix and not any(" " in word for word in words) else ""


def is_covered_by(prefixes: Sequence[str], text: str) -> bool:
    """Return whether each command in the shell text `text` only reads files, or begins with one of the prefixes. The
    result is False if one of the commands changes the working directory."""
    commands = parse_shell(text)
    if not prefixes or commands is None or any(command.program == CHANGES_FOLDER for command in commands):
        return False
    return _is_covered([prefix.split(" ") for prefix in prefixes], commands)


def _suggest_prefix(commands: Sequence[SimpleCommand]) -> tuple[str, ...]:
    """Return the prefix, as a tuple of words, that an approval request offers to the person; empty if it offers
    none.

    A prefix is offered only if exactly one of the commands is not read-only. The prefix is made from that
    command, because the read-only commands need no approval.
    """
    acting = [command for command in commands if not is_read_only(command, sandboxed=True)]
    return _get_prefix(acting[0]) if len(acting) == 1 else ()


def _is_covered(prefixes: Sequence[Sequence[str]], commands: Sequence[SimpleCommand]) -> bool:
    """Return whether each command only reads files, or starts with the words of one of the prefixes. A command with
    an argument that makes it run something else is not covered by a prefix."""
    return all(
        is_read_only(command, sandboxed=True)
        or (any(_has_prefix(command, prefix) for prefix in prefixes) and not _is_running_other(command))
        for command in commands
    )


def _is_running_other(command: SimpleCommand) -> bool:
    """Return whether an argument makes the command run a program that the prefix of a grant does not name. The result
    is also True if an argument names the private temporary folder."""
    program = command.program.rpartition("/")[2]
    for word in command.words[1:]:
        name = word.text.partition("=")[0]
        is_short = any(word.text.startswith(option) for option in EXECUTING_SHORT.get(program, ()))
        is_long = len(name) > 3 and any(option.startswith(name) for option in EXECUTING)
        is_shell = program == "make" and (name in ("SHELL", ".SHELLFLAGS") or "$(" in word.text)
        if is_short or is_long or is_shell or any(place in word.text for place in PRIVATE):
            return True
    return False


def _get_prefix(command: SimpleCommand) -> tuple[str, ...]:
    words = [word.text if word.literal and not word.glob else "" for word in command.words]
    return _find_beginning(words)


def _find_beginning(words: list[str]) -> tuple[str, ...]:
    """Return the first words of a command, as many as the prefix of a grant must contain at least. Return an
    empty tuple if no prefix may be granted for this command.

    In `words`, an empty text stands for a word whose value is unknown.
    """
    program = VERSION.sub("", words[0].rpartition("/")[2]) if words else ""
    if not program or program in WRAPPERS:
        return ()
    if program in INTERPRETERS:
        if words[1:2] == ["-m"] and words[2:3] and words[2]:
            return tuple(words[:3])
        is_file = len(words) > 1 and words[1] and not words[1].startswith("-")
        return tuple(words[:2]) if is_file else ()
    if program in SUBCOMMANDS:
        names_one = len(words) > 1 and words[1] and not words[1].startswith("-")
        if names_one and f"{program}_{words[1]}" in RUNNERS:
            rest = _find_beginning(words[2:]) if len(words) > 2 and not words[2].startswith("-") else ()
            return (*words[:2], *rest) if rest else ()
        return tuple(words[:2]) if names_one else ()
    return (words[0],)


def _has_prefix(command: SimpleCommand, prefix: Sequence[str]) -> bool:
    words = command.words[: len(prefix)]
    return len(words) == len(prefix) and all(
        word.literal and not word.glob and word.text == expected
        for word, expected in zip(words, prefix, strict=True)
    )
