"""The same over real sockets: the bytes of any stream, cut anywhere, come out as they went in."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.wire.dialects import Dialect
from tests.wire.streams import answers, cut, cuts, streams

pytestmark = pytest.mark.anyio


def drawn(dialect: Dialect, streamed: bool, number: int) -> list[list[bytes]]:
    """Answers as bytes, cut anywhere."""
    found: list[list[bytes]] = []

    @given(data=st.data(), at=cuts)
    @settings(max_examples=number, deadline=None, database=None, phases=[Phase.generate])
    def collect(data: st.DataObject, at: list[int]) -> None:
        answer = data.draw(answers(dialect))
        found.append(cut(data.draw(streams(dialect, answer)) if streamed else dialect.whole(answer), at))

    collect()
    return found


@pytest.mark.parametrize("streamed", [True, False])
async def test_bytes_come_out_as_they_went_in(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool
) -> None:
    now: list[bytes] = []

    async def play(exchange: Any) -> None:
        kind = "text/event-stream" if streamed else "application/json"
        await exchange.start(200, ("content-type", kind), ("transfer-encoding", "chunked"))
        for piece in filter(None, now):
            await exchange.chunk(piece)
        await exchange.end()

    endpoint.answer = play
    body = dialect.request("hello", stream=streamed)
    for now in drawn(dialect, streamed, 30):
        async with client.stream("POST", dialect.path, content=body) as response:
            got = b"".join([part async for part in response.aiter_raw()])
        assert (response.status_code, got) == (200, b"".join(now))
        assert endpoint.seen[-1].body == body
