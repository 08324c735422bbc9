from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentspec.proxy.demo.shop import Latency, Shop


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop(Latency(database=0.0, carrier=0.0, handbook=0.0)) as running:
        yield running
