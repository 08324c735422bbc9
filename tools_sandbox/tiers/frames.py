"""What goes between a tier, its zygote and the zygote's children."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import msgspec


class Prepare(msgspec.Struct, tag="prepare", frozen=True):
    """To the zygote: import these functions (module, qualified name, seal of the code)."""

    tools: list[tuple[str, str, str]]
    path: list[str]


class Spawn(msgspec.Struct, tag="spawn", frozen=True):
    """To the zygote: fork a child for this plan."""

    id: int
    plan: Plan


class Kill(msgspec.Struct, tag="kill", frozen=True):
    """To the zygote: end this child and all that came of it."""

    id: int


class Prepared(msgspec.Struct, tag="prepared", frozen=True):
    """From the zygote: by function (`module:qualname`) why it cannot run here; empty where all can.

    `grew`: the function whose import started threads. Such a zygote is of no use any more.
    """

    refused: dict[str, str]
    grew: str = ""


class Spawned(msgspec.Struct, tag="spawned", frozen=True):
    """From the zygote, with the child's socket: it lives."""

    id: int
    pid: int


class Gone(msgspec.Struct, tag="gone", frozen=True):
    """From the zygote: the child and all its processes have ended. `reason` is empty for an ordinary end."""

    id: int
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """What a child is for. `kind`: `process`, `overlay`, `commit` or `compare`."""

    kind: str
    network: bool = False
    subprocesses: bool = False
    memory_bytes: int = 0
    landlock: int = 0
    workspace: str = ""
    room: str = ""
    """The folder of an overlay's run: its layers, its snapshot, its journal."""
    warm_for: str = ""
    """`module:qualname` of the tool that keeps this child for its next calls; empty: it ends after one."""
    read_only: bool = False
    """Declared to change nothing: a run that did is refused."""


class Job(msgspec.Struct, frozen=True):
    """To a child: the call."""

    tool: str
    """`module:qualname`"""
    arguments: dict[str, Any]
    form: str
    timeout_s: float
    cwd: str | None = None
    """None: the zygote's."""
    env: dict[str, str] | None = None
    """None: the zygote's."""


ToZygote = Prepare | Spawn | Kill
FromZygote = Prepared | Spawned | Gone

_encoder = msgspec.msgpack.Encoder()
to_zygote: msgspec.msgpack.Decoder[ToZygote] = msgspec.msgpack.Decoder(ToZygote)
from_zygote: msgspec.msgpack.Decoder[FromZygote] = msgspec.msgpack.Decoder(FromZygote)
job_decoder: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job)

READY, RESULT, ERROR, REFUSED = b"R", b"V", b"E", b"X"
"""What a child says: it is shut in and waits; a result; an exception; why this run counts for nothing (text)."""

_PIECE_BYTES = 2**15
_HEAD = struct.Struct("<cQ")
MAX_BYTES = 256 * 2**20
"""Largest result that a sandbox may give back."""


def encode(message: msgspec.Struct) -> bytes:
    """A message as bytes."""
    return _encoder.encode(message)


def send(sock: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    """Send one frame.

    Raises:
        OSError: the other end is gone, or took too long.
    """
    if len(payload) < 2**16:
        sock.sendall(_HEAD.pack(kind, len(payload)) + payload)
    else:
        sock.sendall(_HEAD.pack(kind, len(payload)))
        sock.sendall(payload)


def receive(sock: socket.socket, limit_s: float | None = None) -> tuple[bytes, bytes]:
    """Receive one frame, all of it within `limit_s` seconds.

    Raises:
        EOFError: the other end is gone.
        TimeoutError: it took too long.
        ValueError: the frame is larger than `MAX_BYTES`.
    """
    deadline_s = None if limit_s is None else time.monotonic() + limit_s
    data = bytearray(_some(sock, deadline_s))
    while len(data) < _HEAD.size:
        data += _some(sock, deadline_s)
    kind, length = _HEAD.unpack_from(data)
    if length > MAX_BYTES:
        raise ValueError(f"a result of {length} bytes is more than the {MAX_BYTES} that may leave a sandbox")
    while len(data) < _HEAD.size + length:
        data += _some(sock, deadline_s)
    if len(data) > _HEAD.size + length:
        raise ValueError("more was said than one frame: nobody asked for it")
    return kind, bytes(memoryview(data)[_HEAD.size :])


def _some(sock: socket.socket, deadline_s: float | None) -> bytes:
    """What is there. A frame that comes in a trickle takes no longer than one that comes at once."""
    if deadline_s is not None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("a frame took too long")
        sock.settimeout(left_s)
    piece = sock.recv(_PIECE_BYTES)
    if not piece:
        raise EOFError("the other end is gone")
    return piece
