"""One turn, from request to outcome, top to bottom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agentspec.config import MemoryScope, Settings
from agentspec.effects import ToolSpec
from agentspec.errors import RequestError
from agentspec.gating.holdout import held_out
from agentspec.ids import new_id
from agentspec.protocols import Drafting, Headers, UpstreamRequest
from agentspec.proxy.asgi import Head, Scope, read_body, told
from agentspec.proxy.bets import TurnBets
from agentspec.proxy.chains import Carried
from agentspec.proxy.desk import Desk
from agentspec.proxy.doors import Doors
from agentspec.proxy.endpoints import Endpoint, Endpoints
from agentspec.proxy.engine_load import EngineLoad
from agentspec.proxy.live import Live
from agentspec.proxy.origin import Origin
from agentspec.proxy.relay import Client, Ended, answer
from agentspec.proxy.runtimes import UNSEEN, RuntimeLink, Runtimes
from agentspec.proxy.trajectories import Placement, Relayed, TrajectoryIndex, answer_name
from agentspec.proxy.trajectories import Turn as IndexedTurn
from agentspec.trajectory import ASSISTANT, SYSTEM, TOOL, answered_ids
from agentspec.wire.apis import WireApi
from agentspec.wire.request import TurnRequest

log = logging.getLogger("agentspec.turn")


@dataclass(slots=True)
class Deps:
    """What a turn needs; made once in `wiring`."""

    settings: Settings
    doors: Doors
    endpoints: Endpoints
    runtimes: Runtimes
    index: TrajectoryIndex
    desk: Desk
    salt: bytes
    """What decides, with a trajectory's id, whether it is held out."""
    engine_load: EngineLoad | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the tenant, the id of the runtime in the path or the headers, if any, and what else the headers say."""

    tenant: str
    runtime: str | None
    head: Head


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came in, and as it goes on."""

    api: WireApi
    caller: Caller
    body: bytes
    request: TurnRequest | None
    """None where it could not be read: compressed, or JSON of another shape."""
    endpoint: Endpoint
    onward: UpstreamRequest
    drafting: Drafting | None


async def serve_turn(scope: Scope, client: Client, deps: Deps, caller: Caller) -> None:
    """A turn's whole life.

    Raises:
        RequestError: the request cannot be read, or no endpoint serves its model; the caller answers.
        ClientGone: the client left before its request was complete.
    """
    body = await read_body(client.receive, deps.settings.max_body_bytes)
    incoming = _read(scope, body, deps, caller, client.api)
    speculation = _Speculation(incoming, deps)
    asyncio.get_running_loop().call_soon(speculation.open)  # when the request is on its way: it waits for nothing
    ended = Ended(whole=False, note="failed")
    try:
        ended = await answer(incoming.endpoint.upstream, incoming.onward, client, speculation)
    finally:
        speculation.finish(client_left=not ended.whole and not ended.note, note=ended.note)


def _read(scope: Scope, body: bytes, deps: Deps, caller: Caller, api: WireApi) -> Incoming:
    """Read the request and choose its endpoint."""
    request = _understood(api, caller.head, body)
    endpoints = deps.endpoints
    endpoint = endpoints.for_body(body, api.path) if request is None else endpoints.for_model(request.model, api.path)
    onward, drafting, drafts = endpoints.onward(endpoint, scope, body), None, deps.desk.drafts
    if drafts is not None and request is not None:
        onward, drafting = drafts.name(endpoint.upstream, api, caller.head, onward)
    return Incoming(api, caller, body, request, endpoint, onward, drafting)


def _understood(api: WireApi, head: Head, body: bytes) -> TurnRequest | None:
    """The request, None where it cannot be read: the endpoint may be able to, or says so in its own words."""
    if (told(head, b"content-encoding") or "identity").lower() != "identity":
        return None
    try:
        return api.read_request(body)
    except RequestError:
        raise
    except (msgspec.ValidationError, RecursionError):
        return None
    except Exception:
        log.exception("a request could not be read; it is relayed without speculation")
        return None


class _Speculation:
    """What goes on beside one turn. Implements the relay's `Observer`; a fault means a plain relay."""

    def __init__(self, incoming: Incoming, deps: Deps) -> None:
        self._incoming = incoming
        self._deps = deps
        self._opened = False
        self._begun: _Begun | None = None

    def open(self) -> None:
        """Find the trajectory and start the speculators, once."""
        if self._opened:
            return
        self._opened = True
        if self._incoming.request is not None:
            try:
                self._begun = _begin(self._incoming, self._incoming.request, self._deps)
            except Exception:
                log.exception("a turn could not be placed; it is relayed without speculation")
        if self._begun is None:
            hold_reads(self._deps, self._incoming.caller.runtime)

    def opened(self, status: int, headers: Headers) -> None:
        self.open()
        if self._begun is not None:
            self._begun.bets.opened(status, headers)

    def relayed(self, chunk: bytes) -> None:
        if self._begun is not None:
            self._begun.bets.relayed(chunk)

    def finish(self, *, client_left: bool, note: str) -> None:
        """The answer is over: settle, and keep in the index no more of it than its calls."""
        self.open()
        if self._begun is not None:
            live = self._begun.live
            self._begun.bets.finish(client_left=client_left, note=note)
            self._begun.entry.answer = Relayed(live.calls, live.answered, live.items, live.unseen)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn as its speculators see it, its place in the index, and its bets."""

    live: Live
    entry: IndexedTurn
    bets: TurnBets


def _begin(incoming: Incoming, request: TurnRequest, deps: Deps) -> _Begun:
    head, tenant = incoming.caller.head, incoming.caller.tenant
    deps.desk.rounds.catch_up()  # it may go on from an answer of which something is unread
    session = told(head, b"x-agentspec-session")
    retry = (told(head, b"x-stainless-retry-count") or "0") != "0"
    placement = deps.index.place(request, tenant=tenant, session=session, retry=retry)
    entry = placement.turn
    link = deps.runtimes.for_request(incoming.caller.runtime, tenant, placement.tools)
    if link is not None:
        link.learn_names(placement.tools)
    carried = _go_on(placement, deps, link, tenant)
    live = Live(
        request=request,
        history=placement.history,
        api=incoming.api,
        engine=incoming.endpoint.engine,
        upstream=incoming.endpoint.upstream,
        headers=incoming.onward.headers,
        path=incoming.onward.path,
        body=incoming.body,
        id=entry.id,
        trajectory=entry.trajectory,
        scope=_memory_scope(head, deps.settings.memory_scope) or entry.trajectory,
        tenant=tenant,
        tools=_may_run_ahead(placement, deps, link, tenant),
        offered=placement.tools,
        ambiguous=placement.ambiguous,
        held_out=held_out(entry.trajectory, deps.salt, deps.settings.holdout_share),
        origin=Origin(session, incoming.endpoint.url, told(head, b"traceparent"), told(head, b"tracestate")),
        new=placement.new,
        name_answer=lambda identity: deps.index.name(entry, tenant, answer_name(identity)),
        drafting=incoming.drafting,
    )
    entry.answer = live
    bets = TurnBets(deps.desk, live, link, speculation=deps.settings.speculation)
    bets.take_over(carried)
    bets.start()
    return _Begun(live, entry, bets)


def _memory_scope(head: Head, kind: MemoryScope) -> str:
    """Within what values are recalled; "" for the trajectory alone."""
    if kind is MemoryScope.TENANT:
        return "tenant"
    told_bytes = head.get(b"x-agentspec-scope", b"").strip()
    try:
        return told_bytes.decode()
    except UnicodeDecodeError:
        return told_bytes.decode("latin-1")


def _may_run_ahead(placement: Placement, deps: Deps, link: RuntimeLink | None, tenant: str) -> Mapping[str, ToolSpec]:
    if link is None or placement.ambiguous or not deps.runtimes.runs_ahead_for(link, tenant):
        return {}
    return link.may_run_ahead(placement.tools)


def _go_on(placement: Placement, deps: Deps, link: RuntimeLink | None, tenant: str) -> Carried:
    """The trajectory has gone on: close the windows of writes whose results are here, drop what was not claimed."""
    carried = Carried()
    if link is not None:
        writing = [parent for parent in placement.parents if link.writing_in(parent.id)]
        since = next((said.role for said in placement.new if said.role not in (ASSISTANT, SYSTEM)), None)
        for parent in writing[:1]:  # ambiguous parents made the same calls: each continuation closes one of them
            if since is not None:
                link.close_windows(parent.id, frozenset(answered_ids(placement.new)) if since == TOOL else None)
            link.hand_windows_on(parent.id, placement.turn.id)
    if not placement.ambiguous:
        told = bool(placement.new) and placement.new[-1].role == TOOL
        for parent in placement.parents:
            carried = deps.desk.chains.go_on(parent.id, with_results=told)
    for turn in placement.dropped:  # its answer was lost on the way: nobody acts on it
        if isinstance(turn.answer, Live):
            turn.answer.dropped = True
        if deps.desk.learner is not None:
            deps.desk.learner.take_back(tenant, turn.trajectory, turn.id)
        if link is not None:
            link.close_windows(turn.id, None)
        deps.desk.chains.go_on(turn.id, with_results=False)
    return carried


def hold_reads(deps: Deps, runtime: str | None) -> None:
    """A request of this runtime is relayed whose answer we do not read: it may hold calls that write."""
    link = deps.runtimes.named(runtime)
    if link is not None:
        link.open_window(new_id(), UNSEEN, deps.settings.write_window_s)
        deps.desk.books.write_relayed(link)
