"""The environment of a command. Only the variables on a fixed list and those named by the settings are passed
on, because any other variable could contain a key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hermes.config.dotenv import TOOL_MARKER

ALLOWED = frozenset(
    """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TZDIR COLUMNS LINES VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV
    PYENV_ROOT PYENV_VERSION PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONUTF8 CARGO_HOME
    RUSTUP_HOME RUSTUP_TOOLCHAIN GOPATH GOROOT GOCACHE GOFLAGS NVM_DIR NVM_BIN NODE_PATH NODE_ENV VOLTA_HOME
    BUN_INSTALL DENO_DIR JAVA_HOME JDK_HOME MAVEN_HOME GRADLE_USER_HOME SDKMAN_DIR RBENV_ROOT GEM_HOME GEM_PATH
    ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR NIX_PATH NIX_PROFILES NIX_SSL_CERT_FILE PKG_CONFIG_PATH
    CC CXX CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    NODE_EXTRA_CA_CERTS PIP_CERT GIT_SSL_CAINFO AWS_CA_BUNDLE XDG_DATA_DIRS XDG_CONFIG_DIRS MANPATH INFOPATH CI
    NO_COLOR
    """.split()
)
ALLOWED_PREFIXES = ("LC_",)
PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES")
"""Variables that make every program load certain libraries. The libraries are often in the workspace or, if
the value has an empty entry, in the working directory. The program that creates the sandbox must not load
them, so these variables are set only inside the sandbox."""
QUIET = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Variables that prevent programs from waiting for input, because a command has no keyboard and no
interactive user."""
NAMED_IN_SETTINGS = re.compile(r"\$\{(\w+)\}")


def make_child_environment(
    temporary: Path,
    *,
    extra: Iterable[str] = (),
    withheld: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment variables of a command.

    The values come from `environment`; None means the environment of this process. The result contains the
    variables that are always allowed and the variables named in `extra`, which come from the settings. It
    contains none of the variables named in `withheld` or `LOADER`. Variables such as `TMPDIR` are set to
    `temporary`, the private temporary folder.
    """
    source = os.environ if environment is None else environment
    extra, withheld = set(extra), set(withheld)
    made = {
        name: value
        for name, value in source.items()
        if (_is_allowed(name, value) or name in extra) and name not in withheld and name not in LOADER
    }
    folders = {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(temporary / "cache")}
    return made | QUIET | folders | {TOOL_MARKER: "1"}


def make_loader_environment(
    *, extra: Iterable[str] = (), withheld: Iterable[str] = (), environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return those variables in `LOADER` that a command may have, with their values: `LD_LIBRARY_PATH`, and those
    that the settings name in `extra`. Variables in `withheld` are left out."""
    source = os.environ if environment is None else environment
    allowed = ({LOADER[0], *extra} & set(LOADER)) - set(withheld)
    return {name: source[name] for name in LOADER if name in allowed and name in source}


def list_key_names(settings: Mapping[str, Any]) -> set[str]:
    """Return all variables that the configuration refers to, by `${NAME}` or as the value of a `key_env`."""
    names: set[str] = set()
    for key, value in settings.items():
        if isinstance(value, Mapping):
            names |= list_key_names(value)
        elif isinstance(value, list | tuple):
            names |= list_key_names({str(number): entry for number, entry in enumerate(value)})
        elif isinstance(value, str):
            names |= set(NAMED_IN_SETTINGS.findall(value))
            if str(key).endswith("key_env"):
                names.add(value.strip())
    return names


def _is_allowed(name: str, value: str) -> bool:
    if name.upper() in PROXIES:
        return _has_no_password(value)
    return name in ALLOWED or name.startswith(ALLOWED_PREFIXES)


def _has_no_password(proxy: str) -> bool:
    try:
        return urlsplit(proxy if "//" in proxy else f"//{proxy}").username is None
    except ValueError:
        return False
