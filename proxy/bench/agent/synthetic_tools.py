"""The shop's tools as real functions: one kind sleeps, as a tool that asks a service does, the other kind computes."""

from __future__ import annotations

import time
from collections.abc import Callable

from agentspec.proxy.bench.agent.synthetic import result_of
from agentspec.proxy.replay.tau2_tools import DeclaredTool, Toolbox

ORDERS = frozenset({"orders"})
_ROUND = 2_000


def toolbox(task_id: str, tool_s: float, *, computing: bool = False) -> Toolbox:
    """The tools of one task; each call takes so long, asleep or at work."""
    busy = _compute if computing else time.sleep

    def find_orders(customer: str) -> str:
        busy(tool_s)
        return result_of("find_orders", customer)

    def get_order(order_id: str) -> str:
        busy(tool_s)
        return result_of("get_order", order_id)

    def get_stock(item: str) -> str:
        busy(tool_s)
        return result_of("get_stock", item)

    def ship_order(order_id: str) -> str:
        busy(tool_s)
        return result_of("ship_order", order_id)

    reads: tuple[Callable[..., str], ...] = (find_orders, get_order, get_stock)
    declared = {tool.__name__: DeclaredTool(tool, "read", reads=ORDERS) for tool in reads}
    return Toolbox(task_id, declared | {"ship_order": DeclaredTool(ship_order, "write", writes=ORDERS)})


def _compute(seconds: float) -> None:
    """Hold the interpreter for so many seconds of this thread's CPU time, a little at a time as Python code does."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        sum(range(_ROUND))
