"""How a turn is forked, by kind of endpoint and by API.

| engine                  | chat           | responses                      | messages                      |
|-------------------------|----------------|--------------------------------|-------------------------------|
| agentspec, vllm, sglang | `Continuation` | the same, as the chat it means | the same, as the chat it means |
| openai, anthropic       | `ForcedCall`   | `ForcedCall`                   | `ForcedCall`; none if thinking |

A continuation is messages + text so far + a forced opening of a call, to be continued; a forced call is the turn's
request with `tool_choice` "required": a billed request, under a money cap. None where the endpoint keeps the
conversation (a probe must not touch it) or, for a continuation, where the turn cannot be written as a chat.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from agentspec.calls import ToolCall, parse_arguments
from agentspec.config import Engine, Settings
from agentspec.protocols import LiveTurn, Prediction
from agentspec.speculators.probe_answer import (
    UNTOLD_CONFIDENCE,
    Answer,
    EventAnswer,
    ProbeAnswer,
    read_call,
    written_call,
)
from agentspec.verifier.adapters.protocol import EngineAdapter
from agentspec.verifier.adapters.registry import adapter_of
from agentspec.wire.apis import CHAT, MESSAGES, RESPONSES
from agentspec.wire.as_chat import as_chat

OPENING = '{"name": "'
"""A JSON opening for every model: forced into a native XML format, a fork names the right tool 1 time in 20 (SPORK)."""

_NOT_REPEATED = (
    *(
        "store",
        "conversation",
        "previous_response_id",
        "background",
        "metadata",
        "user",
        "thread",
    ),  # would leave a trace
    *("request_id", "rid"),  # would make the engine take the probe for the turn, and end both at once
    *("stream_options", "n"),
)


class Continuation:
    """Continues the running message: the engine reuses the turn's whole prefix."""

    def __init__(self, engine: EngineAdapter, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens

    def request(self, turn: LiveTurn) -> tuple[str, bytes] | None:
        chat = as_chat(turn.request.api, msgspec.json.decode(turn.body))
        if chat is None:
            return None
        request = self._engine.probe_body(_stateless(chat), _so_far(turn) + OPENING, self._max_tokens)
        path = turn.path if turn.request.api == CHAT.name else CHAT.path.removeprefix("/v1")
        return path, msgspec.json.encode(request)

    def answer(self, turn: LiveTurn) -> Answer:
        return ProbeAnswer()

    def wrote(self, answer: Answer) -> str:
        """The call as far as it came: what the turn itself may be about to write."""
        text = "".join(token.text for token in answer.tokens)
        return written_call(OPENING + text) if text else ""

    def read(self, answer: Answer) -> list[Prediction]:
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

    def settle(self, reserved_usd: float, prompt_tokens: int, completion_tokens: int, *, final: bool = True) -> None:
        """Nothing to pay."""


class ForcedCall:
    """Asks a hosted endpoint the same question with a tool call forced. Costs money, so it has a cap for each day."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._day = 0
        self.spent_usd = 0.0

    def request(self, turn: LiveTurn) -> tuple[str, bytes] | None:
        body: dict[str, Any] = msgspec.json.decode(turn.body)
        if turn.request.background or _cannot_be_forced(turn, body):
            return None
        request = _stateless(body)
        for thinking in ("reasoning_effort", "reasoning", "thinking", "max_completion_tokens"):
            request.pop(thinking, None)
        request |= _forced(turn, body.get("tool_choice"), self._settings.probe_tokens)
        return turn.path, msgspec.json.encode(request)

    def answer(self, turn: LiveTurn) -> Answer:
        if turn.request.api == CHAT.name:
            return ProbeAnswer()
        return EventAnswer((RESPONSES if turn.request.api == RESPONSES.name else MESSAGES).open_stream())

    def wrote(self, answer: Answer) -> str:
        """Hosted endpoints take no drafts for a request that is running."""
        return ""

    def read(self, answer: Answer) -> list[Prediction]:
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

    def settle(self, reserved_usd: float, prompt_tokens: int, completion_tokens: int, *, final: bool = True) -> None:
        """Pay what the probe cost instead of what was set aside; as for the longest where the end was not told."""
        if not final:
            completion_tokens = max(completion_tokens, self._settings.probe_tokens)
        self.spent_usd = max(0.0, self.spent_usd - reserved_usd + self._price_usd(prompt_tokens, completion_tokens))

    def _price_usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        given, made = self._settings.price_input_usd_per_mtok, self._settings.price_output_usd_per_mtok
        return (prompt_tokens * given + completion_tokens * made) / 1e6


def forks_for(settings: Settings) -> dict[Engine, Continuation | ForcedCall]:
    """The fork for each kind of endpoint that may be probed."""
    hosted = ForcedCall(settings)  # one money cap for all of them
    allowed = [engine for engine in Engine if settings.probes_allowed(engine)]
    found: dict[Engine, Continuation | ForcedCall] = {}
    for engine in allowed:
        own = adapter_of(engine)
        found[engine] = hosted if own is None else Continuation(own, settings.probe_tokens)
    return found


def _cannot_be_forced(turn: LiveTurn, body: dict[str, Any]) -> bool:
    """Whether the endpoint keeps what the probe would have to touch, or refuses: Anthropic forces no thinking model."""
    if turn.request.conversation is not None or _provider_runs_tools(turn, body):
        return True
    thinking = body.get("thinking")
    thinks = isinstance(thinking, dict) and thinking.get("type") != "disabled"
    return turn.request.api == MESSAGES.name and (thinks or turn.request.previous is not None)


def _provider_runs_tools(turn: LiveTurn, body: dict[str, Any]) -> bool:
    """Whether the provider itself would run a tool for the probe: a guess must have no effects there either."""
    if body.get("mcp_servers") or body.get("container") or body.get("web_search_options"):
        return True
    tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict)]
    if turn.request.api == MESSAGES.name:
        return any("input_schema" not in tool for tool in tools)
    return any(tool.get("type") not in ("function", "custom") for tool in tools)


def _forced(turn: LiveTurn, choice: Any, max_tokens: int) -> dict[str, Any]:
    """What makes the turn's request a short call; a tool that the agent forces stays forced."""
    if turn.request.api == MESSAGES.name:
        named = isinstance(choice, dict) and choice.get("type") == "tool"
        return {"tool_choice": choice if named else {"type": "any"}, "max_tokens": max_tokens}
    chosen = choice if isinstance(choice, dict) else "required"
    if turn.request.api == RESPONSES.name:
        previous = {"previous_response_id": turn.request.previous} if turn.request.previous is not None else {}
        return {"tool_choice": chosen, "max_output_tokens": max_tokens, "store": False, **previous}
    return {"tool_choice": chosen, "max_tokens": max_tokens, "stream_options": {"include_usage": True}}


def _stateless(body: dict[str, Any]) -> dict[str, Any]:
    """The turn's request as a probe may repeat it: streamed, greedy, leaving no trace at the endpoint."""
    request = dict(body)
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
