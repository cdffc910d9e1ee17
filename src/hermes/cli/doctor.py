"""`hermes doctor`: check the store, the home, the sandbox and the fallback models, and report problems with
their remedies."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from hermes import home
from hermes.cli.command import Words, add_json_option, add_store_option
from hermes.cli.exit_codes import DONE, REFUSED
from hermes.cli.io.output import print_json, print_lines
from hermes.config import config_file, dotenv
from hermes.config.extras import format_install
from hermes.store.findings import Finding
from hermes.text import make_printable


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, run_doctor)
    add_json_option(parser, ("path", "ok", "findings"))
    parser.add_argument("--deep", action="store_true", help="also read every page and every row")


def run_doctor(arguments: argparse.Namespace) -> int:
    from hermes.db.session_db import SessionDB

    store = arguments.store or home.get_default_db_path()
    found = SessionDB.diagnose_file(store, deep=arguments.deep)
    found = found._replace(findings=(*found.findings, *_check_sandbox(store)))
    if arguments.store is None:
        found = found._replace(findings=(*found.findings, *_check_fallbacks(), *_check_home()))
    if arguments.json:
        findings = [finding._asdict() for finding in found.findings]
        print_json({"path": str(found.path), "ok": found.ok, "findings": findings}, arguments.json)
    else:
        print_lines(make_printable(line) for line in found.lines())
    return DONE if found.ok else REFUSED


def _check_home() -> Iterator[Finding]:
    """Yield the problems with the list of paired people, and with the permissions of config.yaml and .env,
    which contain keys."""
    from hermes.gateway.inbound.pairing import Pairings
    from hermes.gateway.ops.status_file import gateway_folder, read_status

    status = read_status()
    running = status.problem if status is not None and status.is_running else None
    if problem := running or Pairings(gateway_folder()).check():
        yield Finding("error", f"{problem}; no new person is admitted")
    for file in (config_file.get_path(), dotenv.get_path()):
        if home.is_loose(str(file)):
            yield Finding("warning", f"others can read {file}", f"chmod 600 {file}")


def _check_fallbacks() -> Iterator[Finding]:
    """List the fallback models in their order, and report those that cannot be used. No model is asked."""
    from hermes.agent.models.choice import list_fallbacks, open_fallback
    from hermes.agent.models.model import ModelError, strip_address
    from hermes.config.settings import read_settings

    settings = read_settings()
    for number, fallback in enumerate(list_fallbacks(settings), 1):
        name = f"Fallback model {number}: {fallback.model}"
        try:
            model = open_fallback(fallback, settings)
        except ModelError as problem:
            yield Finding("warning", f"{name} cannot be used", str(problem))
            continue
        variable = fallback.key_env
        if variable is not None and dotenv.get_variable(variable) is None:
            yield Finding("warning", f"{name} has no key", f"hermes config set {variable}")
        else:
            at = f" at {strip_address(model.base_url)}" if model.base_url else ""
            yield Finding("ok", f"{name}{at}")


def _check_sandbox(store: Path) -> Iterator[Finding]:
    """Report which sandbox confines the agent's commands, or why there is none."""
    from hermes.agent.approvals.shell import is_parser_installed
    from hermes.agent.tools.access import Access, AccessSettings
    from hermes.config.settings import read_settings

    settings = read_settings()
    if settings.approvals.mode == "off":
        yield Finding("note", "Sandbox: off, and the agent asks nothing (approvals.mode)")
        return
    access = Access(
        AccessSettings(
            readable=settings.sandbox.readable,
            writable=settings.sandbox.writable,
            key_file=settings.store.key_file,
        )
    )
    try:
        sandbox = access.choose_sandbox(Path.cwd(), store)
    finally:
        access.close()
    if sandbox.is_there:
        yield Finding("ok", f"Sandbox: {sandbox.describe()}")
    else:
        yield Finding(
            "note",
            f"Sandbox: none for {Path.cwd()}: the agent asks about everything except plain reading",
            sandbox.reason,
        )
    if not is_parser_installed():
        yield Finding(
            "note",
            "Shell parser: not installed, so the agent asks about every command",
            format_install("shell"),
        )
