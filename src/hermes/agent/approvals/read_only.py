"""The allowlist of read-only commands: programs and their options. A command that is not listed needs an
approval.

Short options use the getopt notation: `n:` stands for an option `-n` with a value. Options that write a file
or start a program are not listed (`sort -o`, `rg --pre`, `find -exec`, `git -c`). A long option must be
spelled out, because an abbreviation could match an option that is not listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hermes.agent.approvals.shell import SimpleCommand, Word


class Program(NamedTuple):
    """The arguments with which a program, or a subcommand of git, only reads."""

    short: str = ""
    """Letters of short options, in getopt notation."""
    long: str = ""
    """Option names separated by spaces; a name with a trailing `=` takes a value."""
    most: int | None = None
    """The maximum number of operands; None for any number."""
    digits: bool = False
    """Whether the program accepts a number as an option, such as `-20`."""
    check: Callable[[Sequence[str]], bool] | None = None
    """A further condition on the operands."""
    sandboxed: bool = False
    """Whether the program needs a sandbox to count as read-only, because its arguments do not show which
    files it reads."""


def _is_print_script(operands: Sequence[str]) -> bool:
    """Return whether the first operand is a sed script that only prints lines, such as `5,10p`."""
    return bool(operands) and re.fullmatch(r"(?:\d+|\$)(?:,(?:\d+|\$))?p", operands[0]) is not None


def _is_date_format(operands: Sequence[str]) -> bool:
    return all(operand.startswith("+") for operand in operands)


def _has_no_subscript(operands: Sequence[str]) -> bool:
    """Return whether no operand of a test command contains a character with which bash could run another command.

    In an operand such as `a[$(command)]`, bash runs `command` if it evaluates the operand as the name of an array
    element (`-v`) or as a number (`-ge` in `[[ ]]`).
    """
    return not any(sign in operand for operand in operands for sign in "[$`")


GREP = Program(
    "abcEFGHhiLlnoPqrsvwxzZA:B:C:e:f:m:",
    "after-context= before-context= binary-files= byte-offset color= colour= context= count"
    " exclude= exclude-dir= exclude-from= extended-regexp file= files-with-matches files-without-match fixed-strings"
    " ignore-case include= invert-match line-number line-regexp max-count= no-filename no-messages null null-data"
    " only-matching perl-regexp quiet recursive regexp= text with-filename word-regexp basic-regexp",
    digits=True,
)
PROGRAMS: dict[str, Program] = {
    "basename": Program("as:z", "multiple suffix= zero"),
    "cat": Program(
        "AbeEnstTuv", "number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank"
    ),
    "cksum": Program(),
    "cmp": Program("bi:ln:s", "print-bytes ignore-initial= verbose bytes= quiet silent"),
    "comm": Program("123z", "check-order nocheck-order output-delimiter= total zero-terminated"),
    "cut": Program(
        "b:c:d:f:nsz", "bytes= characters= complement delimiter= fields= only-delimited output-delimiter="
    ),
    "date": Program(
        "d:Ir:uR",
        "date= iso-8601 reference= rfc-2822 rfc-email rfc-3339= utc universal",
        check=_is_date_format,
    ),
    "df": Program(
        "aBhHiklPtTx:", "all block-size= human-readable si inodes local portability print-type total type="
    ),
    "diff": Program(
        "abBcdeEiNnpqrstTuwyC:I:U:W:x:",
        "brief color= context= exclude= exclude-from= expand-tabs ignore-all-space ignore-blank-lines ignore-case"
        " ignore-matching-lines= ignore-space-change minimal new-file no-dereference recursive report-identical-files"
        " side-by-side text unified unified= width= suppress-common-lines",
        digits=True,
        sandboxed=True,  # diff follows links inside a folder
    ),
    "dirname": Program("z", "zero"),
    "du": Program(
        "abcDd:hHklLmPsStxX:",
        "all apparent-size bytes max-depth= human-readable separate-dirs summarize total threshold= exclude="
        " one-file-system time",
    ),
    "echo": Program("eEn"),
    "egrep": GREP,
    "expr": Program(),
    "false": Program(),
    "fgrep": GREP,
    "file": Program(
        "bEehikLlNprsSv0f:", "brief mime mime-type mime-encoding dereference no-dereference separator="
    ),
    "grep": GREP,
    "groups": Program(),
    "head": Program("c:n:qvz", "bytes= lines= quiet silent verbose zero-terminated", digits=True),
    "hexdump": Program("bcCdn:os:vx"),
    "hostname": Program("fIs", "fqdn short", most=0),
    "id": Program("aGgnruz", "group groups name real user zero"),
    "jq": Program(
        "acCeEhjMnrRsS",
        "ascii-output compact-output exit-status join-output monochrome-output null-input raw-input"
        " raw-output slurp sort-keys tab indent= arg= argjson=",
        sandboxed=True,  # the jq program can import other files
    ),
    "ls": Program(
        "aAbBcCdfFgGhHiIklLmnNopqQrRsStTuUvw:xXZ1",
        "all almost-all author block-size= classify color= directory dereference full-time group-directories-first"
        " human-readable si inode format= ignore= indicator-style= literal no-group numeric-uid-gid quote-name"
        " recursive reverse size sort= time= time-style= width= context zero",
    ),
    "md5sum": Program("bctz", "binary check text zero quiet status"),
    "nl": Program("b:d:f:h:i:l:n:ps:v:w:"),
    "nproc": Program("", "all ignore=", most=0),
    "od": Program("A:aBbcdDeFfHhIiLlN:j:Oost:vw:Xx", "address-radix= format= read-bytes= skip-bytes= width="),
    "paste": Program("d:sz", "delimiters= serial zero-terminated"),
    "printf": Program(),
    "ps": Program("aAdefFHjlLmMpsTuUvwxZ", "forest headers no-headers sort=", sandboxed=True),
    "pwd": Program("LP"),
    "readlink": Program(
        "efmnqsvz", "canonicalize canonicalize-existing canonicalize-missing no-newline zero"
    ),
    "realpath": Program(
        "eLmPqsz",
        "canonicalize-existing canonicalize-missing logical physical quiet strip zero"
        " relative-to= relative-base=",
    ),
    "rev": Program(),
    "rg": Program(
        "aceFHhiIlnNoPpqsSUuvVwx0A:B:C:d:e:E:f:g:j:m:M:r:t:T:",
        "after-context= before-context= binary byte-offset case-sensitive color= column context= count count-matches"
        " crlf debug encoding= engine= field-context-separator= file= files files-with-matches files-without-match"
        " fixed-strings glob= heading hidden iglob= ignore-case include-zero invert-match json line-number line-regexp"
        " max-columns= max-count= max-depth= max-filesize= multiline multiline-dotall no-config no-filename no-heading"
        " no-ignore no-ignore-vcs no-line-number no-messages null only-matching passthru pcre2 pretty quiet regexp="
        " replace= smart-case sort= sortr= stats text threads= trim type= type-list type-not= unrestricted vimgrep"
        " with-filename word-regexp",
    ),
    "sed": Program("nE", "quiet silent regexp-extended", check=_is_print_script),
    "seq": Program("f:s:w", "format= separator= equal-width", digits=True),
    "sha1sum": Program("bctz", "binary check text zero quiet status"),
    "sha256sum": Program("bctz", "binary check text zero quiet status"),
    "sort": Program(
        "bcCdfghik:Mmnrst:uVz",
        "ignore-leading-blanks check dictionary-order ignore-case general-numeric-sort human-numeric-sort key="
        " month-sort numeric-sort reverse stable field-separator= unique version-sort zero-terminated",
    ),
    "stat": Program("c:fLt", "dereference file-system format= printf= terse"),
    "strings": Program("adfn:t:", "all bytes= radix= print-file-name"),
    "tac": Program("brs:", "before regex separator="),
    "tail": Program("c:n:qvz", "bytes= lines= quiet silent verbose zero-terminated", digits=True),
    "test": Program("abcdefghknoprstuvwxzGLNOS", "", digits=True, check=_has_no_subscript),
    "tr": Program("cCdst", "complement delete squeeze-repeats truncate-set1"),
    "tree": Program(
        "aAcCdDfFghiIJL:nNpPqQrsStuUvxX", "charset= dirsfirst du filelimit= noreport prune sort= gitignore"
    ),
    "true": Program(),
    "type": Program("afPpt"),
    "uname": Program(
        "aimnoprsv", "all kernel-name nodename kernel-release machine processor operating-system"
    ),
    "uniq": Program(
        "cdDf:is:uw:z", "count repeated skip-fields= ignore-case skip-chars= unique check-chars=", most=1
    ),
    "wc": Program("clLmw", "bytes chars lines max-line-length words"),
    "whereis": Program("bms"),
    "which": Program("as", "all"),
    "whoami": Program(most=0),
    "xxd": Program("bc:eEg:il:o:ps:u", most=1),
}
CHANGES_FOLDER = "cd"

FIND_TESTS = frozenset(
    """
    -a -amin -and -anewer -atime -cmin -cnewer -ctime -d -daystart -depth -empty -executable -false -follow -gid
    -group -ilname -iname -inum -ipath -iregex -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime -name
    -newer -nogroup -not -nouser -o -or -path -perm -print -print0 -printf -prune -quit -readable -regex
    -regextype -samefile -size -true -type -uid -used -user -warn -nowarn -wholename -writable -xdev -xtype
    """.split()
)
"""The tests and actions of `find` that only read. `-exec`, `-ok`, `-delete` and the actions that write a
file, such as `-fprint`, are left out."""
FIND_OPTIONS = frozenset({"-H", "-L", "-P"})

LOG = Program(
    "abilnpqstuvwzC:G:L:M:n:O:S:U:",
    "abbrev= abbrev-commit after= all ancestry-path author= before= branches branches= cc cherry-pick color color="
    " committer= cumulative date= date-order decorate decorate= diff-filter= dirstat exit-code find-copies"
    " find-renames first-parent follow format= full-index function-context graph grep= ignore-all-space"
    " ignore-blank-lines ignore-space-change invert-grep left-right max-count= merge-base merges minimal name-only"
    " name-status no-abbrev no-color no-decorate no-merges no-patch no-prefix no-renames not numstat oneline patch"
    " patch-with-stat patience pickaxe-all pickaxe-regex pretty pretty= quiet raw reflog regexp-ignore-case relative"
    " relative-date remotes reverse shortstat since= skip= source staged cached stat stat="
    " submodule summary tags text topo-order unified= until= walk-reflogs word-diff word-diff=",
    digits=True,
)
GIT: dict[str, Program] = {
    "blame": Program("beflLnpstwMC", "date= line-porcelain porcelain show-email show-name show-number"),
    "branch": Program(
        "alrv", "all list remotes verbose show-current contains= merged no-merged color sort= format=", most=0
    ),
    "cat-file": Program("epst", most=2),
    "check-ignore": Program("nqv", "verbose no-index non-matching quiet"),
    "describe": Program("", "all tags contains always dirty long abbrev= match= exclude= first-parent"),
    "diff": LOG,
    "diff-tree": LOG,
    "grep": GREP,
    "log": LOG,
    "ls-files": Program(
        "cdikmorstuvz", "cached deleted exclude-standard full-name ignored modified others stage unmerged"
    ),
    "ls-tree": Program("dlrtz", "abbrev= full-name full-tree long name-only name-status"),
    "merge-base": Program("a", "all fork-point is-ancestor octopus"),
    "name-rev": Program("", "all always name-only tags"),
    "remote": Program("v", "verbose", most=0),
    "rev-list": LOG,
    "rev-parse": Program(
        "q",
        "abbrev-ref abbrev-ref= git-dir is-inside-work-tree short show-prefix show-toplevel verify"
        " symbolic-full-name",
    ),
    "shortlog": Program("cens", "committer email numbered summary"),
    "show": LOG,
    "show-ref": Program("dqs", "branches dereference heads head quiet tags verify"),
    "status": Program(
        "bsuvz",
        "branch column ignored long porcelain porcelain= renames short show-stash untracked-files untracked-files="
        " verbose",
    ),
    "tag": Program("ln", "list column contains= points-at= sort= format=", most=0),
}


def is_read_only(command: SimpleCommand, *, sandboxed: bool) -> bool:
    """Return whether a simple command only reads.

    `sandboxed`: whether the command runs in a sandbox. Some programs, such as git, need a sandbox to count as
    read-only.
    """
    if not command.is_literal:
        return False
    name, arguments = command.program, command.words[1:]
    folder, slash, base = name.rpartition("/")
    if slash and folder not in ("/bin", "/usr/bin"):
        return False
    if base == CHANGES_FOLDER:
        return (
            sandboxed
            and len(arguments) <= 1
            and not any(_is_option_like(word) or word.glob for word in arguments)
        )
    if base == "find":
        return _is_find_read_only(arguments)
    if base == "git":
        if not sandboxed or not arguments or arguments[0].text not in GIT:
            return False
        return _has_known_options(GIT[arguments[0].text], arguments[1:])
    program = PROGRAMS.get(base)
    if program is None or (program.sandboxed and not sandboxed):
        return False
    return _has_known_options(program, arguments)


def _has_known_options(program: Program, arguments: Sequence[Word]) -> bool:
    """Return whether `program` lists all options in `arguments` and allows the operands.

    The list and the program itself may disagree on whether an option has a value. A value that looks like an
    option is therefore rejected. A word after `--` that looks like an option is rejected too.
    """
    operands: list[str] = []
    words = list(arguments)
    options_end = False
    while words:
        word = words.pop(0)
        if _can_hide_option(word) and not options_end:
            return False
        if options_end and _is_option_like(word):
            return False
        if not _is_option_like(word):
            if word.glob and program.most is not None:  # a glob can expand to several files
                return False
            operands.append(word.text)
        elif word.text == "--":
            options_end = True
        else:
            taken = _count_values(program, word.text)
            if taken is None or len(words) < taken or any(map(_can_be_option, words[:taken])):
                return False
            del words[:taken]
    if program.most is not None and len(operands) > program.most:
        return False
    return program.check is None or program.check(operands)


def _count_values(program: Program, option: str) -> int | None:
    """Return how many of the words after `option` are values of that option: 0 or 1. Return None if `program` does
    not list the option."""
    if program.digits and re.fullmatch(r"-\d+", option):
        return 0
    if option.startswith("--"):
        name, equals, _ = option[2:].partition("=")
        listed = program.long.split()
        if f"{name}=" in listed:
            return 0 if equals else 1
        return 0 if name in listed and not equals else None
    for place, letter in enumerate(option[1:], 1):
        at = program.short.find(letter)
        if at < 0 or letter == ":":
            return None
        if program.short[at + 1 : at + 2] == ":":
            return 0 if place + 1 < len(option) else 1
    return 0


def _is_option_like(word: Word) -> bool:
    return len(word.text) > 1 and word.text.startswith("-")


def _can_hide_option(word: Word) -> bool:
    """Return whether a word starts with a glob. Such a word can expand to a file name that looks like an
    option."""
    return word.glob and word.text[0] in "*?["


def _can_be_option(word: Word) -> bool:
    return _is_option_like(word) or _can_hide_option(word)


def _is_find_read_only(arguments: Sequence[Word]) -> bool:
    started = False
    for word in arguments:
        if _can_hide_option(word):
            return False
        if word.text.startswith("-") and len(word.text) > 1 and not re.fullmatch(r"-\d+", word.text):
            if word.text not in (FIND_TESTS if started or word.text not in FIND_OPTIONS else FIND_OPTIONS):
                return False
            started = started or word.text in FIND_TESTS
    return True
