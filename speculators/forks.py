"""How a turn is forked, by kind of endpoint.

| engine                  | fork         | what it is                                                          |
|-------------------------|--------------|---------------------------------------------------------------------|
| agentspec, vllm, sglang | Continuation | messages + text so far + a forced tool-call opening, to be continued |
| openai (hosted)         | ForcedCall   | messages with `tool_choice` required: a billed request, money cap   |
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from agentspec.calls import ToolCall, parse_arguments
from agentspec.config import Engine, Settings
from agentspec.protocols import LiveTurn, Prediction
from agentspec.speculators.probe_answer import UNTOLD_CONFIDENCE, ProbeAnswer, read_call

OPENING = '{"name": "'
"""A JSON opening for every model: forced into a native XML format, a fork names the right tool 1 time in 20 (SPORK)."""

_NOT_REPEATED = (
    *("store", "conversation", "previous_response_id", "background", "metadata", "user"),  # would leave a trace
    *("request_id", "rid"),  # would make the engine take the probe for the turn, and end both at once
    *("stream_options", "n"),
)
_LOW_PRIORITY = {Engine.VLLM: 10, Engine.AGENTSPEC: 10, Engine.SGLANG: -10}
"""vLLM and the bundled engine serve lower numbers first, SGLang higher ones."""


class Continuation:
    """Continues the running message: the engine reuses the turn's whole prefix."""

    def __init__(self, engine: Engine, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens

    def body(self, turn: LiveTurn) -> bytes:
        request = _stateless(turn.body)
        request["messages"] = [*request["messages"], {"role": "assistant", "content": _so_far(turn) + OPENING}]
        request |= {
            "add_generation_prompt": False,
            "continue_final_message": True,
            "max_tokens": self._max_tokens,
            "priority": _LOW_PRIORITY.get(self._engine, 0),
            "logprobs": True,
        }
        if self._engine is not Engine.AGENTSPEC:  # ours keeps the turn's grammar, the others would wrap the answer
            request["tool_choice"] = "none"
        return msgspec.json.encode(request)

    def read(self, answer: ProbeAnswer) -> list[Prediction]:
        found = read_call(OPENING, answer.tokens)
        if found is None:
            return []
        call, name, arguments = found
        return [Prediction(call, "probe", name, arguments)]

    def affordable(self) -> bool:
        return True

    def reserve(self, prompt_tokens: int) -> float:
        """An engine of one's own sends no bill."""
        return 0.0

    def settle(self, reserved_usd: float, prompt_tokens: int, completion_tokens: int) -> None:
        """Nothing to pay."""


class ForcedCall:
    """Asks a hosted endpoint the same question with a tool call forced. Costs money, so it has a cap for each day."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._day = 0
        self.spent_usd = 0.0

    def body(self, turn: LiveTurn) -> bytes:
        request = _stateless(turn.body)
        for thinking in ("reasoning_effort", "reasoning", "thinking", "max_completion_tokens"):
            request.pop(thinking, None)
        if not isinstance(request.get("tool_choice"), dict):  # a tool that the agent forces stays forced
            request["tool_choice"] = "required"
        request["max_tokens"] = self._settings.probe_tokens
        request["stream_options"] = {"include_usage": True}
        return msgspec.json.encode(request)

    def read(self, answer: ProbeAnswer) -> list[Prediction]:
        found = []
        for raw in answer.calls.values():
            arguments = parse_arguments(raw.arguments) if raw.arguments.rstrip().endswith("}") else None
            if raw.name and arguments is not None:
                call = ToolCall(raw.name, arguments)
                found.append(Prediction(call, "probe", UNTOLD_CONFIDENCE, 1.0))
        return found

    def affordable(self) -> bool:
        today = int(time.time() // 86_400)
        if today != self._day:
            self._day, self.spent_usd = today, 0.0
        return self.spent_usd < self._settings.probe_money_cap_usd

    def reserve(self, prompt_tokens: int) -> float:
        """Set money aside for a probe of the longest kind, so that many at once do not pass the cap together."""
        price = self._price_usd(prompt_tokens, self._settings.probe_tokens)
        self.spent_usd += price
        return price

    def settle(self, reserved_usd: float, prompt_tokens: int, completion_tokens: int) -> None:
        """Pay what the probe cost instead of what was set aside."""
        self.spent_usd = max(0.0, self.spent_usd - reserved_usd + self._price_usd(prompt_tokens, completion_tokens))

    def _price_usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        given, made = self._settings.price_input_usd_per_mtok, self._settings.price_output_usd_per_mtok
        return (prompt_tokens * given + completion_tokens * made) / 1e6


def fork_for(settings: Settings) -> Continuation | ForcedCall:
    """The fork that fits the configured engine."""
    if settings.engine.hosted:
        return ForcedCall(settings)
    return Continuation(settings.engine, settings.probe_tokens)


def _stateless(body: bytes) -> dict[str, Any]:
    """The turn's request as a probe may repeat it: streamed, greedy, leaving no trace at the endpoint."""
    request: dict[str, Any] = msgspec.json.decode(body)
    for name in _NOT_REPEATED:
        request.pop(name, None)
    request.pop("max_completion_tokens", None)
    request |= {"stream": True, "temperature": 0}
    return request


def _so_far(turn: LiveTurn) -> str:
    """The turn's answer up to now, its thinking closed."""
    thinking = f"<think>\n{turn.reasoned.strip()}\n</think>\n\n" if turn.reasoned else ""
    said = turn.said.rstrip()
    return f"{thinking}{said}\n" if said else thinking
