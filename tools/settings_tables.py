"""Writes the tables of settings and platforms in the documentation.

    python -m tools.settings_tables [--check]

A table is between `<!-- table: NAME -->` and `<!-- end of table -->` in a page of docs/. It is generated from
`config/settings_schema.py` and the declarations of platforms. With `--check`, nothing is written, and an
outdated page is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hermes.cli.gateway.setup import list_flags
from hermes.config.declarations import Setting, list_settings, make_variable
from hermes.config.settings_schema import GATEWAY_SETTINGS, SETTINGS, PlatformSection, get_default
from hermes.gateway.registry import PLATFORMS, list_missing

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"(?<=<!-- table: )(?P<name>[\w -]+)( -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
INHERITED = ("enabled", "busy", "stream")
"""Settings of every platform whose default depends on other settings."""
HEAD = ("| key | environment | default | value | meaning |", "|---|---|---|---|---|")


def make_table(name: str) -> str:
    """Return the table with this name as Markdown."""
    if name.startswith("options of "):
        lines = _format_options([name.removeprefix("options of ")])
    else:
        lines = {
            "settings": _format_settings,
            "gateway settings": _format_gateway_settings,
            "platforms": _format_platforms,
            "platform options": lambda: _format_options(PLATFORMS),
            "setup flags": _format_flags,
        }[name]()
    return "".join(f"{line}\n" for line in lines)


def update_page(text: str) -> str:
    """Return the page with every table regenerated."""
    return BLOCK.sub(lambda block: f"{block['name']}{block[2]}{make_table(block['name'])}", text)


def _format_settings() -> Iterator[str]:
    yield from HEAD
    for key, setting in SETTINGS.items():
        yield _format_row(key, setting, setting.variable, format_default(get_default(key)))


def _format_gateway_settings() -> Iterator[str]:
    yield from HEAD
    for key, setting in GATEWAY_SETTINGS.items():
        yield _format_row(key, setting, setting.variable, format_default(get_default(key)))
    for name, setting in list_settings(PlatformSection).items():
        default = "" if name in INHERITED else format_default(getattr(PlatformSection(), name))
        yield _format_row(f"platforms.<name>.{name}", setting, f"<NAME>_{name.upper()}", default)


def _format_options(platforms: Iterable[str]) -> Iterator[str]:
    yield from HEAD
    for name in platforms:
        platform = PLATFORMS[name]
        for option, setting in platform.settings.items():
            variable = make_variable(name, option) if setting.has_variable else None
            is_needed = (option,) in platform.needs
            default = "required" if is_needed else format_default(getattr(platform.options(), option))
            yield _format_row(f"platforms.{name}.{option}", setting, variable, default)


def _format_row(key: str, setting: Setting, variable: str | None, default: str) -> str:
    cells = (f"`{key}`", f"`{variable}`" if variable else "", default, setting.kind.expected, setting.meaning)
    return f"| {' | '.join(cells)} |"


def _format_platforms() -> Iterator[str]:
    yield from ("| platform | package | required settings | features |", "|---|---|---|---|")
    for name, platform in PLATFORMS.items():
        variables = re.sub(r"\w+_\w+", r"`\g<0>`", ", ".join(list_missing(name, {})))
        yield f"| {platform.title} | `hermes-sessions[{platform.extra}]` | {variables} | {platform.summary} |"


def _format_flags() -> Iterator[str]:
    yield from ("| flag | meaning |", "|---|---|")
    yield f"| `--platform P` | one of {', '.join(f'`{name}`' for name in PLATFORMS)} |"
    for flag, (metavar, help_text) in list_flags().items():
        yield f"| `--{flag.replace('_', '-')} {metavar}` | {help_text} |"


def format_default(value: object) -> str:
    """Return a default value as the text of a table cell; empty if there is none."""
    if value is None or value in ((), frozenset()) or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def main(arguments: list[str]) -> int:
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (fresh := update_page(text)) != text:
            stale.append(page.name)
            if "--check" not in arguments:
                page.write_text(fresh, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"not up to date: {', '.join(stale)}; run `python -m tools.settings_tables`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
