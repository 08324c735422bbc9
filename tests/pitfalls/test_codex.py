"""Wire and streaming, row 10: what Codex expects of a Responses stream, and its first try over a WebSocket."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
import websockets

from tests.pitfalls.playing import fetch, plays, read, soon, streams
from tests.wire.answers import CALL, CUSTOM, PROVIDER, REASONING, TEXT, Answer, Part, expected, heard
from tests.wire.dialects import frames, responses

pytestmark = pytest.mark.anyio

ANSWER = Answer(
    (
        Part(REASONING, ("think",)),
        Part(CALL, ('{"command":', ' ["ls"]}'), "shell", "call_1"),
        Part(CUSTOM, ("*** Begin", " Patch"), "apply_patch", "call_2"),
        Part(PROVIDER, (), "web_search_call", "ws_1"),
        Part(PROVIDER, ('{"table":', ' "x"}'), "mcp_call", "mcp_1"),
        Part(TEXT, ("done",)),
    )
)
LAST = ("response.completed", "response.incomplete", "response.failed", "error")


def told(body: bytes) -> list[dict[str, Any]]:
    """The JSON payloads of a stream, by plain means."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


async def test_every_event_keeps_its_sequence_number(endpoint: Any, client: httpx.AsyncClient, turns: Any) -> None:
    """Row: "every Responses event carries `sequence_number`"."""
    endpoint.answer, sent = plays(responses, ANSWER, True)
    got = await fetch(client, "/v1/responses", responses.request())
    assert got.body == sent
    assert [event["sequence_number"] for event in told(got.body)] == list(range(len(told(sent))))
    assert heard(read(responses, got.body, True)).calls == expected(ANSWER).calls
    assert [turn["calls"] for turn in turns()] == [1]  # of free text no arguments are known


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("done", [True, False])
async def test_there_is_exactly_one_terminal_event_and_it_is_the_endpoints(
    endpoint: Any, client: httpx.AsyncClient, last: str, done: bool
) -> None:
    """Row: "exactly one terminal event, `[DONE]` may be missing"."""
    payloads = responses.payloads(ANSWER)[:-1]
    ending = {"type": last, "sequence_number": 99, "response": {**responses.body(ANSWER), "status": "failed"}}
    data = frames([*payloads, ending, *["[DONE]"] * done])
    endpoint.answer = streams(data)
    got = await fetch(client, "/v1/responses", responses.request())
    assert got.body == data
    assert [event["type"] for event in told(got.body) if event["type"] in LAST] == [last]
    heard(read(responses, got.body, True))  # which fails unless the turn ends exactly once


@pytest.mark.parametrize("kind", ["computer_call", "local_shell_call", "shell_call", "apply_patch_call"])
@pytest.mark.parametrize("form", ["streamed", "done only", "whole"])
async def test_calls_that_are_items_of_their_own_are_calls(
    endpoint: Any, client: httpx.AsyncClient, kind: str, form: str
) -> None:
    """Row 1, for Codex: the client carries these out, so they count as calls (of unknown arguments)."""
    item = {"type": kind, "id": "x_1", "call_id": "call_9", "status": "completed", "action": {"command": ["rm"]}}
    body = {**responses.body(Answer(())), "output": [item]}
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}}
    ended = {"type": "response.output_item.done", "output_index": 0, "item": item}
    events = [*([begun] if form == "streamed" else []), ended, {"type": "response.completed", "response": body}]
    data = json.dumps(body).encode() if form == "whole" else frames(events)
    endpoint.answer = streams(data)
    got = await fetch(client, "/v1/responses", responses.request(stream=form != "whole"))
    assert got.body == data
    assert heard(read(responses, got.body, form != "whole")).calls == {"call_9": (kind, None)}


def upgrade(path: str, more: str = "") -> bytes:
    key = base64.b64encode(b"0123456789abcdef").decode()
    return (
        f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\nopenai-beta: responses_websockets\r\n{more}\r\n"
    ).encode()


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses?x=1"])
async def test_an_upgrade_to_a_websocket_is_refused_as_http_refuses(endpoint: Any, proxy: Any, path: str) -> None:
    """Row 10: Codex tries a WebSocket first; 426 makes it go on over HTTP at once."""
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(proxy.url.replace("http", "ws") + path, additional_headers={"authorization": "x"})
    assert caught.value.response.status_code == 426
    assert endpoint.seen == []


async def test_after_the_refusal_the_connection_is_of_use_or_closed(endpoint: Any, proxy: Any) -> None:
    """Row 10: a refusal that leaves the connection hanging would cost Codex its time-out."""
    wire = await proxy.connect()
    wire.writer.write(upgrade("/v1/responses"))
    head = (await soon(wire.until(b"\r\n\r\n"))).lower()
    assert head.startswith(b"http/1.1 426")
    lengths = [int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
    if b"connection: close" in head:
        await soon(wire.rest())
        return
    if b"transfer-encoding: chunked" in head:
        await soon(wire.until(b"0\r\n\r\n"))
    else:
        await soon(wire.exactly(lengths[0] if lengths else 0))
    if not wire.gone.is_set():
        wire.writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await soon(wire.until(b"\r\n\r\n"))).startswith(b"HTTP/1.1 200") or wire.gone.is_set()


async def test_a_client_that_offers_http2_is_answered_over_http1(endpoint: Any, proxy: Any) -> None:
    """Row 6: Java's HttpClient offers h2c with its first request: an offer that we do not take, not an obstacle."""
    body = responses.request(stream=False)
    offer = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAAAAMAAAAA\r\n"
    wire = await proxy.ask("/v1/responses", body, headers=offer)
    assert b" 200 " in await soon(wire.until(b"\r\n\r\n"))
    assert endpoint.seen[0].body == body
    assert endpoint.seen[0].header(b"upgrade") == endpoint.seen[0].header(b"http2-settings") == []
