"""Guesses that would pay but wait for the turn's probe, where that is free: a second opinion keeps wrong ones back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentspec.calls import ToolCall, same_call
from agentspec.proxy.judge import Guess

_LONGEST_S = 60.0


@dataclass(slots=True, eq=False)
class _Held:
    guess: Guess
    timer: asyncio.TimerHandle


class Waiting:
    """The guesses of one turn that wait. Each waits once: when its time is over it runs or is vetoed."""

    def __init__(self, consider: Callable[[Guess], None]) -> None:
        self._consider = consider
        self._held: list[_Held] = []

    def holds(self, call: ToolCall) -> bool:
        """Whether a guess of this call waits already."""
        return any(same_call(held.guess.prediction.call, call) for held in self._held)

    def hold(self, guess: Guess, wait_s: float) -> None:
        """Ask again after so long."""
        timer = asyncio.get_running_loop().call_later(min(wait_s, _LONGEST_S), self._over, guess)
        self._held.append(_Held(guess, timer))

    def _over(self, guess: Guess) -> None:
        """Its time is over; a timer that was not cancelled still has its guess here."""
        self._held = [held for held in self._held if held.guess is not guess]
        self._consider(guess)

    def drop(self, call: ToolCall) -> None:
        """Another guess of this call is considered in its place."""
        for held in [held for held in self._held if same_call(held.guess.prediction.call, call)]:
            held.timer.cancel()
            self._held.remove(held)

    def second_opinion(self, otherwise: float) -> None:
        """The probe names other calls with this probability: ask again at once."""
        for guess in self.give_up():
            self._consider(replace(guess, probability=guess.probability * (1.0 - otherwise)))

    def give_up(self) -> list[Guess]:
        """The answer is over: those that still waited."""
        held, self._held = self._held, []
        for one in held:
            one.timer.cancel()
        return [one.guess for one in held]
