"""Determines from the environment whether a terminal supports links that a person can click (OSC 8)."""

from __future__ import annotations

from collections.abc import Mapping

CLICKABLE_PROGRAMS = frozenset(
    {"ghostty", "hyper", "iterm.app", "mintty", "rio", "tabby", "vscode", "warpterminal", "wezterm", "zed"}
)
"""Terminals that support OSC 8, by their `TERM_PROGRAM`."""
CLICKABLE_TERMS = ("alacritty", "contour", "foot", "xterm-ghostty", "xterm-kitty", "wezterm")
CLICKABLE_VARIABLES = ("DOMTERM", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "WT_SESSION")
VTE_WITH_LINKS = 5000


def can_click(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to support links (OSC 8). The variable `FORCE_HYPERLINK` overrides
    the result.

    tmux and screen pass links on only if they are configured to do so. They therefore count as terminals
    without links.
    """
    if forced := environment.get("FORCE_HYPERLINK"):
        return forced != "0"
    term, program = environment.get("TERM", "").lower(), environment.get("TERM_PROGRAM", "").lower()
    if environment.get("TMUX") or environment.get("STY") or term.startswith(("tmux", "screen")):
        return False
    vte = environment.get("VTE_VERSION", "")
    return (
        program in CLICKABLE_PROGRAMS
        or term.startswith(CLICKABLE_TERMS)
        or any(map(environment.get, CLICKABLE_VARIABLES))
        or (vte.isdecimal() and int(vte) >= VTE_WITH_LINKS)
    )
