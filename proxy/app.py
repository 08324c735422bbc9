"""The ASGI application: who serves what.

/v1/chat/completions, /v1/responses, /v1/messages   a turn (also under /r/RUNTIME/v1)
/v1/*                                               passed through
/agentspec/channel                                  a runtime's WebSocket
/agentspec/status                                   counters, as JSON
/agentspec/feedback                                 how a session ended, for memory
/dashboard, /dashboard/*                            the dashboard (`proxy/dashboard/`)
/metrics                                            counters and times, for Prometheus
/readyz                                             whether requests are served
/, /healthz                                         alive
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from agentspec import channel
from agentspec.errors import ApiError, RequestError
from agentspec.proxy.asgi import (
    CHUNK_WRITER,
    HANGUP,
    ClientGone,
    Message,
    Receive,
    Scope,
    Send,
    Sending,
    head_of,
    read_body,
    send_error,
    send_json,
    told,
)
from agentspec.proxy.channel_server import serve_channel
from agentspec.proxy.dashboard.site import PATH as DASHBOARD
from agentspec.proxy.dashboard.site import Dashboard
from agentspec.proxy.feedback import take_feedback
from agentspec.proxy.relay import Client, answer
from agentspec.proxy.telemetry.pages import MachinePages
from agentspec.proxy.turn import Caller, Deps, serve_turn
from agentspec.wire.apis import API_OF_PATH, WireApi, api_near

log = logging.getLogger("agentspec.app")

_RUNTIME_PREFIX = "/r/"
_SWEEP_S = 5.0
_FEEDBACK_BYTES = 64 * 1024


class App:
    """The proxy as an ASGI application; `close` is awaited at shutdown."""

    def __init__(
        self,
        deps: Deps,
        close: Callable[[], Awaitable[None]],
        pages: MachinePages,
        dashboard: Dashboard | None = None,
    ) -> None:
        self._deps = deps
        self.pages = pages
        self._close = close
        self._dashboard = dashboard
        self._beside: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, Sending(send))
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime, path = _split(scope["path"])
        try:
            if self._dashboard is not None and (path == DASHBOARD or path.startswith(f"{DASHBOARD}/")):
                await self._dashboard(scope, receive, send)
            else:
                await self._route(scope, receive, send, runtime, path)
        except ApiError as error:
            await send_error(send, error, api_near(path))
        except ClientGone:
            pass

    async def _route(self, scope: Scope, receive: Receive, send: Send, runtime: str | None, path: str) -> None:
        if path in ("/healthz", "/health"):
            await self.pages.healthz(send)
            return
        if path == "/readyz":
            await self.pages.readyz(send)
            return
        head = head_of(scope["headers"])
        tenant = self._deps.doors.admit(scope["headers"], head)
        if ".." in path.split("/"):  # where the endpoint's key is ours it opens the API, not what lies beside it
            raise RequestError(f"{path} is no path of the API", code="not_found", status=404)
        if path.startswith("/v1/"):
            caller = Caller(tenant, runtime or told(head, b"x-agentspec-runtime"), head)
            api = API_OF_PATH.get(path) if scope["method"] == "POST" else None
            if api is not None:
                await serve_turn(scope, _client(scope, receive, send, api), self._deps, caller)
            else:
                await self._pass_through(scope, receive, send, path)
        elif path == "/agentspec/feedback" and scope["method"] == "POST":
            take_feedback(self._deps.desk.learner, tenant, await read_body(receive, _FEEDBACK_BYTES))
            await send_json(send, 202, {"status": "taken"})
        elif path == "/metrics" and self.pages.registry is not None:
            self._may_read_metrics(tenant)
            await self.pages.metrics(send, scope["headers"])
        elif path == "/agentspec/status":
            await send_json(send, 200, self._status())
        elif path in ("/", "") and scope["method"] in ("GET", "HEAD"):  # clients ask whether anybody is there
            await send_json(send, 200, {"status": "ok", "api": "/v1"})
        else:
            raise RequestError(
                f"there is no {path}; the API is under /v1 (set base_url to http://HOST:PORT/v1)",
                code="not_found",
                status=404,
            )

    async def _pass_through(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        body = await read_body(receive, self._deps.settings.max_body_bytes)
        endpoints = self._deps.endpoints
        endpoint = endpoints.for_body(body, path)
        onward = endpoints.onward(endpoint, scope, body)
        await answer(endpoint.upstream, onward, _client(scope, receive, send, api_near(path)))

    def _may_read_metrics(self, tenant: str) -> None:
        name = self._deps.settings.metrics_tenant
        if self._deps.settings.keys and tenant != f"key:{name}":
            message = f"metrics tell of all tenants: make a key for them (`agentspec keys new {name}`)"
            raise RequestError(message, code="forbidden", status=403)

    def _status(self) -> dict[str, object]:
        desk = self._deps.desk
        books, memory = desk.books, {} if desk.learner is None else {"memory": desk.learner.counts()}
        calibration = desk.judge.calibration
        gate = {
            **desk.judge.brakes.counts(),
            "calibration_error": {name: calibration.error(name) for name in calibration.predictors()},
        }
        counts = {"outcomes": books.counts, "faults": books.faults, "runtimes": len(self._deps.runtimes)}
        drafts = {} if desk.drafts is None else {"drafts": desk.drafts.as_dict()}
        return {**counts, "gate": gate, **drafts, **memory}

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == channel.PATH:
            await serve_channel(scope, receive, send, self._deps)
            return
        await receive()
        await _use_http(scope, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def hang_up(self) -> None:
        """The server ends: so do the answers that would go on for ever."""
        if self._dashboard is not None:
            self._dashboard.hang_up()

    async def start(self) -> None:
        """Begin what goes on beside the requests."""
        self._beside = [asyncio.create_task(self._sweep())]
        self.pages.ready = True
        if (learner := self._deps.desk.learner) is not None:
            self._beside.append(asyncio.create_task(learner.run()))
        if self._deps.engine_load is not None:
            self._beside.append(asyncio.create_task(self._deps.engine_load.run()))

    async def stop(self) -> None:
        """End it, and let go of endpoints, memory and ledger."""
        self.pages.ready = False
        for task in self._beside:
            task.cancel()
        for link in self._deps.runtimes.all():
            self._deps.desk.books.link_lost(link)
        if self._dashboard is not None:
            self._dashboard.close()
        await self._close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            with contextlib.suppress(Exception):
                self._deps.desk.books.expire()
                self._deps.desk.chains.expire(self._deps.settings.bet_limit_s)


async def _use_http(scope: Scope, send: Send) -> None:
    """Refuse a WebSocket (the Responses API has one) with the status that makes clients fall back to HTTP."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 4404, "reason": "use HTTP"})
        return
    message = "this proxy speaks HTTP with server-sent events, no WebSocket"
    error = RequestError(message, code="websocket_not_supported", status=426)

    async def refuse(part: Message) -> None:
        await send({**part, "type": f"websocket.{part['type']}"})

    await send_error(refuse, error, api_near(scope["path"]))


def _client(scope: Scope, receive: Receive, send: Send, api: WireApi) -> Client:
    extensions = scope.get("extensions") or {}
    return Client(receive, send, api, extensions.get(HANGUP), extensions.get(CHUNK_WRITER))


def _split(path: str) -> tuple[str | None, str]:
    """The runtime id in a path `/r/ID/v1/…`, if any, and the rest of the path."""
    if not path.startswith(_RUNTIME_PREFIX):
        return None, path
    runtime, _, rest = path.removeprefix(_RUNTIME_PREFIX).partition("/")
    return runtime, f"/{rest}"
