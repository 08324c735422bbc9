"""Each API in turn, and the scripted endpoint and real proxy of `tests/proxy` for what goes over sockets."""

from __future__ import annotations

import pytest

from tests.proxy.conftest import anyio_backend, client, endpoint, proxy, start_proxy
from tests.wire.dialects import ALL, Dialect

__all__ = ["anyio_backend", "client", "endpoint", "proxy", "start_proxy"]


@pytest.fixture(params=ALL)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return ALL[request.param]
