"""`hermes gateway run` as a process with a local Telegram server, for the tests of operators' commands.

The settings are in `config.yaml` and `.env`, so that a test can change them while the gateway runs. The model is
a server that repeats the prompt.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from hermes_state import SessionDB
from tests.gateway.conformance.echo_model import EchoModel
from tests.gateway.conformance.gateway_process import HERMES, PASSED_ON
from tests.gateway.conformance.on_telegram import OnTelegram
from tests.gateway.conformance.stage import Person, until


class OperatedGateway:
    def __init__(self, home: Path, telegram: OnTelegram, model: EchoModel) -> None:
        self.home, self.telegram, self.model = home, telegram, model
        home.mkdir(mode=0o700, exist_ok=True)
        self._log = home.parent / "gateway.log"
        self.config: dict[str, Any] = {
            "gateway": {"health_port": 0},
            "model": {"default": "large-model", "base_url": model.base_url},
            "platforms": {
                "telegram": {
                    "base_url": telegram.environment["TELEGRAM_BASE_URL"],
                    "allowed_users": telegram.environment["TELEGRAM_ALLOWED_USERS"].split(","),
                }
            },
        }
        self.variables = {
            "TELEGRAM_BOT_TOKEN": telegram.environment["TELEGRAM_BOT_TOKEN"],
            "OPENAI_API_KEY": "sk-test",
        }
        self.save()
        self.environment = {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "HOME": str(home.parent),
            "HERMES_HOME": str(home),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def save(self) -> None:
        """Write the settings to the files."""
        YAML().dump(self.config, self.home / "config.yaml")
        file = self.home / ".env"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.variables.items()))
        file.chmod(0o600)

    # The process

    def start(self, **environment: str) -> None:
        before = len(self.log)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*HERMES, "gateway", "run"],
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = self._process
        until(lambda: "telegram: up" in self.log[before:] or process.poll() is not None, lambda: self.log)
        assert process.poll() is None, self.log

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, as a power cut does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run another `hermes` command with the same home."""
        return subprocess.run(
            [*HERMES, *words],
            env=self.environment,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )

    def open_store(self) -> SessionDB:
        return SessionDB(self.home / "state.db")

    # People

    def heard(self, person: Person) -> list[str]:
        return self.telegram.heard(self.telegram.dm(person))

    def say(self, person: Person, text: str) -> None:
        self.telegram.say(person, self.telegram.dm(person), text)

    def asks(self, person: Person, text: str) -> str:
        """Send a message and return the next complete answer."""
        before = len(self.heard(person))
        self.say(person, text)
        until(lambda: any(text in heard for heard in self.heard(person)[before:]), lambda: self.log)
        return self.heard(person)[-1]
