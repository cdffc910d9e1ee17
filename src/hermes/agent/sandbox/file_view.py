"""The view: which files the tools of a conversation may read and change. Sandboxes enforce the view, and file
tools query it.

Readable: the system, toolchains in the person's home, and the workspace. Writable: the workspace and a
private temporary folder. Always hidden: the agent's home with the store, keys and memories, and the usual
places for secrets.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from hermes import home
from hermes.store.workspace import find_workspace

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu/store", "/snap",
    "/sys", "/var/lib/dpkg", "/var/lib/rpm", "/run/systemd/resolve", "/System", "/Library", "/Applications",
    "/private/etc", "/private/var/db",
)  # fmt: skip
TOOLCHAINS = (
    ".asdf", ".bun", ".cabal", ".cargo", ".conda", ".deno", ".fnm", ".ghcup", ".gem", ".gradle/caches",
    ".gradle/wrapper", ".julia", ".linuxbrew", ".local/bin", ".local/lib", ".local/pipx", ".local/share/fnm",
    ".local/share/mise", ".local/share/pipx", ".local/share/pnpm", ".local/share/rtx", ".local/share/uv",
    ".m2/repository", ".mix", ".nix-profile", ".npm-global", ".nvm", ".opam", ".pixi", ".poetry", ".pyenv", ".rbenv",
    ".rustup", ".rvm", ".sdkman", ".stack", ".volta", ".yarn", "anaconda3", "go", "mambaforge", "miniconda3",
    "miniforge3", ".gitconfig", ".config/git/config", ".config/git/ignore", ".config/pip",
)  # fmt: skip
"""Paths in the person's home that contain programs and their settings, not personal files."""
SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".oci", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/hub",
    ".config/glab-cli", ".config/doctl", ".config/op", ".config/sops", ".config/rclone", ".config/age", ".netrc",
    "_netrc", ".authinfo", ".authinfo.gpg", ".pgpass", ".my.cnf", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc",
    ".config/pypoetry/auth.toml", ".git-credentials", ".config/git/credentials", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".m2/settings-security.xml",
    ".gradle/gradle.properties", ".terraform.d", ".terraformrc", ".vault-token", ".password-store",
    ".local/share/keyrings", ".local/share/kwalletd", ".config/pip/pip.conf", ".pip/pip.conf", ".s3cfg", ".boto",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/vivaldi", ".config/opera", ".var/app", "snap/firefox", "snap/chromium",
    ".config/Signal", ".config/Slack", ".config/discord", ".bash_history", ".zsh_history", ".python_history",
    ".psql_history", ".mysql_history", ".sqlite_history", ".node_repl_history", ".local/share/fish/fish_history",
    ".claude", ".claude.json", ".codex", ".config/openai", ".Xauthority", ".ICEauthority",
    "Library/Keychains", "Library/Cookies", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox", "Library/Application Support/BraveSoftware", "Library/Safari",
)  # fmt: skip
SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/krb5.keytab", "/etc/NetworkManager/system-connections", "/etc/wireguard",
    "/etc/ppp/pap-secrets", "/etc/ppp/chap-secrets", "/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key", "/etc/security/opasswd", "/etc/cni", "/etc/kubernetes", "/etc/letsencrypt",
)  # fmt: skip
GIT_SETTINGS = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
"""Paths in a git folder that can make git start programs."""
SUBMODULE_SETTINGS = ("modules/*/hooks", "modules/*/config", "modules/*/info/attributes")
TEMPORARY = Path("/tmp")


class View:
    """The accessible files of one conversation, computed once. All paths are real: every link is resolved."""

    def __init__(
        self,
        directory: Path,
        temporary: Path,
        *,
        store: Path | None = None,
        key_files: Iterable[Path] = (),
        readable: Iterable[Path] = (),
        writable: Iterable[Path] = (),
    ) -> None:
        """`store` is the path of the session database. `key_files` are the paths of the key files. All of
        them are hidden, wherever they are.

        `readable` and `writable` are further folders from the settings.
        """
        self.directory = directory.resolve()
        self.person = Path.home().resolve()
        self.workspace = _find_workspace(self.directory, self.person)
        self.temporary = temporary.resolve()
        self.agent_files = _resolve_paths([*_list_agent_files(store), *key_files])
        secrets = [*(self.person / name for name in SECRETS), *map(Path, SYSTEM_SECRETS)]
        self.hidden = [*self.agent_files, *_resolve_paths(secrets)]
        """All hidden paths. Paths that do not exist yet are included, because they can be created during the
        conversation."""
        self._extra_readable = _filter_existing(readable)
        self._extra_writable = _filter_existing(writable)

    @cached_property
    def is_inside_hidden(self) -> bool:
        """Whether the workspace itself is in a hidden folder. If so, none of its files are visible."""
        return any(self.workspace.is_relative_to(path) for path in self.hidden)

    @cached_property
    def is_too_wide(self) -> bool:
        """Whether the workspace contains the person's whole home, with other projects and keys.

        If so, its files are neither readable nor writable as part of the workspace.
        """
        return self.person.is_relative_to(self.workspace)

    @cached_property
    def has_hidden_files(self) -> bool:
        """Whether the workspace contains hidden files. If so, only a sandbox that can mask files is
        suitable."""
        return any(path.is_relative_to(self.workspace) for path in self.hidden)

    @cached_property
    def system(self) -> list[Path]:
        """The paths that programs need: the system, toolchains in the home, and the interpreter of this
        program."""
        toolchains = [self.person / name for name in TOOLCHAINS]
        return _filter_existing([*map(Path, SYSTEM), *toolchains, *_list_runtime(), *self._extra_readable])

    @cached_property
    def readable(self) -> list[Path]:
        own = [] if self.is_too_wide or self.is_inside_hidden else [self.workspace]
        git = [] if self.shared_git_folder is None else [self.shared_git_folder]
        return [*self.system, *own, self.temporary, *self._extra_writable, *git]

    @cached_property
    def writable(self) -> list[Path]:
        if self.is_too_wide or self.is_inside_hidden:
            return [self.temporary, *self._extra_writable]
        git = self.shared_git_folder
        return [self.workspace, self.temporary, *self._extra_writable, *([git] if git else [])]

    @cached_property
    def shared_git_folder(self) -> Path | None:
        """The git folder of the main worktree, if the workspace is a linked worktree; otherwise None.

        The `.git` file of the workspace names a folder in the main git folder. The file can be forged, so the
        named folder must also name the workspace.
        """
        link = self.workspace / ".git"
        try:
            if not link.is_file():
                return None
            own = (
                self.workspace / link.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
            ).resolve()
            named = Path((own / "gitdir").read_text(encoding="utf-8").strip()).resolve()
        except (OSError, UnicodeDecodeError, ValueError):
            return None
        shared = own.parent.parent
        is_git = own.parent.name == "worktrees" and (shared / "objects").is_dir()
        return shared if is_git and named == link.resolve() and not self.is_hidden(shared) else None

    @cached_property
    def protected(self) -> list[Path]:
        """Paths that commands must not change, because the change would go unnoticed: the program itself, and
        git settings that can start programs.

        A sandbox mounts these paths. The list therefore contains no path that leads out of the writable
        folders through a link, because an earlier command may have created the link.
        """
        link, folder = self.workspace / ".git", self.git_folder
        inside = [] if folder is None else [folder / name for name in GIT_SETTINGS]
        for pattern in SUBMODULE_SETTINGS:
            inside += [] if folder is None else folder.glob(pattern)
        return [
            path
            for path in _filter_existing([*self.own_program, *inside, *([link] if link.is_file() else [])])
            if _is_below(path, self.writable) and not self.is_hidden(path)
        ]

    @cached_property
    def own_program(self) -> list[Path]:
        """The folders of this program that are in the workspace or in another writable folder. Commands could
        change them."""
        inside = [path for path in _resolve_paths(_list_runtime()) if _is_below(path, self.writable)]
        return [path for path in inside if path != self.workspace]

    @cached_property
    def unprotected_git_settings(self) -> list[str]:
        """The names in `GIT_SETTINGS` whose paths are not in `protected`, usually because the files do not
        exist."""
        folder = self.git_folder
        return (
            [] if folder is None else [name for name in GIT_SETTINGS if folder / name not in self.protected]
        )

    @cached_property
    def git_folder(self) -> Path | None:
        """The folder with the git settings of the workspace; None if there is none.

        A link to a folder outside the workspace is ignored, because a command may have created it.
        """
        own = self.workspace / ".git"
        if not own.is_dir():
            return self.shared_git_folder
        real = own.resolve()
        return real if real != self.workspace and real.is_relative_to(self.workspace) else None

    # ---------------------------------------------------------------- queries by the file tools

    def can_read(self, path: Path) -> bool:
        """Return whether the tools of the conversation may read a real path."""
        return _is_below(path, self.readable) and not self.is_hidden(path)

    def can_write(self, path: Path) -> bool:
        """Return whether a file tool may change the file at a real path without an approval to leave the sandbox."""
        return (
            _is_below(path, self.writable)
            and not self.is_hidden(path)
            and not any(
                part.lower() == ".git" for part in path.relative_to(_find_holder(path, self.writable)).parts
            )
            and not _is_below(path, self.own_program)
            and not (self.shared_git_folder and path.is_relative_to(self.shared_git_folder))
        )

    def can_change(self, path: Path) -> bool:
        """Return whether a command in the sandbox can change a real path."""
        return _is_below(path, self.writable)

    def is_hidden(self, path: Path) -> bool:
        return _is_below(path, self.hidden)

    def is_of_agent(self, path: Path) -> bool:
        """Return whether a path belongs to this program's own data. Tools never get access to such a path. The person
        is not even asked for an approval."""
        return _is_below(path, self.agent_files)

    def is_hard_link_to_hidden(self, found: os.stat_result) -> bool:
        """Return whether a file is a hard link to a hidden file."""
        return found.st_nlink > 1 and (found.st_dev, found.st_ino) in self.linked_secrets()

    def linked_secrets(self) -> set[tuple[int, int]]:
        """Return the device and inode of all hidden files that have another hard link."""
        return {
            (found.st_dev, found.st_ino)
            for path in self.hidden
            for found in _walk_files(path)
            if found.st_nlink > 1
        }

    def locate(self, path: Path) -> Path:
        """Return the real path for a path that a tool received. As in the sandbox, a path in `/tmp` means the
        private folder.

        A path in `/tmp` is kept if the file exists there but not in the private folder.
        """
        real = path.resolve()
        known = (*self.readable, *self.hidden, self.person, self.workspace)
        if not path.is_relative_to(TEMPORARY) or _is_below(real, known):
            return real
        private = (self.temporary / path.relative_to(TEMPORARY)).resolve()
        if not private.is_relative_to(self.temporary) or (real.exists() and not private.exists()):
            return real
        return private


def _find_workspace(directory: Path, person: Path) -> Path:
    """Return the workspace that contains a directory. The person's home never becomes the workspace of a
    folder below it, even if the home is a git repository."""
    found = find_workspace(directory).resolve()
    is_whole_home = person.is_relative_to(found) and not person.is_relative_to(directory)
    return directory if is_whole_home else found


def _list_agent_files(store: Path | None) -> list[Path]:
    """Return the agent's home, the root of all profiles, the session database, and the files of the database
    beside it."""
    from hermes.store.engine_choice import list_own_files

    database = (store or home.get_default_db_path()).resolve()
    beside = [path for path in _list_folder(database.parent) if path.name.startswith(database.name)]
    agent = home.get_hermes_home()
    return [
        agent,
        agent / ".env",  # these two can be links to other places
        agent / "config.yaml",
        home.get_default_hermes_root(),
        Path.home() / ".hermes",
        *list_own_files(database),
        *beside,
        database.parent / "spool",
    ]


def _list_runtime() -> list[Path]:
    """Return the folders of the Python interpreter and its packages, and the folder with the source of this
    program."""
    return [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]]


def _filter_existing(paths: Iterable[Path]) -> list[Path]:
    return [path for path in _resolve_paths(paths) if path.exists()]


def _resolve_paths(paths: Iterable[Path]) -> list[Path]:
    """Return each path with all links resolved, without duplicates."""
    found: dict[Path, None] = {}
    for path in paths:
        with suppress(OSError, RuntimeError):  # circular links
            found[path.resolve()] = None
    return list(found)


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether a path is one of the folders or below one of them. This is faster than `is_relative_to`
    for each folder, and a command is checked against hundreds of folders."""
    return not {path, *path.parents}.isdisjoint(folders)


def _find_holder(path: Path, folders: Iterable[Path]) -> Path:
    return next(folder for folder in folders if path.is_relative_to(folder))


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _walk_files(path: Path) -> Iterator[os.stat_result]:
    if not path.is_dir():
        try:
            yield path.lstat()
        except OSError:
            pass
        return
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                found = os.lstat(os.path.join(folder, name))  # noqa: PTH118  a home can contain many files
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield found
