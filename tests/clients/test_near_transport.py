"""The way to a proxy nearby: what goes out and what comes back is as with the library's own transport."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.tools_sandbox.http_libraries import transport_class
from agentspec.tools_sandbox.transport import Route, SyncWay

LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

PACKED = gzip.compress(b"hello", mtime=0)


class Server:
    """Answers each request with the bytes that it is told to; keeps what it was sent."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.connections = 0
        self.left = threading.Event()
        self.answer: Callable[[socket.socket], bool] = lambda peer: True
        """Given the connection after a request; whether it is kept."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            while request := read_request(peer):
                self.got.append(request)
                if not self.answer(peer):
                    return
            self.left.set()

    def says(self, *pieces: bytes, kept: bool = True) -> None:
        def answer(peer: socket.socket) -> bool:
            for piece in pieces:
                peer.sendall(piece)
            return kept

        self.answer = answer

    def close(self) -> None:
        self._listener.close()


def read_request(peer: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := receive(peer)):
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", 0)):
        body += receive(peer)
    while b"transfer-encoding" in fields and not body.endswith(b"0\r\n\r\n"):
        body += receive(peer)
    return head + b"\r\n\r\n" + body


def receive(peer: socket.socket) -> bytes:
    try:
        return peer.recv(2**16)
    except OSError:
        return b""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def near(library: ModuleType, server: Server, **options: Any) -> Any:
    route = Route(f"{server.url}/v1", "")
    return library.Client(
        transport=transport_class(SyncWay, library)(lambda: route), base_url=f"{server.url}/v1", **options
    )


def own(library: ModuleType, server: Server, **options: Any) -> Any:
    return library.Client(trust_env=False, base_url=f"{server.url}/v1", **options)


def told(response: Any) -> tuple[Any, ...]:
    return response.status_code, response.reason_phrase, response.headers.raw, response.content


def chunks(body: bytes, cuts: list[int]) -> bytes:
    marks = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    pieces = [body[a:b] for a, b in pairwise(marks) if b > a]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@contextmanager
def both(library: ModuleType, server: Server) -> Iterator[tuple[Any, Any]]:
    with near(library, server) as mine, own(library, server) as theirs:
        yield mine, theirs


@settings(max_examples=40, deadline=None)
@given(body=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=6), sent=st.lists(st.integers(1, 600)))
def test_a_body_in_chunks_is_the_same_however_it_is_cut(body: bytes, cuts: list[int], sent: list[int]) -> None:
    server = Server()
    whole = CHUNKED + chunks(body, cuts)
    marks = sorted({0, len(whole), *(cut % len(whole) for cut in sent)})
    server.says(*(whole[a:b] for a, b in pairwise(marks)))
    with both(httpx, server) as (mine, theirs):
        assert told(mine.post("/x", content=b"q")) == told(theirs.post("/x", content=b"q"))
    server.close()


@LIBRARIES
@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n", b"hello"),
        (
            b"HTTP/1.1 200 OK\r\nX-Two: a\r\nX-Two: b\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\ncontent-length: 0\r\n",
            b"",
        ),
        (b"HTTP/1.1 200 OK\r\nX-Latin: caf\xe9\r\ncontent-length: 2\r\n", b"{}"),
        (b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 2\r\n", b"{}"),
        (b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n", b"until the end" * 9_000),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n" % len(PACKED), PACKED),
    ],
)
def test_answers_are_told_as_the_library_tells_them(
    library: ModuleType, server: Server, head: bytes, body: bytes
) -> None:
    server.says(head + b"\r\n" + body, kept=False)
    with both(library, server) as (mine, theirs):
        assert told(mine.get("/x")) == told(theirs.get("/x"))


@LIBRARIES
@pytest.mark.parametrize(
    "request_of",
    [
        lambda client: client.get("/models", params={"a": "b c"}),
        lambda client: client.post("/chat/completions", json={"model": "m"}, headers={"X-Two": b"caf\xe9"}),
        lambda client: client.post("/chat/completions", content=b""),
        lambda client: client.post("/files", content=iter([b"a", b"bc"])),
        lambda client: client.post("/files", files={"file": ("name", b"x" * 100_000)}),
        lambda client: client.delete("/files/1", headers=[("x-two", "a"), ("x-two", "b")]),
        lambda client: client.get("/a%2fb/%C3%A9"),
    ],
    ids=["get", "post", "nothing", "generated", "file", "delete", "escaped"],
)
def test_requests_go_out_as_the_library_sends_them(library: ModuleType, server: Server, request_of: Any) -> None:
    server.says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    with both(library, server) as (mine, theirs):
        request_of(mine)
        request_of(theirs)
    first, second = (one.replace(boundary(one), b"B") for one in server.got)
    assert [line.lower() for line in first.split(b"\r\n")] == [line.lower() for line in second.split(b"\r\n")]


def boundary(request: bytes) -> bytes:
    _, mark, rest = request.partition(b"boundary=")
    return rest.split(b"\r\n")[0] if mark else b"no such thing"


def reset(peer: socket.socket) -> bool:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def reset_in_the_body(peer: socket.socket) -> bool:
    peer.sendall(CHUNKED + b"3\r\nabc\r\n")
    threading.Event().wait(0.2)
    return reset(peer)


def silent(peer: socket.socket) -> bool:
    threading.Event().wait(2.0)
    return False


def saying(*pieces: bytes) -> Callable[[socket.socket], bool]:
    def answer(peer: socket.socket) -> bool:
        for piece in pieces:
            peer.sendall(piece)
        return False

    return answer


@LIBRARIES
@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (lambda peer: False, {"RemoteProtocolError"}),
        (reset, {"ReadError", "RemoteProtocolError"}),
        (reset_in_the_body, {"ReadError", "RemoteProtocolError"}),
        (silent, {"ReadTimeout"}),
        (saying(CHUNKED + b"3\r\nabc\r\n"), {"RemoteProtocolError"}),
        (saying(CHUNKED + b"9\r\nabc"), {"RemoteProtocolError"}),
        (saying(CHUNKED + b"zz\r\nabc"), {"RemoteProtocolError"}),
        (saying(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), {"RemoteProtocolError"}),
        (saying(b"nothing like HTTP\r\n\r\n"), {"RemoteProtocolError"}),
    ],
    ids=["closed", "reset", "reset in the body", "silent", "no end", "cut", "no size", "short", "no HTTP"],
)
def test_faults_are_the_librarys_own(library: ModuleType, server: Server, answer: Any, kinds: set[str]) -> None:
    server.answer = answer
    for made in (near, own):
        with made(library, server, timeout=0.5) as client, pytest.raises(library.TransportError) as failed:
            client.post("/x", content=b"q")
        assert type(failed.value).__name__ in kinds, made
        assert failed.value.request.url.path == "/v1/x"


@LIBRARIES
def test_where_nobody_listens_the_connection_fails(library: ModuleType) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        transport = transport_class(SyncWay, library)(lambda: Route(base, ""))
        with library.Client(transport=transport, base_url=base) as client, pytest.raises(library.ConnectError):
            client.get("/x")


@LIBRARIES
def test_a_piece_is_there_before_the_next_is_sent(library: ModuleType, server: Server) -> None:
    go_on = threading.Event()

    def answer(peer: socket.socket) -> bool:
        peer.sendall(CHUNKED + b"2\r\nab\r\n")
        assert go_on.wait(5)
        peer.sendall(b"1\r\nc\r\n0\r\n\r\n")
        return True

    server.answer = answer
    with near(library, server) as client, client.stream("POST", "/x", content=b"q") as response:
        pieces = response.iter_raw()
        assert next(pieces) == b"ab"
        go_on.set()
        assert list(pieces) == [b"c"]


@LIBRARIES
def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_no_fault(
    library: ModuleType, server: Server
) -> None:
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    server.says(whole)
    with near(library, server) as client:
        assert [client.post("/x", content=b"q").status_code for _ in range(3)] == [200] * 3
        assert server.connections == 1
        server.says(whole, kept=False)
        client.post("/x", content=b"q")
        threading.Event().wait(0.1)
        assert client.post("/x", content=b"q").status_code == 200
    assert server.connections == 2


@LIBRARIES
def test_who_leaves_early_lets_go_of_the_connection(library: ModuleType, server: Server) -> None:
    server.says(CHUNKED + b"2\r\nab\r\n")
    with near(library, server) as client:
        with client.stream("POST", "/x", content=b"q") as response:
            assert next(response.iter_raw()) == b"ab"
        assert server.left.wait(5)


DONE = b"data: 1\n\ndata: [DONE]\n\n"


def until_done(client: Any) -> None:
    """Read as SDKs do: up to the last event, which is not the end."""
    with client.stream("POST", "/x", content=b"q") as response:
        got = b""
        for piece in response.iter_raw():
            got += piece
            if got.endswith(b"[DONE]\n\n"):
                break


@LIBRARIES
def test_who_stops_at_the_last_event_uses_the_connection_again(library: ModuleType, server: Server) -> None:
    server.says(CHUNKED + b"%x\r\n%b\r\n" % (len(DONE), DONE), b"0\r\n\r\n")
    with near(library, server) as client:
        for _ in range(4):
            until_done(client)
            threading.Event().wait(0.05)
    assert server.connections == 1


@LIBRARIES
@pytest.mark.parametrize(
    "after", [b"", b"3\r\nabc\r\n0\r\n\r\n", b"rubbish", None], ids=["nothing", "more", "rubbish", "cut"]
)
def test_an_answer_that_does_not_end_after_its_last_event_delays_nobody(
    library: ModuleType, server: Server, after: bytes | None
) -> None:
    def answer(peer: socket.socket) -> bool:
        peer.sendall(CHUNKED + b"%x\r\n%b\r\n" % (len(DONE), DONE) + (after or b""))
        return after is not None

    server.answer = answer
    with near(library, server, timeout=5.0) as client:
        for _ in range(3):
            until_done(client)
            threading.Event().wait(0.05)
        assert server.connections == 3
        server.says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        began_s = time.monotonic()
        assert client.post("/x", content=b"q").content == b"{}"
        assert time.monotonic() - began_s < 2.0
