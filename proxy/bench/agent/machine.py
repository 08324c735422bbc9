"""The machine of the virtual world: a few cores, on which one process is the proxy and every agent is one as well.

Virtual time does not pass while code runs, so what code costs is charged: each piece of work occupies a core for as
long as it was measured to take, and what the proxy does it does one after the other, as its event loop does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentspec import clock


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds, as `measured` finds them on the machine that the bench runs on.

    Attributes:
        turn_s: the proxy's, for one request, its answer's pieces left out.
        relay_s: how much later an answer ends for the proxy between, by the clock: the part of `turn_s` that is waited
            for, and the way. The rest (placing the turn, the books) goes on beside the answer.
        piece_s: the proxy's, for one streamed token.
        bet_s: the proxy's, for one prediction that is dispatched, until it is settled.
        ahead_s: the runtime's, for one run ahead and its claim.
        message_s: a message between the proxy and a runtime, until it is acted upon.
        asked_s: memory's, for one question.
        agent_turn_s: the agent's own, for one request. Both arms have it.
        agent_piece_s: the agent's own, for one streamed token. Both arms have it.
    """

    turn_s: float = 0.0006
    relay_s: float = 0.0004
    piece_s: float = 0.00006
    bet_s: float = 0.0005
    ahead_s: float = 0.0005
    message_s: float = 0.0002
    asked_s: float = 0.002
    agent_turn_s: float = 0.002
    agent_piece_s: float = 0.00015


_LEAST = 0.05
"""Of a core is always left for what comes up: an overloaded machine is slow, it does not stand still."""


class Machine:
    """Who works until when.

    Work that comes up is served in the order in which it comes. What many tokens in a row cost, a little at a time, is
    no such work but a load: while it lasts everything else gets only what it leaves over.
    """

    def __init__(self, cores: int) -> None:
        self._cores = [0.0] * cores
        self._proxy = 0.0
        self._load = 0.0
        self._proxy_load = 0.0

    @contextmanager
    def loaded(self, cores: float, *, proxy: float = 0.0) -> Iterator[None]:
        """Within the block so many cores are at work, and such a share of the proxy's one."""
        self._load += cores + proxy
        self._proxy_load += proxy
        try:
            yield
        finally:
            self._load -= cores + proxy
            self._proxy_load -= proxy

    @property
    def late(self) -> float:
        """How many times as long as it should the load takes; 1 where the machine can bear it."""
        return max(1.0, self._proxy_load, self._load / len(self._cores))

    def occupied(self, seconds: float, *, proxy: bool = False) -> float:
        """Work that has to be done now; when it will be done."""
        at = min(range(len(self._cores)), key=self._cores.__getitem__)
        begins = max(clock.monotonic(), self._cores[at], self._proxy if proxy else 0.0)
        ends = begins + seconds / self._left_over(proxy)
        self._cores[at] = ends
        if proxy:
            self._proxy = ends
        return ends

    def _left_over(self, proxy: bool) -> float:
        """Of a core, for one piece of work."""
        left = min(1.0, len(self._cores) - self._load)
        return max(_LEAST, min(left, 1.0 - self._proxy_load) if proxy else left)

    async def work(self, seconds: float, *, proxy: bool = False) -> None:
        """Do work, and wait until it is done."""
        ends = self.occupied(seconds, proxy=proxy)
        await asyncio.sleep(max(0.0, ends - clock.monotonic()))
