"""Asking a running engine about itself: its pages, with a time limit, from its root."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx

from agentspec.errors import UpstreamError
from agentspec.verifier.adapters.protocol import Health

_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """An engine's answer."""

    status: int
    text: str

    @property
    def json(self) -> dict[str, Any]:
        """Its JSON object; empty where it is none or no success."""
        try:
            found = json.loads(self.text) if self.status == 200 else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Asking:
    """One engine, asked synchronously. A context manager: it keeps its connection."""

    def __init__(self, url: str, key: str = "") -> None:
        self.root = root_of(url)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=self.root, headers=headers, timeout=_LIMIT_S, trust_env=False)

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def page(self, path: str, body: Any = None) -> Page:
        """A page, or what it answers to a POST of `body`.

        Raises:
            UpstreamError: the engine cannot be reached.
        """
        try:
            asked = self._client.get(path) if body is None else self._client.post(path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamError(f"cannot reach {self.root}: {error or type(error).__name__}") from error
        return Page(asked.status_code, asked.text)

    def model(self) -> tuple[str, int | None]:
        """The first model that it serves, and the longest context of it in tokens."""
        models = self.page("/v1/models").json.get("data")
        first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
        longest = first.get("max_model_len")
        return str(first.get("id", "")), longest if isinstance(longest, int) else None

    def metrics(self) -> str:
        """Its page of metrics; "" where it has none."""
        page = self.page("/metrics")
        return page.text if page.status == 200 else ""


def root_of(url: str) -> str:
    """An engine's root, given that or its base URL."""
    return url.rstrip("/").removesuffix("/v1")


def health_of(url: str, path: str = "/health") -> Health:
    """Whether an engine answers on its page of health."""
    began = time.perf_counter()
    try:
        with Asking(url) as asking:
            page = asking.page(path)
    except UpstreamError as error:
        return Health(False, None, time.perf_counter() - began, error.message)
    why = "" if page.status == 200 else f"{path} answers {page.status}"
    return Health(page.status == 200, page.status, time.perf_counter() - began, why)


def found_in(page: str, names: Iterable[str]) -> tuple[str, ...]:
    """Which metrics a page has."""
    there = {line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    return tuple(name for name in names if name in there)


def total(page: str, name: str) -> int | None:
    """A counter's value, summed over its labels; None where the page does not have it.

    >>> total('a_total{model="m"} 3.0\\na_total{model="n"} 4.0\\n', "a_total")
    7
    """
    found = None
    for line in page.splitlines():
        if line.startswith(name) and line[len(name) : len(name) + 1] in ("{", " "):
            try:
                found = (found or 0) + int(float(line.rpartition("}")[2].removeprefix(name).split()[0]))
            except (ValueError, IndexError):
                continue
    return found
