"""Chained predictions: what the trajectory's next turn calls, predicted on what this one's calls have given so far.

A run ahead that is over, or an answer that is over, is taken for what the next request will tell, and memory is asked
what comes after that. A call that is bet on this way outlives the stream if what it rests on was called; it is handed
on to the next turn, which makes that call or does not. What is assumed only looks further: nobody is served it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from agentspec import clock
from agentspec.calls import ToolCall
from agentspec.gating.gate import Verdict
from agentspec.protocols import Foresees, Prediction
from agentspec.proxy.bet import Bet
from agentspec.proxy.books import Books
from agentspec.proxy.judge import Beyond, Guess, Judge, is_call, no
from agentspec.proxy.live import Live
from agentspec.proxy.runtimes import RuntimeLink
from agentspec.trajectory import ASSISTANT, TOOL, Said, visible_text

LEAST_ASSUMED = 0.3
"""A guess that is less likely is not looked beyond."""

MAX_ASKED = 8
"""Times that memory is asked for one turn's chains."""

_MAX_TURNS = 512
"""That wait to be continued; of older ones nothing more is foreseen."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What a turn takes over from the one before: bets that are still open, and guesses that are about it (of which
    `offered_s` is a moment of the monotonic clock)."""

    bets: Sequence[Bet] = ()
    guesses: Sequence[Guess] = ()


@dataclass(slots=True)
class Chains:
    """The chains of all turns that nobody has continued yet. `foresees`: None where nothing is looked ahead for."""

    books: Books
    judge: Judge
    fault: Callable[[str, BaseException], None]
    depth: int = 0
    foresees: Foresees | None = None
    _live: dict[str, Chain] = field(default_factory=dict)

    def begin(self, turn: Live, link: RuntimeLink | None, bets: list[Bet]) -> Chain:
        """A turn begins; `bets`: all of its bets, as they are placed."""
        chain = Chain(self, turn, link, bets)
        if link is None or self.foresees is None or self.depth < 1:
            return chain
        self._live[turn.id] = chain
        while len(self._live) > _MAX_TURNS:
            self._live.pop(next(iter(self._live))).end()
        return chain

    def go_on(self, turn_id: str, *, with_results: bool) -> Carried:
        """The trajectory went on after this turn; `with_results`: with what its calls have given, and no more."""
        chain = self._live.pop(turn_id, None)
        bets = self.books.next_request(turn_id, with_results=with_results)
        if chain is None:
            return Carried(bets)
        return Carried(bets, chain.end(with_results=with_results))

    def expire(self, older_than_s: float) -> None:
        """Let go of turns that nobody continued for so long."""
        since_s = clock.monotonic() - older_than_s
        for identity in [identity for identity, chain in self._live.items() if (chain.over_s or since_s) < since_s]:
            self._live.pop(identity).end()


class Chain:
    """What is predicted beyond one turn. `over_s`: when its answer was over, monotonic clock; None before."""

    def __init__(self, chains: Chains, turn: Live, link: RuntimeLink | None, bets: list[Bet]) -> None:
        self._chains = chains
        self._turn = turn
        self._link = link
        self._bets = bets
        self._guesses: list[tuple[Guess, Bet | None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._asked: set[tuple[str, ...]] = set()
        self._waits = 0
        self.over_s: float | None = None

    def ran(self, bet: Bet) -> None:
        """A run of this turn's is over."""
        over = self.over_s is not None
        if bet.ahead >= self._chains.depth or bet.probability < LEAST_ASSUMED or (over and not bet.matched):
            return
        self._look_beyond(None if over else bet)

    def over(self) -> None:
        """The turn's answer is over: if it is whole, what it called is known."""
        self.over_s = clock.monotonic()
        if self._turn.calls and not self._turn.broken:
            self._waits = self._waiting(self._turn.calls)
            self._look_beyond(None)

    def end(self, *, with_results: bool = False) -> list[Guess]:
        """Look no further. The guesses about the turn that begins; the others were wrong."""
        for task in self._tasks:
            task.cancel()
        if with_results and self.over_s is not None and self._turn.calls:
            pause = self._chains.judge.averages.pause(self._turn.request.model, self._waits)
            pause.add(clock.monotonic() - self.over_s)
        live = []
        for guess, base in self._guesses:
            if with_results and (base is None or base.matched):
                live.append(replace(guess, known=0, offered_s=guess.offered_s + self._turn.began_s))
            else:
                self._chains.judge.calibration.bound(guess.prediction.answerable).add(guess.chance, False)
        return live

    # Asking

    def _look_beyond(self, base: Bet | None) -> None:
        """Ask memory what comes after this bet, or after the calls of the answer (None)."""
        foresees, link, turn = self._chains.foresees, self._link, self._turn
        if foresees is None or link is None or not turn.tools or self._chains.depth < 1 or turn.dropped:
            return
        calls = self._assumed_calls(base)
        if any(link.writes(call.name) for call in calls) or len(self._asked) >= MAX_ASKED:
            return
        ahead = 1 + (base.ahead if base is not None else 0)
        if not self._chains.judge.may_look_ahead(turn, Beyond(ahead, self._waiting(calls))):
            return
        messages = self._messages(calls, base)
        asked = tuple(f"{one.calls} {one.answers}" for one in messages)
        if asked not in self._asked:
            self._asked.add(asked)
            self._tasks.append(asyncio.create_task(self._foresee(foresees, messages, base), name="agentspec-chain"))

    def _assumed_calls(self, base: Bet | None) -> list[ToolCall]:
        """The calls after which something is predicted, in their order: those of one answer."""
        if base is not None and base.ahead:
            return [base.prediction.call]
        calls = list(self._turn.calls)
        if base is not None:
            for call in (*base.prediction.follows, base.prediction.call):
                if not is_call(call, calls, self._turn.tools.get(call.name)):
                    calls.append(call)
        return calls

    def _waiting(self, calls: Sequence[ToolCall]) -> int:
        """How many of these calls have no result yet that was run ahead."""
        return sum(self._run_of(call) is None for call in calls)

    def _run_of(self, call: ToolCall) -> Bet | None:
        """The finished run that was a bet on this call."""
        return next((b for b in self._bets if b.latency_s is not None and b.outcome != "failed" and b.fits(call)), None)

    def _messages(self, calls: Sequence[ToolCall], base: Bet | None) -> tuple[Said, ...]:
        """What is assumed to be said next: these calls, and their results as far as there are copies."""
        named = tuple(replace(call, id=f"assumed {nth}") for nth, call in enumerate(calls))
        later = base is not None and base.ahead > 0
        text = "" if later else visible_text(self._turn.said)
        found = [(call.id or "", run.copy) for call in named if (run := self._run_of(call)) and run.copy is not None]
        answer = Said(ASSISTANT, b"", named, frozenset(call.id or "" for call in named), text=text)
        results = Said(TOOL, b"", answers=tuple(i for i, _ in found), results=tuple(copy for _, copy in found))
        return (*(base.assumed if base is not None else ()), answer, results)

    async def _foresee(self, foresees: Foresees, messages: tuple[Said, ...], base: Bet | None) -> None:
        """The root of a look ahead: whatever it raises ends here."""
        try:
            for prediction in await foresees.after(self._turn, messages):
                prediction.check()
                self._consider(prediction, messages, base)
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self._chains.fault(foresees.name, error)

    def _consider(self, prediction: Prediction, messages: tuple[Said, ...], base: Bet | None) -> None:
        link, turn = self._link, self._turn
        if base is not None and not (base.matched or (base.open and (base.lives_on or not turn.ended))):
            return  # what it was to rest on has turned out to be wrong
        if link is None or turn.dropped or turn.broken or self._is_bet_on(prediction.call):
            return
        rests_on = base.probability if base is not None and not base.matched else 1.0
        guess = self._chains.judge.guess(turn, replace(prediction, rests_on=rests_on))
        self._guesses.append((guess, base))
        ahead = 1 + (base.ahead if base is not None else 0)
        bet = Bet(turn, guess.prediction, no(""), link, probability=guess.chance, ahead=ahead, base=base)
        bet.assumed, bet.told = messages, self.ran
        bet.verdict = self._verdict(bet, guess, self._waiting(messages[-2].calls))
        self._bets.append(bet)
        self._chains.books.place(bet)

    def _verdict(self, bet: Bet, guess: Guess, waits: int) -> Verdict:
        call, turn, books = bet.prediction.call, self._turn, self._chains.books
        spec = turn.tools.get(call.name)
        if spec is None or bet.link is None or not spec.effect.changes_nothing:
            return no(f"{call.name} is not declared as one that may run ahead of its turn")
        if (unsafe := books.unsafe(turn, spec, bet.link)) is not None:
            return no(unsafe)
        runs = sum(one.verdict.go for one in self._bets)
        return self._chains.judge.chain(turn, spec, guess, runs, Beyond(bet.ahead, waits))

    def _is_bet_on(self, call: ToolCall) -> bool:
        """Whether a run of this call waits already for somebody to make it."""
        waiting = [bet.prediction.call for bet in self._bets if bet.verdict.go and bet.open and not bet.matched]
        return is_call(call, waiting, self._turn.tools.get(call.name))
