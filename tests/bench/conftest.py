"""The benchmark's endpoint on a real socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from agentspec.proxy.bench.wire_endpoint import Beat, serve

AT_ONCE = Beat(chunks=5, interval_s=0.0)


@pytest.fixture
def endpoint_port() -> Iterator[int]:
    """The endpoint's port; it answers streams without a pause."""
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    serving = loop.create_task(serve(listener, AT_ONCE))

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(serving)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield port
    loop.call_soon_threadsafe(serving.cancel)
    thread.join(10)
    assert not thread.is_alive()
