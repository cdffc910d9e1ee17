"""Another program's hands, as the tests of the interface have them."""

from __future__ import annotations

from tests.interface.conftest import outside

__all__ = ["outside"]
