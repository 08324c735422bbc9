"""Speculation beside one turn: reads the relay's copy, lets speculators guess, asks the gate, places bets.

It runs in tasks of its own that nothing awaits: whatever hangs or raises here, the relay never notices.
"""

from __future__ import annotations

import asyncio
import logging

from agentspec.averages import Mean
from agentspec.calls import ToolCall, same_call
from agentspec.events import CallComplete, CallNamed, OtherChoiceCalls, TurnEvent
from agentspec.gate import Bet as Question
from agentspec.gate import Verdict, worth_running
from agentspec.protocols import Headers, Prediction, Speculator
from agentspec.proxy.bet import Bet
from agentspec.proxy.desk import EAGER, Desk
from agentspec.proxy.live import AnswerDecoder, Live
from agentspec.proxy.runtimes import UNSEEN, RuntimeLink
from agentspec.trajectory import calls_in, depth, since_the_user_spoke

log = logging.getLogger("agentspec.bets")


class TurnBets:
    """One turn's speculation, from request to settled. Implements the relay's `Observer`."""

    def __init__(self, desk: Desk, turn: Live, link: RuntimeLink | None, *, speculation: bool = True) -> None:
        self._desk = desk
        self._turn = turn
        self._link = link
        self._speculation = speculation
        self._decoder: AnswerDecoder | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._bets: list[Bet] = []
        self._known: list[tuple[ToolCall, bool]] = []
        self._unfinished: dict[int, str] = {}
        """Calls that have begun and not closed yet: their index, and the key of the window that a write opened."""
        self._pending = False
        self._finished = False

    def start(self) -> None:
        """Let the speculators guess, side by side. Without a runtime nothing could run ahead: none are asked."""
        if self._link is None or not self._turn.tools or not self._speculation:
            return
        for speculator in self._desk.speculators:
            self._tasks.append(asyncio.create_task(self._guess(speculator), name=f"agentspec-{speculator.name}"))

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
            self._consider(prediction)
        except Exception as error:  # rubbish instead of a prediction
            self._desk.fault(who, error)

    def _consider(self, prediction: Prediction) -> None:
        link, call = self._link, prediction.call
        if self._finished or link is None or not self._speculation:
            return
        spec = self._turn.tools.get(call.name)
        parameters = spec.parameters if spec is not None else None
        if any(bet.verdict.go and same_call(call, bet.prediction.call, parameters) for bet in self._bets):
            return
        if any(same_call(call, known, parameters) for known, _ in self._known) and prediction.predictor != EAGER:
            return
        bet = Bet(self._turn, prediction, self._verdict(prediction, link), link)
        self._bets.append(bet)
        self._desk.books.place(bet)
        if prediction.predictor == EAGER:
            bet.matched = True

    def _verdict(self, prediction: Prediction, link: RuntimeLink) -> Verdict:
        spec = self._turn.tools.get(prediction.call.name)
        if spec is None:
            return Verdict(False, 1.0, 0.0, f"{prediction.call.name} is not declared as one that may run ahead")
        if spec.name in self._desk.tools_off:
            return Verdict(False, 1.0, 0.0, f"{spec.name} is switched off (tools_off)")
        if spec.egress and self._desk.books.egress_spent(self._turn.tenant):
            return Verdict(False, 1.0, 0.0, "the egress budget of this hour is spent")
        if spec.depends_on and link.writing():
            return Verdict(False, 1.0, 0.0, "a call that may write is going on")
        question = Question(
            confidence=prediction.confidence * self._trust(prediction),
            tool_latency_s=self._desk.averages.tool_latency(spec.name, spec.fingerprint).value,
            runway_s=self._desk.runway_s(self._turn),
            egress=spec.egress,
            runs_so_far=sum(bet.verdict.go for bet in self._bets),
        )
        return worth_running(question, self._desk.policy)

    def _trust(self, prediction: Prediction) -> float:
        if prediction.predictor == EAGER:
            return 1.0
        if prediction.calibrated:
            return self._desk.averages.trust(prediction.predictor).value
        return self._record(prediction).value

    def _record(self, prediction: Prediction) -> Mean:
        """How often such guesses were right. A call that was made since the user spoke has a record of its own."""
        spec = self._turn.tools.get(prediction.call.name)
        made = calls_in(since_the_user_spoke(self._turn.history))
        again = any(same_call(prediction.call, call, spec.parameters if spec else None) for call in made)
        averages = self._desk.averages
        record = averages.again_rate if again else averages.hit_rate
        return record(prediction.predictor, prediction.call.name)

    # Observer

    def opened(self, status: int, headers: Headers) -> None:
        self._turn.status = status
        self._decoder = AnswerDecoder(headers, self._turn.api) if status == 200 else None
        if self._decoder is not None and not self._decoder.readable:
            self._blind()
        elif self._turn.request.background:  # its calls come later, in the answer to another request
            self._hold_reads()

    def sending(self) -> None:
        if self._link is not None and not self._pending:
            self._pending = True
            self._link.undecoded += 1

    def sent(self, chunk: bytes) -> None:
        if self._turn.first_byte_s is None:
            self._turn.first_byte_s = self._turn.elapsed_s()
        try:
            if self._decoder is not None:
                for event in self._decoder.feed(chunk):
                    self._see(event)
        except Exception as error:
            self._desk.fault("reader", error)
            self._blind()
        if self._turn.request.stream:
            self._decoded()

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
            self._known.append((event.call, self._desk.books.call_known(self._turn, event.call, self._link, key)))

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
        self._desk.books.answer_over(self._turn, client_left=gone)
        self._write_turn("the client left" if gone else note)
        if self._speculation and not self._turn.broken and self._turn.status == 200:
            self._learn()
            if self._desk.learner is not None:
                self._desk.learner.over(self._turn)

    def _learn(self) -> None:
        turn, averages = self._turn, self._desk.averages
        called = averages.call_rate(turn.tenant, turn.request.model, depth(turn.history))
        called.add(1.0 if turn.calls else 0.0)
        for bet in self._bets:
            if bet.prediction.calibrated:
                trust = averages.trust(bet.prediction.predictor)
                trust.add(bet.prediction.confidence, any(bet.fits(call) for call in turn.calls))
        latest = {(bet.prediction.predictor, bet.prediction.call.name): bet for bet in self._bets}
        for bet in latest.values():
            if bet.prediction.predictor == EAGER or bet.prediction.calibrated:
                continue
            right = 1.0 if any(bet.fits(call) for call in turn.calls) else 0.0
            self._record(bet.prediction).add(right)
            if turn.calls:
                averages.hit_rate(bet.prediction.predictor, "*").add(right)

    def _write_turn(self, note: str) -> None:
        turn = self._turn
        self._desk.ledger.record(
            "turns",
            {
                "id": turn.id,
                "trajectory": turn.trajectory,
                "runtime": self._link.label if self._link else None,
                "model": turn.request.model,
                "began_at": turn.began_at,
                "first_byte_s": turn.first_byte_s,
                "call_s": turn.call_s,
                "duration_s": turn.elapsed_s(),
                "status": turn.status,
                "calls": len(turn.calls),
                "prompt_tokens": turn.usage.prompt_tokens if turn.usage else None,
                "completion_tokens": turn.usage.completion_tokens if turn.usage else None,
                "note": note,
            },
        )
