"""The dashboard as an ASGI application: pages, assets and a JSON API under /dashboard, for Starlette.

/dashboard/assets/*          the front end's files
/dashboard/api/*             data (`pages.py`), for whoever may see it
/dashboard, /dashboard/*     the page; which one is shown is the front end's business
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from agentspec.errors import ApiError, ConfigError, RequestError
from agentspec.proxy.asgi import Message, Receive, Scope, Send, send_json
from agentspec.proxy.dashboard.entrance import Entrance, Viewer
from agentspec.proxy.dashboard.pages import Pages

log = logging.getLogger("agentspec.dashboard")

PATH = "/dashboard"
ASSETS = Path(__file__).with_name("assets")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Dashboard:
    """Serves everything under /dashboard."""

    def __init__(self, entrance: Entrance, pages: Pages) -> None:
        self._entrance, self._pages = entrance, pages
        routes = [Route(f"{PATH}/api/{name}", self._data(answer)) for name, answer in pages.answers().items()]
        self._app = Starlette(
            routes=[
                *routes,
                Route(f"{PATH}/api/live", self._live),
                Route(f"{PATH}/api/memory/forget", self._forget, methods=["POST"]),
                Route(f"{PATH}/api/{{rest:path}}", _no_such_data),
                Mount(f"{PATH}/assets", StaticFiles(directory=ASSETS)),
                Route(PATH, _page),
                Route(f"{PATH}/{{page:path}}", _page),
            ],
            exception_handlers={
                ApiError: _refused,
                ConfigError: self._database_away,
                SQLAlchemyError: self._database_away,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS, *_freshness(message)]}
            await send(message)

        try:
            self._entrance.check(scope)
        except RequestError as error:
            await send_json(sent, error.status, error.body())
            return
        await self._app(scope, receive, sent)

    def hang_up(self) -> None:
        """End the live lists: a server that ends waits for the answers that are on their way."""
        self._pages.source.written.over = True
        self._pages.source.written.ring()

    def close(self) -> None:
        """Let go of the database."""
        self._pages.source.close()

    def _data(self, answer: Callable[[Request, Viewer], object]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:  # not async: Starlette asks it in a thread
            return as_json(answer(request, self._entrance.viewer(request.scope)))

        return endpoint

    async def _live(self, request: Request) -> Response:
        return self._pages.live(request, self._entrance.viewer(request.scope))

    async def _forget(self, request: Request) -> Response:
        viewer = self._entrance.viewer(request.scope)
        self._entrance.check_change(request.scope)
        return as_json(await self._pages.forget(request, viewer))

    def _database_away(self, _request: Request, error: Exception) -> Response:
        """What the database says of itself is for the operator."""
        first = str(error).splitlines()[0]
        log.warning("the dashboard cannot read: %s", first)
        why = "" if self._entrance.keyed else f": {first.rstrip('.')}"
        message = f"The database does not answer{why}. Turns are served all the same."
        return as_json({"error": {"message": message, "code": "database_away"}}, 503)


_ENCODER = msgspec.json.Encoder(decimal_format="number")  # PostgreSQL sums whole numbers up to decimals


def as_json(body: object, status: int = 200) -> Response:
    """An answer that no cache keeps."""
    return Response(_ENCODER.encode(body), status, media_type="application/json")


def _freshness(message: Message) -> list[tuple[bytes, bytes]]:
    """Files are asked for again each time (their ETag spares the bytes); data is kept by nobody."""
    names = {name for name, _ in message.get("headers", ())}
    return [(b"cache-control", b"no-cache" if b"etag" in names else b"no-store")]


def _page(_request: Request) -> Response:
    return FileResponse(ASSETS / "index.html", media_type="text/html; charset=utf-8")


def _no_such_data(request: Request) -> Response:
    raise RequestError(f"there is no {request.url.path}", code="not_found", status=404)


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return as_json(error.body(), error.status)
