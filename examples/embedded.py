"""An agent of Anthropic's SDK with the engine in its own process: no proxy to start.

python examples/embedded.py http://127.0.0.1:8000/v1 MODEL "Where is order A17?"
"""

import sys
import time
from typing import Any

from anthropic import Anthropic

import agentspec


@agentspec.speculate(effect="read", reads={"orders"}, stable_for=30.0)
def get_order(order_id: str) -> str:
    """The status of an order."""
    time.sleep(2.0)  # a slow database
    return f"order {order_id} was sent on Monday"


TOOLS: Any = [
    {
        "name": "get_order",
        "description": "The status of an order.",
        "input_schema": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    }
]


def main(upstream: str, model: str, question: str) -> None:
    """Answer one question."""
    engine = agentspec.embedded(upstream, engine="vllm")
    client = Anthropic(base_url=engine.anthropic_base_url, api_key="none", http_client=engine.http_client())
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        reply = client.messages.create(model=model, max_tokens=1024, messages=messages, tools=TOOLS)
        messages.append({"role": "assistant", "content": reply.content})
        uses = [block for block in reply.content if block.type == "tool_use"]
        if not uses:
            print("".join(block.text for block in reply.content if block.type == "text"))
            break
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": get_order(**use.input)} for use in uses]
        messages.append({"role": "user", "content": results})
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
