"""What the scribe hands to the ledger: everything with its owner, nothing encoded on the way, costs by the prices."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.calls import ToolCall
from agentspec.config import Engine, Settings
from agentspec.events import CallComplete, CallNamed, ReasoningDelta, TextDelta, TurnEnd, Usage
from agentspec.later import Later
from agentspec.protocols import ProbeRecord
from agentspec.proxy.live import Live
from agentspec.proxy.scribe import Kept, Scribe
from agentspec.wire.apis import API_OF_PATH
from agentspec.wire.request import TurnRequest


class Rows:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []

    def record(self, table: str, row: Any) -> None:
        self.rows.append((table, dict(row)))

    async def close(self) -> None: ...


def live(engine: Engine = Engine.OPENAI) -> Live:
    api = API_OF_PATH["/v1/chat/completions"]
    whole: Any = {"upstream": None, "headers": (), "path": "", "body": b"", "history": ()}
    names = {"id": "aa", "trajectory": "t", "scope": "t", "tenant": "someone"}
    return Live(request=TurnRequest("chat", "m", ()), api=api, engine=engine, **names, **whole)


def told(kept: Kept, turn: Live) -> dict[str, dict[str, Any]]:
    rows = Rows()
    scribe = Scribe(rows, kept)
    scribe.turn(turn, None, "")
    scribe.probe(turn, ProbeRecord(0.1, 0.2, 1000, 100, "predicted"))
    scribe.predictions(turn, [], [], [])
    return dict(rows.rows)


def test_reasoning_and_first_token_are_timed() -> None:
    turn = live()
    assert (turn.first_token_s, turn.reasoning_s) == (None, None)
    turn.take(ReasoningDelta("hm"))
    first = turn.first_token_s
    turn.take(ReasoningDelta("so"))
    thought = turn.reasoning_s
    turn.take(TextDelta("yes"))
    turn.take(TurnEnd("stop"))
    assert turn.first_token_s == first is not None
    assert turn.reasoning_s == thought is not None
    row = told(Kept(), turn)["turns"]
    assert (row["finish"], row["reasoning_s"], row["tenant"]) == ("stop", thought, "someone")


def test_a_call_is_a_first_token_too() -> None:
    turn = live()
    turn.take(CallNamed(0, "f", None))
    turn.take(CallComplete(0, "f", ToolCall("f", {})))
    assert turn.first_token_s is not None
    assert turn.reasoning_s is None


@pytest.mark.parametrize("engine", list(Engine))
def test_only_hosted_endpoints_cost_money(engine: Engine) -> None:
    turn = live(engine)
    turn.take(Usage(2_000_000, 1_000_000))
    prices = Kept.by(Settings(price_input_usd_per_mtok=3.0, price_output_usd_per_mtok=10.0))
    rows = told(prices, turn)
    assert rows["turns"]["cost_usd"] == (16.0 if engine.hosted else None)
    assert rows["probes"]["cost_usd"] == (pytest.approx(0.004) if engine.hosted else None)
    assert told(Kept(), turn)["turns"]["cost_usd"] is None


def test_who_expected_no_call_is_on_the_books() -> None:
    turn = live()
    turn.expects_no_call("recall", 0.7)
    row = told(Kept(), turn)["predictions"]
    assert (row["tool"], row["predictor"], row["probability"], row["came_true"]) == (None, "recall", 0.7, True)
    turn.take(CallNamed(0, "f", None))
    turn.take(CallComplete(0, "f", ToolCall("f", {})))
    assert told(Kept(), turn)["predictions"]["came_true"] is False


def test_nothing_is_encoded_before_the_ledgers_thread_asks_for_it() -> None:
    turn = live()
    turn.take(TextDelta("the key is sk-abcdefghijklmnopqrstuv"))
    content = told(Kept(content=True), turn)["contents"]
    late = [name for name, value in content.items() if isinstance(value, Later)]
    assert late == ["said", "answer", "reasoning", "calls"]
    assert content["answer"].value() == "the key is [redacted]"
    assert "contents" not in told(Kept(), turn)


def test_without_a_ledger_nothing_happens() -> None:
    scribe, turn = Scribe(None), live()
    scribe.turn(turn, None, "")
    scribe.probe(turn, ProbeRecord(0.0))
    scribe.predictions(turn, [], None, [])


def test_keeping_content_keeps_arguments() -> None:
    assert Kept.by(Settings(keep_content=True)) == Kept(arguments=True, content=True)
    assert Kept.by(Settings()) == Kept()
