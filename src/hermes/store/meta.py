"""The table `state_meta`: named values about the store itself."""

from __future__ import annotations

from hermes.store.arguments import check_optional_id, require_text
from hermes.store.engine import Engine

GET = "SELECT value FROM state_meta WHERE key = ?"
SET = (
    "INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class Meta:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, key: str) -> str | None:
        with self._engine.read() as reader:
            return reader.value(GET, key)  # type: ignore[no-any-return]

    def set(self, key: str, value: str | None) -> None:
        name, text = require_text("key", key), check_optional_id("value", value)
        self._engine.write(lambda writer: writer.run(SET, name, text))
