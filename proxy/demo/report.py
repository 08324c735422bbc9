"""What the demo measured, as figures, and what was wrong with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.proxy.demo.agent import Answer
from agentspec.proxy.demo.outcomes import Outcomes, Trace
from agentspec.proxy.demo.questions import Question

TITLE = "the same agent, serial and through agentspec"
_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Pair:
    """One question, asked once in each arm."""

    question: Question
    serial: Answer
    speculative: Answer

    @property
    def ratio(self) -> float:
        return self.speculative.seconds / self.serial.seconds

    @property
    def identical(self) -> bool:
        """The same words, after the same calls with the same results."""
        return (self.serial.text, self.serial.calls) == (self.speculative.text, self.speculative.calls)

    @property
    def right(self) -> bool:
        return all(self.question.answered_by(answer.text) for answer in (self.serial, self.speculative))


@dataclass(frozen=True)
class DemoReport:
    """All pairs of a run, how its bets ended, and what the books say of the typical pair's speculative run."""

    pairs: tuple[Pair, ...]
    outcomes: Outcomes
    trace: Trace | None = None

    @property
    def ok(self) -> bool:
        return not self.problems()

    def problems(self) -> list[str]:
        """Each answer that differs between the arms or is wrong, both shown."""
        return [text for pair in self.pairs for text in _problems(pair)]

    def figures(self) -> Report:
        serial = sum(pair.serial.seconds for pair in self.pairs)
        speculative = sum(pair.speculative.seconds for pair in self.pairs)
        low, high = ratio_interval([(pair.speculative.seconds, pair.serial.seconds) for pair in self.pairs])
        asked, booked = len(self.pairs), self.outcomes
        tools = sum(pair.serial.time_in("tool") for pair in self.pairs)
        figures = (
            Figure("serial_s", serial, "s", n=asked),
            Figure("agentspec_s", speculative, "s", n=asked),
            Figure("ratio", speculative / serial, "agentspec_s / serial_s", low, high, asked),
            Figure("ratio_high", high, "upper end of its 95% interval", n=asked),
            Figure("probe_hits", booked.probe_hits, "hits", n=booked.claims),
            Figure("hits_per_claim", booked.hits_per_claim, "share of real calls", n=booked.claims),
            Figure("same_result", all(pair.identical for pair in self.pairs), "answers, calls and results", n=asked),
            Figure("right_answers", sum(pair.right for pair in self.pairs), "questions, right in both arms", n=asked),
            Figure("joined", booked.joined, "bets", n=booked.claims),
            Figure("misses", booked.misses, "bets", n=booked.claims),
            Figure("tool_share", tools / serial, "share of serial_s", n=asked),
        )
        return Report(TITLE, figures, environment())


def typical(pairs: Sequence[Pair]) -> int:
    """The index of the pair with the median ratio."""
    return sorted(range(len(pairs)), key=lambda index: pairs[index].ratio)[len(pairs) // 2]


def _problems(pair: Pair) -> list[str]:
    both = f"serial: {_told(pair.serial)}\n  agentspec: {_told(pair.speculative)}"
    problems = []
    if not pair.identical:
        problems.append(f"{pair.question.text} The two arms differ.\n  {both}")
    if not pair.right:
        problems.append(f"{pair.question.text} A right answer contains {pair.question.fact!r}.\n  {both}")
    return problems


def _told(answer: Answer) -> str:
    return " · ".join([*answer.calls, repr(answer.text)])


def ratio_interval(pairs: Sequence[tuple[float, float]], level: float = 0.95, seed: int = 7) -> tuple[float, float]:
    """A percentile bootstrap of Σ first / Σ second: whole pairs are drawn again, so what they share stays shared."""
    draw = random.Random(seed)
    ratios = sorted(_ratio_of_sums(draw.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    outside = int(_RESAMPLES * (1.0 - level) / 2.0)
    return ratios[outside], ratios[-outside - 1]


def _ratio_of_sums(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(first for first, _ in pairs) / sum(second for _, second in pairs)
