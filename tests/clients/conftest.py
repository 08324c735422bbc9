"""One scripted upstream, the real proxy before it, and both ways for each client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import certifi
import pytest

import agentspec
from agentspec.config import load
from agentspec.protocols import Speculator
from agentspec.proxy.wiring import build
from tests.clients.serving import Serving, StartProxy
from tests.clients.upstream import Upstream
from tests.clients.ways import NAMES, Both, Way, status_of


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    running = Upstream()
    yield running
    running.stop()


def launch(folder: Path, endpoint: str, *speculators: Speculator, **settings: Any) -> Serving:
    database = f"sqlite:///{folder / 'ledger.sqlite3'}"
    kept = {"database": database, "memory_database": ""}
    return Serving(build(load({"upstream": endpoint, **kept, **settings}), speculators))


@pytest.fixture(scope="session")
def proxy(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The proxy of most tests; nothing in it may fail, seen or unseen."""
    running = launch(tmp_path_factory.mktemp("ledger"), f"{upstream.root}/v1")
    yield running
    assert status_of(running.root)["faults"] == {}
    running.stop()


@pytest.fixture
def start_proxy(tmp_path: Path) -> Iterator[StartProxy]:
    """start_proxy(endpoint, *speculators, **settings): a proxy of one's own before that endpoint, with its /v1."""
    with ExitStack() as stack:

        def start(endpoint: str, *speculators: Speculator, **settings: Any) -> Serving:
            proxy = launch(tmp_path, endpoint, *speculators, **settings)
            stack.callback(proxy.stop)
            return proxy

        yield start


@pytest.fixture(params=NAMES)
def way(request: pytest.FixtureRequest, proxy: Serving, upstream: Upstream, tmp_path: Path) -> Iterator[Way]:
    """Each way but the straight one; a module that needs only some parametrizes it."""
    if request.param == "proxy":
        yield Way("proxy", proxy.root)
        return
    if request.param == "runtime":
        runtime: Any = agentspec.connect(proxy.root, tools=(), api_key="k-1", wait_s=5.0)
    else:
        kept = {"database": f"sqlite:///{tmp_path}/ledger.sqlite3", "memory_database": ""}
        runtime = agentspec.embedded(f"{upstream.root}/v1", tools=(), **kept)
    try:
        yield Way(request.param, runtime.base_url.removesuffix("/v1"), runtime)
    finally:
        runtime.close()


@pytest.fixture
def both(upstream: Upstream, way: Way) -> Both:
    return Both(upstream, Way("straight", upstream.root), way)


@pytest.fixture(scope="session")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one certificate: each SDK client reads the whole bundle, though nothing here speaks TLS."""
    end = "-----END CERTIFICATE-----\n"
    first, found, _ = Path(certifi.where()).read_text().partition(end)
    bundle = tmp_path_factory.mktemp("tls") / "one.pem"
    bundle.write_text(first + found)
    return bundle


@pytest.fixture(autouse=True)
def _no_environment_of_the_developers(monkeypatch: pytest.MonkeyPatch, one_certificate: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "LANGSMITH_TRACING"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_BETAS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(one_certificate))
