"""A real proxy with a real agent behind the dashboard, and Debian's chromium before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.scene import Scene
from tests.dashboard.talks import WRITES

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For one module: as long as it is there, an event loop counts as running in this thread."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """open_page(url, **options): a page in an empty browser. What it logs or asks of others fails the test."""
    contexts: list[Any] = []
    faults: list[str] = []

    def opened(url: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("console", lambda line: faults.append(f"console: {line.text}") if _bad(line) else None)
        own = "/".join(url.split("/")[:3])
        page.on("request", lambda asked: None if asked.url.startswith(own) else faults.append(f"asked {asked.url}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _bad(line: Any) -> bool:
    """Answers with an error status are logged by the browser itself; the page tells them."""
    return line.type in ("error", "warning") and "Failed to load resource" not in line.text


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A proxy on which all talks were held once."""
    with Scene(tmp_path_factory.mktemp("scene")) as made:
        made.plays(*(talk.session for talk in made.talks if talk.session != WRITES))
        made.plays(WRITES)
        yield made


@pytest.fixture
def new_scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """new_scene(**settings): a proxy of the test's own, on which nothing has run."""
    made: list[Scene] = []

    def start(**settings: Any) -> Scene:
        folder = tmp_path / f"scene{len(made)}"
        folder.mkdir()
        made.append(Scene(folder, **settings))
        return made[-1]

    yield start
    for one in made:
        one.__exit__()
