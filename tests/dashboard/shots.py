"""Screenshots for the docs: `python -m tests.dashboard.shots [FOLDER]`; with a folder, of every page into it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from tests.dashboard.conftest import CHROMIUM
from tests.dashboard.scene import Scene
from tests.dashboard.talks import WRITES

DOCS = Path(__file__).resolve().parents[2] / "docs" / "img"
PAGES = ("runs", "savings", "waste", "calibration", "tools", "memory", "health")
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


def shoot(page: Any, url: str, file: Path, *, whole: bool = True) -> None:
    """One page, when it has been drawn."""
    page.goto(url)
    page.wait_for_selector("main:not([aria-busy]) h1")
    page.wait_for_timeout(400)
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=file, full_page=whole)


def main(folder: Path | None) -> None:
    """Hold the talks, and take the pictures."""
    with tempfile.TemporaryDirectory() as place, Scene(Path(place), holdout_share=0.0) as scene, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        at = f"{scene.url}/dashboard"
        if folder is not None:
            for name in PAGES:
                shoot(browser.new_page(viewport=DESKTOP), f"{at}/{name}", folder / f"empty-{name}.png")
        scene.plays(*(talk.session for talk in scene.talks if talk.session != WRITES))
        scene.plays(WRITES)
        run = next(row["trajectory"] for row in scene.reader.runs() if row["session"] == "order-4417")
        wrong = next(bet for turn in scene.reader.turns(run) for bet in turn["bets"] if bet["outcome"] == "miss")
        of_run = f"{at}/run?id={quote(run)}&bar={wrong['id']}"
        page = browser.new_page(viewport={"width": 1180, "height": 800})
        shoot(page, of_run, DOCS / "dashboard-run.png", whole=False)
        shoot(page, f"{at}/runs", DOCS / "dashboard-runs.png", whole=False)
        for name in () if folder is None else ("run", *PAGES):
            for kind, size in (("desktop", DESKTOP), ("phone", PHONE)):
                for scheme in ("light", "dark"):
                    page = browser.new_page(viewport=size, color_scheme=scheme)
                    url = of_run if name == "run" else f"{at}/{name}"
                    shoot(page, url, folder / f"{kind}-{scheme}-{name}.png")
                    page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
