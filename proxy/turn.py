"""One turn, from request to outcome, top to bottom."""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass

import msgspec

from agentspec.config import Settings
from agentspec.errors import RequestError
from agentspec.protocols import Headers, Upstream, UpstreamRequest
from agentspec.proxy.asgi import OURS, Receive, Scope, Send, end_to_end, header, read_body
from agentspec.proxy.bets import TurnBets
from agentspec.proxy.desk import Desk
from agentspec.proxy.live import Live
from agentspec.proxy.relay import Ended, answer
from agentspec.proxy.runtimes import UNSEEN, RuntimeLink, Runtimes
from agentspec.proxy.trajectories import Placement, Relayed, TrajectoryIndex
from agentspec.proxy.trajectories import Turn as IndexedTurn
from agentspec.trajectory import answered_ids
from agentspec.wire.chat import ChatRequest, parse_request

log = logging.getLogger("agentspec.turn")

_TENANT_SECRET = secrets.token_bytes(16)
_OWN_WAY = frozenset({b"host", b"content-length", b"accept-encoding", b"expect"})


@dataclass(slots=True)
class Deps:
    """What a turn needs; made once in `wiring`."""

    settings: Settings
    upstream: Upstream
    runtimes: Runtimes
    index: TrajectoryIndex
    desk: Desk


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came in, and as it goes on; `runtime` is the id in its path, if any."""

    headers: Headers
    body: bytes
    onward: UpstreamRequest
    runtime: str | None


async def serve_turn(scope: Scope, receive: Receive, send: Send, deps: Deps, runtime: str | None) -> None:
    """A chat completion's whole life.

    Raises:
        RequestError: the request cannot be read; the caller answers.
        ClientGone: the client left before its request was complete.
    """
    headers: Headers = scope["headers"]
    body = await read_body(receive, deps.settings.max_body_bytes)
    incoming = Incoming(headers, body, upstream_request(scope, headers, body, deps.settings), runtime)
    speculation = _open(incoming, deps)
    if speculation is None:
        hold_reads(deps, runtime or header(headers, b"x-agentspec-runtime"))
    ended = Ended(whole=False, note="failed")
    try:
        ended = await answer(deps.upstream, incoming.onward, receive, send, speculation.bets if speculation else None)
    finally:
        if speculation is not None:
            speculation.finish(client_left=not ended.whole and not ended.note, note=ended.note)


@dataclass(frozen=True, slots=True)
class _Speculation:
    """A turn as its speculators see it, and its bets."""

    live: Live
    entry: IndexedTurn
    bets: TurnBets

    def finish(self, *, client_left: bool, note: str) -> None:
        """The answer is over: settle, and keep in the index no more of it than its calls."""
        self.bets.finish(client_left=client_left, note=note)
        self.entry.answer = Relayed(self.live.calls, self.live.answered)


def _open(incoming: Incoming, deps: Deps) -> _Speculation | None:
    """Find the trajectory and start the speculators. A fault means a plain relay."""
    if (header(incoming.headers, b"content-encoding") or "identity").lower() != "identity":
        return None  # compressed: the endpoint may read it, we do not
    try:
        return _begin(incoming, parse_request(incoming.body), deps)
    except RequestError:
        raise
    except (msgspec.ValidationError, RecursionError):
        return None  # JSON, but no chat request: the endpoint says so in its own words
    except Exception:
        log.exception("a turn could not be placed; it is relayed without speculation")
        return None


def _begin(incoming: Incoming, chat: ChatRequest, deps: Deps) -> _Speculation:
    headers = incoming.headers
    tenant = tenant_of(headers)
    session = header(headers, b"x-agentspec-session")
    retry = (header(headers, b"x-stainless-retry-count") or "0") != "0"
    placement = deps.index.place(chat.messages, tenant=tenant, session=session, retry=retry)
    runtime = incoming.runtime or header(headers, b"x-agentspec-runtime")
    link = deps.runtimes.for_request(runtime, tenant, chat)
    _go_on(placement, chat, deps, link)
    trajectory = placement.turn.trajectory
    live = Live(
        request=chat,
        headers=incoming.onward.headers,
        path=incoming.onward.path,
        body=incoming.body,
        id=placement.turn.id,
        trajectory=trajectory,
        scope=f"{tenant}|{header(headers, b'x-agentspec-scope') or trajectory}",
        tenant=tenant,
        tools=link.may_run_ahead(chat) if link is not None and not placement.ambiguous else {},
    )
    placement.turn.answer = live
    bets = TurnBets(deps.desk, live, link, speculation=deps.settings.speculation)
    bets.start()
    return _Speculation(live, placement.turn, bets)


def _go_on(placement: Placement, chat: ChatRequest, deps: Deps, link: RuntimeLink | None) -> None:
    """The trajectory has gone on: close the windows of writes whose results are here, drop what was not claimed."""
    if link is not None:
        writing = [parent for parent in placement.parents if link.writing_in(parent.id)]
        for parent in writing[:1]:  # ambiguous parents made the same calls: each continuation closes one of them
            later = chat.messages[parent.length + 1 :]
            if later:
                link.close_windows(
                    parent.id, frozenset(answered_ids(later)) if later[0].get("role") == "tool" else None
                )
    if not placement.ambiguous:
        for parent in placement.parents:
            deps.desk.books.next_request(parent.id)
    if placement.supersedes is not None:  # its answer was lost on the way: nobody acts on it
        if link is not None:
            link.close_windows(placement.supersedes.id, None)
        deps.desk.books.next_request(placement.supersedes.id)


def hold_reads(deps: Deps, runtime: str | None) -> None:
    """A request of this runtime is relayed whose answer we do not read: it may hold calls that write."""
    link = deps.runtimes.named(runtime)
    if link is not None:
        link.open_window(secrets.token_hex(8), UNSEEN, deps.settings.write_window_s)
        deps.desk.books.write_relayed(link)


def upstream_request(scope: Scope, headers: Headers, body: bytes, settings: Settings) -> UpstreamRequest:
    """The same request for the endpoint: its path below `/v1`, the headers that travel, the endpoint's key."""
    kept = [(k, v) for k, v in end_to_end(headers) if k not in _OWN_WAY and not k.startswith(OURS)]
    kept.append((b"accept-encoding", b"identity"))
    if settings.upstream_key is not None:
        kept = [(k, v) for k, v in kept if k != b"authorization"]
        kept.append((b"authorization", b"Bearer " + settings.upstream_key.get_secret_value().encode()))
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    if raw_path.startswith(b"/r/"):
        raw_path = b"/" + raw_path.split(b"/", 3)[3]
    query: bytes = scope["query_string"]
    path = raw_path.removeprefix(b"/v1").decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
    return UpstreamRequest(scope["method"], path, kept, body)


def tenant_of(headers: Headers) -> str:
    """Whose request this is: a keyed hash of the `Authorization` header."""
    key = header(headers, b"authorization") or ""
    return hashlib.blake2b(key.encode("utf-8", "replace"), key=_TENANT_SECRET, digest_size=12).hexdigest()
