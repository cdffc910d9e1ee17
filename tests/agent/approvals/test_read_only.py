"""A parser recognises commands that only read. They run without approval. The parser has an allowlist of
programs and options.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.agent.approvals.read_only import GIT, PROGRAMS, is_read_only
from hermes.agent.approvals.shell import parse_shell
from hermes.agent.sandbox.child_environment import make_child_environment
from tests.tiers import scale_examples

HARMLESS = """
ls
ls -la src "my folder" 'it is'
cat README.md | head -20
cat a 2>/dev/null
cat < a
head -n 5 x; tail -3 y
grep -rn 'foo bar' src | wc -l
find . -name '*.py' -type f -not -path './x/*'
find . \\( -name a -o -name b \\) -print
sort -u x | uniq -c
sed -n 5,10p x
rg -n foo src
wc -l src/*.py
[ -f x ] && echo yes || echo no
ls -l # rm -rf x
(ls; pwd)
! test -f x
""".strip().splitlines()

HARMLESS_IN_A_SANDBOX = """
diff -r a b
jq -n 'import "/x" as $x; $x'
git log --oneline -5
git status && git diff HEAD~1 -- src/x.py
cd src && ls
ps -ef | grep python
""".strip().splitlines()

NOT_HARMLESS = """
rm -rf x
[ x > victim ]
[ 1 -gt 0 -a x > victim ]
[[ x > victim ]]
test -v 'a[$(touch x)]'
[ -v 'a[$(touch x)]' ]
[[ 'a[$(touch x)]' -ge 0 ]]
[[ 0 -ne 'a[`touch x`]' ]]
git log --color --output=x
git diff --stat --output=x
git diff -M --output=x
date -u --set=+1hour
file -e -- -C -m x
tree -I -- -o x
diff --color --paginate a b
uniq a*
rg -L x
xxd a*
ls foo#; rm -rf x
python3 -c 1
echo cm0= | base64 -d | sh
x=rm; $x -rf y
rsync --delete a b
truncate -s0 x
: > f
sh -c ls
setsid nohup x &
ls &
ls & rm x
git -c core.pager=x log
git -C x log
git log --ext-diff
git show --textconv
git diff --output=x
git grep -O x
git branch x
git branch -D x
git tag v1
git remote add x y
git stash
find . -exec rm {} +
find . -delete
find . -fprint x
find . -okdir rm {} +
find -L . -execdir x
sort -o x y
sort --outp x y
sort *
sort --compress-program=sh y
rg --pre x y
rg -z x
ls > f
ls >> f
cat x>y
cat<x>y
ls 2> f
cat x >&out
ls &> f
echo $(rm x)
echo `rm x`
echo "a$(rm x)b"
cat <(rm x)
uniq a b
xxd a b
date -s x
date 010100
hostname x
sed -n '1w x' y
sed -i s/a/b/ x
sed p x
LD_PRELOAD=x ls
ls() { rm x; }; ls
function ls { rm x; }; ls
alias ls=rm
env rm x
xargs rm
./ls
/tmp/ls
bin/ls
tree -o x
tree -R
awk 1
eval ls
exec ls
command rm x
time rm x
{ rm x; }
while true; do ls; done
for x in a; do rm $x; done
if true; then rm x; fi
case x in x) rm x;; esac
coproc rm x
[[ a =~ $(rm x) ]]
test -f x -o $(rm x)
ls {a,b}
ls $'x'
ls $HOME
ls "$HOME"
file -C x
jq -f x
tail -f x
cat <<EOF
printf -v x y
trap ls EXIT
. ./x
source x
""".strip().splitlines()


def only_reads(text: str, *, sandboxed: bool = True) -> bool:
    commands = parse_shell(text)
    return commands is not None and all(is_read_only(command, sandboxed=sandboxed) for command in commands)


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_reading_command_runs_unasked(sandboxed: bool) -> None:
    assert [text for text in HARMLESS if not only_reads(text, sandboxed=sandboxed)] == []


def test_some_commands_run_unasked_only_in_a_sandbox() -> None:
    assert [text for text in HARMLESS_IN_A_SANDBOX if not only_reads(text)] == []
    assert [text for text in HARMLESS_IN_A_SANDBOX if only_reads(text, sandboxed=False)] == []


ASKED_ABOUT = [
    *NOT_HARMLESS,
    "",
    "  ",
    "ls\nrm x",
    "ls\r\nrm x",
    "ls \\\n; rm x",
    "ls\u00a0-la",
    "ls \u2028rm x",
    "ls 'unclosed",
    "ls\0rm",
    "ls\x1b[2J",
]


@pytest.mark.parametrize("sandboxed", [True, False])
def test_everything_else_is_asked_about(sandboxed: bool) -> None:
    assert [text for text in ASKED_ABOUT if only_reads(text, sandboxed=sandboxed)] == []


WORDS = """
ls cat sort uniq find sed date tree xxd rg grep git echo [ ] test cd head rm touch tee sh ; && || | & ( ) { } ! > >> <
2>&1 >&2 &> a b "e" $x # #; -o -delete -exec -la --output=b -i -n 1,2p log status -c /dev/null * ? [ab] ~ \\( \\) = x=1
-- <<E E $'a' {a,b}
""".split()
PIECES = st.sampled_from([*WORDS, "'c d'", "$(rm a)", "`rm a`", "\n", "\\"])


@given(pieces=st.lists(PIECES, min_size=1, max_size=8), spaced=st.booleans())
@settings(
    max_examples=scale_examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_a_command_that_runs_unasked_changes_nothing(tmp_path: Path, pieces: list[str], spaced: bool) -> None:
    """A command that the parser accepts changes no file when bash runs it. So the parser and bash interpret
    the text in the same way."""
    text = (" " if spaced else "").join(pieces)
    if not only_reads(text):
        return
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    for name in ("a", "b", "c d", "e"):
        (folder / name).write_text("2\n1\n")
    before = {path.name: path.read_text() for path in folder.iterdir()}
    subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=make_child_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_no_listed_option_is_one_that_writes_or_runs() -> None:
    dangerous = {
        "sort": "o T output= compress-program= temporary-directory=",
        "rg": "z pre= pre-glob= search-zip hostname-bin=",
        "tree": "o R output=",
        "date": "s f set= file=",
        "sed": "i f e in-place expression= file=",
        "xxd": "r",
        "file": "C z compile",
        "jq": "f from-file=",
    }
    for program, options in dangerous.items():
        listed = PROGRAMS[program]
        for option in options.split():
            assert option not in (listed.long.split() if len(option) > 1 else listed.short), (program, option)
    for name, listed in GIT.items():
        assert not {"ext-diff", "textconv", "output=", "exec=", "open-files-in-pager"} & set(
            listed.long.split()
        ), name
