"""The file tools make exact edits. They write a file completely or not at all, and refuse protected files."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.approvals.grants import Grants
from hermes.agent.approvals.request import ALLOW_ONCE, DENY, ApprovalRequest, Decision, Scope
from hermes.agent.tool import ToolContext, ToolFailed
from hermes.agent.tools.access import Access, AccessSettings
from hermes.agent.tools.files import replace_text
from hermes.agent.tools.patch import Patch, replace_passage
from hermes.agent.tools.read_file import ReadFile
from hermes.agent.tools.write_file import WriteFile
from hermes_state import SessionDB
from tests.agent.tools.conftest import Person

ACCESS = Access()
read, write, patch = ReadFile(ACCESS), WriteFile(ACCESS), Patch(ACCESS)


# ---------------------------------------------------------------- read_file


async def test_a_file_is_read_with_the_numbers_of_its_lines(context: ToolContext) -> None:
    (context.cwd / "a.txt").write_text("one\r\ntwo\n\nfour")
    assert await read.run({"path": "a.txt"}, context) == "     1\tone\n     2\ttwo\n     3\t\n     4\tfour"
    assert await read.run({"path": "a.txt", "offset": 2, "limit": 1}, context) == (
        "     2\ttwo\n[there is more; go on with offset 3]"
    )


async def test_a_long_file_comes_in_parts_that_join_without_a_gap(context: ToolContext) -> None:
    (context.cwd / "long").write_text("".join(f"line {number} {'x' * 200}\n" for number in range(1, 1_001)))
    offset, seen = 1, []
    while True:
        lines = (await read.run({"path": "long", "offset": offset}, context)).splitlines()
        seen += [int(line.split("\t")[0]) for line in lines if "\t" in line]
        if "\t" in lines[-1]:
            break
        offset = int(lines[-1].rstrip("]").rsplit(" ", 1)[1])
    assert seen == list(range(1, 1_001))


async def test_a_line_without_end_is_cut_and_says_so(context: ToolContext) -> None:
    with (context.cwd / "huge").open("wb") as file:
        file.write(b"a" * 3_000_000 + b"\nsecond\n")
    output = await read.run({"path": "huge"}, context)
    assert len(output) < 3_000
    assert "more characters in this line ...]" in output
    assert output.endswith("     2\tsecond")


async def test_a_file_that_is_not_text_is_refused(context: ToolContext) -> None:
    (context.cwd / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (context.cwd / "a.bin").write_bytes(b"ELF\0\1\2")
    os.mkfifo(context.cwd / "pipe")
    for path, message in (
        ("a.png", r"is a picture \(PNG, 108 bytes\); only text can be read"),
        ("a.bin", r"is not text \(6 bytes\)"),
        (".", "is a folder; search_files lists what is in it"),
        ("pipe", "is not a regular file"),
        ("/dev/zero", "you may not read"),
        ("none", "No such file"),
        ("a\0b", "NUL"),
    ):
        with pytest.raises(ToolFailed, match=message):
            await read.run({"path": path}, context)


async def test_the_end_of_a_file_is_marked(context: ToolContext) -> None:
    (context.cwd / "a").write_text("one\n")
    (context.cwd / "empty").write_text("")
    with pytest.raises(ToolFailed, match="has 1 lines; there is no line 5"):
        await read.run({"path": "a", "offset": 5}, context)
    assert (await read.run({"path": "empty"}, context)).endswith("empty is empty")


async def test_terminal_escapes_in_a_file_do_not_reach_anybody(context: ToolContext) -> None:
    (context.cwd / "a").write_text("\033]0;title\007plain\033[2J\n")
    assert await read.run({"path": "a"}, context) == "     1\tplain"


# ---------------------------------------------------------------- write_file


async def test_a_file_is_created_with_its_folders_or_replaced_and_the_diff_is_returned(
    context: ToolContext,
) -> None:
    assert await write.run({"path": "a/b/c.txt", "content": "é\n"}, context) == "a/b/c.txt: created, 3 bytes"
    file = context.cwd / "a/b/c.txt"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert await write.run({"path": "a/b/c.txt", "content": "é\nmore\n"}, context) == (
        "a/b/c.txt: replaced, 8 bytes; +1 -0 lines, near line 2\n é\n+more"
    )
    assert file.read_text() == "é\nmore\n"
    assert [one.name for one in file.parent.iterdir()] == ["c.txt"]


async def test_the_mode_of_a_file_stays_and_a_link_is_followed(context: ToolContext) -> None:
    real = context.cwd / "run.sh"
    real.write_text("old\n")
    real.chmod(0o750)
    (context.cwd / "link").symlink_to(real)
    await write.run({"path": "link", "content": "new\n"}, context)
    assert (context.cwd / "link").is_symlink()
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("new\n", 0o750)


async def test_names_in_every_script_can_be_as_long_as_the_system_allows(context: ToolContext) -> None:
    name = "語" * 84
    await write.run({"path": name, "content": "x"}, context)
    assert [one.name for one in context.cwd.iterdir()] == [name]


async def test_partial_files_of_a_killed_process_are_removed(context: ToolContext) -> None:
    (context.cwd / ".a.0123456789ab.hermes-partial").write_text("half")
    await write.run({"path": "a", "content": "whole"}, context)
    assert [one.name for one in context.cwd.iterdir()] == ["a"]


async def test_a_tilde_is_the_home_of_the_person(context: ToolContext) -> None:
    await write.run({"path": "~/a.txt", "content": "x"}, context)
    assert (Path.home() / "a.txt").read_text() == "x"


async def test_a_write_error_is_one_line(context: ToolContext) -> None:
    (context.cwd / "file").write_text("x")
    for path in ("file/below", ".", "n" * 300, "/proc/self/status/x"):
        with pytest.raises(ToolFailed) as problem:
            await write.run({"path": path, "content": "x"}, context)
        assert len(str(problem.value).splitlines()) == 1


async def test_files_of_the_agents_home_are_refused(
    context: ToolContext, person: Person, home: Path, db: SessionDB
) -> None:
    names = (
        ".env",
        "config.yaml",
        "gateway/pairing.json",
        "memories/USER.md",
        "approvals.json",
        "matrix/login.json",
    )
    for name in names:
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("secret: x")
    (context.cwd / "link").symlink_to(home / "state.db")
    (context.cwd / "folder").symlink_to(home)
    os.link(home / ".env", context.cwd / "hard")
    inside = [str(path) for path in home.rglob("*") if path.is_file()]
    other_names = ("link", "folder/.env", "folder/gateway/new.json", str(home / "../home/.env"))
    for path in (*inside, str(home / "new"), *other_names):
        for tool, more in (
            (write, {"content": "x"}),
            (patch, {"old_text": "secret", "new_text": "y"}),
            (read, {}),
        ):
            with pytest.raises(ToolFailed, match="belongs to this program"):
                await tool.run({"path": path, **more}, context)
    with pytest.raises(ToolFailed, match="a hard link to a file with keys"):
        await read.run({"path": "hard"}, context)
    assert person.asked == []
    assert (home / ".env").read_text() == "secret: x"
    assert db.verify().ok


@pytest.mark.parametrize(
    "name", [".ssh/id_ed25519", ".aws/credentials", ".netrc", ".mozilla/cookies", ".bash_history"]
)
async def test_folders_with_secrets_are_not_read_by_any_name(
    context: ToolContext, person: Person, name: str
) -> None:
    secret = Path.home() / name
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("secret")
    (context.cwd / "link").symlink_to(secret)
    os.link(secret, context.cwd / "hard")
    for path in (f"~/{name}", "link", "hard", f"/proc/self/root{secret}"):
        with pytest.raises(ToolFailed, match=r"you may not read|hard link"):
            await read.run({"path": path}, context)
    assert person.asked == []


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/1/environ", "/proc/self/mem", "/dev/stdin"])
async def test_the_memory_and_environment_of_processes_are_not_files(context: ToolContext, path: str) -> None:
    with pytest.raises(ToolFailed):
        await read.run({"path": path}, context)


async def test_reading_outside_the_workspace_is_asked_about_once_per_file(
    context: ToolContext, person: Person
) -> None:
    (Path.home() / "notes.txt").write_text("mine\n")
    person.says = Decision(False, note="ask me for the text")
    with pytest.raises(ToolFailed, match="this file was not allowed: ask me for the text"):
        await read.run({"path": "~/notes.txt"}, context)
    person.says = ALLOW_ONCE
    assert await read.run({"path": "~/notes.txt"}, context) == "     1\tmine"
    await read.run({"path": "~/notes.txt"}, context)
    assert [request.reason for request in person.asked] == ["is outside the workspace"] * 2


# ---------------------------------------------------------------- approval before a change


async def test_an_edit_is_shown_and_nothing_is_written_that_was_refused(
    context: ToolContext, person: Person
) -> None:
    (context.cwd / "a").write_text("one\ntwo\n")
    person.says = DENY
    with pytest.raises(ToolFailed, match="this edit was not allowed"):
        await write.run({"path": "a", "content": "one\n2\n"}, context)
    with pytest.raises(ToolFailed, match="this edit was not allowed"):
        await patch.run({"path": "a", "old_text": "two", "new_text": "2"}, context)
    assert (context.cwd / "a").read_text() == "one\ntwo\n"
    for request in person.asked:
        assert request.subject == f"write {context.cwd / 'a'}"
        assert request.diff.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
        assert request.scopes == (Scope.EDITS,)


async def test_edits_of_a_workspace_are_allowed_once_for_all(context: ToolContext, person: Person) -> None:
    person.says = Decision(True, Scope.EDITS)
    await write.run({"path": "a", "content": "x"}, context)
    await write.run({"path": "b", "content": "x"}, context)
    await patch.run({"path": "b", "old_text": "x", "new_text": "y"}, context)
    assert len(person.asked) == 1
    assert [(grant.workspace, grant.scope) for grant in Grants().all()] == [(str(context.cwd), Scope.EDITS)]


async def test_files_that_control_the_account_always_need_approval(
    context: ToolContext, person: Person
) -> None:
    Grants().add(context.cwd, Scope.EDITS)
    person.says = DENY
    (Path.home() / ".ssh").mkdir()
    (context.cwd / ".git/hooks").mkdir(parents=True)
    (context.cwd / "link").symlink_to(Path.home() / ".ssh")
    (context.cwd / "out").symlink_to(Path.home() / "elsewhere")
    reasons = {
        "~/.ssh/authorized_keys": "is where you keep keys or private data",
        "link/config": "is where you keep keys or private data",
        "~/.bashrc": "is a settings file of your account",
        "out/new.txt": "is outside the workspace",
        ".git/hooks/pre-commit": "is part of git, which may start programs",
        "/etc/none-such": "is outside the workspace",
    }
    for path in reasons:
        with pytest.raises(ToolFailed, match="was not allowed"):
            await write.run({"path": path, "content": "x"}, context)
    assert [request.reason for request in person.asked] == list(reasons.values())
    assert {request.scopes for request in person.asked} == {()}
    assert not (Path.home() / ".bashrc").exists()


async def test_the_text_of_a_file_outside_the_view_is_not_in_the_answer(context: ToolContext) -> None:
    (Path.home() / ".bashrc").write_text("export TOKEN=hunter2\n")
    output = await write.run({"path": "~/.bashrc", "content": "export X=1\n"}, context)
    assert output.endswith(".bashrc: replaced, 11 bytes")


async def test_a_file_that_changed_while_the_person_was_asked_is_not_replaced(context: ToolContext) -> None:
    file = context.cwd / "a"
    file.write_text("seen\n")

    async def approve(_request: ApprovalRequest) -> Decision:
        file.write_text("changed\n")
        return ALLOW_ONCE

    with pytest.raises(ToolFailed, match="was changed while the person was asked"):
        await write.run({"path": "a", "content": "new\n"}, context._replace(approve=approve))
    assert file.read_text() == "changed\n"


async def test_a_folder_that_becomes_a_link_while_the_person_is_asked_leads_nowhere(
    context: ToolContext,
) -> None:
    folder = context.cwd / "sub"
    folder.mkdir()

    async def approve(_request: ApprovalRequest) -> Decision:
        folder.rmdir()
        folder.symlink_to(Path.home())
        return ALLOW_ONCE

    with pytest.raises(ToolFailed, match="replaced by a link"):
        await write.run({"path": "sub/.bashrc", "content": "x"}, context._replace(approve=approve))
    assert not (Path.home() / ".bashrc").exists()


SWAP = """
import ctypes, sys
libc = ctypes.CDLL(None)
print("swapping", flush=True)
while True:
    libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the exchange of two names is Linux's")
def test_a_folder_that_a_command_exchanges_with_a_link_all_the_time_leads_nowhere(tmp_path: Path) -> None:
    inside, link, outside = tmp_path / "work", tmp_path / "link", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    link.symlink_to(outside)
    swapping = subprocess.Popen(
        [sys.executable, "-I", "-c", SWAP, inside, link], stdout=subprocess.PIPE, text=True
    )
    assert swapping.stdout is not None
    try:
        swapping.stdout.readline()
        for _ in range(300):
            with suppress(ToolFailed):
                replace_text(inside / "deep" / "authorized_keys", "x")
    finally:
        swapping.kill()
        swapping.wait()
        swapping.stdout.close()
    assert [*outside.iterdir()] == []


async def test_without_questions_the_agents_home_is_still_refused(context: ToolContext, home: Path) -> None:
    free = Access(AccessSettings(mode="off"))
    assert "created" in await WriteFile(free).run({"path": "~/.bashrc", "content": "x"}, context)
    with pytest.raises(ToolFailed, match="belongs to this program"):
        await WriteFile(free).run({"path": str(home / "gateway/pairing.json"), "content": "x"}, context)
    free.close()


# ---------------------------------------------------------------- patch


async def test_one_place_is_changed_and_shown(context: ToolContext) -> None:
    file = context.cwd / "a.py"
    file.write_text("a = 1\nb = 2\nc = 3\n")
    output = await patch.run({"path": "a.py", "old_text": "b = 2", "new_text": "b = 20"}, context)
    assert output == "a.py: +1 -1 lines, near line 2\n a = 1\n-b = 2\n+b = 20\n c = 3"
    assert file.read_text() == "a = 1\nb = 20\nc = 3\n"


async def test_an_ambiguous_text_is_refused_unless_all_matches_are_requested(context: ToolContext) -> None:
    file = context.cwd / "a"
    file.write_text("x\ny\nx\n")
    with pytest.raises(ToolFailed, match=r"is in the file 2 times \(line 1, 3\); add more context"):
        await patch.run({"path": "a", "old_text": "x", "new_text": "z"}, context)
    assert file.read_text() == "x\ny\nx\n"
    output = await patch.run({"path": "a", "old_text": "x", "new_text": "z", "replace_all": True}, context)
    assert output.startswith("a: 2 places changed; ")
    assert file.read_text() == "z\ny\nz\n"


async def test_a_missing_text_is_answered_with_the_nearest(context: ToolContext) -> None:
    (context.cwd / "a.py").write_text("import os\n\n\ndef add(one, two):\n    return one + two\n")
    with pytest.raises(ToolFailed) as problem:
        await patch.run({"path": "a.py", "old_text": "def add(one,two):", "new_text": "x"}, context)
    assert "The nearest place:\n" in str(problem.value)
    assert "     4\tdef add(one, two):" in str(problem.value)
    with pytest.raises(ToolFailed, match="No line is similar to it; read the file first"):
        await patch.run({"path": "a.py", "old_text": "§§§§", "new_text": "x"}, context)


async def test_changes_of_one_file_that_are_made_at_once_are_all_there(context: ToolContext) -> None:
    file = context.cwd / "a"
    file.write_text("".join(f"<{number}>\n" for number in range(20)))
    asked = [{"path": "a", "old_text": f"<{number}>", "new_text": f"[{number}]"} for number in range(20)]
    await asyncio.gather(*(patch.run(one, context) for one in asked))
    assert file.read_text() == "".join(f"[{number}]\n" for number in range(20))


async def test_a_file_keeps_its_own_line_ends(context: ToolContext) -> None:
    file = context.cwd / "dos.txt"
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await patch.run({"path": "dos.txt", "old_text": "one\ntwo\n", "new_text": "1\n2\n"}, context)
    assert file.read_bytes() == b"1\r\n2\r\nthree\r\n"


async def test_a_file_that_is_not_utf8_is_not_changed(context: ToolContext) -> None:
    (context.cwd / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(ToolFailed, match="not UTF-8"):
        await patch.run({"path": "latin", "old_text": "caf", "new_text": "x"}, context)
    assert (await write.run({"path": "latin", "content": "x"}, context)).startswith("latin: replaced")


@given(
    before=st.text("ab\n", max_size=12),
    old=st.text("ab\n", min_size=1, max_size=4),
    after=st.text("ab\n", max_size=12),
    new=st.text("cd", max_size=4),
)
def test_a_patch_changes_its_place_and_nothing_else(before: str, old: str, after: str, new: str) -> None:
    text = f"{before}{old}{after}"
    try:
        changed, count = replace_passage(text, old, new, False)
    except ToolFailed:
        assert text.count(old) > 1
    else:
        at = text.index(old)
        assert (changed, count) == (text[:at] + new + text[at + len(old) :], 1)
