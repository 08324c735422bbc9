"""`agentspec bench mcp` measures what it says."""

from __future__ import annotations

from agentspec.proxy.bench.mcp import DIRECT, HIT, MISS, SLOW_DIRECT, Plan, Times, figures_of, run


def test_the_figures_are_medians_and_what_a_miss_adds_is_taken_in_blocks() -> None:
    times = Times()
    times.ms.update({DIRECT: [1.0] * 40, MISS: [2.0] * 20 + [4.0] * 20, HIT: [1.0, 2.0, 9.0], SLOW_DIRECT: [5.0]})
    times.ms["fresh_client"] = [7.0]
    figures = {figure.name: figure for figure in figures_of(times)}
    added = figures["miss_added_ms"]
    assert (added.value, added.low, added.high, added.n) == (2.0, 1.0, 3.0, 40)
    assert (figures["hit_ms"].value, figures["hit_ms"].low, figures["hit_ms"].high) == (2.0, 1.0, 9.0)


def test_a_few_rounds_with_real_processes_see_hits() -> None:
    report = run(plan=Plan(rounds=3, warm=1, fresh=1))
    assert report.value("not_ahead") == 0
    assert 0 < float(report.value("hit_ms") or 0) < float(report.value("slow_direct_ms") or 0)
    assert report.environment["machine"]
