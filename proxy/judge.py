"""Puts the gate's question for one prediction or one probe: what was measured, what is allowed, what is going on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentspec.calls import ToolCall, same_call
from agentspec.config import Engine
from agentspec.effects import ToolSpec
from agentspec.gating.averages import Averages
from agentspec.gating.calibration import Calibration, Claimed
from agentspec.gating.gate import Bet as Question
from agentspec.gating.gate import Policy, Verdict, worth_chaining, worth_probing, worth_running
from agentspec.gating.runway import Phase, Progress
from agentspec.gating.sketch import Points, expected_min, summed
from agentspec.protocols import LiveTurn, Prediction
from agentspec.proxy.brakes import PROBE, Brakes
from agentspec.proxy.live import Live
from agentspec.trajectory import calls_in, depth, since_the_user_spoke

EAGER = "eager"
"""Predictor name of calls that are known, not guessed: their JSON has closed and more of the answer is to come."""

_SOON_S = 0.02
"""A probe that takes longer than usual is held to be over in no less than this."""


_REFUTED = 0.5
"""How often what a call gave shows a wrong guess to be wrong that was made without knowing it."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """How far a guess is beyond the running answer: so many turns, and so many of the calls that it rests on have no
    result yet."""

    ahead: int
    waits: int


@dataclass(frozen=True, slots=True)
class Guess:
    """A prediction with what it is worth: the question that calibration was asked, and its answer."""

    prediction: Prediction
    claimed: Claimed
    probability: float
    known: int = 0
    """Calls that the answer had made when it was offered."""
    offered_s: float = 0.0

    @property
    def chance(self) -> float:
        """That the bet is won: of a chain the product."""
        return self.probability * self.prediction.rests_on


@dataclass(slots=True)
class Judge:
    """Asks the gate. `probed`: the kinds of endpoint that may be probed."""

    averages: Averages
    calibration: Calibration
    policy: Policy
    brakes: Brakes
    tools_off: frozenset[str] = frozenset()
    probed: frozenset[Engine] = field(default_factory=frozenset)

    def guess(self, turn: Live, prediction: Prediction) -> Guess:
        """What a prediction is worth."""
        call, eager = prediction.call, prediction.predictor == EAGER
        spec = turn.tools.get(call.name)
        made = [] if eager or prediction.calibrated else calls_in(since_the_user_spoke(turn.history))
        again = any(same_call(call, one, spec.parameters if spec else None) for one in made)
        claimed = Claimed(prediction.predictor, call.name, prediction.confidence, prediction.calibrated, again)
        probability = prediction.confidence if eager else self.calibration.probability(claimed)
        return Guess(prediction, claimed, probability, len(turn.calls), turn.elapsed_s())

    def run(self, turn: Live, spec: ToolSpec, guess: Guess, runs_so_far: int, *, may_wait: bool = False) -> Verdict:
        """Should this guess be run ahead?"""
        if (refused := self._refuses(turn, spec, guess.prediction)) is not None:
            return no(refused)
        return worth_running(self._question(turn, spec, guess, runs_so_far, may_wait), self.policy)

    def _refuses(self, turn: Live, spec: ToolSpec, prediction: Prediction) -> str | None:
        if spec.name in self.tools_off:
            return f"{spec.name} is switched off (tools_off)"
        return self.brakes.refuses_run(turn, spec, prediction)

    def _question(self, turn: Live, spec: ToolSpec, guess: Guess, runs_so_far: int, may_wait: bool) -> Question:
        prediction = guess.prediction
        latency = self.averages.tool_latency(spec.name, spec.fingerprint)
        progress = turn.progress()
        eager = prediction.predictor == EAGER
        bound = 0.0
        if not eager:
            bound = self.calibration.bound(prediction.answerable).least(calibrated=prediction.calibrated)
        waits = may_wait and not eager and prediction.predictor != PROBE
        opinion_in_s, refutes = self._opinion(turn, progress) if waits else (None, 0.0)
        return Question(
            confidence=guess.probability,
            latency=latency.points(),
            runway=self.averages.runway(turn.request.model).left(progress),
            miss_s=latency.value * self.averages.discarded_share(spec.name, spec.fingerprint).value,
            miss_share=self.brakes.miss_cost_share(spec.name),
            egress=spec.egress,
            runs_so_far=runs_so_far,
            least=bound,
            rests_on=prediction.rests_on,
            opinion_in_s=opinion_in_s,
            refutes=refutes,
        )

    def chain(self, turn: Live, spec: ToolSpec, guess: Guess, runs_so_far: int, beyond: Beyond) -> Verdict:
        """Should a call of a later turn be run already?"""
        if (refused := self._refuses(turn, spec, guess.prediction)) is not None:
            return no(refused)
        now, later = self._runways(turn, beyond)
        question = self._question(turn, spec, guess, runs_so_far, may_wait=False)
        question = replace(question, runway=now, refutes=_REFUTED if beyond.waits else 0.0)
        return worth_chaining(question, self.policy, later)

    def may_look_ahead(self, turn: Live, beyond: Beyond) -> bool:
        """Whether the slowest tool is slow enough that to begin before its turn does saves something."""
        now, later = self._runways(turn, beyond)
        sketches = (self.averages.tool_latency(spec.name, spec.fingerprint) for spec in turn.tools.values())
        slowest = max(sketches, key=lambda latency: latency.value).points()
        return expected_min(slowest, now) - expected_min(slowest, later) >= self.policy.min_saving_s

    def _runways(self, turn: Live, beyond: Beyond) -> tuple[Points, Points]:
        """R of a call of a later turn: from now on, and from when it is next asked whether to run it."""
        model = turn.request.model
        runway = self.averages.runway(model)
        later = runway.left(Progress(Phase.WAITING, 0.0))
        now = summed(self.averages.pause(model, beyond.waits).points(), later)
        for _ in range(1, beyond.ahead):
            now, later = summed(now, now), now
        return (now if turn.ended else summed(runway.left(turn.progress()), now)), later

    def _opinion(self, turn: Live, progress: Progress) -> tuple[float | None, float]:
        """When this turn's probe is likely to say what it thinks, and how often it shows a wrong guess to be wrong."""
        model = turn.request.model
        if turn.engine not in self.probed:
            return None, 0.0
        usual_s, hits = self.averages.probe_time(PROBE, model).value, self.averages.probe_hits(model).value
        if turn.probe is not None:
            return max(_SOON_S, usual_s - (progress.elapsed_s - turn.probe.started_s)), hits
        if progress.phase is not Phase.WAITING:
            return None, 0.0
        first_s = max(0.0, self.averages.runway(model).first_s.value - progress.elapsed_s)
        return first_s + usual_s, hits * self.averages.probed(model).value

    def after_closing(self, turn: Live, spec: ToolSpec, guess: Guess) -> Verdict:
        """Should a call that has just closed be started, though nothing may follow it but the end of the answer?"""
        left = self.averages.runway(turn.request.model).left_after_closing()
        if left is None:
            return no("how soon calls are claimed is not known yet")
        if (refused := self._refuses(turn, spec, guess.prediction)) is not None:
            return no(refused)
        latency = self.averages.tool_latency(spec.name, spec.fingerprint)
        return worth_running(Question(guess.probability, latency.points(), left), self.policy)

    def still_worth(self, turn: Live, spec: ToolSpec, probability: float) -> bool:
        """Whether a run goes on to pay now that the answer has called something else: only if another call follows."""
        latency = self.averages.tool_latency(spec.name, spec.fingerprint)
        more = 0.0 if turn.request.one_call else self.averages.more_calls(turn.tenant, turn.request.model).value
        question = Question(
            confidence=probability * more,
            latency=latency.points(),
            runway=self.averages.runway(turn.request.model).left(turn.progress()),
            miss_s=latency.value,
            miss_share=self.brakes.miss_cost_share(spec.name),
        )
        return worth_running(question, self.policy).go

    def probe(self, turn: LiveTurn) -> Verdict:
        """Should the turn be forked? Is a call likely, can a tool run ahead, is there runway, is there room?"""
        if not turn.tools or turn.call_began:
            return no("nothing could be run ahead any more")
        refused = self.brakes.refuses_probe(turn)
        if refused is not None:
            return no(refused)
        averages, model = self.averages, turn.request.model
        question = Question(
            confidence=averages.call_rate(turn.tenant, model, depth(turn.history)).value
            * averages.probe_hits(model).value,
            latency=_any_of(averages.tool_latency(name, one.fingerprint).points() for name, one in turn.tools.items()),
            runway=averages.runway(model).left(turn.progress()),
            probe_time_s=averages.probe_time(PROBE, model).value,
            slowdown=averages.slowdown(model).value,
        )
        return worth_probing(question, self.policy)


def no(why: str) -> Verdict:
    """A veto that needs no arithmetic."""
    return Verdict(False, 1.0, 0.0, why)


def _any_of(distributions: Iterable[Points]) -> Points:
    """The latency of a tool of which nobody knows yet which it is."""
    mixed = []
    for points in distributions:
        total = sum(weight for _, weight in points)
        mixed += [(value, weight / total) for value, weight in points]
    return sorted(mixed)


def is_call(call: ToolCall, others: Iterable[ToolCall], spec: ToolSpec | None) -> bool:
    """Whether a call is one of these."""
    return any(same_call(call, other, spec.parameters if spec else None) for other in others)
