"""Speculation beside one turn: reads the relay's copy, lets speculators guess, asks the gate, places bets.

It runs in tasks of its own that nothing awaits: whatever hangs or raises here, the relay never notices.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from agentspec.calls import ToolCall
from agentspec.events import CallComplete, CallNamed, OtherChoiceCalls, ReasoningDelta, TextDelta, TurnEvent
from agentspec.gating.gate import Verdict
from agentspec.protocols import Headers, Prediction, Speculator
from agentspec.proxy.answer_decoder import AnswerDecoder
from agentspec.proxy.bet import Bet
from agentspec.proxy.brakes import PROBE
from agentspec.proxy.chains import Carried
from agentspec.proxy.desk import Desk
from agentspec.proxy.judge import EAGER, Guess, is_call, no
from agentspec.proxy.lessons import Lessons
from agentspec.proxy.live import Live
from agentspec.proxy.reading import Reading
from agentspec.proxy.runtimes import UNSEEN, RuntimeLink
from agentspec.proxy.waiting import Waiting

log = logging.getLogger("agentspec.bets")


class TurnBets:
    """One turn's speculation, from request to settled. Implements the relay's `Observer`."""

    def __init__(self, desk: Desk, turn: Live, link: RuntimeLink | None, *, speculation: bool = True) -> None:
        self._desk = desk
        self._turn = turn
        self._link = link
        self._learns = speculation
        self._guesses = speculation and not turn.held_out
        self._decoder: AnswerDecoder | None = None
        self._reading = Reading(desk.rounds, self._read)
        self._tasks: list[asyncio.Task[None]] = []
        self._bets: list[Bet] = []
        self._lessons = Lessons(desk.judge, turn)
        self._waiting = Waiting(self._reconsider)
        self._chain = desk.chains.begin(turn, link if self._guesses else None, self._bets)
        self._known: list[tuple[ToolCall, bool]] = []
        self._unfinished: dict[int, str] = {}
        """Calls that have begun and not closed yet: their index, and the key of the window that a write opened."""
        self._pending = False
        self._finished = False

    def start(self) -> None:
        """Let the speculators guess, side by side. Without a runtime nothing could run ahead: none are asked."""
        if self._link is None or not self._turn.tools or not self._guesses:
            return
        for speculator in self._desk.speculators:
            self._tasks.append(asyncio.create_task(self._guess(speculator), name=f"agentspec-{speculator.name}"))

    def take_over(self, carried: Carried) -> None:
        """What the turn before this one has bet on, and guessed, of its calls."""
        for bet in carried.bets:
            if self._guesses and bet.link is self._link:
                bet.hand_on(self._turn, self._chain.ran)
                self._bets.append(bet)
            else:
                self._desk.books.cancel([bet], "unclaimed", "its runtime does not serve the next turn")
        for guess in carried.guesses:
            self._lessons.offered(replace(guess, offered_s=guess.offered_s - self._turn.began_s))

    async def _guess(self, speculator: Speculator) -> None:
        """The root of a speculator: whatever it raises ends here."""
        try:
            await speculator.speculate(self._turn, lambda prediction: self._offered(speculator.name, prediction))
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self._desk.fault(speculator.name, error)

    def _offered(self, who: str, prediction: Prediction) -> None:
        try:
            prediction.check()
            if self._finished or self._link is None or not self._guesses:
                return
            guess = self._desk.judge.guess(self._turn, prediction)
            if prediction.predictor != EAGER and not self._is_known(prediction.call):
                self._lessons.offered(guess)
            self._consider(guess)
        except Exception as error:  # rubbish instead of a prediction
            self._desk.fault(who, error)

    def _consider(self, guess: Guess, *, may_wait: bool = True) -> None:
        """Ask the gate about a guess, unless a run of that call goes on already or it is no guess any more."""
        link, prediction = self._link, guess.prediction
        eager = prediction.predictor == EAGER
        if link is None or self._finished or self._bet_on(prediction.call):
            return
        if not eager and self._is_known(prediction.call):
            return
        if self._waiting.holds(prediction.call):
            if prediction.predictor != PROBE:
                return
            self._waiting.drop(prediction.call)
        verdict = self._verdict(guess, link, may_wait=may_wait)
        if verdict.wait_s:
            self._waiting.hold(guess, verdict.wait_s)
            return
        bet = self._place(guess, verdict, link)
        if eager:
            bet.matched = True
        elif verdict.go and prediction.predictor == PROBE:
            self._waiting.second_opinion(guess.chance)

    def _reconsider(self, guess: Guess) -> None:
        """It has waited long enough."""
        try:
            self._consider(guess, may_wait=False)
        except Exception as error:
            self._desk.fault(guess.prediction.predictor, error)

    def _place(self, guess: Guess, verdict: Verdict, link: RuntimeLink) -> Bet:
        bet = Bet(self._turn, guess.prediction, verdict, link, probability=guess.chance, told=self._chain.ran)
        self._bets.append(bet)
        self._desk.books.place(bet)
        return bet

    def _bet_on(self, call: ToolCall) -> bool:
        spec = self._turn.tools.get(call.name)
        return is_call(call, (bet.prediction.call for bet in self._bets if bet.verdict.go), spec)

    def _is_known(self, call: ToolCall) -> bool:
        return is_call(call, (known for known, _ in self._known), self._turn.tools.get(call.name))

    def _verdict(self, guess: Guess, link: RuntimeLink, *, may_wait: bool) -> Verdict:
        spec = self._turn.tools.get(guess.prediction.call.name)
        if spec is None:
            return no(f"{guess.prediction.call.name} is not declared as one that may run ahead")
        if (unsafe := self._desk.books.unsafe(self._turn, spec, link)) is not None:
            return no(unsafe)
        runs = sum(bet.verdict.go for bet in self._bets)
        return self._desk.judge.run(self._turn, spec, guess, runs, may_wait=may_wait)

    # Observer

    def opened(self, status: int, headers: Headers) -> None:
        self._turn.status = status
        self._decoder = AnswerDecoder(headers, self._turn.api) if status == 200 else None
        if self._decoder is not None and not self._decoder.readable:
            self._blind()
        elif self._turn.request.background:  # its calls come later, in the answer to another request
            self._hold_reads()

    def relayed(self, chunk: bytes) -> None:
        if self._link is not None and not self._pending and not self._turn.request.stream:
            self._pending = True
            self._link.undecoded += 1
        shows_call = self._decoder is not None and self._decoder.may_show_call(chunk)
        self._reading.add(chunk, at_once=shows_call or self._turn.silent)

    def _read(self, data: bytes) -> None:
        if self._turn.first_byte_s is None:
            self._turn.first_byte_s = self._turn.elapsed_s()
        try:
            if self._decoder is not None:
                for event in self._decoder.feed(data):
                    self._see(event)
        except Exception as error:
            self._desk.fault("reader", error)
            self._blind()

    def _blind(self) -> None:
        """This answer cannot be read, so it may hold a call that writes: hold reads back until it is done with."""
        self._decoder = None
        self._hold_reads()

    def _hold_reads(self) -> None:
        self._turn.unseen = True
        if self._link is not None:
            self._link.open_window(self._turn.id, UNSEEN, self._desk.write_window_s)
            self._desk.books.write_relayed(self._link)

    def _decoded(self) -> None:
        if self._link is not None and self._pending:
            self._pending = False
            self._link.undecoded -= 1
            if not self._link.undecoded:
                self._desk.books.all_read(self._link)

    def _see(self, event: TurnEvent) -> None:
        if isinstance(event, (TextDelta, ReasoningDelta)):
            if self._turn.silent:
                self._lessons.about_to_see(event)
            self._turn.take(event)
            return
        if isinstance(event, CallNamed):
            self._lessons.about_to_see(event)
        self._turn.take(event)
        key = None
        if isinstance(event, CallComplete) and not event.broken_off:
            key = self._unfinished.pop(event.index, None)
        if isinstance(event, CallNamed):
            self._unfinished[event.index] = event.id or str(event.index)
            self._call_named(event)
        elif isinstance(event, OtherChoiceCalls):
            self._may_write(event.name, event.id or "other choice")
        elif isinstance(event, CallComplete) and event.call is not None and self._link is not None:
            self._call_closed(event.call, self._link, key)

    def _call_closed(self, call: ToolCall, link: RuntimeLink, key: str | None) -> None:
        """A call is known. It is started at once where that pays, and what it shows to be wrong is stopped."""
        bet_on = self._desk.books.call_known(self._turn, call, link, key)
        self._known.append((call, bet_on))
        if not self._guesses or self._finished:
            return
        try:
            self._redirect(call)
            if not bet_on:
                self._start_now(call, link)
        except Exception as error:
            self._desk.fault(EAGER, error)

    def _redirect(self, call: ToolCall) -> None:
        """Stop the runs that pay only if yet another call follows, and one hardly ever does."""
        for bet in self._desk.books.of_turn(self._turn):
            spec = self._turn.tools.get(bet.prediction.call.name)
            if bet.matched or not bet.running or spec is None or is_call(call, bet.prediction.follows, None):
                continue
            if bet.lives_on and (bet.base is None or bet.base.matched):
                continue
            if not self._desk.judge.still_worth(self._turn, spec, bet.probability):
                self._desk.books.cancel([bet], "miss", f"the turn called {call.name}, and seldom calls twice")

    def _start_now(self, call: ToolCall, link: RuntimeLink) -> None:
        """The agent claims only when the answer is over: where that usually takes long enough, start meanwhile."""
        spec = self._turn.tools.get(call.name)
        if spec is None or self._bet_on(call) or self._desk.books.unsafe(self._turn, spec, link) is not None:
            return
        guess = self._desk.judge.guess(self._turn, Prediction(call, EAGER, 1.0, 1.0))
        verdict = self._desk.judge.after_closing(self._turn, spec, guess)
        if verdict.go:
            self._place(guess, verdict, link).matched = True

    def _call_named(self, event: CallNamed) -> None:
        if self._may_write(event.name, event.id or str(event.index)):
            return
        for call, bet_on in self._known:  # another call follows, so there is time to start those that closed
            if not bet_on:
                self._offered(EAGER, Prediction(call, EAGER, 1.0, 1.0))

    def _may_write(self, tool: str, call: str) -> bool:
        """A call of this tool goes out: if it may write, reads are held back until its result is here."""
        link = self._link
        if link is None or not link.writes(tool):
            return False
        if self._turn.dropped:
            return True
        link.open_window(self._turn.id, call, self._desk.write_window_s)
        self._desk.books.write_relayed(link, self._turn, tool)
        return True

    # The end

    def finish(self, *, client_left: bool, note: str = "") -> None:
        """The answer is over, one way or another. Never raises."""
        if self._finished:
            return
        self._reading.now()
        try:
            self._finish(client_left, note)
        except Exception as error:
            self._desk.fault("settlement", error)
        finally:
            self._finished = True
            self._decoded()

    def _finish(self, client_left: bool, note: str) -> None:
        for task in self._tasks:
            task.cancel()
        if self._decoder is not None and not client_left:
            for event in self._decoder.finish():
                self._see(event)
        gone = client_left and not (self._turn.ended or self._turn.all_calls_closed)
        self._turn.broken = self._turn.broken or bool(gone or note)
        if self._turn.broken and self._link is not None:  # nobody can act on half a call
            self._link.close_windows(self._turn.id, frozenset(self._unfinished.values()))
        self._turn.end()
        for guess in self._waiting.give_up():
            if self._link is not None:
                self._place(guess, no("it waited for a probe until the answer was over"), self._link)
        self._desk.books.answer_over(self._turn, client_left=gone)
        self._chain.over()
        self._desk.note_turn(self._turn, self._link, "the client left" if gone else note)
        if self._learns and not self._turn.broken and self._turn.status == 200:
            self._lessons.learn()
            if self._desk.learner is not None:
                self._desk.learner.over(self._turn)
        self._desk.scribe.predictions(self._turn, self._lessons.guesses, self._lessons.came, self._bets)
