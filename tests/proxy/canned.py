"""An endpoint without a socket."""

from __future__ import annotations

from typing import Any


class Canned:
    """An endpoint that answers from memory; implements `Upstream` and its response."""

    status = 200
    headers = ((b"content-type", b"text/event-stream"), (b"keep-alive", b"x"))

    def __init__(self) -> None:
        self.closed = 0

    async def open(self, request: Any) -> Canned:
        return self

    async def chunks(self) -> Any:
        yield b"a"
        yield b"b"

    async def close(self) -> None:
        self.closed += 1
