"""The HTTP front: routes, error shapes, and a watch that ends a request the moment its client leaves."""

from __future__ import annotations

import json
import socket
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentspec import __version__
from agentspec.errors import ApiError, ConfigError, RequestError
from agentspec.verifier.config import VerifierConfig, require_extra
from agentspec.verifier.server.fields import mapping, text, texts

if TYPE_CHECKING:
    from agentspec.verifier.server.runs import Run
    from agentspec.verifier.server.service import Service

_HEADERS = {"session": "x-agentspec-session", "request_id": "x-request-id"}

__all__ = ["VerifierConfig", "create_app", "serve"]


def serve(config: VerifierConfig) -> None:
    """Load the model and answer until interrupted.

    Raises:
        ConfigError: the extra is missing, the model cannot be found or run, or a setting is wrong.
    """
    require_extra()
    with _bound(config.host, config.port) as listener:  # before the model: a taken port is said at once
        import_module("transformers.utils.logging").disable_progress_bar()
        service: Service = import_module("agentspec.verifier.server.service").Service(config, _tell)
        try:
            _tell(f"{service.name}: http://{config.host}:{listener.getsockname()[1]}/v1")
            settings = uvicorn.Config(create_app(service), log_level=config.log_level, access_log=False)
            uvicorn.Server(settings).run(sockets=[listener])
        finally:
            service.close()


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}): choose another --host or --port") from error
    return listener


def _tell(line: str) -> None:
    print(f"verifier: {line}", file=sys.stderr, flush=True)


def create_app(service: Service) -> Starlette:
    """The ASGI app over a loaded service."""
    front = _Front(service)
    routes = [
        Route("/v1/chat/completions", front.chat, methods=["POST"]),
        Route("/v1/completions", front.complete, methods=["POST"]),
        Route("/v1/responses", front.respond, methods=["POST"]),
        Route("/v1/models", front.models),
        Route("/v1/models/{name:path}", front.model),
        Route("/v1/drafts", front.drafts, methods=["POST"]),
        Route("/v1/cancel", front.cancel, methods=["POST"]),
        Route("/metrics", front.metrics),
        Route("/health", front.health),
    ]
    return Starlette(routes=routes, exception_handlers={ApiError: _error, 404: _unknown_path, 405: _unknown_path})


class _Front:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._started = int(time.time())

    async def chat(self, request: Request) -> Response:
        return _Answer(self._service, self._service.chat(await _job(request)))

    async def respond(self, request: Request) -> Response:
        return _Answer(self._service, self._service.respond(await _job(request)))

    async def complete(self, request: Request) -> Response:
        return _Answer(self._service, self._service.complete(await _job(request)))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._service.check_model(request.path_params["name"])
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        model = {"id": self._service.name, "object": "model", "created": self._started, "owned_by": "agentspec"}
        return {**model, "max_model_len": self._service.max_context}

    async def drafts(self, request: Request) -> Response:
        body = await _body(request)
        return JSONResponse({"requests": self._service.offer(_name(body), texts(body, "drafts"))})

    async def cancel(self, request: Request) -> Response:
        return JSONResponse({"cancelled": self._service.in_flight.cancel(_name(await _body(request)))})

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.page(), media_type="text/plain; version=0.0.4")

    async def health(self, request: Request) -> Response:
        told = {"status": "ok", "version": __version__, "active": self._service.engine.running}
        return JSONResponse(told)


class _Answer(Response):
    """Sends a run's chunks or body; the client's leaving cancels the run, before the first token as well as later."""

    def __init__(self, service: Service, run: Run) -> None:
        super().__init__()
        self._service = service
        self._run = run
        self._runs = import_module("agentspec.verifier.server.runs")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, receive, tasks.cancel_scope)
                await (self._stream if self._run.options.stream else self._whole)(send)
                tasks.cancel_scope.cancel()
        finally:
            self._service.left(self._run)

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _whole(self, send: Send) -> None:
        try:
            body, status = await self._runs.whole(self._run), 200
        except ApiError as error:
            body, status = error.body(), error.status
        await _send_body(send, status, body)

    async def _stream(self, send: Send) -> None:
        chunks, started = self._runs.stream(self._run), False
        try:
            async for chunk in chunks:
                if not started:  # only now: what fails before has a status of its own
                    await _send_head(send, 200, b"text/event-stream; charset=utf-8")
                    started = True
                await self._send(send, chunk)
        except ApiError as error:
            if not started:
                await _send_body(send, error.status, error.body())
                return
            for chunk in self._run.shape.failed(error):
                await self._send(send, chunk)
        if not self._run.shape.named_events:
            await _send_event(send, b"data: [DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send, chunk: dict[str, Any]) -> None:
        name = f"event: {chunk['type']}\n".encode() if self._run.shape.named_events else b""
        await _send_event(send, name + b"data: " + _json(chunk))


async def _send_head(send: Send, status: int, kind: bytes) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_body(send: Send, status: int, body: Any) -> None:
    await _send_head(send, status, b"application/json")
    await send({"type": "http.response.body", "body": _json(body)})


async def _send_event(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data + b"\n\n", "more_body": True})


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}", code="invalid_json") from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    return body


async def _job(request: Request) -> dict[str, Any]:
    """A request's body, with what its headers say and the body does not."""
    body = await _body(request)
    own = mapping(body, "agentspec")
    told = {key: request.headers.get(name) for key, name in _HEADERS.items()}
    return {**body, "agentspec": {**{key: value for key, value in told.items() if value}, **own}}


def _name(body: dict[str, Any]) -> str:
    name = text(body, "request_id")
    if name is None:
        raise RequestError("`request_id` must name a running request: its own, or its answer's `id`")
    return name


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), status_code=error.status)


async def _unknown_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    wrong = RequestError(f"no {request.method} {request.url.path} here", code="unknown_path", status=status)
    return JSONResponse(wrong.body(), status_code=status)
