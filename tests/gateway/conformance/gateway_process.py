"""Runs `hermes gateway run` in a separate process. It is configured by environment variables and config.yaml."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from hermes.gateway.outbound.streaming import UNSENT
from hermes_state import SessionDB
from tests.gateway.conformance.echo_model import EchoModel
from tests.gateway.conformance.stage import Person, Stage, Where, until

HERMES = [sys.executable, "-W", "error", "-m", "hermes.cli.main"]
PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "COVERAGE_PROCESS_START", "LANG")

Row = dict[str, Any]


class Gateway:
    def __init__(self, folder: Path, stage: Stage, model: EchoModel, **settings: Any) -> None:
        """Add `settings` to the platform settings that `stage` needs."""
        self.home, self._log, self._stage = folder / "home", folder / "log", stage
        self.person = folder / "person"
        for made in (self.home, self.person):
            made.mkdir(mode=0o700, parents=True)
        platform = {**stage.config, **settings}
        config = {"gateway": {"health_port": 0}, "platforms": {stage.platform: platform}}
        YAML().dump(config, self.home / "config.yaml")
        self.environment = {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "HOME": str(self.person),
            "HERMES_HOME": str(self.home),
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-test",
            "HERMES_MODEL": "large-model",
            **stage.environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    # The process

    def be_up(self) -> None:
        """Start the process if it is not running, and wait until the platform is connected."""
        if self._process is not None and self._process.poll() is None:
            return
        before = len(self.log)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*HERMES, "gateway", "run"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = self._process
        until(
            lambda: f"{self._stage.platform}: up" in self.log[before:] or process.poll() is not None,
            lambda: self.log,
        )
        assert process.poll() is None, self.log

    def kill(self) -> None:
        """Kill the process, as a power cut does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Terminate the process as systemd does. Return as soon as it has begun to stop."""
        assert self._process is not None
        before = len(self.log)
        self._process.send_signal(signal.SIGTERM)
        until(lambda: "shutting down;" in self.log[before:], lambda: self.log)

    def ended(self) -> int:
        assert self._process is not None
        return self._process.wait(60)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the process while the block runs. The process itself does not notice."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def command(self, *words: str) -> Any:
        """Run another `hermes` process with the same home and return its JSON output."""
        done = subprocess.run(
            [*HERMES, *words, "--json"],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)

    # The store

    @contextmanager
    def store(self) -> Iterator[SessionDB]:
        db = SessionDB(self.home / "state.db")
        try:
            yield db
        finally:
            db.close()

    def session(self, key: str) -> Row:
        """Return the current session of a chat."""
        with self.store() as db:
            row = db.get_session(db.routing.find_live_session(key) or key)
            assert row is not None, (
                f"there is no {key} among {[one.session_key for one in db.routing.list_routes()]}"
            )
            return row

    def messages_of(self, key: str) -> list[tuple[str, str]]:
        """Return the messages in the conversation of a chat as (role, text)."""
        session = self.session(key)["id"]
        with self.store() as db:
            return [(row["role"], _text(row["content"])) for row in db.get_messages(session)]

    def waiting(self, key: str) -> int:
        """Return the number of unfinished messages of a chat, including the one that is being processed."""
        with self.store() as db:
            return len(db.inbox.list_waiting(key))

    def has_noted_preview(self, key: str) -> bool:
        """Return whether the id of the preview message is stored. After a crash, the next process can find
        the preview only by this id."""
        with self.store() as db:
            route = db.routing.get(key)
            noted = {} if route is None else route.entry.get("preview", {})
            return noted.get("shown", UNSENT) not in ("", UNSENT)

    def knows_of(self, word: str) -> bool:
        """Return whether `word` occurs anywhere in the home: in a table, an index, a mirror or a log."""
        files = [path for path in self.home.rglob("*") if path.is_file()]
        return any(word.encode() in _bytes_of(path) for path in (*files, self._log))


def key_of(stage: Stage, where: Where, person: Person | None = None) -> str:
    """Return the documented session key of a chat. If the platform has no chats, return the session id."""
    if (session := stage.session_id(where)) is not None:
        return session
    parts = [where.chat, where.thread, person.id if person else None]
    kind = "group" if where.kind == "thread" else where.kind
    escaped = (part.replace("%", "%25").replace(":", "%3A") for part in parts if part)
    return ":".join(("agent:main", stage.platform, kind, *escaped))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", f"[{part['type']}]") for part in content or ())


def _bytes_of(path: Path) -> bytes:
    """Return the content of a file. Return no bytes if the file was replaced while it was read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
