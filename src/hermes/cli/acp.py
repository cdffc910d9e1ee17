"""`hermes acp`: the agent for editors, over stdin and stdout (Agent Client Protocol)."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from hermes.cli.chat import add_transcripts
from hermes.cli.command import Words, add_store_option, parse_text
from hermes.cli.exit_codes import DONE, INTERRUPTED, Refused
from hermes.cli.io.output import print_error
from hermes.cli.store_access import get_store_path
from hermes.config.extras import format_install

MISSING = "support for editors is not installed; install it with: {}"


def define(parser: argparse.ArgumentParser, _: Words) -> None:
    add_store_option(parser, serve)
    parser.add_argument("-m", "--model", type=parse_text, metavar="NAME", help="the model that answers")


def serve(arguments: argparse.Namespace) -> int:
    if find_spec("acp") is None:
        raise Refused(MISSING.format(format_install("acp")))
    if sys.stdin.isatty():
        print_error("waiting for an editor on stdin (see docs/editors.md); Ctrl-C exits")
    import asyncio

    from hermes.agent.factory import make_standard_components
    from hermes.config.settings import read_settings
    from hermes.db.session_db import SessionDB
    from hermes.interop.acp import server, stdio

    parts = add_transcripts(make_standard_components(surface_decides=True), arguments)
    configured = read_settings()
    if configured.warning:
        print_error(configured.warning)
    settings = server.read_agent_settings(parts, configured, arguments.model)
    with SessionDB(get_store_path(arguments), spool=True) as db:
        is_interrupted = asyncio.run(stdio.serve(db, settings))
    return INTERRUPTED if is_interrupted else DONE
