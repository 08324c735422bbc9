"""Conformance: nobody is reached, unless network was declared; and then over TCP and UDP alone."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import network_attacks
from tests.sandbox.attempts import ESCAPED
from tests.sandbox.support import DENIED, ISOLATED, assert_denied

NO_SOCKET = DENIED | {"EAFNOSUPPORT"}
POSTGRESQL = Path("/var/run/postgresql/.s.PGSQL.5432")
X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="this machine has one ABI")
DECLARED = pytest.mark.parametrize("network", [False, True], ids=["no network", "network declared"])


def heard(server: socket.socket) -> bytes:
    """What reached a server; b"" when nobody called."""
    server.setblocking(False)
    try:
        if server.type == socket.SOCK_DGRAM:
            return server.recv(100)
        with closing(server.accept()[0]) as connection:
            connection.settimeout(1)
            return b"called: " + connection.recv(100)
    except BlockingIOError:
        return b""


@pytest.fixture(params=["127.0.0.1", "::1"])
def tcp_server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        yield server


@pytest.fixture
def udp_server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        yield server


@pytest.fixture(params=["STREAM", "DGRAM", "SEQPACKET"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of unix socket."""
    return str(request.param)


@pytest.fixture(params=["abstract", "in the workspace", "in the home"])
def unix_server(request: pytest.FixtureRequest, place: Any, kind: str) -> Iterator[tuple[str, socket.socket]]:
    """A listening unix socket and its address, a leading @ for an abstract one."""
    folder = place.workspace if request.param == "in the workspace" else Path.home()
    name = f".agentspec-{secrets.token_hex(4)}"
    path = f"@{name}" if request.param == "abstract" else str(folder / name)
    with socket.socket(socket.AF_UNIX, getattr(socket, f"SOCK_{kind}")) as server:
        server.bind("\0" + path[1:] if path.startswith("@") else path)
        if kind != "DGRAM":
            server.listen()
        yield path, server
    Path(path).unlink(missing_ok=True)


@ISOLATED
def test_tcp_reaches_nobody(place: Any, tcp_server: socket.socket) -> None:
    host, port = tcp_server.getsockname()[:2]
    assert_denied(place.run(network_attacks.tcp, port=port, host=host).value(), NO_SOCKET)
    assert heard(tcp_server) == b""


@ISOLATED
def test_udp_reaches_nobody(place: Any, udp_server: socket.socket) -> None:
    assert_denied(place.run(network_attacks.udp, port=udp_server.getsockname()[1]).value(), NO_SOCKET)
    assert heard(udp_server) == b""


@ISOLATED
def test_nobody_can_be_listened_to(place: Any) -> None:
    assert_denied(place.run(network_attacks.serve).value(), NO_SOCKET)


@ISOLATED
def test_a_program_that_the_tool_starts_reaches_nobody(place: Any, tcp_server: socket.socket) -> None:
    port = tcp_server.getsockname()[1]
    assert place.run(network_attacks.shell_tcp, port=port, subprocesses=True).value() != ESCAPED
    assert heard(tcp_server) == b""


@ISOLATED
def test_with_network_declared_tcp_works(place: Any, tcp_server: socket.socket) -> None:
    host, port = tcp_server.getsockname()[:2]
    assert place.run(network_attacks.tcp, port=port, host=host, network=True).value() == ESCAPED
    assert heard(tcp_server) == b"called: hello"


@ISOLATED
def test_with_network_declared_udp_works(place: Any, udp_server: socket.socket) -> None:
    assert place.run(network_attacks.udp, port=udp_server.getsockname()[1], network=True).value() == ESCAPED
    assert heard(udp_server) == b"hello"


@ISOLATED
@DECLARED
def test_a_unix_socket_is_never_reached(place: Any, unix_server: Any, kind: str, network: bool) -> None:
    path, server = unix_server
    assert_denied(place.run(network_attacks.unix, path=path, kind=kind, network=network).value(), NO_SOCKET)
    assert heard(server) == b""


@ISOLATED
@DECLARED
@pytest.mark.parametrize("kind", ["DGRAM"], indirect=True)
def test_a_pair_of_sockets_is_no_way_to_a_unix_socket(place: Any, unix_server: Any, network: bool) -> None:
    path, server = unix_server
    outcome = place.run(network_attacks.unix_by_pair, path=path, network=network)
    assert heard(server) == b""
    assert outcome.value() != ESCAPED


@ISOLATED
def test_the_runs_own_socket_is_no_way_to_a_unix_socket(place: Any, unix_server: Any) -> None:
    path, server = unix_server
    outcome = place.run(network_attacks.unix_by_inheritance, path=path)
    assert heard(server) == b""
    assert ESCAPED not in outcome.value()


@ISOLATED
@DECLARED
@pytest.mark.skipif(not POSTGRESQL.exists(), reason="no PostgreSQL here")
def test_the_database_is_not_reached_by_its_socket(place: Any, network: bool) -> None:
    assert_denied(place.run(network_attacks.unix, path=str(POSTGRESQL), network=network).value(), NO_SOCKET)


@ISOLATED
@pytest.mark.parametrize("subprocesses", [False, True])
def test_no_family_of_addresses_is_open(place: Any, subprocesses: bool) -> None:
    assert place.run(network_attacks.families, subprocesses=subprocesses).value() == []


@ISOLATED
def test_with_network_declared_only_the_internet_families_are_open(place: Any) -> None:
    assert set(place.run(network_attacks.families, network=True).value()) <= {socket.AF_INET, socket.AF_INET6}


@ISOLATED
@DECLARED
def test_others_traffic_is_neither_seen_nor_forged(place: Any, network: bool) -> None:
    assert set(place.run(network_attacks.raw, network=network).value()) <= NO_SOCKET


@ISOLATED
@DECLARED
def test_there_is_no_io_uring_to_go_around_the_filter(place: Any, network: bool) -> None:
    assert_denied(place.run(network_attacks.io_uring, network=network).value())


@X86
@ISOLATED
@pytest.mark.parametrize("abi", ["x32", "i386"])
@pytest.mark.parametrize("action", ["socket", "setsid", "unshare"])
def test_another_abi_is_no_way_around_the_filter(place: Any, abi: str, action: str) -> None:
    outcome = place.run(network_attacks.other_abi, abi=abi, action=action)
    assert outcome.error is not None or outcome.result in DENIED
