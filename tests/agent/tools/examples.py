"""Example calls of each tool, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EXAMPLES: Mapping[str, Sequence[dict[str, Any]]] = {
    "delegate_task": (
        {"goal": "Find out why the tests fail.", "context": "They are in tests/.", "max_steps": 20},
        {"tasks": [{"goal": "Read the changelog."}, {"goal": "Read the code.", "tools": ["read_file"]}]},
    ),
    "memory": (
        {"action": "add", "target": "user", "content": "Prefers short answers."},
        {"action": "replace", "target": "memory", "old_text": "Python 3.11", "content": "Uses Python 3.13."},
        {"action": "read", "target": "memory"},
    ),
    "patch": (
        {"path": "setup.py", "old_text": "RETRIES = 3", "new_text": "RETRIES = 5"},
        {"path": "a.txt", "old_text": "colour", "new_text": "color", "replace_all": True},
    ),
    "process": (
        {"action": "list"},
        {"action": "poll", "id": "p1"},
        {"action": "wait", "id": "p1", "timeout": 300},
    ),
    "read_file": (
        {"path": "src/main.py"},
        {"path": "~/notes.txt", "offset": 200, "limit": 50},
    ),
    "search_files": (
        {"name": "*.md"},
        {"content": r"def \w+_search", "name": "*.py", "path": "src", "limit": 20},
    ),
    "session_search": (
        {},
        {"query": ["retry budget", "how often do we retry"], "limit": 3},
        {"session_id": "20260502_120000_1a2b3c4d", "around_message_id": 5},
    ),
    "skill_manage": (
        {
            "action": "create",
            "name": "release",
            "description": "How a release of this project is made.",
            "content": "1. Run the tests.\n2. Tag it.",
        },
        {"action": "edit", "name": "release", "file": "checks.md", "content": "- the changelog"},
        {"action": "delete", "name": "release"},
    ),
    "skill_view": ({"name": "release"}, {"name": "release", "file": "notes/checks.md"}),
    "skills_list": ({},),
    "terminal": (
        {"command": "git status --short"},
        {"command": "python -m http.server", "background": True},
        {"command": "make test", "timeout": 600, "folder": "~/project"},
    ),
    "todo": (
        {},
        {"items": [{"id": "1", "content": "Run the tests", "status": "in_progress"}]},
    ),
    "write_file": (
        {"path": "notes/today.md", "content": "# Today\n"},
        {"path": "empty.txt", "content": ""},
    ),
}
