"""Rows become spans: joined to the agent's trace, of the right kinds, no tool counted twice; names that others read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from agentspec.config import Settings
from agentspec.proxy.telemetry.assembly import Assembler
from agentspec.proxy.telemetry.otel import SpanSender, otlp_exporter, resource
from agentspec.proxy.telemetry.spans import Span, span_id
from tests.sight.conftest import Receiver, attributes

Row = Callable[..., dict[str, Any]]
Rows = Sequence[tuple[str, dict[str, Any]]]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TURN = "00000000000000aa"


def spans_of(rows: Rows) -> list[Span]:
    found: list[Span] = []
    assembler = Assembler(found.append)
    for table, row in rows:
        assembler.take(table, row)
    assembler.finish()
    return found


def exported(rows: Rows, receiver: Receiver, **settings: Any) -> dict[str, Any]:
    """The spans that a receiver got, by name."""
    wanted = Settings(otel_endpoint=receiver.url, **settings)
    sender = SpanSender(otlp_exporter(wanted), resource(wanted))
    assembler = Assembler(sender.send)
    for table, row in rows:
        assembler.take(table, row)
    assembler.finish()
    sender.close()
    assert sender.exporter.lost == 0
    return {span.name: span for span in receiver.spans}


@pytest.fixture
def run(turn: Row, bet: Row, claim: Row, probe: Row) -> Rows:
    """A turn with a probe, a veto, a hit and a discarded run, in the order in which the proxy tells them."""
    told = {"session": "chat 7", "tenant": "someone", "engine": "vllm", "endpoint": "http://engine:8000/v1"}
    return [
        ("probes", probe("00000000000000b0", TURN)),
        ("bets", bet("00000000000000b1", TURN, "vetoed", tool="g", saved_s=0.0, ran=False, verdict="p=0.1 too low")),
        ("turns", turn(TURN, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1", **told)),
        ("bets", bet("00000000000000b2", TURN, "miss", tool="h", ran=True, saved_s=0.0, reason="no such call")),
        ("bets", bet("00000000000000b3", TURN, "hit", ran=True, tier="T1")),
        ("claims", claim("00000000000000c1", TURN, bet="00000000000000b3")),
    ]


def test_our_spans_join_the_trace_of_the_agents_request(run: Rows, receiver: Receiver) -> None:
    spans = exported(run, receiver)
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    chat = spans.pop("chat m")
    assert (chat.parent_span_id.hex(), chat.trace_state) == (PARENT, "vendor=1")
    assert {span.parent_span_id.hex() for span in spans.values()} == {TURN} == {chat.span_id.hex()}


def test_a_turn_without_context_is_a_trace_of_its_own(turn: Row, claim: Row, receiver: Receiver) -> None:
    spans = exported([("turns", turn(TURN)), ("claims", claim("00000000000000c1", TURN))], receiver)
    assert spans["chat m"].parent_span_id == b""
    assert spans["chat m"].trace_id == spans["execute_tool f"].trace_id != bytes(16)
    assert spans["execute_tool f"].parent_span_id == spans["chat m"].span_id


@pytest.mark.parametrize("rubbish", ["", "00-zz", "ff-" + "0" * 52, f"00-{'0' * 32}-{PARENT}-01", "\u00fc", "00-1-2-3"])
def test_a_context_that_is_none_is_left_out(turn: Row, receiver: Receiver, rubbish: str) -> None:
    chat = exported([("turns", turn(TURN, traceparent=rubbish))], receiver)["chat m"]
    assert chat.parent_span_id == b""
    assert chat.trace_id != bytes(16)


def test_what_the_agent_does_not_sample_is_not_sent(turn: Row, claim: Row, receiver: Receiver) -> None:
    rows = [("turns", turn(TURN, traceparent=f"00-{TRACE}-{PARENT}-00")), ("claims", claim("c" * 16, TURN))]
    assert exported(rows, receiver) == {}


def test_kinds_are_right_and_a_tool_is_counted_once(run: Rows, receiver: Receiver) -> None:
    kinds = {name: attributes(span) for name, span in exported(run, receiver).items()}
    assert {name: told["openinference.span.kind"] for name, told in kinds.items()} == {
        "chat m": "LLM",
        "probe m": "LLM",
        "speculate f": "CHAIN",
        "speculate h": "CHAIN",
        "execute_tool f": "TOOL",
    }
    tools = [name for name, told in kinds.items() if any("tool." in key.removeprefix("agentspec.") for key in told)]
    assert tools == ["execute_tool f"]
    assert [name for name, told in kinds.items() if told.get("gen_ai.operation.name") == "execute_tool"] == tools
    assert {told["session.id"] for told in kinds.values()} == {"chat 7"}
    assert {told["gen_ai.conversation.id"] for told in kinds.values()} == {"chat 7"}


def test_a_run_ahead_is_linked_with_the_call_that_it_served(run: Rows, receiver: Receiver) -> None:
    spans = exported(run, receiver)
    ahead, real = spans["speculate f"], spans["execute_tool f"]
    assert [link.span_id for link in ahead.links] == [real.span_id]
    assert [link.span_id for link in real.links] == [ahead.span_id]
    assert {link.trace_id.hex() for link in (*ahead.links, *real.links)} == {TRACE}
    assert len(spans["speculate h"].links) == 0
    told = attributes(ahead)
    assert {name: told[f"agentspec.{name}"] for name in ("outcome", "predictor", "tier")} == {
        "outcome": "hit",
        "predictor": "probe",
        "tier": "T1",
    }
    assert (told["agentspec.saved_ms"], told["agentspec.confidence"]) == (750.0, 0.72)


def test_what_the_gate_refused_is_an_event_of_its_turn(run: Rows, receiver: Receiver) -> None:
    spans = exported(run, receiver)
    assert "speculate g" not in spans
    (event,) = spans["chat m"].events
    assert event.name == "speculation vetoed: g"
    assert attributes(event)["agentspec.verdict"] == "p=0.1 too low"


def test_times_are_those_of_the_rows(run: Rows) -> None:
    times = {span.name: (span.start_ns / 1e9, span.end_ns / 1e9) for span in spans_of(run)}
    assert times["chat m"] == (1000.0, 1002.0)
    assert times["execute_tool f"] == (1002.0, 1002.25)
    assert times["speculate f"] == (1000.5, 1001.5)
    assert times["probe m"] == pytest.approx((1000.2, 1000.5))


def test_a_failed_turn_is_an_error(turn: Row, receiver: Receiver) -> None:
    chat = exported([("turns", turn(TURN, status=503, note="the endpoint is away"))], receiver)["chat m"]
    assert (chat.status.code, chat.status.message) == (2, "the endpoint is away")
    assert attributes(chat)["error.type"] == "503"


def test_without_content_nothing_that_was_said_is_sent(run: Rows, receiver: Receiver) -> None:
    for span in exported(run, receiver).values():
        assert not [name for name in attributes(span) if "message" in name or "value" in name or "argument" in name]


def test_content_is_told_in_both_forms(turn: Row, receiver: Receiver) -> None:
    said = [{"role": "user", "text": "Where is it?", "calls": [], "results": []}]
    calls = [{"name": "get_order", "arguments": {"id": "A1"}}]
    content = {"turn": TURN, "said": json.dumps(said), "answer": "", "reasoning": "", "calls": json.dumps(calls)}
    told = attributes(exported([("contents", content), ("turns", turn(TURN))], receiver)["chat m"])
    assert told["input.value"] == "Where is it?"
    assert told["llm.input_messages.0.message.content"] == "Where is it?"
    call = "llm.output_messages.0.message.tool_calls.0.tool_call.function"
    assert (told[f"{call}.name"], json.loads(told[f"{call}.arguments"])) == ("get_order", {"id": "A1"})
    assert json.loads(told["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "Where is it?"}]
    assert json.loads(told["gen_ai.output.messages"])[0]["parts"][0]["type"] == "tool_call"


def test_the_receiver_is_told_who_tells_and_gets_its_headers(turn: Row, receiver: Receiver) -> None:
    exported([("turns", turn(TURN))], receiver, otel_service="shop", otel_headers="Authorization=Bearer x, api_key=k")
    assert receiver.headers[0]["authorization"] == "Bearer x"
    assert receiver.headers[0]["api_key"] == "k"
    assert attributes(receiver.resources[0])["service.name"] == "shop"


def test_names_of_the_conventions_are_spelt_as_they_are(run: Rows, receiver: Receiver) -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    used = {name for span in spans_of(run) for name in span.attributes if name.startswith("gen_ai.")}
    assert used - known <= {"gen_ai.usage.cost"}  # Langfuse's
    assert "gen_ai.client.token.usage" in vars(gen_ai_metrics).values()
    assert "gen_ai.client.operation.duration" in vars(gen_ai_metrics).values()


LANGFUSE = {
    "sessionId": {"langfuse.session.id", "session.id", "gen_ai.conversation.id"},
    "model": {"gen_ai.request.model", "gen_ai.response.model", "llm.model_name"},
    "usageDetails": {"gen_ai.usage.input_tokens", "llm.token_count.prompt"},
    "type": {"langfuse.observation.type", "openinference.span.kind", "gen_ai.operation.name"},
}
"""What Langfuse reads a property of an observation from: its documentation, "Property Mapping", at
https://langfuse.com/integrations/native/opentelemetry, and `ObservationTypeMapper` of its server."""

LANGFUSE_TYPES = {"LLM": "generation", "TOOL": "tool", "CHAIN": "chain"}
"""By `openinference.span.kind`, which goes before all else but its own attribute."""


def test_langfuse_finds_what_it_looks_for(run: Rows) -> None:
    for span in spans_of(run):
        assert span.attributes.keys() & LANGFUSE["sessionId"], span.name
        assert span.attributes.keys() & LANGFUSE["type"], span.name
        kind = LANGFUSE_TYPES[str(span.attributes["openinference.span.kind"])]
        assert (kind == "tool") is span.name.startswith("execute_tool")
        if kind == "generation":
            assert span.attributes.keys() & LANGFUSE["model"], span.name
            assert span.attributes.keys() & LANGFUSE["usageDetails"], span.name
    assert all(len(str(span.attributes["session.id"])) < 200 for span in spans_of(run))


def test_rows_may_come_in_any_order_and_each_is_told_once(run: Rows) -> None:
    usual = sorted(span.name for span in spans_of(run))
    turn_first = sorted(run, key=lambda pair: pair[0] != "turns")
    found = sorted(span.name for span in spans_of(turn_first))
    assert found == usual


def test_spans_that_no_queue_holds_are_counted(turn: Row, receiver: Receiver) -> None:
    receiver.status = 400
    wanted = Settings(otel_endpoint=receiver.url)
    sender = SpanSender(otlp_exporter(wanted), resource(wanted), queue=100)
    for number in range(300):
        sender.send(spans_of([("turns", turn(f"{number:016x}"))])[0])
    sender.close()
    assert (sender.sent, sender.lost) == (0, 300)


def test_what_waits_for_a_turn_is_bounded(bet: Row) -> None:
    found: list[Span] = []
    assembler = Assembler(found.append, most=10)
    for number in range(50):
        assembler.take("bets", bet(f"{number:016x}", f"turn {number}", "miss", ran=True))
    assert len(found) == 40
    assembler.finish()
    assert len(found) == 50


@given(st.text(max_size=40))
def test_every_row_has_a_span_id(name: str) -> None:
    found = span_id(name)
    assert len(found) == 16
    assert int(found, 16) > 0
