"""`hermes completion bash | zsh | fish`: shell completion of commands, flags, ids and titles.

The scripts are small and contain no command names. They call `hermes completion words`, which prints the
possible next words, one per line, each with a description after a tab. New commands and sessions are
therefore completed at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes import home
from hermes.cli.command import Access, Command, Words, add_commands
from hermes.cli.exit_codes import DONE
from hermes.cli.io.command_line import CHAT, take_store
from hermes.cli.io.json_fields import JsonAction
from hermes.cli.io.output import print_lines
from hermes.session_kinds import SOURCES
from hermes.text import format_count, make_printable

if TYPE_CHECKING:
    from hermes.db.session_db import SessionDB

HERE = "hermes.cli.completion"
COMMANDS = {
    "bash": Command(
        f"{HERE}:define_bash", 'for bash: eval "$(hermes completion bash)" in ~/.bashrc', Access.READS
    ),
    "zsh": Command(
        f"{HERE}:define_zsh", 'for zsh: eval "$(hermes completion zsh)" in ~/.zshrc', Access.READS
    ),
    "fish": Command(
        f"{HERE}:define_fish", "for fish: hermes completion fish | source in config.fish", Access.READS
    ),
    "words": Command(
        f"{HERE}:define_words", "print the possible next words; called by the scripts", Access.READS
    ),
}

BASH = r"""_hermes() {
    local line word rest=$COMP_LINE open before reply typed=() at=0
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do  # bash also splits at colons: join what has no space between
        [[ $rest == [[:space:]]* ]] && at=$((at + 1))
        typed[at]+=$word
        rest=${rest#*"$word"}
    done
    [[ $word == [:=] ]] && word=
    open=${word%"${word#[\"\']}"}
    before=${typed[at]%"$word"}
    COMPREPLY=()
    while IFS= read -r line; do
        reply=${line%%$'\t'*}
        if [[ -z $open ]]; then
            printf -v reply %q "$reply"
        elif [[ $reply == *[\"\'\$\`\\!]* ]]; then  # it could end the quotes, or be run inside of them
            continue
        fi
        [[ -n $reply ]] && COMPREPLY+=("${reply:${#before}}")
    done < <(hermes completion words -- "${typed[@]:1}" 2>/dev/null)
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
complete -c hermes -n '__fish_seen_subcommand_from export import backup restore' -F
complete -c hermes -n '__fish_prev_arg_in --store --html --keep --key-file' -F"""

SESSION = ("ID", "ID|TITLE")
"""Metavars of arguments that name a conversation."""
KEY, VALUE = "KEY", "VALUE"
"""Metavars of the arguments that name a setting and its value."""
MakeParser = Callable[[Words], argparse.ArgumentParser]
Offers = Callable[[Path, str], Iterator[tuple[str, str]]]
TAG = "TAG"
"""Metavar of the argument that names tags of a conversation."""
TRASHED = "trashed"
"""The `dest` of the argument that names a session in the trash."""
MOST = 50


def define(parser: argparse.ArgumentParser, words: Words) -> None:
    add_commands(parser, COMMANDS, words)


def define_bash(parser: argparse.ArgumentParser, _: Words) -> None:
    _define_script(parser, BASH)


def define_zsh(parser: argparse.ArgumentParser, _: Words) -> None:
    _define_script(parser, ZSH)


def define_fish(parser: argparse.ArgumentParser, _: Words) -> None:
    _define_script(parser, FISH)


def define_words(parser: argparse.ArgumentParser, _: Words) -> None:
    parser.add_argument(
        "typed", nargs="*", metavar="WORD", help="the words typed so far, the unfinished one last"
    )
    parser.set_defaults(run=print_offers)


def _define_script(parser: argparse.ArgumentParser, script: str) -> None:
    def run(_: argparse.Namespace) -> int:
        print_lines(script.splitlines())
        return DONE

    parser.set_defaults(run=run)


def print_offers(arguments: argparse.Namespace) -> int:
    *done, begun = map(_unquote, arguments.typed or [""])
    reached = _find_parser(arguments.make_parser, done)
    print_lines(
        f"{make_printable(word)}\t{make_printable(help_text)}"
        for word, help_text in dict(_list_offers(reached, done, begun)).items()
    )
    return DONE


def _unquote(word: str) -> str:
    """Return a word of a command line as the shell will read it, without quotation marks. The word may lack its
    closing quotation mark, because the user is still typing."""
    import shlex

    for closing in ("", "'", '"'):
        try:
            return "".join(shlex.split(word + closing))
        except ValueError:
            continue
    return word


def _find_parser(make_parser: MakeParser, done: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command that has been typed so far."""
    names = [
        command.dest for group in _list_subparsers(make_parser([])) for command in group._choices_actions
    ]
    _, words = take_store(done, names)
    if words and words[0].startswith("-"):  # flags without a command belong to the chat
        words.insert(0, CHAT)
    parser = make_parser([word for word in words if not word.startswith("-")])
    for word in words:
        for commands in _list_subparsers(parser):
            parser = commands.choices.get(word, parser)
    return parser


def _list_subparsers(
    parser: argparse.ArgumentParser,
) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]


def _list_offers(
    parser: argparse.ArgumentParser, done: Sequence[str], begun: str
) -> Iterator[tuple[str, str]]:
    flag = next((action for action in parser._actions if done and done[-1] in action.option_strings), None)
    if flag is not None and flag.nargs != 0:
        yield from _filter_by_prefix(((str(choice), "") for choice in _list_choices(flag, begun)), begun)
        if flag.metavar in SESSION:
            yield from _offer_from_store(_offer_sessions, done, begun)
        if flag.dest == "tag":
            yield from _offer_from_store(_offer_tags, done, begun)
        if not isinstance(flag, JsonAction):  # `--json` can be followed by a title instead of fields
            return
    if begun.startswith("-"):
        flags = [
            (option, action.help or "") for action in parser._actions for option in action.option_strings
        ]
        yield from _filter_by_prefix(flags, begun)
        return
    for commands in _list_subparsers(parser):
        yield from _filter_by_prefix(
            ((command.dest, command.help or "") for command in commands._choices_actions), begun
        )
    if any(action.metavar == KEY for action in parser._actions):
        is_key_typed = not parser.prog.endswith(f" {done[-1]}")
        yield from _filter_by_prefix(
            _list_values(parser, done[-1]) if is_key_typed else _list_settings(), begun
        )
    named = next((action for action in parser._actions if action.metavar in SESSION), None)
    has_tags = any(action.metavar == TAG for action in parser._actions)
    if has_tags and not parser.prog.endswith(f" {done[-1]}"):  # the conversation is already typed
        yield from _offer_from_store(_offer_tags, done, begun)
    elif named is not None:
        yield from _offer_from_store(_offer_trash if named.dest == TRASHED else _offer_sessions, done, begun)


def _list_fields(flag: JsonAction, begun: str) -> list[str]:
    """Return the completions of a comma-separated list of JSON fields: the complete fields typed so far,
    followed by one more field."""
    *typed, _unfinished = begun.split(",")
    return [",".join((*typed, field)) for field in flag.fields if field not in typed]


def _list_choices(flag: argparse.Action, begun: str) -> Iterable[Any]:
    """Return the values of a command-line flag that can be completed. `begun` is the value as typed so far."""
    if isinstance(flag, JsonAction):
        return _list_fields(flag, begun)
    if flag.dest not in ("source", "platform"):
        return flag.choices or ()
    from hermes.config.platforms import list_platforms

    return dict.fromkeys([*SOURCES, *list_platforms()]) if flag.dest == "source" else list_platforms()


def _list_settings() -> Iterator[tuple[str, str]]:
    """Yield every setting and its meaning. A secret is listed under its environment variable, because it is
    set by that name."""
    from hermes.config.key_lookup import find_setting, find_variable, list_keys

    for key in list_keys():
        if (setting := find_setting(key)) is not None:
            yield (find_variable(key) or key) if setting.is_secret else key, setting.meaning


def _list_values(parser: argparse.ArgumentParser, key: str) -> Iterator[tuple[str, str]]:
    """Yield (value, empty description) for each possible value of a setting. Yield nothing if the setting has
    no fixed set of values, or if the command accepts no value."""
    from hermes.config.key_lookup import find_key, find_setting

    setting = find_setting(key) or find_setting(find_key(key) or "")
    if setting is not None and any(action.metavar == VALUE for action in parser._actions):
        yield from ((value, "") for value in setting.kind.choices)


def _filter_by_prefix(offered: Iterable[tuple[str, str]], begun: str) -> Iterator[tuple[str, str]]:
    return (item for item in offered if item[0].startswith(begun))


def _offer_from_store(offers: Offers, done: Sequence[str], begun: str) -> Iterable[tuple[str, str]]:
    """Return completions that `offers` reads from the store, as pairs (value, description). The store is the
    one that the words `done` name with `--store`, otherwise the store of the home. Return nothing if the store
    does not exist. `begun` is the word as typed so far."""
    stores = [Path(value) for flag, value in pairwise(done) if flag == "--store"]
    store = stores[-1] if stores else home.get_default_db_path()
    return offers(store, begun) if store.exists() else ()


def _offer_sessions(store: Path, begun: str) -> Iterator[tuple[str, str]]:
    """Yield a completion for each session in the store whose title or id starts with the typed text."""
    with _open_store(store) as db:
        for row in db.starting_with(begun, MOST):
            yield _make_offer(row, begun)


def _offer_trash(store: Path, begun: str) -> Iterator[tuple[str, str]]:
    """Yield a completion for each conversation in the trash whose title or id starts with `begun`, the typed
    text."""
    with _open_store(store) as db:
        for row in db.list_trash():
            if any((name or "").lower().startswith(begun.lower()) for name in (row["title"], row["id"])):
                yield _make_offer(row, begun)


def _offer_tags(store: Path, begun: str) -> Iterator[tuple[str, str]]:
    """Yield (tag, number of its conversations as text) for the tags of the store that start with the typed
    text."""
    with _open_store(store) as db:
        tags = ((tag, format_count(count, "conversation")) for tag, count in db.all_tags())
        yield from _filter_by_prefix(tags, begun.casefold())


def _open_store(store: Path) -> SessionDB:
    from hermes.db.session_db import SessionDB

    return SessionDB(store, read_only=True)


def _make_offer(row: dict[str, Any], begun: str) -> tuple[str, str]:
    """Return the completion for a session, and its description. The completion is the title if it begins with
    the typed text, otherwise the id."""
    if row["title"] and row["title"].lower().startswith(begun.lower()):
        return row["title"], row["id"]
    return row["id"], row["title"] or row["preview"]
