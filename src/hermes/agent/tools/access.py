"""The access of tools to the machine: the policy per working directory, the temporary folder and the
environment.

There is one instance per process. The policy of a working directory is created once and then reused, because
creating it reads many paths.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hermes import home
from hermes.agent.approvals.grants import Grants
from hermes.agent.approvals.policy import ASK, Policy
from hermes.agent.sandbox.child_environment import make_child_environment, make_loader_environment
from hermes.agent.sandbox.file_view import View
from hermes.agent.sandbox.sandbox import Sandbox, choose_sandbox, make_shell_command
from hermes.agent.tool import ToolContext
from hermes.atomic_files import KEY_NOTE

PREFIX = "hermes-"


class AccessSettings(NamedTuple):
    mode: str = ASK
    network: bool = True
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """The names of further environment variables that are passed to commands."""
    withheld: frozenset[str] = frozenset()
    """The names of environment variables that are never passed to commands. The configuration names them as
    the source of keys."""
    key_file: str | None = None
    """The key file of an encrypted store, from the settings."""


class Access:
    def __init__(
        self,
        settings: AccessSettings = AccessSettings(),  # noqa: B008  an immutable value
        grants: Grants | None = None,
    ) -> None:
        """`grants` are the stored consents to use. If it is None, the consents in the program's home are used."""
        self.settings = settings
        self._grants = grants or Grants()
        self._policies: dict[tuple[Path, Path], Policy] = {}
        self._temporary: Path | None = None
        self._lock = threading.Lock()

    def policy_of(self, context: ToolContext) -> Policy:
        """Return the policy for the working directory of a tool call."""
        store = Path(getattr(context.db, "db_path", home.get_default_db_path()))
        known = context.cwd, store
        with self._lock:
            if known not in self._policies:
                self._policies[known] = self._make_policy(context.cwd, store)
            return self._policies[known]

    def _make_policy(self, folder: Path, store: Path) -> Policy:
        return Policy(self.choose_sandbox(folder, store), self.settings.mode, self._grants)

    def choose_sandbox(self, folder: Path, store: Path) -> Sandbox:
        """Return the sandbox for commands in the workspace of `folder`. Its view includes the further folders from
        the settings and hides `store`, the session database."""
        settings = self.settings
        view = View(
            folder,
            self._get_temporary_folder(),
            store=store,
            key_files=self._list_key_files(store),
            readable=map(_expand_path, settings.readable),
            writable=map(_expand_path, settings.writable),
        )
        return choose_sandbox(view)

    def _list_key_files(self, store: Path) -> Iterator[Path]:
        """Yield the paths of files that may contain the key of the store. The paths come from the environment, from
        the settings, and from the small file beside the store that names the key file."""
        if name := os.environ.get("HERMES_STORE_KEY_FILE", "").strip():
            yield _expand_path(name)
        if self.settings.key_file is not None:
            yield home.get_hermes_home() / _expand_path(self.settings.key_file)
        with suppress(OSError, ValueError, AttributeError):
            noted = json.loads(Path(f"{store}{KEY_NOTE}").read_bytes()).get("key_file")
            if isinstance(noted, str):
                yield Path(noted)

    def environment(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment variables of a command that a tool runs. The values come from `environment`; None
        means the environment of this process."""
        settings = self.settings
        with self._lock:
            folder = self._get_temporary_folder()
        return make_child_environment(
            folder, extra=settings.environment, withheld=settings.withheld, environment=environment
        )

    def shell_program(self, command: str) -> list[str]:
        """Return the command line of a shell that runs the shell text `command`."""
        settings = self.settings
        return make_shell_command(
            command, make_loader_environment(extra=settings.environment, withheld=settings.withheld)
        )

    def _get_temporary_folder(self) -> Path:
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
            atexit.register(self.close)
        return self._temporary

    def close(self) -> None:
        """Remove the private temporary folder of the commands."""
        atexit.unregister(self.close)
        with self._lock:
            folder, self._temporary, self._policies = self._temporary, None, {}
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _expand_path(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()
