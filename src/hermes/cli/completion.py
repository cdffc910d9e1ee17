"""`hermes completion bash | zsh | fish`: what makes a shell complete commands, flags, ids and titles.

The scripts are small and know nothing: they ask `hermes completion words` what could come next, a line for each word,
with what it means behind a tab. So a new command or session is completed at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from hermes import home
from hermes.cli.command import DONE, Command, Words, group
from hermes.cli.output import say
from hermes.text import printable

HERE = "hermes.cli.completion"
COMMANDS = {
    "bash": Command(f"{HERE}:define_bash", 'for bash: eval "$(hermes completion bash)" in ~/.bashrc'),
    "zsh": Command(f"{HERE}:define_zsh", 'for zsh: eval "$(hermes completion zsh)" in ~/.zshrc'),
    "fish": Command(f"{HERE}:define_fish", "for fish: hermes completion fish | source in config.fish"),
    "words": Command(f"{HERE}:define_words", "what could come next; the scripts ask this"),
}

BASH = """_hermes() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        [ -n "$line" ] && COMPREPLY+=("$(printf '%q' "${line%%$'\\t'*}")")
    done < <(hermes completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _hermes hermes"""

ZSH = """_hermes() {
    local -a offered
    local line
    for line in "${(@f)$(hermes completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && offered+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done
    if (( $#offered )); then _describe 'hermes' offered; else _files; fi
}
compdef _hermes hermes"""

FISH = """function __hermes_words
    set -l typed (commandline -opc) (commandline -ct)
    hermes completion words -- $typed[2..-1] 2>/dev/null
end
complete -c hermes -f -a '(__hermes_words)'
complete -c hermes -n '__fish_seen_subcommand_from export import backup restore' -F"""

SOURCES = (
    *(
        "cli",
        "telegram",
        "discord",
        "slack",
        "whatsapp",
        "signal",
        "matrix",
        "mattermost",
        "email",
        "sms",
        "dingtalk",
    ),
    *(
        "feishu",
        "wecom",
        "weixin",
        "bluebubbles",
        "qqbot",
        "homeassistant",
        "webhook",
        "api-server",
        "acp",
        "cron",
    ),
    "batch",
)
SESSION = ("ID", "ID|TITLE")
"""How arguments are called that name a conversation."""
MOST = 50


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    group(parser, COMMANDS, words)


def define_bash(parser: argparse.ArgumentParser, _: Words) -> None:
    _prints(parser, BASH)


def define_zsh(parser: argparse.ArgumentParser, _: Words) -> None:
    _prints(parser, ZSH)


def define_fish(parser: argparse.ArgumentParser, _: Words) -> None:
    _prints(parser, FISH)


def define_words(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.add_argument(
        "typed", nargs="*", metavar="WORD", help="what was typed so far, the unfinished word last"
    )
    parser.set_defaults(run=offer)


def _prints(parser: argparse.ArgumentParser, script: str) -> None:
    def run(_: argparse.Namespace) -> int:
        say(script.splitlines())
        return DONE

    parser.set_defaults(run=run)


def offer(arguments: argparse.Namespace) -> int:
    from hermes.cli.main import parser

    *done, begun = arguments.typed or [""]
    if done and done[0].startswith("-"):  # flags that stand alone are those of the chat
        done.insert(0, "chat")
    reached = _walk(parser([word for word in done if not word.startswith("-")]), done)
    say(f"{printable(word)}\t{printable(told)}" for word, told in _offers(reached, done, begun.lstrip("'\"")))
    return DONE


def _walk(parser: argparse.ArgumentParser, done: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that was typed so far."""
    for word in done:
        for commands in _commands(parser):
            parser = commands.choices.get(word, parser)
    return parser


def _commands(parser: argparse.ArgumentParser) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _offers(parser: argparse.ArgumentParser, done: Sequence[str], begun: str) -> Iterator[tuple[str, str]]:
    flag = next((action for action in parser._actions if done and done[-1] in action.option_strings), None)
    if flag is not None and flag.nargs != 0:
        choices = SOURCES if flag.dest == "source" else flag.choices or ()
        yield from _beginning(((str(choice), "") for choice in choices), begun)
        if flag.metavar in SESSION:
            yield from _sessions(begun)
        return
    if begun.startswith("-"):
        flags = [
            (option, action.help or "") for action in parser._actions for option in action.option_strings
        ]
        yield from _beginning(flags, begun)
        return
    for commands in _commands(parser):
        yield from _beginning(((one.dest, one.help or "") for one in commands._choices_actions), begun)
    if any(action.metavar in SESSION for action in parser._actions):
        yield from _sessions(begun)


def _beginning(offered: Iterable[tuple[str, str]], begun: str) -> Iterator[tuple[str, str]]:
    return (one for one in offered if one[0].startswith(begun))


def _sessions(begun: str) -> Iterator[tuple[str, str]]:
    """Titles and ids that begin so. There is nothing to complete where there is no store."""
    from hermes.sessiondb import SessionDB

    path = home.default_db_path()
    if not path.exists():
        return
    with SessionDB(path, read_only=True) as db:
        for row in db.starting_with(begun, MOST):
            if row["title"] and row["title"].lower().startswith(begun.lower()):
                yield row["title"], row["id"]
            else:
                yield row["id"], row["title"] or row["preview"]
