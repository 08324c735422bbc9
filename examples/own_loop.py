"""Your own agent loop through agentspec: two lines more than without.

agentspec serve --upstream http://127.0.0.1:8000/v1 --engine vllm
python examples/own_loop.py MODEL "Where is order A17?"
"""

import json
import sys
import time
from typing import Any

from openai import OpenAI

import agentspec


@agentspec.speculate(effect="read", reads={"orders"}, stable_for=30.0)
def get_order(order_id: str) -> str:
    """The status of an order."""
    time.sleep(2.0)  # a slow database
    return f"order {order_id} was sent on Monday"


TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_order",
            "description": "The status of an order.",
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}},
                "required": ["order_id"],
            },
        },
    }
]


def main(model: str, question: str) -> None:
    """Answer one question."""
    runtime = agentspec.connect("http://127.0.0.1:8787")
    client = OpenAI(base_url=runtime.base_url, api_key="none", http_client=runtime.http_client())
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        reply = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        messages.append(reply)
        if not reply.tool_calls:
            print(reply.content)
            break
        for call in reply.tool_calls:
            result = get_order(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    runtime.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
