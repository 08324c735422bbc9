"""A small agent at work through the real proxy: a result handed over, a run ahead discarded, a plain call."""

from __future__ import annotations

import json
from typing import Any

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import DONE, Gate, Step, call, event, say
from tests.contract.support import Guesses

SPANS_A_SESSION = {"LLM": 3, "TOOL": 2, "CHAIN": 2}
"""By OpenInference kind: three turns, two real calls, two runs ahead (one served, one discarded)."""


class Shop:
    """Two tools, and gates that open when they have begun to run."""

    def __init__(self) -> None:
        self.ran, self.searched = Gate(), Gate()

        @speculate(effect="read", stable_for=30.0)
        def get_order(order_id: str, api_key: str = "") -> str:
            self.ran.open()
            return f"order {order_id}: shipped"

        @speculate(effect="read", stable_for=30.0)
        def search(text: str) -> str:
            self.searched.open()
            return f"nothing about {text}"

        self.tools = (get_order, search)

    def guesses(self) -> Guesses:
        """In the first turn the call that comes, in the second one that does not."""

        def guess(turn: Any) -> list[ToolCall]:
            calls = sum(len(said.calls) for said in turn.history)
            if calls == 0:
                return [ToolCall("get_order", {"order_id": "A1", "api_key": "sk-live-0123456789abcdefghij"})]
            return [ToolCall("search", {"text": "shoes"})] if calls == 1 else []

        return Guesses(guess, calibrated=True)

    def answers(self) -> list[list[Step]]:
        """Reason, call what was guessed; call something else; speak."""
        order = {"order_id": "A1", "api_key": "sk-live-0123456789abcdefghij"}
        thought = event({"reasoning_content": "The order must be looked up first."})
        usage = event({}, "tool_calls", usage={"prompt_tokens": 120, "completion_tokens": 15, "total_tokens": 135})
        first: list[Step] = [thought, say("Let me look."), self.ran, *call("get_order", order), usage, DONE]
        second: list[Step] = [say("And this."), self.searched, *call("get_order", {"order_id": "B2"}), usage, DONE]
        last = event({}, "stop", usage={"prompt_tokens": 160, "completion_tokens": 5, "total_tokens": 165})
        return [first, second, [say("It is on its way."), last, DONE]]


def play(endpoint: Any, proxy: Any, join: Any, agent_of: Any, session: str, **headers: str) -> Shop:
    """One session, from the question to the last word."""
    shop = Shop()
    proxy.deps.desk.speculators = [shop.guesses()]
    endpoint.exchanges.clear()
    endpoint.answers(*shop.answers())
    told = {"x-agentspec-session": session, **headers}
    agent = agent_of(join(proxy, *shop.tools), *shop.tools, question=f"Where is my order? ({session})", **told)
    for _ in range(3):
        agent.turn()
    assert json.dumps(agent.messages).count("shipped") == 2
    return shop
