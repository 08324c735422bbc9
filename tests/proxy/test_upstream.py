"""The way to the endpoint: what it reads off a connection, and which connections it uses again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from agentspec.errors import UpstreamError
from agentspec.protocols import Headers, UpstreamRequest
from agentspec.proxy import upstream as upstream_module
from agentspec.proxy.upstream import HttpUpstream, _Address
from agentspec.proxy.upstream_answer import BrokenOff, ClosedUnused
from agentspec.proxy.upstream_connection import Connection

pytestmark = pytest.mark.anyio

ASKED = UpstreamRequest("POST", "/x", [(b"content-type", b"application/json")], b"{}")
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\nX-One: 1\r\ncontent-length: 11\r\n\r\nhello world",
    "chunks": b"HTTP/1.1 200 OK\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n1;x=y\r\n \r\n5 \r\nworld\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nX-One: 1\r\ntransfer-encoding: chunked\r\n\r\n"
    b"B\r\nhello world\r\n0\r\nX-Two: 2\r\n\r\n",
    "notices": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nX-One: 1\r\ncontent-length: 11\r\n\r\nhello world",
    "bare line ends": b"HTTP/1.1 200 OK\nX-One: 1\ncontent-length: 11\n\nhello world",
    "latin": b"HTTP/1.1 200 \xd6K\r\nX-One: 1\r\nx-name: Z\xfcrich\r\ncontent-length: 11\r\n\r\nhello world",
}


class Wireless(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = self.paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def fed(pieces: list[bytes], *, pours: bool, ends: bool = False) -> tuple[int, Headers, bytes, int]:
    """An answer that came in these pieces: status, headers, body, and how often its connection was free again."""
    freed: list[Connection] = []
    connection = Connection(freed.append, lambda _: None)
    connection.connection_made(Wireless())
    answer = connection.ask(b"", ASKED, 5.0)
    taken: list[bytes] = []

    def take_one(chunk: bytes) -> bool:
        taken.append(chunk)
        return len(taken) % 3 != 0

    async def take() -> None:
        await answer.head()
        if pours:
            while not await answer.pour(take_one):  # noqa: ASYNC110  (whoever it is for has paused)
                await asyncio.sleep(0)
        else:
            taken.extend([chunk async for chunk in answer.chunks()])

    taking = asyncio.ensure_future(take())
    for piece in pieces:
        await asyncio.sleep(0)
        connection.data_received(piece)
    if ends:
        connection.connection_lost(None)
    await asyncio.wait_for(taking, 5)
    await answer.close()
    return answer.status, answer.headers, b"".join(taken), len(freed)


@st.composite
def cut_up(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """These bytes in pieces, cut anywhere."""
    cuts = sorted(draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@pytest.mark.parametrize("pours", [False, True], ids=["chunks", "pour"])
@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_the_same_however_it_is_cut(kind: str, pours: bool) -> None:
    @given(cut_up(ANSWERS[kind]))
    def check(pieces: list[bytes]) -> None:
        status, headers, body, freed = asyncio.run(fed(pieces, pours=pours))
        assert (status, body, freed) == (200, b"hello world", 1)
        assert (b"x-one", b"1") in headers
        assert b"x-two" not in dict(headers), "what follows a body is no header"
        assert dict(headers).get(b"x-name", b"Z\xfcrich") == b"Z\xfcrich"

    check()


@pytest.mark.parametrize("pours", [False, True], ids=["chunks", "pour"])
def test_an_answer_of_no_told_length_ends_with_its_connection(pours: bool) -> None:
    @given(cut_up(b"HTTP/1.1 200 OK\r\nx-one: 1\r\n\r\nhello world"))
    def check(pieces: list[bytes]) -> None:
        status, _, body, freed = asyncio.run(fed(pieces, pours=pours, ends=True))
        assert (status, body, freed) == (200, b"hello world", 0)

    check()


@pytest.mark.parametrize("cut", range(1, len(ANSWERS["chunks"])))
def test_an_answer_that_is_cut_off_is_never_taken_for_a_whole_one(cut: int) -> None:
    with pytest.raises(BrokenOff):
        asyncio.run(fed([ANSWERS["chunks"][:cut]], pours=True, ends=True))


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nx: a\rset-cookie: b\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 2**15,
    ],
    ids=["two lengths", "no chunk", "another protocol", "a zero", "half a line break", "a head without end"],
)
def test_what_is_no_answer_is_told(nonsense: bytes) -> None:
    with pytest.raises(BrokenOff):
        asyncio.run(fed([nonsense[at : at + 5000] for at in range(0, len(nonsense), 5000)], pours=True))


async def test_what_a_taker_raises_is_told_to_whoever_pours() -> None:
    connection = Connection(lambda _: None, lambda _: None)
    connection.connection_made(Wireless())
    answer = connection.ask(b"", ASKED, 5.0)

    def take(chunk: bytes) -> bool:
        raise LookupError("gone")

    pouring = asyncio.ensure_future(answer.pour(take))
    await asyncio.sleep(0)
    connection.data_received(ANSWERS["length"][:-3])
    with pytest.raises(LookupError):
        await pouring
    await answer.close()
    assert connection.closing, "the endpoint is told to stop"


async def test_a_connection_that_was_closed_before_it_was_used_is_told() -> None:
    connection = Connection(lambda _: None, lambda _: None)
    connection.connection_made(Wireless())
    connection.connection_lost(None)
    answer = connection.ask(b"", ASKED, 5.0)
    with pytest.raises(ClosedUnused):
        await answer.head()
    await answer.close()


async def test_only_the_answer_that_comes_holds_its_connection_up() -> None:
    large = b"x" * 2**19
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(large) + large
    wire, connection = Wireless(), Connection(lambda _: None, lambda _: None)
    connection.connection_made(wire)
    first = connection.ask(b"", ASKED, 5.0)
    connection.data_received(whole)
    assert not wire.paused, "nobody has taken it yet, but all of it is here"
    second = connection.ask(b"", ASKED, 5.0)
    connection.data_received(whole[:-1])
    assert wire.paused
    assert b"".join([chunk async for chunk in first.chunks()]) == large
    assert wire.paused, "for the second answer"
    taking = asyncio.ensure_future(anext(second.chunks()))
    assert await taking == large[:-1]
    assert not wire.paused
    await second.close()


# On real sockets

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Endpoint:
    """Answers each request with the next of `answers`, and counts connections."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.answered, self.ended = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"content-length: 2" in head:
                    await reader.readexactly(2)
                writer.write(self.answers.pop(0))
                self.answered.set()
        self.ended.set()
        writer.close()


Way = Callable[..., Awaitable[tuple[Endpoint, HttpUpstream]]]


@pytest.fixture
async def way() -> AsyncIterator[Way]:
    """way(answers): such an endpoint, and the way to it."""
    made: list[Any] = []

    async def to(*answers: bytes, silence_limit_s: float = 5.0) -> tuple[Endpoint, HttpUpstream]:
        endpoint = Endpoint(list(answers))
        server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
        upstream = HttpUpstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", silence_limit_s)
        made.append((server, upstream))
        return endpoint, upstream

    yield to
    for server, upstream in made:
        await upstream.close()
        server.close()


async def asked(upstream: HttpUpstream, request: UpstreamRequest = ASKED) -> tuple[int, bytes]:
    response = await upstream.open(request)
    body = b"".join([chunk async for chunk in response.chunks()])
    await response.close()
    return response.status, body


async def test_a_connection_is_used_again_and_again(way: Way) -> None:
    endpoint, upstream = await way(*ANSWERS.values(), NO_CONTENT, ANSWERS["length"])
    bodies = [(await asked(upstream))[1] for _ in range(8)]
    assert (bodies, endpoint.connections) == ([b"hello world"] * 6 + [b"", b"hello world"], 1)


async def test_an_answer_without_a_body_is_not_waited_for(way: Way) -> None:
    head = UpstreamRequest("HEAD", "/x", [], b"")
    endpoint, upstream = await way(ANSWERS["length"].partition(b"hello")[0], ANSWERS["length"])
    assert await asked(upstream, head) == (200, b"")
    assert await asked(upstream) == (200, b"hello world")
    assert endpoint.connections == 2, "nobody knows whether a body follows"


@pytest.mark.parametrize("stray", [b"x", ANSWERS["length"], b"HTTP/1.1 408 Timeout\r\ncontent-length: 0\r\n\r\n"])
async def test_what_nobody_asked_for_is_no_answer_to_the_next_request(way: Way, stray: bytes) -> None:
    endpoint, upstream = await way(ANSWERS["length"] + stray, ANSWERS["chunks"])
    assert await asked(upstream) == (200, b"hello world")
    await endpoint.ended.wait()
    assert await asked(upstream) == (200, b"hello world")
    assert endpoint.connections == 2


@pytest.mark.parametrize("closing", [b"HTTP/1.1 200 OK\r\nconnection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
async def test_a_connection_that_the_endpoint_wants_closed_is_closed(way: Way, closing: bytes) -> None:
    endpoint, upstream = await way(closing + b"content-length: 2\r\n\r\n{}", ANSWERS["length"])
    assert await asked(upstream) == (200, b"{}")
    await asyncio.wait_for(endpoint.ended.wait(), 5)
    assert await asked(upstream) == (200, b"hello world")


async def test_an_answer_that_is_let_go_of_ends_its_connection(way: Way) -> None:
    endpoint, upstream = await way(ANSWERS["length"][:-3])
    response = await upstream.open(ASKED)
    await response.close()
    await asyncio.wait_for(endpoint.ended.wait(), 5)


async def test_a_request_that_is_let_go_of_ends_its_connection(way: Way) -> None:
    endpoint, upstream = await way(b"HTTP/1.1 2")
    asking = asyncio.ensure_future(upstream.open(ASKED))
    await asyncio.wait_for(endpoint.answered.wait(), 5)
    asking.cancel()
    await asyncio.wait_for(endpoint.ended.wait(), 5)


async def test_requests_that_are_cancelled_at_any_time_leave_nothing_behind() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"{}"):
                await asyncio.sleep(rng.uniform(0.0, 0.005))
                writer.write(ANSWERS["chunks"][:-9])
                await asyncio.sleep(rng.uniform(0.0, 0.005))
                writer.write(ANSWERS["chunks"][-9:])
        writer.close()

    async def hasty() -> None:
        for _ in range(40):
            asking = asyncio.ensure_future(asked(upstream))
            await asyncio.wait({asking}, timeout=rng.uniform(0.0, 0.015))
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                assert await asking == (200, b"hello world")

    rng = random.Random(7)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = HttpUpstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 5.0)
    await asyncio.gather(*(hasty() for _ in range(20)))
    await asyncio.sleep(0.1)
    assert upstream._all == set(upstream._idle)
    assert await asyncio.gather(*(asked(upstream) for _ in range(10))) == [(200, b"hello world")] * 10
    await upstream.close()
    await asyncio.sleep(0.1)
    assert not upstream._all
    server.close()


async def test_idle_connections_are_closed_after_a_while(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "_KEEP_ALIVE_S", 0.05)
    endpoint, upstream = await way(ANSWERS["length"])
    await asked(upstream)
    await asyncio.wait_for(endpoint.ended.wait(), 5)


async def test_silence_is_told_before_an_answer_and_within_one(way: Way) -> None:
    _, upstream = await way(b"", ANSWERS["length"][:-3], silence_limit_s=0.1)
    with pytest.raises(UpstreamError, match=r"did not answer within 0\.1 s"):
        await asked(upstream)
    with pytest.raises(UpstreamError, match="fell silent"):
        await asked(upstream)


async def test_an_answer_that_nobody_takes_is_left_with_the_endpoint(way: Way) -> None:
    block, blocks, sent = b"x" * 2**16, 800, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(block) * blocks))
        for _ in range(blocks):
            writer.write(block)
            await writer.drain()
            sent += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = HttpUpstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 5.0)
    response = await upstream.open(ASKED)
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.2)
    assert sent < blocks // 2
    assert sum([len(chunk) async for chunk in response.chunks()]) == len(block) * blocks
    await upstream.close()
    server.close()


async def test_the_next_address_of_a_host_is_tried(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    _, upstream = await way(ANSWERS["length"])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = closed.getsockname()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one) for one in (dead, ("127.0.0.1", upstream._address.port))]

    async def resolve(*_: Any, **__: Any) -> Any:
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    assert await asked(upstream) == (200, b"hello world")


@pytest.fixture
async def secure() -> AsyncIterator[tuple[str, trustme.CA]]:
    """An endpoint that speaks TLS, and who vouches for it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    endpoint = Endpoint([ANSWERS["chunks"]] * 3)
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, ssl=context)
    yield f"https://localhost:{server.sockets[0].getsockname()[1]}/v1", authority
    server.close()


async def test_https_is_spoken_with_whom_the_machine_trusts(
    secure: tuple[str, trustme.CA], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    url, authority = secure
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    upstream = HttpUpstream(url, 5.0)
    assert [await asked(upstream) for _ in range(3)] == [(200, b"hello world")] * 3
    await upstream.close()


async def test_https_is_not_spoken_with_anybody_else(secure: tuple[str, trustme.CA]) -> None:
    upstream = HttpUpstream(secure[0], 5.0)
    with pytest.raises(UpstreamError, match="certificate verify failed"):
        await asked(upstream)
    await upstream.close()


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://127.0.0.1:8000/v1", b"127.0.0.1:8000", b"/v1/x"),
        ("http://127.0.0.1:80", b"127.0.0.1", b"/x"),
        ("https://api.example.com:443/v1", b"api.example.com", b"/v1/x"),
        ("https://api.example.com:80/v1", b"api.example.com:80", b"/v1/x"),
        ("http://[::1]:8/v1", b"[::1]:8", b"/v1/x"),
        ("http://b\u00fccher.example/a\u00e4 b%20c", b"xn--bcher-kva.example", b"/a%C3%A4%20b%20c/x"),
    ],
)
def test_how_an_endpoint_is_addressed(url: str, authority: bytes, target: bytes) -> None:
    head = _Address.of(url).head(ASKED)
    assert head == (
        b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n"
        % (target, authority)
    )


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "DELETE"])
def test_a_request_without_a_body_tells_no_length_but_where_one_is_awaited(method: str) -> None:
    head = _Address.of("http://h").head(UpstreamRequest(method, "/x", [], b""))
    assert (b"content-length: 0" in head) == (method == "DELETE")


@pytest.mark.parametrize("odd", [b"a\r\nx: y", b"a\nx: y", b"a\rx", b"a\n"])
async def test_a_header_cannot_smuggle_another(odd: bytes) -> None:
    upstream = HttpUpstream("http://127.0.0.1:1", 5.0)
    for headers, path in (([(b"x", odd)], "/x"), ([(odd, b"x")], "/x"), ([], f"/{odd.decode()}")):
        with pytest.raises(UpstreamError, match="line break"):
            await upstream.open(UpstreamRequest("GET", path, headers, b""))
