"""The ways a client can go: straight to the endpoint, through the proxy, as a runtime of it, or embedded."""

from __future__ import annotations

import difflib
import pprint
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import anthropic
import httpx
import openai
import pytest

import agentspec
from tests.clients.script import Turn
from tests.clients.upstream import Asked, Upstream

NAMES = ("proxy", "runtime", *(["embedded"] if hasattr(agentspec, "embedded") else []))
"""All ways that are not the straight one."""

_TIMEOUT_S = 20.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Way:
    """Where clients connect, and through which HTTP client; `runtime` is what `connect()` or `embedded()` gave."""

    name: str
    root: str
    runtime: Any = None

    @property
    def v1(self) -> str:
        """The base URL of the OpenAI APIs."""
        return f"{self.root}/v1"

    def openai(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.v1, **self._common(options, self.client()))

    def openai_async(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=self.v1, **self._common(options, self.async_client()))

    def anthropic(self, **options: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.root, **self._common(options))

    def anthropic_async(self, **options: Any) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(base_url=self.root, **self._common(options))

    def client(self) -> httpx.Client | None:
        """The runtime's HTTP client; None: the SDK's own will do."""
        return None if self.runtime is None else self.runtime.http_client()

    def async_client(self) -> httpx.AsyncClient | None:
        return None if self.runtime is None else self.runtime.async_http_client()

    def _common(self, options: dict[str, Any], client: Any = None) -> dict[str, Any]:
        return {"api_key": "k-1", "max_retries": 0, "timeout": _TIMEOUT_S, "http_client": client} | options


@dataclass(frozen=True, slots=True)
class Both:
    """Runs a client twice, straight and by another way, and insists that there is no difference."""

    upstream: Upstream
    straight: Way
    other: Way

    def same(self, run: Callable[[Way], T], *turns: Turn, cut: int | None = None) -> T:
        """What the client gives its user, which is the same both ways, as is what the endpoint was asked."""
        expected, asked_straight = self._once(run, self.straight, turns, cut)
        given, asked = self._once(run, self.other, turns, cut)
        _insist(given, expected, "what the client gives its user")
        _insist(asked, asked_straight, "what the endpoint was asked")
        return given

    def _once(self, run: Callable[[Way], T], way: Way, turns: Sequence[Turn], cut: int | None) -> tuple[T, list[Asked]]:
        self.upstream.plays(*turns, cut=cut)
        given = run(way)
        assert self.upstream.left == 0, f"the client left {self.upstream.left} turns unasked"
        return given, self.upstream.asked


def _insist(given: Any, expected: Any, what: str) -> None:
    """Fail with the lines that differ."""
    if given == expected:
        return
    lines = (pprint.pformat(value, width=160).splitlines() for value in (expected, given))
    pytest.fail("\n".join([f"{what} differs:", *difflib.unified_diff(*lines, "straight", "other", n=1, lineterm="")]))


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    """All that an SDK's error tells its user."""
    try:
        call()
    except (openai.APIError, anthropic.APIError) as error:
        return _told(error)
    raise AssertionError("the call did not fail")


async def error_of_async(call: Awaitable[Any]) -> dict[str, Any]:
    """The same for a call of an async client."""
    try:
        await call
    except (openai.APIError, anthropic.APIError) as error:
        return _told(error)
    raise AssertionError("the call did not fail")


def _told(error: openai.APIError | anthropic.APIError) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return {
        "type": type(error),
        "text": str(error),
        "message": error.message,
        "body": error.body,
        "code": getattr(error, "code", None),
        "kind": getattr(error, "type", None),
        "status": getattr(error, "status_code", None),
        "request_id": getattr(error, "request_id", None),
        "headers": None if response is None else dict(response.headers),
    }


def status_of(root: str) -> dict[str, Any]:
    """A proxy's counters: `outcomes` of its bets, and `faults` in speculation that it swallowed."""
    return dict(httpx.get(f"{root}/agentspec/status", trust_env=False).json())
