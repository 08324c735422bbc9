"""Wire and streaming, row 11: the endpoint gets the request that the client wrote, to the byte."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.pitfalls.playing import fetch, soon
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio

SAYING = {"chat": '"messages":[{"role":"user","content":%s}]', "responses": '"input":[{"role":"user","content":%s}]'}
SAYING["messages"] = '"max_tokens":9,' + SAYING["chat"]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}, "name": name}
    for name in ("zebra", "ant", "Zebra", "ant")
]

ODD_JSON = {
    "duplicate keys": '{"model":"m",%s,"temperature":0,"temperature":1,"model":"m"}',
    "big integers": '{"model":"m",%s,"seed":123456789012345678901234567890,"x":-9223372036854775809}',
    "floats": '{"model":"m",%s,"temperature":1.0,"top_p":1e0,"x":0.10000000000000000555,"y":-0.0,"z":1E+2}',
    "a float out of range": '{"model":"m",%s,"x":1e999}',
    "key order": '{"z":1,%s,"stream":false,"a":2,"model":"m"}',
    "white space": ' \r\n\t{ "model" : "m" ,\n %s , "x" : [ ] }\r\n ',
    "escapes": '{"model":"m",%s,"x":"\\u00e9\\/\\b\\uD83D\\uDE00"}',
    "NaN": '{"model":"m",%s,"x":NaN,"y":-Infinity}',
    "half an emoji": '{"model":"m",%s,"x":"cut \\ud83d"}',
    "nulls": '{"model":"m",%s,"tools":null,"stream":null,"stop":null,"metadata":{}}',
    "NUL": '{"model":"m",%s,"x":"\\u0000"}',
}


@pytest.mark.parametrize("case", ODD_JSON)
@pytest.mark.parametrize("inside", [False, True], ids=["in the request", "in what is said"])
async def test_json_arrives_as_it_was_written(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, case: str, inside: bool
) -> None:
    """Row: "reordering or editing `tools` breaks the provider's prompt cache": no JSON is written anew."""
    saying = SAYING[dialect.api.name]
    text = ODD_JSON[case] % (saying % '"hi"')
    if inside:
        odd = ODD_JSON[case].replace("%s", '"q":1')
        part = '[{"type":"text","text":"hi","x":' + odd + "}]"
        text = '{"model":"m",' + saying % part + "}"
    body = text.encode()
    got = await fetch(client, dialect.path, body)
    assert (got.status, got.body) == (200, b"{}")
    assert endpoint.seen[0].body == body
    assert endpoint.seen[0].header(b"content-length") == [str(len(body)).encode()]


@pytest.mark.parametrize(
    "raw",
    [b"caf\xe9", b"\xff\xfe", b"\xed\xa0\xbd", b"\xc3\xa9\xe2\x80\xa8"],
    ids=["latin-1", "rubbish", "cesu", "utf-8"],
)
async def test_bytes_that_are_no_utf8_arrive_as_they_are(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, raw: bytes
) -> None:
    """Row 11: what the text means is between the client and the endpoint."""
    body = b'{"model":"m",' + (SAYING[dialect.api.name] % '"@"').encode().replace(b"@", raw) + b"}"
    got = await fetch(client, dialect.path, body)
    assert (got.status, endpoint.seen[0].body) == (200, body)


@pytest.mark.parametrize("tools", [TOOLS, TOOLS[::-1], [], None, [{"type": "odd"}], [5, None, "x"], {"a": 1}])
async def test_tools_arrive_in_their_order_and_unedited(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, tools: Any
) -> None:
    """Row: "reordering or editing `tools`"."""
    for number in range(2):  # the second time it is a conversation that we know
        body = dialect.request("hello", str(number), tools=tools, tool_choice={"type": "auto", "x": 1})
        assert (await fetch(client, dialect.path, body)).status == 200
        assert endpoint.seen[number].body == body


async def test_the_same_request_twice_is_the_same_request_twice(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect
) -> None:
    """Row: prompt cache: nothing that changes from turn to turn is put into the body or the headers."""
    body = dialect.request("hello", tools=TOOLS, metadata={"b": 1, "a": 2})
    for _ in range(3):
        await fetch(client, dialect.path, body, x_agentspec_session="s", authorization="Bearer k")
    first, *others = [(seen.path, seen.headers, seen.body) for seen in endpoint.seen]
    assert others == [first, first]


@pytest.mark.parametrize("size", [2**16, 2**20, 20 * 2**20])
async def test_a_large_request_arrives_whole(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, size: int
) -> None:
    """Row 11: also where it comes in many pieces (images, long histories)."""
    body = dialect.request("x" * (size // 2), "é" * (size // 4))
    await fetch(client, dialect.path, body)
    assert endpoint.seen[0].body == body


@pytest.mark.parametrize("sizes", [[1], [7, 1], [4096]])
async def test_a_request_in_chunks_arrives_whole_and_with_its_length(
    endpoint: Any, proxy: Any, dialect: Dialect, sizes: list[int]
) -> None:
    """Row 11: node's fetch sends streams in chunks; some endpoints refuse bodies without a length."""
    body = dialect.request("Zürich")
    wire = await proxy.ask(dialect.path, headers="transfer-encoding: chunked\r\ncontent-type: application/json\r\n")
    at, turn = 0, 0
    while at < len(body):
        part = body[at : at + sizes[turn % len(sizes)]]
        wire.writer.write(b"%x;ext=1\r\n%s\r\n" % (len(part), part))
        at, turn = at + len(part), turn + 1
    wire.writer.write(b"0\r\nx-trailer: 1\r\n\r\n")
    assert b" 200 " in await soon(wire.until(b"\r\n\r\n"))
    seen = endpoint.seen[0]
    assert (seen.body, seen.header(b"content-length")) == (body, [str(len(body)).encode()])
    assert seen.header(b"transfer-encoding") == seen.header(b"x-trailer") == []


@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain;charset=UTF-8", "application/json; charset=utf-8", ""]
)
async def test_the_content_type_arrives_as_it_was_written(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, kind: str
) -> None:
    """Row 11: nothing is added to it, and where there is none, there is none."""
    await fetch(client, dialect.path, dialect.request(), **({"content_type": kind} if kind else {}))
    assert endpoint.seen[0].header(b"content-type") == ([kind.encode()] if kind else [])


async def test_what_an_endpoint_answers_to_json_of_another_shape_is_passed_on(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect
) -> None:
    """Row 4: we judge no request that is JSON."""
    shapes = [{}, [], 5, None, "x", {"model": 1}, {"model": "m"}, {"messages": [1], "input": [1]}, {"input": {"a": 1}}]
    shapes += [{"model": "m", "messages": [{"role": 5, "content": [None]}], "input": [{"type": 5}, None, "x"]}]
    for number, shape in enumerate(shapes):
        body = json.dumps(shape).encode()
        assert (await fetch(client, dialect.path, body)).status == 200
        assert endpoint.seen[number].body == body
