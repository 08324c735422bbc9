"""What a turn teaches the gate, whether or not anything of it was run ahead: once, when its answer is over."""

from __future__ import annotations

from agentspec.calls import canonical_json
from agentspec.events import CallNamed, ReasoningDelta, TextDelta
from agentspec.proxy.brakes import PROBE
from agentspec.proxy.judge import Guess, Judge, is_call
from agentspec.proxy.live import Live
from agentspec.trajectory import depth


class Lessons:
    """Collects every guess of one turn, and how far the answer had got when its call began."""

    def __init__(self, judge: Judge, turn: Live) -> None:
        self._judge = judge
        self._turn = turn
        self.guesses: list[Guess] = []
        self.came: list[bool] | None = None
        """Which of them came true; None before `learn`."""

    def offered(self, guess: Guess) -> None:
        """A predictor guessed a call that the answer had not made yet."""
        self.guesses.append(guess)

    def about_to_see(self, event: CallNamed | TextDelta | ReasoningDelta) -> None:
        """The answer says its first word, or begins its first call."""
        turn = self._turn
        if turn.call_began or not (turn.silent or isinstance(event, CallNamed)):
            return
        runway = self._judge.averages.runway(turn.request.model)
        if isinstance(event, CallNamed):
            runway.call_began(turn.progress())
        else:
            runway.first_s.add(turn.elapsed_s())

    def learn(self) -> None:
        """The answer is whole: every guess was right or wrong."""
        turn, judge = self._turn, self._judge
        judge.averages.call_rate(turn.tenant, turn.request.model, depth(turn.history)).add(float(bool(turn.calls)))
        more = judge.averages.more_calls(turn.tenant, turn.request.model)
        for nth in range(1, len(turn.calls) + 1):
            more.add(float(nth < len(turn.calls)))
        if (slowdown := turn.pace.slowdown) is not None:
            judge.averages.slowdown(turn.request.model).add(slowdown)
        right = self.came = [self._came(guess) for guess in self.guesses]
        self._calibrate(right)
        self._judge_probes(right)
        judge.brakes.turn_over(turn, came_true=any(right), s_per_char=turn.pace.s_per_char)

    def _came(self, guess: Guess) -> bool:
        call = guess.prediction.call
        return is_call(call, self._turn.calls[guess.known :], self._turn.tools.get(call.name))

    def _came_first(self, guess: Guess) -> bool:
        """Whether what it was to follow came, so that its own confidence was put to the test."""
        made = self._turn.calls[guess.known :]
        return all(is_call(call, made, self._turn.tools.get(call.name)) for call in guess.prediction.follows)

    def _calibrate(self, right: list[bool]) -> None:
        """Each guess teaches what confidences are worth; each call, at its surest, what the bound lets through."""
        calibration = self._judge.calibration
        surest: dict[tuple[str, str, str], tuple[float, bool]] = {}
        for guess, came in zip(self.guesses, right, strict=True):
            if self._came_first(guess):
                calibration.add(guess.claimed, guess.probability, came)
            call = guess.prediction.call
            key = guess.prediction.answerable, call.name, canonical_json(call.arguments)
            before, came_before = surest.get(key, (0.0, False))
            surest[key] = max(before, guess.chance), came or came_before
        for (who, _, _), (probability, came) in surest.items():
            calibration.bound(who).add(probability, came)

    def _judge_probes(self, right: list[bool]) -> None:
        """How often a probe names the call of a turn that makes one."""
        turn, averages = self._turn, self._judge.averages
        named = [came for guess, came in zip(self.guesses, right, strict=True) if guess.claimed.predictor == PROBE]
        if turn.engine in self._judge.probed and not turn.held_out:
            averages.probed(turn.request.model).add(float(bool(named)))
        if named and turn.calls:
            averages.probe_hits(turn.request.model).add(float(any(named)))
