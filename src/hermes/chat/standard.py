"""The parts of a chat as this installation has them. The only file of the chat that knows where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.agent.model import Model, ModelError, Used
from hermes.agent.tool import Tool
from hermes.chat.parts import Parts, Wish

if TYPE_CHECKING:
    from hermes.sessiondb import SessionDB


def standard() -> Parts:
    return Parts(_make_model, _make_tools, _make_prompt, _price)


def _make_model(_db: SessionDB, _wish: Wish) -> Model:
    raise ModelError("no model is set up")


def _make_tools(_incognito: bool) -> Sequence[Tool]:
    return ()


async def _make_prompt(_cwd: Path, _tools: Sequence[Tool]) -> str:
    return "You are Hermes, a helpful agent in a terminal."


def _price(_model: str, _used: Used) -> tuple[float | None, Mapping[str, Any]]:
    return None, {}
