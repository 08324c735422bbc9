"""Rows of the ledger as spans: names, kinds and attributes, as others read them.

Names and attributes follow OpenTelemetry's conventions for generative AI (`chat {model}`, `execute_tool {tool}`,
`gen_ai.*`) and, beside them, OpenInference (`openinference.span.kind`, `session.id`, `llm.*`), which Phoenix and
Langfuse read. What only we know is `agentspec.*`. A run ahead is `speculate {tool}` of kind CHAIN without any
attribute of a tool's: it is linked with the call that it served, and no tool is counted twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Row = Mapping[str, Any]
Attribute = str | bool | int | float | Sequence[str]

CLIENT, INTERNAL = "client", "internal"
_SERVED = ("hit", "joined")


@dataclass(frozen=True, slots=True)
class Event:
    """A moment within a span, Unix time in nanoseconds."""

    name: str
    at_ns: int
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Span:
    """One span, as far as the rows tell it.

    Attributes:
        id: 16 hexadecimal digits. The span of a turn itself has that of the turn.
        turn: the row of its turn, which says what trace it belongs to; None where that is not known.
        root: it is the turn's own span; all others are its children.
        links: ids of spans of the same turn, with what they are to this one.
        error: what went wrong, in words; None where nothing did.
    """

    name: str
    id: str
    turn: Row | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    kind: str = INTERNAL
    root: bool = False
    links: Sequence[tuple[str, str]] = ()
    events: Sequence[Event] = field(default_factory=tuple)
    error: str | None = None


def span_id(name: str) -> str:
    """The id of a row's span: the end of the row's own, or its hash where that is no hexadecimal number."""
    tail = name[-16:]
    if len(tail) == 16 and all(letter in "0123456789abcdef" for letter in tail) and tail.strip("0"):
        return tail
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def trace_id(turn: str) -> str:
    """The trace of a turn whose agent sent no context of its own: 32 hexadecimal digits."""
    return hashlib.blake2b(turn.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def chat(turn: Row, vetoes: Sequence[Row] = (), content: Row | None = None) -> Span:
    """A turn: a request to the model and its answer, with what the gate refused while it ran as events."""
    bad = turn.get("status") != 200 or bool(turn.get("note"))
    return Span(
        name=f"chat {turn.get('model') or ''}".rstrip(),
        id=span_id(turn["id"]),
        turn=turn,
        start_ns=_ns(turn["began_at"]),
        end_ns=_ns(turn["began_at"] + (turn.get("duration_s") or 0.0)),
        attributes=_present({**_of_run(turn), **_model(turn), **_told(turn), **_content(content)}),
        kind=CLIENT,
        root=True,
        events=[_veto(row) for row in vetoes],
        error=(turn.get("note") or f"status {turn.get('status')}") if bad else None,
    )


def _model(turn: Row) -> dict[str, Attribute | None]:
    prompt, completion, finish = turn.get("prompt_tokens"), turn.get("completion_tokens"), turn.get("finish")
    where = urlsplit(turn.get("endpoint") or "")
    return {
        "openinference.span.kind": "LLM",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": turn.get("engine") or "openai",
        "gen_ai.request.model": turn.get("model"),
        "gen_ai.request.stream": turn.get("stream"),
        "gen_ai.usage.input_tokens": prompt,
        "gen_ai.usage.output_tokens": completion,
        "gen_ai.response.finish_reasons": [finish] if finish else None,
        "gen_ai.response.time_to_first_chunk": turn.get("first_token_s"),
        "server.address": where.hostname,
        "server.port": where.port,
        "llm.model_name": turn.get("model"),
        "llm.provider": turn.get("engine"),
        "llm.token_count.prompt": prompt,
        "llm.token_count.completion": completion,
        "llm.token_count.total": None if prompt is None or completion is None else prompt + completion,
        "llm.cost.total": turn.get("cost_usd"),
        "gen_ai.usage.cost": turn.get("cost_usd"),
    }


def _told(turn: Row) -> dict[str, Attribute | None]:
    status = turn.get("status")
    return {
        "agentspec.api": turn.get("api"),
        "agentspec.calls": turn.get("calls"),
        "agentspec.held_out": turn.get("held_out"),
        "agentspec.reasoning_ms": _ms(turn.get("reasoning_s")),
        "agentspec.probe_verdict": turn.get("probe_verdict"),
        "http.response.status_code": status or None,
        "error.type": str(status) if status and status != 200 else ("incomplete" if turn.get("note") else None),
    }


def _of_run(row: Row) -> dict[str, Attribute | None]:
    """What every span says of its run."""
    session = row.get("session") or row.get("trajectory")
    return {
        "session.id": session,
        "gen_ai.conversation.id": session,
        "agentspec.trajectory": row.get("trajectory"),
        "agentspec.tenant": row.get("tenant"),
    }


def _content(content: Row | None) -> dict[str, Attribute | None]:
    """What was said, where that is kept: in OpenTelemetry's form, and as OpenInference's input and output."""
    if content is None:
        return {}
    said: list[dict[str, Any]] = json.loads(content.get("said") or "[]")
    calls: list[dict[str, Any]] = json.loads(content.get("calls") or "[]")
    text: str = content.get("answer") or ""
    answer: dict[str, Any] = {"role": "assistant", "text": text, "calls": calls, "results": []}
    found: dict[str, Attribute | None] = {
        "gen_ai.input.messages": json.dumps([_message(one) for one in said]),
        "gen_ai.output.messages": json.dumps([_message(answer)]),
        "input.value": said[-1]["text"] or "\n".join(said[-1]["results"]) if said else "",
        "input.mime_type": "text/plain",
        "output.value": text or json.dumps(calls),
        "output.mime_type": "text/plain" if text else "application/json",
    }
    for kind, messages in (("input", said), ("output", [answer])):
        for number, one in enumerate(messages):
            found |= _openinference(f"llm.{kind}_messages.{number}.message", one)
    return found


def _message(one: Mapping[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": one["text"]}] if one["text"] else []
    parts += [{"type": "tool_call", **call} for call in one["calls"]]
    parts += [{"type": "tool_call_response", "response": result} for result in one["results"]]
    return {"role": one["role"], "parts": parts}


def _openinference(prefix: str, one: Mapping[str, Any]) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {f"{prefix}.role": one["role"]}
    if text := one["text"] or "\n".join(one["results"]):
        found[f"{prefix}.content"] = text
    for number, call in enumerate(one["calls"]):
        base = f"{prefix}.tool_calls.{number}.tool_call.function"
        found |= {f"{base}.name": call["name"], f"{base}.arguments": json.dumps(call["arguments"])}
    return found


def _veto(bet: Row) -> Event:
    told = {"agentspec.tool": bet["tool"], **_bet(bet), "agentspec.outcome": "vetoed"}
    return Event(f"speculation vetoed: {bet['tool']}", _ns(bet["at"]), _present(told))


def probe(row: Row, turn: Row | None) -> Span:
    """A forked generation. It is a request to the model that somebody pays, so its tokens count."""
    prompt, completion = row.get("prompt_tokens"), row.get("completion_tokens")
    told: dict[str, Attribute | None] = {
        **_of_run(turn or row),
        "openinference.span.kind": "LLM",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": (turn or {}).get("engine") or "openai",
        "gen_ai.request.model": row.get("model"),
        "gen_ai.usage.input_tokens": prompt,
        "gen_ai.usage.output_tokens": completion,
        "llm.model_name": row.get("model"),
        "llm.token_count.prompt": prompt,
        "llm.token_count.completion": completion,
        "llm.cost.total": row.get("cost_usd"),
        "gen_ai.usage.cost": row.get("cost_usd"),
        "agentspec.probe": True,
        "agentspec.outcome": row.get("outcome"),
    }
    name = f"probe {row.get('model') or ''}".rstrip()
    start = row["at"]
    end = start + (row.get("duration_s") or 0.0)
    return Span(name, span_id(row["id"]), turn, _ns(start), _ns(end), _present(told), CLIENT)


def speculate(bet: Row, turn: Row | None, claim: str | None = None) -> Span:
    """A run ahead; `claim`: the id of the call that it served."""
    told: dict[str, Attribute | None] = {
        **_of_run(turn or bet),
        "openinference.span.kind": "CHAIN",
        "agentspec.tool": bet["tool"],
        **_bet(bet),
        "agentspec.outcome": bet["outcome"],
        "agentspec.reason": bet.get("reason"),
        "agentspec.saved_ms": _ms(bet.get("saved_s")),
        "agentspec.wasted_ms": _ms(bet.get("wasted_s")),
        "agentspec.egress": bet.get("egress"),
        "agentspec.tier": bet.get("tier"),
        **_arguments(bet),
    }
    ran_s = bet.get("latency_s")
    if ran_s is None:
        ran_s = max(0.0, (bet.get("settled_s") or 0.0) - (bet.get("offered_s") or 0.0))
    links = [(span_id(claim), "served")] if claim is not None else []
    return Span(
        f"speculate {bet['tool']}",
        span_id(bet["id"]),
        turn,
        _ns(bet["at"]),
        _ns(bet["at"] + ran_s),
        _present(told),
        links=links,
        error=bet.get("reason") if bet["outcome"] == "failed" else None,
    )


def _bet(bet: Row) -> dict[str, Attribute | None]:
    return {
        "agentspec.predictor": bet["predictor"],
        "agentspec.confidence": bet.get("probability"),
        "agentspec.threshold": bet.get("threshold"),
        "agentspec.expected_ms": _ms(bet.get("expected_s")),
        "agentspec.verdict": bet.get("verdict"),
    }


def execute_tool(claim: Row, turn: Row | None, bet: Row | None = None) -> Span:
    """A real call of a tool, from the call until its result was there; `bet`: the run ahead that it took."""
    told: dict[str, Attribute | None] = {
        **_of_run(turn or claim),
        "openinference.span.kind": "TOOL",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": claim["tool"],
        "gen_ai.tool.type": "function",
        "tool.name": claim["tool"],
        "agentspec.outcome": claim["outcome"],
        "agentspec.reason": claim.get("reason"),
        "agentspec.effect": claim.get("effect"),
        "agentspec.tool_ms": _ms(claim.get("latency_s")),
        **_arguments(claim),
    }
    if bet is not None:
        told |= {"agentspec.predictor": bet["predictor"], "agentspec.confidence": bet.get("probability")}
        told |= {"agentspec.saved_ms": _ms(bet.get("saved_s")), "agentspec.tier": bet.get("tier")}
    if (arguments := claim.get("arguments")) is not None:
        told |= {"gen_ai.tool.call.arguments": arguments, "tool.parameters": arguments}
    links = [(span_id(claim["bet"]), "ran ahead")] if claim.get("bet") and claim["outcome"] in _SERVED else []
    start = claim["at"]
    end = start + (claim.get("waited_s") or 0.0)
    name = f"execute_tool {claim['tool']}"
    return Span(name, span_id(claim["id"]), turn, _ns(start), _ns(end), _present(told), links=links)


def _arguments(row: Row) -> dict[str, Attribute | None]:
    arguments = row.get("arguments")
    return {"input.value": arguments, "input.mime_type": None if arguments is None else "application/json"}


def _present(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in attributes.items() if value is not None and value != ""}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000.0, 3)


def _ns(at: float) -> int:
    return int(at * 1e9)
