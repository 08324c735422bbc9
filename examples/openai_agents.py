"""openai-agents through agentspec: `@speculate` under `@function_tool`, and the runtime's base URL.

pip install openai-agents
agentspec serve --upstream http://127.0.0.1:8000/v1 --engine vllm
python examples/openai_agents.py MODEL "Where is order A17?"
"""

import asyncio
import sys
import time

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

import agentspec


@function_tool
@agentspec.speculate(effect="read", reads={"orders"}, stable_for=30.0)
def get_order(order_id: str) -> str:
    """The status of an order."""
    time.sleep(2.0)  # a slow database
    return f"order {order_id} was sent on Monday"


async def main(model: str, question: str) -> None:
    """Answer one question."""
    set_tracing_disabled(True)
    runtime = agentspec.connect("http://127.0.0.1:8787")
    client = AsyncOpenAI(base_url=runtime.base_url, api_key="none")
    agent = Agent(name="shop", model=OpenAIChatCompletionsModel(model, client), tools=[get_order])
    print((await Runner.run(agent, question)).final_output)
    runtime.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
