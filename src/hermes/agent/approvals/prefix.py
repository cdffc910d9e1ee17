"""The words that later commands must begin with, when a person allows "commands that begin like this"."""

from __future__ import annotations

import re
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
    . alias ash at awk bash batch builtin bunx busybox chroot command coproc csh dash dbus-run-session doas emacs env
    entr eval ex exec expect export fakeroot fd find firejail fish flock gawk gdb ionice ksh ltrace mawk mksh nawk nice
    nohup npx nsenter numactl parallel perf pipx pkexec pnpx prlimit proot pwsh rsync runuser screen script sed setarch
    setpriv setsid sh source ssh sshpass start-stop-daemon stdbuf strace su sudo systemd-run tar taskset tcsh time
    timeout tmux toybox trap unshare uvx valgrind vi vim watch xargs xvfb-run zsh
    """.split()
)
"""Programs that run whatever follows, or what an option says: to allow them is to allow everything."""
RUNNERS = frozenset(
    """
    bundle_exec conda_run docker_exec docker_run git_bisect git_submodule hatch_run kubectl_exec npm_exec npm_x pdm_run
    pnpm_dlx pnpm_exec podman_exec podman_run poetry_run rustup_run uv_run yarn_dlx yarn_exec
    """.split()
)
"""Subcommands that run whatever follows: the program behind them belongs to the beginning."""
EXECUTING = (
    "--checkpoint-action", "--config-env", "--eval", "--exec", "--exec-path", "--init-file", "--open-files-in-pager",
    "--pre", "--rcfile", "--receive-pack", "--rsh", "--script-shell", "--shell", "--to-command", "--toolexec",
    "--upload-pack", "--use-compress-program",
)  # fmt: skip
"""Options by which programs start others. A consent for a beginning does not hold for them."""
EXECUTING_SHORT = {"git": ("-x", "-O"), "go": ("-exec", "-toolexec", "-vettool"), "make": ("-E",)}
VERSION = re.compile(r"-?[0-9][0-9.]*$")
PRIVATE = ("/tmp", "TMPDIR", "XDG_CACHE_HOME")
"""How the private folder is named. What lies there was written without a question."""


def suggest_prefix(commands: Sequence[SimpleCommand]) -> tuple[str, ...]:
    """What to offer for a command; empty if nothing sensible can be offered.

    Of several commands, only one may do more than read: the others run unasked anyway.
    """
    acting = [command for command in commands if not is_read_only(command, sandboxed=True)]
    return _get_prefix(acting[0]) if len(acting) == 1 else ()


def is_covered(prefixes: Sequence[Sequence[str]], commands: Sequence[SimpleCommand]) -> bool:
    """Whether every command only reads or begins with one of the prefixes."""
    return all(
        is_read_only(command, sandboxed=True)
        or (any(_has_prefix(command, prefix) for prefix in prefixes) and not _is_running_other(command))
        for command in commands
    )


def _is_running_other(command: SimpleCommand) -> bool:
    """Whether an argument makes it run something that the person did not see when they allowed its beginning."""
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
    """Of a command's words, in which one that is not known stands as an empty text."""
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
