"""The channel without a network: both ends of its WebSocket are in this process."""

from __future__ import annotations

import asyncio
import queue

from agentspec import channel
from agentspec.proxy.app import App
from agentspec.proxy.asgi import Message


class EngineSocket:
    """The runtime's end of the channel: a WebSocket to the application that never leaves the process."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in: asyncio.Queue[Message] = asyncio.Queue()
        self._out: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._in.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": channel.PATH, "headers": [(b"host", b"localhost")], "subprotocols": []}
        self._served = asyncio.run_coroutine_threadsafe(app(scope, self._in.get, self._send), loop)
        self._served.add_done_callback(lambda _: self._out.put(None))

    async def _send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            self._out.put(message["text"])
        elif message["type"] == "websocket.close":
            self._out.put(None)

    def send(self, message: str) -> None:
        """Send one frame."""
        self._hand_over({"type": "websocket.receive", "text": message})

    def _hand_over(self, message: Message) -> None:
        try:
            self._loop.call_soon_threadsafe(self._in.put_nowait, message)
        except RuntimeError as error:
            raise ConnectionError("the engine has stopped") from error

    def recv(self, timeout: float | None = None) -> str:
        """The next frame.

        Raises:
            TimeoutError: none came in time.
            ConnectionError: the channel is closed.
        """
        try:
            frame = self._out.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        if frame is None:
            raise ConnectionError("the engine has stopped")
        return frame

    def close(self) -> None:
        """Close it."""
        self._out.put(None)
        try:
            self._hand_over({"type": "websocket.disconnect", "code": 1000})
        except ConnectionError:
            return

    def __enter__(self) -> EngineSocket:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
