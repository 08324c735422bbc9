"""A run of ten thousand spans: it opens, scrolls and zooms without the browser's frames getting long.

The rows are written through the ledger's own writer; they are made up, as no test can wait for such a run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentspec.memory.ledger import SqlLedger
from tests.dashboard.scene import Scene

SPANS = 10_000
PER_TURN = 10
BEGAN_AT = time.time() - 3600.0
"""An older run would not be kept."""
NAME = "0badcafe:endless"

FRAMES = 90
FRAME_S = 1 / 60

SCROLL = """
async (jump) => {
  const place = document.querySelector('.wf-scroll');
  const whole = place.scrollHeight - place.clientHeight;
  for (let step = 1; step <= 90; step++) {
    place.scrollTop = jump ? whole * ((step * 37) % 90) / 90 : step * 120;
    await new Promise(requestAnimationFrame);
  }
}
"""
ZOOM = """
async () => {
  for (let step = 0; step < 45; step++) {
    document.querySelector(step < 23 ? '[aria-label="Zoom in"]' : '[aria-label="Zoom out"]').click();
    await new Promise(requestAnimationFrame);
  }
}
"""


async def written(database: str) -> None:
    """The run's rows, as the scribe writes them."""
    ledger = SqlLedger(database, max_queued=2 * SPANS)
    for number in range(SPANS // PER_TURN):
        for table, row in rows(number):
            ledger.record(table, row)
    await ledger.close()
    assert ledger.dropped == 0


def rows(number: int) -> list[tuple[str, dict[str, Any]]]:
    at, turn = BEGAN_AT + 3.0 * number, f"t{number}"
    own = {"trajectory": NAME, "tenant": "anybody"}
    first = {
        **own, "id": turn, "session": "endless", "runtime": "rt", "model": "m", "began_at": at, "first_byte_s": 0.2,
        "first_token_s": 0.25, "reasoning_s": 1.0, "call_s": 1.4, "duration_s": 1.5, "status": 200, "calls": 4,
        "prompt_tokens": 100, "completion_tokens": 50, "held_out": False, "note": "", "probe_verdict": "",
    }  # fmt: skip
    found: list[tuple[str, dict[str, Any]]] = [("turns", first)]
    for nth in range(4):
        hit = (number + nth) % 3 > 0
        one = {
            **own, "id": f"b{number}.{nth}", "turn": turn, "at": at + 0.1, "predictor": "recall", "tool": f"tool_{nth}",
            "name_confidence": 0.9, "argument_confidence": 0.9, "probability": 0.8, "verdict": "p=0.80 > p*=0.10",
            "ran": True, "offered_s": 0.1 * nth, "latency_s": 0.8, "waited_s": 0.0 if hit else None, "settled_s": 1.6,
            "saved_s": 0.8 if hit else 0.0, "wasted_s": 0.0 if hit else 0.8, "cost_s": 0.0, "egress": False,
            "outcome": "hit" if hit else "miss", "reason": "" if hit else "the turn made no such call",
        }  # fmt: skip
        found.append(("bets", one))
        claim = {
            **own, "id": f"c{number}.{nth}", "turn": turn, "at": at + 1.6, "tool": f"tool_{nth}", "effect": "read",
            "bet": one["id"] if hit else None, "outcome": "hit" if hit else "miss", "began_s": 1.6,
            "waited_s": 0.0 if hit else 0.8, "latency_s": 0.8, "reason": "",
        }  # fmt: skip
        found.append(("claims", claim))
    return found


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("endless")
    with ThreadPoolExecutor(1) as pool:  # the browser has an event loop in this thread
        pool.submit(lambda: asyncio.run(written(f"sqlite:///{folder / 'ledger.sqlite3'}"))).result()
    with Scene(folder) as scene:
        yield scene


class Meter:
    """The seconds that the page's own thread computes: scripts, styles, layout. Others' load does not count, nor does
    the painting, which here is done without a graphics card."""

    def __init__(self, page: Any) -> None:
        self._devtools = page.context.new_cdp_session(page)
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_s(self) -> float:
        metrics = {one["name"]: one["value"] for one in self._devtools.send("Performance.getMetrics")["metrics"]}
        return sum(float(metrics[name]) for name in ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration"))

    def of(self, what: Callable[[], object], times: int) -> float:
        """Seconds for one time of it."""
        before = self.busy_s()
        what()
        return (self.busy_s() - before) / times


def test_ten_thousand_spans_open_scroll_and_zoom_smoothly(endless: Scene, open_page: Any) -> None:
    page = open_page(f"{endless.url}/dashboard/runs")
    page.get_by_role("link", name="endless").wait_for()
    meter = Meter(page)

    def opens() -> None:
        page.get_by_role("link", name="endless").click()
        page.wait_for_selector(".wf-row:visible")

    opened_s = meter.of(opens, 1)
    assert int(page.locator(".wf-scroll").get_attribute("aria-rowcount")) >= SPANS
    assert page.locator(".wf-row").count() < 100, "only rows in sight are in the document"
    scrolled_s = meter.of(lambda: page.evaluate(SCROLL, False), FRAMES)
    jumped_s = meter.of(lambda: page.evaluate(SCROLL, True), FRAMES)
    zoomed_s = meter.of(lambda: page.evaluate(ZOOM), 45)
    print(f"open {opened_s * 1e3:.0f} ms; a frame of scrolling {scrolled_s * 1e3:.1f} ms, of jumping "
          f"{jumped_s * 1e3:.1f} ms, of zooming {zoomed_s * 1e3:.1f} ms")  # fmt: skip
    assert opened_s < 1.5
    assert scrolled_s < FRAME_S / 2 and jumped_s < FRAME_S and zoomed_s < FRAME_S
    page.locator(".wf-scroll").focus()
    page.keyboard.press("End")
    assert page.locator("[aria-selected=true]").inner_text().startswith("tool_")
