"""The model endpoints behind the proxy: which of them a request goes to, under which path, with which key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
from pydantic import SecretStr

from agentspec.config import Engine, Settings
from agentspec.errors import RequestError
from agentspec.protocols import Headers, Upstream, UpstreamRequest
from agentspec.proxy.asgi import OURS, Scope, end_to_end
from agentspec.proxy.upstream import HttpUpstream
from agentspec.wire.apis import MESSAGES

_OWN_WAY = frozenset({b"host", b"content-length", b"accept-encoding", b"expect"})
_KEYS = frozenset({b"authorization", b"x-api-key"})


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """One endpoint: what kind it is, which models it serves, how it is reached.

    Attributes:
        models: patterns of their names, as of file names.
        key: the headers that hold our key for it; empty where the agent's own goes through.
    """

    url: str
    engine: Engine
    models: tuple[str, ...]
    key: tuple[tuple[bytes, bytes], ...]
    upstream: Upstream

    def serves(self, model: str) -> bool:
        """Whether this model is one of its own."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class Endpoints:
    """All endpoints, in the order in which they are asked whether a model is theirs; the default comes last."""

    def __init__(self, endpoints: Sequence[Endpoint], *, keys_are_ours: bool) -> None:
        self._all = list(endpoints)
        self._only = self._all[0] if len(self._all) == 1 and self._all[0].models == ("*",) else None
        self._keys_are_ours = keys_are_ours

    def all(self) -> Sequence[Endpoint]:
        """All of them."""
        return self._all

    @property
    def direct_url(self) -> str:
        """Where an agent can go without us, with its own key; "" where it cannot."""
        first, *others = self._all
        return "" if self._keys_are_ours or others or first.key else first.url

    def for_model(self, model: str, path: str) -> Endpoint:
        """The endpoint that serves a model; without a name the one that speaks the path's API.

        Raises:
            RequestError: no endpoint serves it (`model_not_found`).
        """
        if self._only is not None:
            return self._only
        if model:
            found = next((endpoint for endpoint in self._all if endpoint.serves(model)), None)
            if found is None:
                message = f"no endpoint is set for the model {model!r}: add its name to one of the [[upstreams]]"
                raise RequestError(message, code="model_not_found", status=404)
            return found
        anthropic = path.startswith(MESSAGES.path)
        fitting = [one for one in self._all if (one.engine is Engine.ANTHROPIC) is anthropic]
        return (fitting or self._all)[-1]

    def for_body(self, body: bytes, path: str) -> Endpoint:
        """The endpoint for a request that is passed through unread.

        Raises:
            RequestError: no endpoint serves its model (`model_not_found`).
        """
        return self.for_model("" if self._only is not None else _model_in(body), path)

    def onward(self, endpoint: Endpoint, scope: Scope, body: bytes) -> UpstreamRequest:
        """The same request for the endpoint: its path below `/v1`, the headers that travel, the endpoint's key."""
        headers: Headers = scope["headers"]
        drop = _KEYS if endpoint.key or self._keys_are_ours else frozenset[bytes]()
        kept = [
            (name, value)
            for name, value in end_to_end(headers)
            if name not in _OWN_WAY and name not in drop and not name.startswith(OURS)
        ]
        kept.append((b"accept-encoding", b"identity"))
        kept.extend(endpoint.key)
        return UpstreamRequest(scope["method"], onward_path(scope), kept, body)

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._all:
            await endpoint.upstream.close()


def endpoints_of(settings: Settings) -> Endpoints:
    """The endpoints that the settings name."""
    found = [_endpoint(one.url, one.kind, one.models, _plain(one.secret), settings) for one in settings.upstreams]
    if settings.upstream:
        key = _plain(settings.upstream_key)
        found.append(_endpoint(settings.upstream, settings.engine, ("*",), key, settings))
    return Endpoints(found, keys_are_ours=bool(settings.keys))


def _plain(key: SecretStr | None) -> str:
    return key.get_secret_value() if key is not None else ""


def _endpoint(url: str, engine: Engine, models: tuple[str, ...], key: str, settings: Settings) -> Endpoint:
    upstream = HttpUpstream(url, settings.upstream_timeout_s)
    return Endpoint(url, engine, models, _key_headers(engine, key), upstream)


def _key_headers(engine: Engine, key: str) -> tuple[tuple[bytes, bytes], ...]:
    if not key:
        return ()
    if engine is Engine.ANTHROPIC:
        return ((b"x-api-key", key.encode()),)
    return ((b"authorization", b"Bearer " + key.encode()),)


def onward_path(scope: Scope) -> str:
    """A request's path below the `/v1`, as it was written, with its query."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    if raw_path.startswith(b"/r/"):
        raw_path = b"/" + raw_path.split(b"/", 3)[3]
    query: bytes = scope["query_string"]
    return raw_path.removeprefix(b"/v1").decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")


class _Named(msgspec.Struct):
    model: str = ""


_named = msgspec.json.Decoder(_Named)


def _model_in(body: bytes) -> str:
    try:
        return _named.decode(body).model
    except (msgspec.DecodeError, RecursionError):
        return ""
