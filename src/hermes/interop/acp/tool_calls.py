"""Describes tool calls for an editor: title, kind, locations, output, diff, and the permission that a call needs.
A diff is made from the journal of edits, which keeps the old text of each file that a tool changed. Therefore the
editor gets the whole text before and after an edit, even when the conversation is loaded later. If the journal has no
matching entry, the diff contains only the passages in the arguments of the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from acp import start_tool_call, text_block, tool_content, tool_diff_content, update_tool_call
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    PermissionOption,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    ToolKind,
)

from hermes.agent.approvals.request import ALLOW_ONCE, DENY, ApprovalRequest, Decision, Scope
from hermes.agent.edit_journal import NO_FILE, Edit, EditJournal, locate_folder, make_digest
from hermes.agent.tool import ToolFailed, find_conversation_root
from hermes.agent.tools.patch import replace_passage
from hermes.message_content import SELF_EXPLAINING
from hermes.text import make_printable, make_visible

if TYPE_CHECKING:
    from hermes.db.session_db import AnyStore

Content = ContentToolCallContent | FileEditToolCallContent

TERMINAL, TODO, DELEGATE = "terminal", "todo", "delegate_task"
EDITORS = ("write_file", "patch")
KINDS: dict[str, ToolKind] = {
    "read_file": "read",
    "skill_view": "read",
    "skills_list": "read",
    "search_files": "search",
    "session_search": "search",
    "write_file": "edit",
    "patch": "edit",
    "skill_manage": "edit",
    TERMINAL: "execute",
    "process": "execute",
    "memory": "think",
    TODO: "think",
}
"""The kind of each tool. The kind of any other tool is `other`."""
LONGEST_TITLE = 200
LARGEST_DIFF = 1_000_000
"""Maximum length of a whole text in a diff, in characters. If a text is longer, only the changed passages are sent."""
LINE_END = " ⏎ "
OPTIONS = {
    Scope.COMMAND: "Always allow this command in this project",
    Scope.PREFIX: "Always allow commands that begin with `{}` in this project",
    Scope.EDITS: "Always allow edits in this project",
}
"""The label of each answer that also approves later actions."""
_BACKTICKS = re.compile("`+")


class Call(NamedTuple):
    id: str
    """The id that the editor gets. It is unique in the session, even if a model uses an id twice."""
    name: str
    arguments: Mapping[str, Any]


class ToolCalls:
    """The tool calls of one session."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._used: dict[str, int] = {}
        self._running: dict[str, Call] = {}

    def start(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> Call:
        count = self._used[call_id] = self._used.get(call_id, 0) + 1
        call = Call(call_id if count == 1 else f"{call_id}#{count}", name, arguments)
        self._running[call_id] = call
        return call

    def end(self, call_id: str, name: str) -> Call:
        """Return the tool call with this id and remove it from the running calls."""
        return self._running.pop(call_id, None) or Call(call_id, name, {})

    def find_waiting(self, call_id: str) -> Call | None:
        """Return the running tool call that an approval request belongs to. Return None if the call has started a
        subagent, because the request is then about an action of the subagent."""
        call = self._running.get(call_id)
        return None if call is None or call.name == DELEGATE else call

    def list_running(self, name: str) -> list[Call]:
        return [call for call in self._running.values() if call.name == name]

    def describe_start(self, call: Call) -> ToolCallStart:
        return start_tool_call(
            call.id,
            make_title(call.name, call.arguments),
            kind=get_kind(call.name),
            status="in_progress",
            locations=self._list_locations(call),
            raw_input=dict(call.arguments),
        )

    def describe_end(
        self, call: Call, output: str, failed: bool, diff: FileEditToolCallContent | None
    ) -> ToolCallProgress:
        content: list[Content] = [diff] if diff is not None else []
        if diff is None and output.strip():
            content.append(make_text_content(fence_output(output)))
        return update_tool_call(
            call.id, status="failed" if failed else "completed", content=content, raw_output=output
        )

    def describe_permission(self, call: Call | None, request: ApprovalRequest, number: int) -> ToolCallUpdate:
        """Return the description of an action that needs an approval, for the editor. Invisible characters are made
        visible, so that no part of a command is hidden from the person."""
        subject = make_visible(request.subject)
        content: list[Content] = []
        path = request.subject.removeprefix("write ")
        diff = make_partial_diff(path, request.diff) if request.diff else None
        if diff is not None:
            content.append(diff)
            content.append(make_text_content(make_visible(f"{subject}: {request.reason}")))
        else:
            content.append(make_text_content(f"{fence_output(subject)}\n{make_visible(request.reason)}"))
        return ToolCallUpdate(
            tool_call_id=f"approval-{number}" if call is None else call.id,
            title=make_one_line(subject),
            kind="other" if call is None else get_kind(call.name),
            status="pending",
            content=list(content),
            raw_input=None if call is None else dict(call.arguments),
        )

    def _list_locations(self, call: Call) -> list[ToolCallLocation] | None:
        path = resolve_path(call.arguments.get("path"), self._cwd)
        if path is None:
            return None
        line = call.arguments.get("offset")
        return [ToolCallLocation(path=str(path), line=line if isinstance(line, int) and line >= 0 else None)]


def get_kind(name: str) -> ToolKind:
    return KINDS.get(name, "other")


def make_title(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the name of the tool and its main argument, in one line. For a terminal command, return only the
    command."""
    main = next((arguments[key] for key in SELF_EXPLAINING if isinstance(arguments.get(key), str)), "")
    return make_one_line(main if name == TERMINAL and main else ": ".join(filter(None, (name, main))))


def make_one_line(text: str) -> str:
    return make_printable(LINE_END.join(text.strip().splitlines()), width_limit=LONGEST_TITLE)


def make_text_content(text: str) -> ContentToolCallContent:
    return tool_content(text_block(text))


def fence_output(text: str) -> str:
    """Return a text as a Markdown code block. The fence is longer than any run of backticks in the text."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def resolve_path(path: object, cwd: Path) -> Path | None:
    if not isinstance(path, str) or not path:
        return None
    try:
        return (cwd / Path(path).expanduser()).resolve()
    except (OSError, ValueError, RuntimeError):  # no valid name
        return None


# ---------------------------------------------------------------- permissions


def list_options(request: ApprovalRequest) -> list[PermissionOption]:
    options = [PermissionOption(option_id="allow", name="Allow once", kind="allow_once")]
    for scope in request.scopes:
        label = OPTIONS[scope].format(make_printable(request.prefix))
        options.append(PermissionOption(option_id=f"always:{scope}", name=label, kind="allow_always"))
    return [*options, PermissionOption(option_id="reject", name="Reject", kind="reject_once")]


def read_option(option_id: str, request: ApprovalRequest) -> Decision:
    """Return the decision for the option that the person chose for an approval request. An unknown option is a
    refusal."""
    if option_id == "allow":
        return ALLOW_ONCE
    chosen = next((scope for scope in request.scopes if option_id == f"always:{scope}"), None)
    return DENY if chosen is None else Decision(True, chosen)


# ---------------------------------------------------------------- diffs


class EditTexts:
    """Finds the text of a file before and after an edit. All methods read files, so call them in a thread."""

    def __init__(self, journal: EditJournal | None, store: AnyStore, session_id: str, cwd: Path) -> None:
        self._journal, self._cwd, self._folder = journal, cwd, locate_folder(store)
        self._store, self._session_id = store, session_id
        self._edits: list[Edit] | None = None
        self._before: dict[str, str | None] = {}
        """Cache of the old texts, by the uid of the edit."""

    def make_diff(self, call: Call) -> FileEditToolCallContent | None:
        """Return the diff of the file edit that a tool call made. None if the tool does not edit files."""
        path = resolve_path(call.arguments.get("path"), self._cwd) if call.name in EDITORS else None
        if path is None:
            return None
        for edit in reversed(self._list_edits()):
            if edit.path == path and (texts := self._apply(call, edit)) is not None:
                return tool_diff_content(str(path), texts[1], texts[0])
        return _diff_arguments(call, path)

    def _list_edits(self) -> Sequence[Edit]:
        if self._edits is None:
            self._edits = []
            if self._journal is not None:
                conversation = find_conversation_root(self._store, self._session_id)
                edits = self._journal.list_edits(self._folder, [conversation])
                self._edits = [edit for edit in edits if edit.undoes is None]
        return self._edits

    def _apply(self, call: Call, edit: Edit) -> tuple[str | None, str] | None:
        """Return the text of a file before and after `edit`, an entry of the journal of edits, if the tool call made
        this edit. To find out, the digest of the text that the call produces is compared with the digest in the entry.
        Return None if another call made the edit, or if a text is longer than `LARGEST_DIFF`."""
        if call.name == "write_file" and make_digest(_get_text(call, "content").encode()) != edit.after:
            return None
        before = None if edit.before == NO_FILE else self._read_before(edit)
        if before is None and edit.before != NO_FILE:
            return None
        for after in _list_results(call, before):
            if make_digest(after.encode()) == edit.after:
                is_small = max(len(before or ""), len(after)) <= LARGEST_DIFF
                return (before, after) if is_small else None
        return None

    def _read_before(self, edit: Edit) -> str | None:
        if edit.uid not in self._before:
            content = None if self._journal is None else self._journal.read_before(self._folder, edit)
            try:
                self._before[edit.uid] = None if content is None else content.decode()
            except UnicodeDecodeError:
                self._before[edit.uid] = None
        return self._before[edit.uid]


def _list_results(call: Call, before: str | None) -> Iterator[str]:
    """Yield the texts that the tool call may have produced from the text `before`: one for each kind of line end."""
    if call.name == "write_file":
        yield _get_text(call, "content")
        return
    old, new = _get_text(call, "old_text"), _get_text(call, "new_text")
    for line_end in ("\n", "\r\n"):
        try:
            passages = [text.replace("\r\n", "\n").replace("\n", line_end) for text in (old, new)]
            is_every = bool(call.arguments.get("replace_all"))
            yield replace_passage(before or "", passages[0], passages[1], is_every)[0]
        except ToolFailed:
            continue


def _diff_arguments(call: Call, path: Path) -> FileEditToolCallContent:
    if call.name == "write_file":
        return tool_diff_content(str(path), _get_text(call, "content"))
    return tool_diff_content(str(path), _get_text(call, "new_text"), _get_text(call, "old_text"))


def make_partial_diff(path: str, unified: str) -> FileEditToolCallContent:
    """Return a diff for the editor that contains only parts of a file: the changed lines in `unified`, a unified diff,
    and the lines around them."""
    old, new = list[str](), list[str]()
    for line in unified.splitlines()[2:]:
        if not line.startswith(("+", "@@", "[...")):
            old.append(line[1:])
        if not line.startswith(("-", "@@", "[...")):
            new.append(line[1:])
    return tool_diff_content(path, "\n".join(new), "\n".join(old) if old else None)


def _get_text(call: Call, name: str) -> str:
    value = call.arguments.get(name)
    return value if isinstance(value, str) else ""
