"""The figures of the arms, by arm and by domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentspec.proxy.bench.agent.arm_books import Tally, calibration_error, tallied
from agentspec.proxy.bench.agent.arm_runs import ArmRun
from agentspec.proxy.bench.agent.intervals import total_interval
from agentspec.proxy.bench.agent.recorded import Recorded, domain_of
from agentspec.proxy.bench.figures import Figure
from agentspec.proxy.bench.wire_load import percentile

CALIBRATED = "recall"
"""The arm whose calibration is the figure `ece`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One arm in one domain, against the direct arm on the same tasks."""

    arm: str
    domain: str
    off_s: Sequence[float]
    on_s: Sequence[float]
    could_save_s: float
    differences: int
    tally: Tally

    @property
    def ratio(self) -> float:
        """Of the time of all tasks."""
        return sum(self.on_s) / sum(self.off_s)

    @property
    def saved_s(self) -> float:
        """Seconds less than direct."""
        return sum(self.off_s) - sum(self.on_s)


def lines(runs: Sequence[ArmRun], data: Recorded) -> list[Line]:
    """Every arm in every domain; the first arm is the direct one."""
    direct, found = runs[0].tasks, []
    for domain in data.domains:
        tasks = [task for task in data.tasks if domain_of(task) == domain]
        names = [task.model for task in tasks]
        could_s = sum(direct[name].could_save_s for name in names)
        off_s = [direct[name].seconds for name in names]
        for run in runs:
            on_s = [run.tasks[name].seconds for name in names]
            differences = sum(run.tasks[name].differences for name in names)
            said = tasks if run.said is None else [one for one in run.said if domain_of(one) == domain]
            tally = tallied(run.books, said, data.ahead)
            found.append(Line(run.arm.name, domain, off_s, on_s, could_s, differences, tally))
    return found


def figures_of_arms(found: Sequence[Line]) -> Iterator[Figure]:
    """All of them, and the calibration of memory over all domains."""
    told = [one for line in found if line.arm == CALIBRATED for one in line.tally.told]
    yield Figure("ece", *_error(told))
    for line in found:
        yield from _of(line, f"{line.arm}.{line.domain}")


def _error(told: Sequence[tuple[float, bool]]) -> tuple[float | None, str, None, None, int]:
    error, count = calibration_error(told)
    return error, "probability", None, None, count


def _of(line: Line, name: str) -> Iterator[Figure]:
    tally, tasks = line.tally, len(line.on_s)
    yield Figure(f"time_ratio.{name}", line.ratio, "ratio", *total_interval(line.on_s, line.off_s), tasks)
    yield Figure(f"task_p50_s.{name}", percentile(line.on_s, 0.5), "s", n=tasks)
    yield Figure(f"task_p95_s.{name}", percentile(line.on_s, 0.95), "s", n=tasks)
    yield Figure(f"differences.{name}", line.differences, "count", n=tasks)
    captured = line.saved_s / line.could_save_s if line.could_save_s else None
    yield Figure(f"oracle_share.{name}", captured, "share of min(L, R)", n=tasks)
    if not tally.requests:  # no proxy, no books
        return
    for what, count, of in (
        ("name_hit", tally.named, tally.calls),
        ("exact_hit", tally.exact, tally.calls),
        ("committed_hit", tally.committed, tally.claims),
    ):
        yield Figure(f"{what}.{name}", count / of if of else None, "share", n=of)
    yield Figure(f"discarded_per_hit.{name}", tally.discarded_per_hit, "runs", n=tally.committed)
    wasted = tally.wasted_s / line.saved_s if line.saved_s > 0 else None
    yield Figure(f"wasted_per_saved.{name}", wasted, "s of tools per s", n=tally.discarded)
    yield Figure(f"requests.{name}", tally.requests, "count", n=tasks)
    yield Figure(f"egress_discarded.{name}", tally.egress, "count", n=tasks)
    error, told = calibration_error(tally.told)
    yield Figure(f"ece.{name}", error, "probability", n=told)
