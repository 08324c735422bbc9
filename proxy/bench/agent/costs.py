"""What agentspec costs on this machine, in CPU: measured on the real proxy, the real SDK and a real agent.

An agent plays tasks of few and of many calls, with short and with long reasoning. What the proxy's process and the
agent's take more for the one than for the other is the cost of a request and of a token; what they take more with a
proxy that always predicts, right and at once, is the cost of a bet. Clients are made before, connections cancel.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from agentspec.memory.ledger_reader import LedgerReader
from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.arms import arms
from agentspec.proxy.bench.agent.grid import memory_of_past
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.serve import Serving, arm_process
from agentspec.proxy.bench.agent.synthetic_tools import toolbox
from agentspec.proxy.bench.agent.virtual_world import past_of
from agentspec.proxy.bench.playing import Ahead, Direct
from agentspec.proxy.bench.wire_arms import cpu_clock_s
from agentspec.proxy.replay.deltas import completion_tokens
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.processes import endpoint_process
from agentspec.proxy.replay.recordings import Recording
from agentspec.recollection import Question

_SHORT, _LONG = 20, 220
_FEW, _MANY = 2, 6
_PAIRS = 4
"""Tasks that are played straight and through the proxy, by turns, in each round."""
_PACE = Pace(tokens_per_s=1000.0, ttft_ms=20.0)
"""Fast, and yet a token at a time."""


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds, of the proxy's process and of the agent's."""

    proxy_s: float
    agent_s: float

    def more_than(self, other: Spent) -> Spent:
        """What this is more than the other."""
        return Spent(self.proxy_s - other.proxy_s, self.agent_s - other.agent_s)


def measured_costs(rounds: int = 3) -> Costs:
    """Measure in so many rounds; each takes two seconds or three, and the start as long again."""
    kinds = ((_SHORT, _FEW), (_SHORT, _MANY), (_LONG, _FEW))
    tasks = [
        [synthetic.task(3 * nth + kind, tokens, calls) for kind, (tokens, calls) in enumerate(kinds)]
        for nth in range(rounds + 1)
    ]
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        file = synthetic.written([task for three in tasks for task in three], folder)
        endpoint = stack.enter_context(endpoint_process([file], _PACE))
        with ThreadPoolExecutor() as pool:
            proxies = [pool.submit(_proxy, stack, arm, endpoint, file) for arm in ("eager_only", "oracle")]
        quiet, oracle = [proxy.result() for proxy in proxies]
        measured = [_round(three, quiet, oracle) for three in tasks][1:]  # the first one warms up
        relay_s = _relay_s([three[1] for three in tasks], endpoint, quiet)
        stack.close()
        handed_s = _handed_over_s(folder / "oracle.sqlite3")
    turn, token, bet = (_middle(one) for one in zip(*measured, strict=True))
    spoken = turn_tokens(tasks[0][1])
    return Costs(
        turn_s=max(0.0, turn.proxy_s - spoken * token.proxy_s),
        relay_s=relay_s,
        piece_s=token.proxy_s,
        bet_s=bet.proxy_s,
        ahead_s=bet.agent_s,
        message_s=handed_s / 2,
        asked_s=_asked_s(),
        agent_turn_s=max(0.0, turn.agent_s - spoken * token.agent_s),
        agent_piece_s=token.agent_s,
    )


def _round(tasks: Sequence[Recording], quiet: _Proxy, oracle: _Proxy) -> tuple[Spent, Spent, Spent]:
    """For each turn, each token and each bet."""
    few, many, long = (_spent(task, quiet) for task in tasks)
    bets = _spent(tasks[1], oracle).more_than(_spent(tasks[0], oracle))
    turns = many.more_than(few)
    runs = sum(synthetic.EFFECTS[tool].changes_nothing for tool in synthetic.PLAN[_FEW:_MANY])
    tokens = (_FEW + 1) * (_LONG - _SHORT)
    return _share(turns, _MANY - _FEW), _share(long.more_than(few), tokens), _share(bets.more_than(turns), runs)


def _share(spent: Spent, of: float) -> Spent:
    return Spent(spent.proxy_s / of, spent.agent_s / of)


def _middle(found: Sequence[Spent]) -> Spent:
    """The median; less than nothing is nothing."""
    middle = [statistics.median(column) for column in zip(*((one.proxy_s, one.agent_s) for one in found), strict=True)]
    return Spent(*(max(0.0, value) for value in middle))


def turn_tokens(task: Recording) -> float:
    """Tokens of a turn of this task, on average."""
    answers = [step for step in task.steps if step.role == "assistant"]
    return sum(map(completion_tokens, answers)) / len(answers)


@dataclass(frozen=True, slots=True)
class _Proxy:
    url: str
    pid: int


def _proxy(stack: ExitStack, arm: str, upstream: str, file: Path) -> _Proxy:
    pids: list[int] = []
    database = f"sqlite:///{file.parent / arm}.sqlite3"
    serving = Serving(arms(0.0)[arm], upstream, database, [file], probe_s=0.0)
    return _Proxy(stack.enter_context(arm_process(serving, pids.append)), pids[0])


def _spent(task: Recording, proxy: _Proxy) -> Spent:
    with closing(Ahead(proxy.url, toolbox(task.task_id, 0.0))) as agent:
        proxy_s, agent_s = cpu_clock_s(proxy.pid), time.process_time()
        agent.play(task, synthetic.library())
        return Spent(cpu_clock_s(proxy.pid) - proxy_s, time.process_time() - agent_s)


def _relay_s(tasks: Sequence[Recording], endpoint: str, proxy: _Proxy) -> float:
    """How much later a turn ends through the proxy, by the clock: the middle of several pairs."""
    ways = endpoint, f"{proxy.url}/v1"
    later = []
    for nth in range(_PAIRS * len(tasks)):
        task = tasks[nth % len(tasks)]
        taken = {way: _taken_s(task, way) for way in (ways if nth % 2 else reversed(ways))}
        turns = sum(step.role == "assistant" for step in task.steps)
        later.append((taken[ways[1]] - taken[ways[0]]) / turns)
    return max(0.0, statistics.median(later))


def _taken_s(task: Recording, way: str) -> float:
    with closing(Direct(way, toolbox(task.task_id, 0.0))) as agent:
        began_s = time.perf_counter()
        agent.play(task, synthetic.library())
        return time.perf_counter() - began_s


def _handed_over_s(database: Path) -> float:
    """How long a claim waits for a result that is there."""
    waited = [c["waited_s"] for c in LedgerReader(f"sqlite:///{database}").claims() if c["outcome"] == "hit"]
    return statistics.median(waited) if waited else 0.0


def _asked_s() -> float:
    """What memory takes for a question."""
    memory = memory_of_past(_SHORT).of("")
    taken = []
    for task in synthetic.tasks(3, _SHORT, 100):
        past = past_of(task, synthetic.library())
        for length in range(1, len(past.history)):
            began_s = time.thread_time()
            memory.forecast(Question(past.trajectory, past.scope, past.history[:length], past.tools))
            taken.append(time.thread_time() - began_s)
    return statistics.median(taken)
