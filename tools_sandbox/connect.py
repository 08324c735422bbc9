"""`agentspec.connect(url)`: make this process a runtime, so that its tools can run ahead.

runtime = agentspec.connect("http://127.0.0.1:8787")
client = OpenAI(base_url=runtime.base_url, http_client=runtime.http_client())
"""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from agentspec.errors import ConfigError
from agentspec.tools_sandbox.channel_client import ChannelClient, Dial, dial_proxy
from agentspec.tools_sandbox.declare import declared
from agentspec.tools_sandbox.http_libraries import http_library, transport_class
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.shared import SharedDomains
from agentspec.tools_sandbox.tiers.registry import Tiers
from agentspec.tools_sandbox.tool import snapshot
from agentspec.tools_sandbox.transport import AsyncWay, Route, SyncWay

REDIS_VARIABLE = "AGENTSPEC_REDIS"
RUNTIME_HEADER = "x-agentspec-runtime"

_LIVE: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """This process as a runtime of a proxy. Made by `connect`.

    After a fork the child is a runtime of its own: it gets a new id, and a new channel as soon as `base_url`,
    `headers` or a client of this object is used there. Do not carry a base URL over a fork.
    """

    def __init__(  # noqa: PLR0913  (made by `connect`)
        self,
        proxy_url: str,
        endpoint: str | None = None,
        tools: Iterable[Callable[..., Any]] | None = None,
        api_key: str | None = None,
        redis: str | None = None,
        tell_results: bool = False,
    ) -> None:
        self._proxy_url = proxy_url
        self._api_key = api_key
        self._endpoint = endpoint
        chosen = None if tools is None else [declared(tool) for tool in tools]
        shared_at = redis or os.environ.get(REDIS_VARIABLE)
        shared = SharedDomains(shared_at, api_key or "") if shared_at else None
        self._runtime = Runtime(Tiers(), chosen, shared)
        self._runtime.tells_results = tell_results
        self._channel: ChannelClient | None = None
        self._closed = False
        self._open()
        _LIVE.add(self)

    def _open(self) -> ChannelClient:
        self._id = secrets.token_urlsafe(24)
        self._channel = ChannelClient(self._dial(), self._id, self._runtime)
        return self._channel

    def _dial(self) -> Dial:
        return dial_proxy(self._proxy_url, self._api_key)

    def _ensure(self) -> ChannelClient:
        return self._channel if self._channel is not None or self._closed else self._open()  # type: ignore[return-value]

    @property
    def base_url(self) -> str:
        """The base URL for the agent's client; it names this runtime, so treat it like a password."""
        self._ensure()
        return f"{self._proxy_url}/r/{self._id}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """The same for clients that add the `/v1` themselves, as Anthropic's do."""
        return self.base_url.removesuffix("/v1")

    @property
    def headers(self) -> dict[str, str]:
        """The same as a header, for frameworks that take only those; the base URL is then the proxy's own `/v1`."""
        self._ensure()
        return {RUNTIME_HEADER: self._id}

    @property
    def connected(self) -> bool:
        """Whether the proxy is there right now."""
        return self._channel is not None and self._channel.connected

    def wait(self, timeout_s: float = 5.0) -> bool:
        """Wait until the proxy has welcomed this runtime; False when it did not in time."""
        return self._ensure().wait(timeout_s)

    def http_client(self, library: str | None = None, **options: Any) -> Any:
        """An HTTP client for an SDK that goes straight to the endpoint when the proxy is gone.

        Args:
            library: `httpx` or `httpx2`; by default the one that the installed SDKs (openai, anthropic) ask for.
            options: as for the library's `Client`.
        """
        http = http_library(library)
        return http.Client(transport=self._transport(http), timeout=options.pop("timeout", 600.0), **options)

    def async_http_client(self, library: str | None = None, **options: Any) -> Any:
        """The same for asyncio."""
        http = http_library(library)
        return http.AsyncClient(transport=self._async_transport(http), timeout=options.pop("timeout", 600.0), **options)

    def _transport(self, http: ModuleType) -> Any:
        return transport_class(SyncWay, http)(self._route)

    def _async_transport(self, http: ModuleType) -> Any:
        return transport_class(AsyncWay, http)(self._route)

    def _route(self) -> Route:
        channel = self._ensure()
        return Route(proxy=f"{self._proxy_url}/r/{self._id}/v1", endpoint=self._endpoint or channel.upstream)

    def close(self) -> None:
        """Leave: the tools run plainly from now on."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()
        for tool in self._runtime.tools().values():
            tool.released_by(self._runtime)
        self._runtime.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _after_fork(self) -> None:
        self._inherited = self._channel  # kept, so that nothing of the parent's is closed or finalised here
        self._channel = None
        self._runtime.forget_everything()


def connect(  # noqa: PLR0913  (each is a setting, all but one by keyword)
    url: str = "http://127.0.0.1:8787",
    *,
    endpoint: str | None = None,
    tools: Iterable[Callable[..., Any]] | None = None,
    api_key: str | None = None,
    redis: str | None = None,
    tell_results: bool = False,
    wait_s: float = 2.0,
) -> Connection:
    """Make this process a runtime of the proxy at `url`. Never fails because the proxy is away: it is retried.

    Args:
        url: the proxy's address, without a path.
        endpoint: base URL of the model endpoint, with its `/v1`, for when the proxy is gone; by default the one
            that the proxy names.
        tools: decorated functions to offer; by default all that are declared in this process, now or later.
        api_key: the key that the agent's requests carry (default: `OPENAI_API_KEY`). Requests that do not name
            this runtime find it only under the same key.
        redis: `redis://HOST:PORT/DB` (default: `AGENTSPEC_REDIS`), where several processes of one tenant run tools on
            the same state: a write in one of them makes reads stale in all. Without it each process is on its own.
        tell_results: whether the proxy gets a copy of what a run ahead of a `pure` or `read` tool gave (at most
            64 KiB), to predict on it what comes next. Without it results stay here until the agent tells them.
        wait_s: seconds to wait for the proxy before going on without it.

    Raises:
        ConfigError: `url` is no http(s) URL, or a tool in `tools` is not declared.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"connect: {url!r} is no URL; write for example http://127.0.0.1:8787")
    key = api_key or os.environ.get("OPENAI_API_KEY")
    connection = Connection(f"{parts.scheme}://{parts.netloc}", endpoint, tools, key, redis, tell_results)
    connection.wait(wait_s)
    return connection


def _after_fork_in_child() -> None:
    for connection in snapshot(_LIVE):
        connection._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
