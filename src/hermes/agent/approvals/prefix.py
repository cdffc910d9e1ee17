"""The words that later commands must begin with, when a person allows "commands that begin like this"."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.agent.approvals.read_only import is_read_only
from hermes.agent.approvals.shell import SimpleCommand

SUBCOMMANDS = frozenset(
    """
    apt apt-get brew bun bundle cargo composer conda dart deno docker dotnet flutter gh git glab go gradle hatch
    helm just kubectl make mix mvn nox npm nx pdm pip pip3 pnpm podman poetry rails rake rustup swift systemctl
    terraform tofu tox turbo uv yarn zig
    """.split()
)
"""Programs whose first operand says what they do."""
INTERPRETERS = frozenset(
    """
    bun deno lua node perl php python python3 ruby tsx
    """.split()
)
"""Programs for which a file or `-m module` says what they do."""
WRAPPERS = frozenset(
    """
    awk bash command dash doas env eval exec expect fish gawk ionice ksh nice nohup parallel pkexec screen script
    setsid sh ssh stdbuf su sudo time timeout tmux unshare watch xargs zsh
    """.split()
)
"""Programs that run whatever follows: to allow them is to allow everything."""


def prefix_of(commands: Sequence[SimpleCommand]) -> tuple[str, ...]:
    """What to offer for a command; empty if nothing sensible can be offered.

    Of several commands, only one may do more than read: the others run unasked anyway.
    """
    acting = [command for command in commands if not is_read_only(command, sandboxed=True)]
    return _prefix(acting[0]) if len(acting) == 1 else ()


def covers(prefixes: Sequence[Sequence[str]], commands: Sequence[SimpleCommand]) -> bool:
    """Whether every command only reads or begins with one of the prefixes."""
    return all(
        is_read_only(command, sandboxed=True) or any(_begins_with(command, prefix) for prefix in prefixes)
        for command in commands
    )


def _prefix(command: SimpleCommand) -> tuple[str, ...]:
    words = [word.text if word.literal and not word.glob else "" for word in command.words]
    program = words[0]
    if not program or program in WRAPPERS:
        return ()
    if program in INTERPRETERS:
        if words[1:2] == ["-m"] and words[2:3] and words[2]:
            return tuple(words[:3])
        is_file = len(words) > 1 and words[1] and not words[1].startswith("-")
        return tuple(words[:2]) if is_file else ()
    if program in SUBCOMMANDS:
        names_one = len(words) > 1 and words[1] and not words[1].startswith("-")
        return tuple(words[:2]) if names_one else ()
    return (program,)


def _begins_with(command: SimpleCommand, prefix: Sequence[str]) -> bool:
    words = command.words[: len(prefix)]
    return len(words) == len(prefix) and all(
        word.literal and not word.glob and word.text == wanted
        for word, wanted in zip(words, prefix, strict=True)
    )
