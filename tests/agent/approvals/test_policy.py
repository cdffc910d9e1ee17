"""Which commands run without a question, which need an approval and which are refused, with and without a
sandbox.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hermes import audit_log
from hermes.agent.approvals.grants import Grants
from hermes.agent.approvals.policy import Policy, Refused
from hermes.agent.approvals.request import ALLOW_ONCE, DENY, ApprovalRequest, Decision, Scope
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.sandbox import Sandbox
from hermes.errors import HermesError


class Person:
    def __init__(self, says: Decision = ALLOW_ONCE) -> None:
        self.says = says
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return self.says


@pytest.fixture
def view(tmp_path: Path) -> View:
    work, private = tmp_path / "work", tmp_path / "private"
    work.mkdir()
    private.mkdir()
    return View(work, private)


@pytest.fixture
def inside(view: View) -> Policy:
    return Policy(Sandbox(view, "bubblewrap"))


@pytest.fixture
def bare(view: View) -> Policy:
    return Policy(Sandbox(view, None, "bubblewrap is not installed"))


async def test_commands_that_only_read_run_and_all_others_need_approval(inside: Policy) -> None:
    person = Person()
    assert await inside.check_command("git status; ls", person.approve)
    assert person.asked == []
    assert await inside.check_command("make test", person.approve)
    [request] = person.asked
    assert (request.subject, request.scopes, request.prefix) == (
        "make test",
        (Scope.COMMAND, Scope.PREFIX),
        "make test",
    )


async def test_a_refusal_tells_the_model_why(inside: Policy) -> None:
    with pytest.raises(Refused, match="this command was not allowed: use the staging server"):
        await inside.check_command("deploy", Person(Decision(False, note="use the staging server")).approve)


async def test_an_approval_applies_to_that_command_only(inside: Policy, view: View) -> None:
    person = Person(Decision(True, Scope.COMMAND))
    await inside.check_command("make test", person.approve)
    await inside.check_command(" make test\n", person.approve)
    assert len(person.asked) == 1
    for other in ("make test2", "make test; rm x", "make", "make  test"):
        await inside.check_command(other, person.approve)
    assert len(person.asked) == 5
    elsewhere = Policy(Sandbox(View(view.temporary, view.temporary), "bubblewrap"))
    await elsewhere.check_command("make test", person.approve)
    assert len(person.asked) == 6


async def test_commands_that_begin_like_this_are_allowed_alone_or_with_reading_ones(inside: Policy) -> None:
    person = Person(Decision(True, Scope.PREFIX))
    await inside.check_command("git commit -m 'first'", person.approve)
    assert [(grant.scope, grant.text) for grant in Grants().all()] == [(Scope.PREFIX, "git commit")]
    for covered in ("git commit --amend", "git status && git commit -m 'x'", 'git commit -m "$x"'):
        await inside.check_command(covered, person.approve)
    assert len(person.asked) == 1
    person.says = DENY
    for other in (
        "git commit; rm x",
        "git commit && git push",
        'git commit -m "$(rm x)"',
        "git commit > out",
        "git commit & rm x",
        "git -c core.editor=x commit",
        "GIT_EDITOR=x git commit",
        "g=git; $g commit",
        "git commit | sh",
        "git commitx",
        "git",
        "cd /tmp && git commit",
        "cd .. && git commit",
        "cd && git commit",
        "git commit --template=/tmp/x",
        'git commit -F "$TMPDIR/x"',
        "git commit --exec=x",
    ):
        with pytest.raises(Refused):
            await inside.check_command(other, person.approve)


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("npm run build -- --fast", "npm run"),
        ("pytest -q tests", "pytest"),
        ("python -m pytest -q", "python -m pytest"),
        ("python3 tools/check.py x", "python3 tools/check.py"),
        ("python3 -c 'print(1)'", ""),
        ("bash -c ls", ""),
        ("/bin/bash -c ls", ""),
        ("python3.11 -c 'print(1)'", ""),
        ("python3.11 tools/check.py x", "python3.11 tools/check.py"),
        ("find . -delete", ""),
        ("tar xf a", ""),
        (". x.sh", ""),
        ("uv run bash -c ls", ""),
        ("uv run pytest -q", "uv run pytest"),
        ("uv run --with x y", ""),
        ("git bisect run x", "git bisect run"),
        ("npx x", ""),
        ("sudo make", ""),
        ("env make", ""),
        ("xargs rm", ""),
        ("git -c x=y commit", ""),
        ("make a; make b", ""),
        ("$x", ""),
        ("cd src && make all", "make all"),
        ("echo $(make)", ""),
    ],
)
async def test_which_prefixes_are_offered_for_approval(inside: Policy, command: str, prefix: str) -> None:
    person = Person()
    await inside.check_command(command, person.approve)
    [request] = person.asked
    assert request.prefix == prefix
    assert (Scope.PREFIX in request.scopes) is bool(prefix)


async def test_leaving_the_sandbox_always_needs_approval_with_a_reason(view: View) -> None:
    auto = Policy(Sandbox(view, "bubblewrap"), "auto")
    Grants().add(view.workspace, Scope.COMMAND, "git push")
    person = Person(Decision(True, Scope.COMMAND))
    for _ in range(2):
        assert not await auto.check_command("git push", person.approve, outside="the key for the server")
    assert [(request.reason, request.scopes) for request in person.asked] == [
        ("leaves the sandbox: the key for the server", ())
    ] * 2
    assert len(Grants().all()) == 1
    assert await auto.check_command("rm -rf build", person.approve)
    assert len(person.asked) == 2


async def test_without_a_sandbox_only_reading_in_the_workspace_needs_no_approval(bare: Policy) -> None:
    person = Person(DENY)
    assert not await bare.check_command("ls -la src", person.approve)
    assert not await bare.check_command("cat a.txt /etc/hostname", person.approve)
    assert person.asked == []
    for command in (
        "cat ~/.ssh/id_rsa",
        "cat ../home/.env",
        "cat /proc/1/environ",
        "grep -r x ~",
        "grep -vnf/proc/self/environ a.txt",
        "cat < /proc/self/environ",
        "head --lines=1 --quiet ../home/config.yaml",
        "ls *",
        "cat ../*/.env",
        "git status",
        "cd .. && cat home/.env",
        "make",
    ):
        with pytest.raises(Refused):
            await bare.check_command(command, person.approve)
        assert "runs without a sandbox (bubblewrap is not installed)" in person.asked[-1].reason
        assert person.asked[-1].scopes == ()


async def test_without_a_sandbox_nothing_is_remembered_and_auto_means_nothing(view: View) -> None:
    bare = Policy(Sandbox(view, None, "none"), "auto")
    Grants().add(view.workspace, Scope.COMMAND, "make")
    person = Person(Decision(True, Scope.COMMAND))
    for _ in range(2):
        await bare.check_command("make", person.approve)
    assert len(person.asked) == 2


async def test_without_a_sandbox_a_folder_out_of_view_is_asked_about(bare: Policy, view: View) -> None:
    secret = Path.home() / ".ssh"
    secret.mkdir(parents=True)
    for command in ("cat id_rsa", "ls", "pwd"):
        person = Person(DENY)
        with pytest.raises(Refused):
            await bare.check_command(command, person.approve, folder=secret)
        assert person.asked[0].subject == f"cd {secret}\n{command}"
    (view.workspace / "sub").mkdir()
    await bare.check_command("ls", Person(DENY).approve, folder=view.workspace / "sub")


async def test_an_approval_does_not_apply_in_another_folder(inside: Policy, view: View) -> None:
    (view.workspace / "sub").mkdir()
    for command, scope in (("make test", Scope.COMMAND), ("make test -k", Scope.PREFIX)):
        await inside.check_command(command, Person(Decision(True, scope)).approve)
    await inside.check_command("make test", Person(DENY).approve)
    await inside.check_command("make test", Person(DENY).approve, folder=view.workspace / "sub")
    for command in ("make test -C /tmp", "make test SHELL=./x", "make test X='$(shell x)'"):
        with pytest.raises(Refused):
            await inside.check_command(command, Person(DENY).approve)
    person = Person(DENY)
    with pytest.raises(Refused):
        await inside.check_command("make test", person.approve, folder=view.temporary)
    assert person.asked[0].subject == f"cd {view.temporary}\nmake test"


async def test_a_link_in_the_workspace_is_followed_before_it_is_read_without_a_sandbox(
    bare: Policy, view: View, home: Path
) -> None:
    home.mkdir()
    (home / ".env").write_text("x")
    (view.workspace / "innocent").symlink_to(home / ".env")
    with pytest.raises(Refused):
        await bare.check_command("cat innocent", Person(DENY).approve)


# ---------------------------------------------------------------- stored approvals


def test_consents_are_private_and_every_change_is_in_the_audit_log(view: View, home: Path) -> None:
    grants = Grants()
    grants.add(view.workspace, Scope.PREFIX, "npm run")
    grants.add(view.workspace, Scope.PREFIX, "npm run")
    grants.add(view.workspace, Scope.EDITS)
    assert stat.S_IMODE((home / "approvals.json").stat().st_mode) == 0o600
    assert [grant.text for grant in grants.list_for(view.workspace)] == ["npm run", ""]
    assert grants.revoke(grants.all()[:1]) == 1
    assert [grant.scope for grant in grants.all()] == [Scope.EDITS]
    actions = [entry["action"] for entry in audit_log.read()]
    assert actions == ["approval granted", "approval granted", "approval revoked"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"version": 2, "workspaces": {}}', '{"version": 1, "workspaces": 5}']
)
async def test_a_damaged_file_grants_nothing_and_stays(inside: Policy, home: Path, text: str) -> None:
    home.mkdir()
    (home / "approvals.json").write_text(text)
    with pytest.raises(HermesError, match="is damaged"):
        Grants().all()
    person = Person()
    assert await inside.check_command("make", person.approve)
    assert len(person.asked) == 1
    assert (home / "approvals.json").read_text() == text


def test_the_file_says_what_it_is(view: View, home: Path) -> None:
    Grants().add(view.workspace, Scope.COMMAND, "make")
    data = json.loads((home / "approvals.json").read_text())
    assert data["workspaces"][str(view.workspace)][0]["text"] == "make"


async def test_without_a_sandbox_the_shared_temporary_folder_is_not_the_private_one(
    bare: Policy, tmp_path: Path
) -> None:
    """In a sandbox, /tmp is a private folder. Without a sandbox, a command reads the real /tmp, so reading a
    file there needs an approval."""
    for path in (tmp_path / "of another program", Path("/tmp/of another program")):
        person = Person(DENY)
        with pytest.raises(Refused):
            await bare.check_command(f"cat '{path}'", person.approve)
        assert len(person.asked) == 1
