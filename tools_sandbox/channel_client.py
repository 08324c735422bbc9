"""The runtime's end of the channel: one WebSocket, two daemon threads, reconnecting for as long as it is wanted."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect as ws_connect

from agentspec import channel
from agentspec.tools_sandbox.runtime import Runtime

log = logging.getLogger("agentspec.channel")

_SWEEP_S = 5.0
_MAX_PAUSE_S = 5.0
_CROWDED = 1024
_MAX_FRAME_BYTES = 16 * 2**20


class Socket(Protocol):
    """An open channel. Closing it ends a `recv` that waits."""

    def send(self, message: str, /) -> None:
        """Send one frame."""
        ...

    def recv(self, timeout: float | None = None) -> str | bytes:
        """The next frame.

        Raises:
            TimeoutError: none came in time.
        """
        ...

    def close(self) -> None:
        """Close it."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None: ...


Dial = Callable[[], Socket]
"""Opens a channel; raises OSError where nobody answers."""


class ChannelClient:
    """Keeps the channel between one runtime and the proxy open; a `Link` for the runtime."""

    def __init__(self, dial: Dial, identity: str, runtime: Runtime) -> None:
        self._dial = dial
        self._identity = identity
        self._runtime = runtime
        self._outbox: queue.Queue[channel.FromRuntime | None] = queue.Queue(maxsize=4096)
        self._socket: Socket | None = None
        self._welcomed = threading.Event()
        self._closing = threading.Event()
        self.upstream = ""
        self.lost_reports = 0
        runtime.attach(self)
        self._thread = threading.Thread(target=self._main, name="agentspec-channel", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._welcomed.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the proxy's welcome; False when it did not come in time."""
        return self._welcomed.wait(timeout_s)

    def send(self, message: channel.FromRuntime) -> None:
        crowded = self._outbox.qsize() > _CROWDED and isinstance(message, channel.Claimed) and message.bet is None
        if crowded:  # reports of plain calls must not crowd out questions that a claim waits for
            self.lost_reports += 1
        elif self.connected:
            self._put(message)

    def introduce(self) -> None:
        if self.connected:
            self._put(self._runtime.hello(self._identity))

    def close(self) -> None:
        """Close the channel for good."""
        self._closing.set()
        self._put(None)
        if self._socket is not None:
            self._socket.close()
        self._thread.join(timeout=2.0)

    def _put(self, message: channel.FromRuntime | None) -> None:
        try:
            self._outbox.put_nowait(message)
        except queue.Full:
            if not self.lost_reports:
                log.warning("the channel to the proxy is full: reports are lost (said once, then counted)")
            self.lost_reports += 1

    def _main(self) -> None:
        pause_s, told = 0.1, False
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                with self._dial() as socket:
                    self._serve(socket)
            except (OSError, WebSocketException, TimeoutError) as error:
                if not told and not self._closing.is_set():
                    told = True
                    log.warning("no proxy (%s): tools run plainly until it is back", error)
            except Exception:
                log.exception("the channel broke")
            self._lost()
            if time.monotonic() - began > _MAX_PAUSE_S:
                pause_s, told = 0.1, False
            self._closing.wait(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(_MAX_PAUSE_S, pause_s * 2)

    def _serve(self, socket: Socket) -> None:
        self._socket = socket
        socket.send(channel.encode(self._runtime.hello(self._identity)))
        sender = threading.Thread(target=self._send_all, args=(socket,), name="agentspec-channel-out", daemon=True)
        sender.start()
        swept_s = time.monotonic()
        try:
            while not self._closing.is_set():
                if time.monotonic() - swept_s >= _SWEEP_S:  # by the clock: a busy channel is never silent
                    self._runtime.sweep()
                    swept_s = time.monotonic()
                try:
                    frame = socket.recv(timeout=_SWEEP_S)
                except TimeoutError:
                    continue
                self._receive(frame)
        finally:
            self._put(None)
            sender.join(timeout=1.0)

    def _receive(self, frame: str | bytes) -> None:
        try:
            message = channel.decode_from_proxy(frame)
        except msgspec.DecodeError as error:
            log.warning("the proxy sent what this version does not understand: %s", error)
            return
        if isinstance(message, channel.Welcome):
            self.upstream = message.upstream
            self._welcomed.set()
        else:
            self._runtime.receive(message)

    def _send_all(self, socket: Socket) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                socket.send(channel.encode(message))
            except (OSError, WebSocketException):
                return
            except (TypeError, ValueError) as error:
                log.warning("a report to the proxy cannot be written down: %s", error)

    def _lost(self) -> None:
        self._welcomed.clear()
        self._socket = None
        while not self._outbox.empty():
            self._outbox.get_nowait()
        self._runtime.lost()


def dial_proxy(proxy_url: str, api_key: str | None) -> Dial:
    """Opens the channel to a proxy on the network."""
    parts = urlsplit(proxy_url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    url = urlunsplit((scheme, parts.netloc, channel.PATH, "", ""))
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def dial() -> Socket:
        try:
            return ws_connect(url, additional_headers=headers, max_size=_MAX_FRAME_BYTES, open_timeout=5.0, proxy=None)
        except (OSError, WebSocketException, TimeoutError) as error:
            raise ConnectionError(f"{url}: {error}") from error

    return dial
