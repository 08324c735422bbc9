"""The benchmark on two small recordings, with a simple memory in the place of the real one."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from agentspec.calls import ToolCall
from agentspec.errors import ConfigError
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.proxy.bench.hits import bench
from agentspec.proxy.bench.hits.bench import Plan, run
from agentspec.proxy.bench.hits.passes import SCOPED, passed
from agentspec.proxy.bench.hits.pools import Pool, pools_of
from agentspec.proxy.bench.hits.under_load import synthetic, under_load
from agentspec.proxy.cli import app
from agentspec.recollection import Forecast, Past, Question, Recalled
from agentspec.trajectory import ASSISTANT, Said

ROOT = Path(__file__).resolve().parents[2]
TINY = Plan(first=3, held=20, timed=2)

PER_POOL = (
    "exact_hit1.{} exact_hit3.{} name_hit1.{} name_hit3.{} name_trigram.{} offers_per_call.{} coverage.{} ece.{}"
    " exact_hit1_scoped.{} exact_hit1_blind.{} offers_per_call_blind.{} nocall_precision.{} nocall_recall.{}"
    " bet_precision.{}.50 bet_precision.{}.85 bet_share.{}.50 bet_share.{}.85 growth.{} exact_hit1.{}.fifth1"
    " exact_hit1.{}.fifth2 exact_hit1.{}.fifth3 exact_hit1.{}.fifth4 exact_hit1.{}.fifth5 predict_p50_ms.{}"
    " predict_p99_ms.{} learn_p50_ms.{} learn_p99_ms.{}"
)
OF_FULL_MEMORY = {"predict_p50_ms", "predict_p99_ms", "learn_p50_ms", "learn_p99_ms", "memory_mib", "fill_s"}


class Pairs:
    """Knows, of each call and scope, the calls that came after it before."""

    PARTS: ClassVar[tuple[str, ...]] = ("scopes",)

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self.without = without
        self.after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.asked: list[Question] = []
        self.learnt: list[str] = []

    def forecast(self, question: Question) -> Forecast:
        assert question.trajectory not in self.learnt
        self.asked.append(question)
        known = self.after[self._key(question.scope, [*calls_of(question.history), *question.emitted])]
        found = [(ToolCall(**json.loads(text)), count / known.total()) for text, count in known.most_common(3) if text]
        return Forecast(known[""] / max(1, known.total()), tuple(Recalled(call, share) for call, share in found))

    def learn(self, past: Past) -> None:
        self.learnt.append(past.trajectory)
        before: list[ToolCall] = []
        for said in past.history:
            if said.role == ASSISTANT:
                for call in said.calls:
                    self.after[self._key(past.scope, before)][shown(call)] += 1
                    before.append(call)
                if not said.calls:
                    self.after[self._key(past.scope, before)][""] += 1

    def _key(self, scope: str, before: Sequence[ToolCall]) -> str:
        return f"{'' if 'scopes' in self.without else scope} {shown(before[-1]) if before else ''}"


class Filled(Pairs):
    """The same, filled faster than by learning and aware of its size."""

    def fill(self, pasts: Iterable[Past]) -> None:
        self.filled = [past.trajectory for past in pasts]

    def size_bytes(self) -> int:
        return 3 * 2**20


def calls_of(history: Iterable[Said]) -> list[ToolCall]:
    return [call for said in history for call in said.calls]


def shown(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, sort_keys=True)


def build(without: frozenset[str] = frozenset()) -> Pairs:
    return Pairs(without)


def steps(city: str) -> list[dict[str, Any]]:
    """A greeting, two calls at once, one more, and a last word."""
    two = [{"name": "find", "arguments": {"city": city}}, {"name": "weather", "arguments": {"city": city}}]
    return [
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": f"To {city}_town."},
        {"role": "assistant", "tool_calls": two},
        {"role": "tool", "tool_result": {"flight": f"{city}_1"}},
        {"role": "tool", "tool_result": "rain"},
        {"role": "assistant", "tool_calls": [{"name": "book", "arguments": {"flight": "F1"}}]},
        {"role": "tool", "tool_result": "booked"},
        {"role": "assistant", "content": "Done."},
    ]


def write(file: Path, cities: Sequence[str]) -> Path:
    tasks = [{"task_id": str(nth), "tools_ref": "air", "steps": steps(city)} for nth, city in enumerate(cities)]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, tasks)).encode()))
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    (file.parent / "tools.json.gz").write_bytes(gzip.compress(json.dumps({"air": tools}).encode()))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "alike.jsonl.gz", ["Rome"] * 5)
    write(tmp_path / "mixed.jsonl.gz", ["Rome", "Oslo", "Oslo"])
    return tmp_path


def values(report: Report) -> dict[str, Figure]:
    return {figure.name: figure for figure in report.figures}


def test_a_pool_for_each_file_and_one_of_all(folder: Path) -> None:
    mixed, alike = folder / "mixed.jsonl.gz", folder / "alike.jsonl.gz"
    assert [pool.name for pool in pools_of([folder])] == ["alike", "mixed", "all"]
    assert [pool.name for pool in pools_of([mixed, alike])] == ["mixed", "alike", "all"]
    assert [pool.name for pool in pools_of([mixed])] == ["mixed"]
    ids = [trajectory.id for trajectory in pools_of([mixed, alike], first=2)[-1].trajectories()]
    assert ids == ["mixed/0", "mixed/1", "alike/0", "alike/1"]


def test_a_shuffled_pool_has_the_same_trajectories_always_in_the_same_order(folder: Path) -> None:
    straight, mixed = (pools_of([folder], shuffled=shuffled)[-1].trajectories() for shuffled in (False, True))
    again = pools_of([folder], shuffled=True)[-1].trajectories()
    assert sorted(one.id for one in straight) == sorted(one.id for one in mixed)
    assert [one.id for one in straight] != [one.id for one in mixed] == [one.id for one in again]


def test_memory_is_asked_at_each_call_with_the_calls_before_it_and_at_each_silence(folder: Path) -> None:
    memory = Pairs()
    trajectory = Pool("alike", (folder / "alike.jsonl.gz",), first=1).trajectories()[0]
    made = passed(memory, [trajectory])
    points = [(len(question.history), len(question.emitted)) for question in memory.asked]
    assert points == [(2, 0), (2, 1), (5, 0), (7, 0)]  # not at the greeting, and not without a candidate
    assert memory.asked[0].tools == {"find": {"type": "object"}}
    assert memory.learnt == ["alike/0"]
    assert [len(made.calls), [step.calls for step in made.steps]] == [3, [2, 1, 0]]


def test_what_was_learnt_before_is_a_hit_and_only_in_its_own_scope(folder: Path) -> None:
    pool = Pool("alike", (folder / "alike.jsonl.gz",))
    common, scoped = passed(Pairs(), pool.trajectories()), passed(Pairs(), pool.trajectories(), SCOPED)
    assert [point.hit for point in common.calls] == [False] * 3 + [True] * 12
    assert [step.blind_hits for step in common.steps if step.calls] == [0, 0] + [2, 1] * 4
    assert not any(point.offered for point in scoped.calls)


def test_figures_of_two_recordings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run([folder], build, jobs=1, ablation=True, plan=Plan(first=None, held=20, timed=2))
    found = values(report)
    expected = {name.format(pool) for pool in ("alike", "mixed", "all") for name in PER_POOL.split()}
    ablated = {f"exact_hit1.{pool}.without_scopes" for pool in ("alike", "mixed", "all")}
    assert set(found) == expected | ablated | OF_FULL_MEMORY
    assert len(found) == len(report.figures)
    assert [found["exact_hit1.alike"].value, found["exact_hit1.alike"].n] == [12 / 15, 15]
    assert found["exact_hit1.mixed"].value == pytest.approx((0 + 0 + 2) / 9)
    assert found["exact_hit1_scoped.alike"].value == 0.0
    assert found["exact_hit1.all.without_scopes"].value == found["exact_hit1.all"].value
    assert found["exact_hit1.alike.fifth5"].value == 1.0
    assert found["growth.alike"].value is None
    assert found["memory_mib"].n == 20
    again = values(run([folder], build, jobs=1, plan=TINY))
    assert set(again) == set(found) - ablated


def test_processes_find_what_one_process_finds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    one, two = (values(run([folder], build, jobs=jobs, plan=TINY)) for jobs in (1, 2))
    timed = ("predict", "learn", "fill", "memory")
    assert [figure for name, figure in one.items() if not name.startswith(timed)] == [
        figure for name, figure in two.items() if not name.startswith(timed)
    ]


def test_what_fills_memory_differs_in_values_and_is_the_same_each_time(folder: Path) -> None:
    pool = Pool("mixed", (folder / "mixed.jsonl.gz",))
    pasts = list(islice(synthetic(pool), 9))
    assert pasts == list(islice(synthetic(pool), 9))
    assert len({past.trajectory for past in pasts}) == 9
    assert len({tuple(said.digest for said in past.history) for past in pasts}) == 6  # of three, two are alike
    names = [[call.name for call in calls_of(past.history)] for past in pasts]
    assert names == [["find", "weather", "book"]] * 9
    assert [calls_of(past.history)[0].arguments for past in pasts[::3]] == [{"city": f"Rome_{n}"} for n in range(3)]
    assert pasts[0].tools == {"find": {"type": "object"}}


def test_a_memory_that_fills_and_weighs_itself_is_asked_to(folder: Path) -> None:
    pool = Pool("mixed", (folder / "mixed.jsonl.gz",))
    memory = Filled()
    loaded = under_load(lambda without: memory, pool, held=7, most=2)
    assert memory.filled == [f"load/{nth}" for nth in range(7)]
    assert memory.learnt == ["mixed/0", "mixed/2"]
    assert (loaded.held, loaded.size_bytes, len(loaded.learn_ms)) == (7, 3 * 2**20, 2)


def test_the_plot_is_written(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    file = folder / "hits.png"
    run([folder], build, jobs=1, plan=TINY, plot_file=file)
    assert file.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="make the folder"):
        run([folder], build, jobs=1, plan=TINY, plot_file=folder / "none" / "hits.png")


def test_without_matplotlib_the_plot_is_refused_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(bench, "run_pass", None)
    with pytest.raises(ConfigError, match=r"pip install 'agentspec-proxy\[bench\]'"):
        run([folder], build, jobs=1, plan=TINY, plot_file=folder / "hits.png")


def test_bad_input_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="does not exist: give --data"):
        pools_of([tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="holds no recording"):
        pools_of([tmp_path / "empty"])
    with pytest.raises(ConfigError, match="name a file or a folder"):
        pools_of([])
    with pytest.raises(ConfigError, match="two pools would be called mixed"):
        pools_of([folder, folder / "mixed.jsonl.gz"])


@pytest.fixture
def as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simple memory stands where the command finds the real one."""
    fake = ModuleType("agentspec.memory.recall")
    fake.Recall = Pairs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.delitem(sys.modules, "agentspec.proxy.bench.hits.subject", raising=False)
    monkeypatch.setattr(bench, "QUICK", TINY)


@pytest.mark.usefixtures("as_memory")
def test_the_command_prints_one_object_like_the_other_benchmarks(folder: Path) -> None:
    done = CliRunner().invoke(
        app, ["bench", "hits", "--data", str(folder), "--quick", "--json", "--jobs", "1", "--order", "shuffle"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {"figures", "machine", "commit", "date"} < set(found)
    assert found["order"] == "shuffle"
    assert set(found["figures"][0]) == {"name", "value", "unit", "low", "high", "n"}
    assert done.stderr == ""


@pytest.mark.usefixtures("as_memory")
def test_the_command_shows_a_table_and_its_progress(folder: Path) -> None:
    file = folder / "mixed.jsonl.gz"
    arguments = ["bench", "hits", "--data", str(file), "--quick", "--ablation", "--jobs", "1"]
    done = CliRunner(env={"COLUMNS": "160"}).invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "exact_hit1.mixed.without_scopes" in done.stdout
    assert "mixed, scoped" in done.stderr


def test_a_part_is_left_out_by_name(folder: Path) -> None:
    made = values(run([folder], partial(build), jobs=1, ablation=True, plan=TINY))
    quick = values(run([folder], build, True, jobs=1, ablation=True, plan=TINY))
    assert made["exact_hit1.all.without_scopes"].value == made["exact_hit1.all"].value
    assert quick["exact_hit1.all.without_scopes"].value is None
    assert set(made) == set(quick)
