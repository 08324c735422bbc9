"""How a server is reached: started and spoken to over its pipes, or over HTTP."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from agentspec.proxy.mcp.servers import EntryInFile

_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


@contextlib.asynccontextmanager
async def dialed(entry: EntryInFile) -> AsyncIterator[Any]:
    """The two streams to a server; what it writes to its standard error goes to ours.

    Raises:
        ConnectionError: its command cannot be started.
    """
    async with contextlib.AsyncExitStack() as stack:
        if entry.command is not None:
            yield await _started(stack, entry)
        elif entry.type == "sse":
            yield await stack.enter_async_context(sse_client(entry.url or "", headers=dict(entry.headers)))
        else:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=entry.headers, timeout=_TIMEOUT))
            yield await stack.enter_async_context(streamable_http_client(entry.url or "", http_client=http))


async def _started(stack: contextlib.AsyncExitStack, entry: EntryInFile) -> Any:
    command = StdioServerParameters(command=entry.command or "", args=entry.args, env=entry.env or None, cwd=entry.cwd)
    try:
        return await stack.enter_async_context(stdio_client(command, errlog=sys.stderr))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConnectionError(f"{entry.command}: {why}") from error


class BackOff:
    """When a server may be started again: the first time at once, then after longer and longer pauses."""

    def __init__(self) -> None:
        self._faults = 0
        self._until_s = 0.0

    @property
    def left_s(self) -> float:
        """Seconds until it may."""
        return max(0.0, self._until_s - time.monotonic())

    def well(self) -> None:
        """It has served a request."""
        self._faults = 0

    def fault(self) -> None:
        """It has gone, or did not start."""
        self._faults += 1
        pause_s = 0.0 if self._faults == 1 else min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (self._faults - 2))
        self._until_s = time.monotonic() + pause_s
