"""Limits on the path of a message: the stack frames from Telegram to the sent answer, and the generators that
each text delta passes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from bench.house_figures import GENERATORS, ROOT, SPINE, measure

SOURCE = ROOT / "src"
MOST_FRAMES, MOST_GENERATORS = 20, 3


def add_frame(file: Path, name: str, call: str) -> None:
    """Insert a method into `file` that only calls an existing method. The stack becomes one frame deeper."""
    text = file.read_text()
    found = re.search(rf"    async def {name}\((?s:.*?)\) -> .*:\n", text)
    assert found is not None
    inner = found[0].replace(name, f"{name}_within", 1)
    file.write_text(
        text.replace(found[0], f"{found[0]}        {call.format(f'self.{name}_within')}\n\n{inner}")
    )


@pytest.fixture(scope="module")
def longer_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the source in which the path of a message has one frame and one generator more."""
    source = tmp_path_factory.mktemp("longer") / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    hermes = source / "hermes"
    processor = hermes / "gateway" / "inbound" / "message_processor.py"
    add_frame(processor, "_answer", "await {}(entry, content)")
    add_frame(
        hermes / "agent" / "turn.py",
        "events",
        "async for event in {}(content, **fields):\n            yield event",
    )
    return source


def test_the_way_from_telegram_to_a_posted_answer_is_short(longer_source: Path) -> None:
    frames = measure(SPINE, SOURCE)
    assert len(frames) <= MOST_FRAMES, frames
    longer = measure(SPINE, longer_source)
    assert set(longer) - set(frames) == {
        "hermes.gateway.inbound.message_processor.MessageProcessor._answer_within"
    }


def test_a_text_delta_passes_few_generators(longer_source: Path) -> None:
    generators = measure(GENERATORS, SOURCE)
    assert len(generators) <= MOST_GENERATORS, generators
    assert set(measure(GENERATORS, longer_source)) - set(generators) == {
        "hermes.agent.turn.Turn.events_within"
    }
