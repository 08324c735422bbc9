"""A scripted model endpoint for all tests; for each a folder, a proxy before the endpoint, and gateways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.scripted import Endpoint
from tests.mcp.support import Stage


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    yield running
    running.stop()


@pytest.fixture
def stage(endpoint: Endpoint, tmp_path: Path) -> Iterator[Stage]:
    endpoint.reset()
    found = Stage(endpoint, tmp_path)
    yield found
    found.close()
