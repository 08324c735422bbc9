"""The report: its names are fixed, whatever was measured; and one real run, as short as they come."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from agentspec.errors import ConfigError
from agentspec.proxy.bench.figures import Report
from agentspec.proxy.bench.wire import Plan, run
from agentspec.proxy.bench.wire_arms import DIRECT, LITELLM, OFF, Cores, litellm_version, on_core
from agentspec.proxy.bench.wire_endpoint import Beat
from agentspec.proxy.bench.wire_figures import LARGE_16, SMALL_1, SMALL_16, STREAM_16, Window, figures_of
from agentspec.proxy.bench.wire_load import Sample

FIXED = (
    "added_p50_ms.c1",
    "added_ttft_ms.c16",
    "added_chunk_p50_ms.c16",
    "added_chunk_p99_ms.c16",
    "rps_per_core.c16",
    "cpu_us.1kb.c16",
    "cpu_us.100kb.c16",
    "litellm_cpu_ratio.c16",
    "litellm_added_p50_ratio.c1",
    "litellm_rps_ratio.c16",
    "cpu_us_speculating.1kb.c16",
    "cpu_us_speculating.100kb.c16",
    "rss_mb",
)
SHORTEST = Plan(rounds=1, seconds=0.05, others=0, warm_s=0.0, beat=Beat(3, 0.005))


def window(latency_ms: float, cpu_s: float, elapsed_s: float = 1.0, chunk_ms: float = 0.0) -> Window:
    sample = Sample([latency_ms] * 100, [latency_ms] * 100, [chunk_ms] * 100, elapsed_s)
    return Window(sample, cpu_s, cpu_s, 0.1)


def test_the_names_are_the_same_whether_all_or_nothing_was_measured() -> None:
    nothing = figures_of({}, {})
    something = figures_of({(arm, SMALL_1): [window(1.0, 0.1)] for arm in (DIRECT, OFF, LITELLM)}, {OFF: 80.0})
    assert [figure.name for figure in nothing] == [figure.name for figure in something]
    assert set(FIXED) <= {figure.name for figure in nothing}
    assert len({figure.name for figure in nothing}) == len(nothing)
    assert all(figure.value is None for figure in nothing)


def test_what_is_added_is_taken_within_a_round() -> None:
    windows = {
        (DIRECT, SMALL_1): [window(1.0, 0.1), window(5.0, 0.1), window(1.0, 0.1)],
        (OFF, SMALL_1): [window(1.5, 0.1), window(5.7, 0.1), window(1.6, 0.1)],
        (LITELLM, SMALL_1): [window(6.0, 0.1), window(12.0, 0.1), window(7.0, 0.1)],
        (DIRECT, STREAM_16): [window(1.0, 0.1, chunk_ms=0.1)],
        (OFF, STREAM_16): [window(1.8, 0.1, chunk_ms=0.2)],
    }
    report = Report("", figures_of(windows, {}))
    figure = next(figure for figure in report.figures if figure.name == "added_p50_ms.c1")
    assert (figure.value, figure.low, figure.high) == pytest.approx((0.6, 0.5, 0.7))
    assert figure.n == 300
    assert report.value("litellm_added_p50_ratio.c1") == pytest.approx(10.0)
    assert report.value("added_ttft_ms.c16") == pytest.approx(0.8)
    assert report.value("added_chunk_p99_ms.c16") == pytest.approx(0.1)


def test_throughput_is_what_was_measured_on_a_full_core_and_else_by_cpu_time() -> None:
    full = figures_of({(OFF, SMALL_16): [window(1.0, cpu_s=0.95)]}, {})
    half = figures_of({(OFF, SMALL_16): [window(1.0, cpu_s=0.5)], (OFF, LARGE_16): [window(1.0, cpu_s=0.5)]}, {})
    assert Report("", full).value("rps_per_core.c16") == pytest.approx(100.0)
    assert Report("", half).value("rps_per_core.c16") == pytest.approx(200.0)
    assert Report("", half).value("cpu_us.100kb.c16") == pytest.approx(5000.0)


def test_a_run_measures_the_real_proxy_with_speculation_off_and_on(tmp_path: Path) -> None:
    before, said = os.sched_getaffinity(0), list[str]()
    report = run(plan=SHORTEST, progress=said.append)
    found = json.loads(report.as_json())
    values = {figure["name"]: figure for figure in found["figures"]}
    assert found["cores"].keys() == {"server", "load"}
    assert os.sched_getaffinity(0) == before
    for name in (name for name in FIXED if not name.startswith("litellm")):
        assert isinstance(values[name]["value"], float), name
        assert values[name]["n"] >= 1
    assert values["litellm_cpu_ratio.c16"]["value"] is None or found["litellm"]
    assert sum("1kb.c16" in line for line in said) == 2


def test_an_interpreter_without_litellm_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no litellm\[proxy\]"):
        run(litellm_python=tmp_path / "python", plan=SHORTEST)
    bare = Path(sys.executable)
    assert litellm_version(bare) is None or litellm_version(bare) != ""


def test_a_block_on_one_core_ends_with_the_cores_it_began_with() -> None:
    before = os.sched_getaffinity(0)
    with on_core(Cores.usable().server):
        assert os.sched_getaffinity(0) == {Cores.usable().server}
    assert os.sched_getaffinity(0) == before
