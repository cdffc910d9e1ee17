"""A local gateway whose model is a server of the test, over HTTP.

async with ServedGateway(home, model_server) as gateway:
    model_server.will(says("good morning"))
    assert await gateway.asks(ANN, "hello") == ["good morning"]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.agent.factory import StandardFactory
from hermes.conversation.agents import StandardAgentProvider
from hermes.gateway.settings import GatewaySettings
from tests.agent.openai_server import ModelServer
from tests.gateway.local_gateway import LocalGateway

CONFIG = """
model: {{default: first, base_url: "{first}", max_retries: 0, fallbacks: [{fallbacks}]}}
agent: {{auto_title: {title}, save_memory: false}}
prices: {{first: {{input: 100, output: 1000}}}}
"""


class ServedGateway(LocalGateway):
    def __init__(
        self,
        home: Path,
        server: ModelServer,
        *fallbacks: ModelServer,
        settings: GatewaySettings | None = None,
        title: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(settings, **more)
        home.mkdir(mode=0o700, exist_ok=True)
        listed = [
            f'{{model: fallback-{number}, base_url: "{fallback.base_url}"}}'
            for number, fallback in enumerate(fallbacks, 1)
        ]
        text = CONFIG.format(first=server.base_url, fallbacks=", ".join(listed), title=str(title).lower())
        (home / "config.yaml").write_text(text, encoding="utf-8")

    def agents(self) -> StandardAgentProvider:
        return StandardAgentProvider(StandardFactory())
