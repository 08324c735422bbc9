"""`agentspec bench traces`, with few rounds and few spans: every figure is there."""

from __future__ import annotations

import pytest

from agentspec.proxy.bench import traces
from agentspec.proxy.bench.traces import Plan, run

pytestmark = pytest.mark.timeout(120)


def test_every_figure_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "QUICK", Plan(rounds=2, seconds=0.2, warm_s=0.05, spans=100_000))
    told: list[str] = []
    report = run(quick=True, progress=told.append)
    names = {figure.name for figure in report.figures}
    both = {"list_ms.1m.sqlite", "list_ms.1m.postgresql"}
    assert names == {"cpu_us_added", "list_ms.1m", "dropped_uncounted"} | both
    assert report.value("dropped_uncounted") == 0
    listed = report.value("list_ms.1m")
    assert isinstance(listed, float)
    assert 0.0 < listed < 5000.0
    assert any("counted as dropped" in line for line in told)
