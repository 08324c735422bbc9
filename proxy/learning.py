"""What memory is told: each trajectory as far as it went, once it has been quiet for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from agentspec import clock
from agentspec.aside import Aside
from agentspec.proxy.live import Live
from agentspec.recollection import Memories, Past
from agentspec.trajectory import ASSISTANT, Said, visible_text

MAX_TRAJECTORIES = 2_000
_LOOK_EVERY_S = 1.0
_LAST_WORDS_S = 2.0
"""Longest time that the end of the proxy waits until memory has been told."""


@dataclass(frozen=True, slots=True)
class Latest:
    """A trajectory up to the latest answer, and whose that is: the id of its turn. Nothing here keeps a turn alive."""

    turn: str
    past: Past
    at_s: float


class Learner:
    """Keeps the latest of each live trajectory, and hands it on. All of it on the event loop; memory is told aside.

    Attributes:
        told: trajectories that were handed on.
        dropped: those that were not, because memory did not take them.
    """

    def __init__(
        self, memories: Memories, aside: Aside, idle_s: float, fault: Callable[[str, BaseException], None]
    ) -> None:
        self._memories, self._aside = memories, aside
        self._idle_s, self._fault = idle_s, fault
        self._latest: OrderedDict[tuple[str, str], Latest] = OrderedDict()
        """By tenant and trajectory, the one that was quiet for longest first."""
        self._ready: deque[tuple[str, Past]] = deque()
        self.told = self.dropped = 0

    @property
    def memories(self) -> Memories:
        """Who remembers."""
        return self._memories

    def counts(self) -> dict[str, int]:
        """For whoever asks how it goes. `skipped`: what memory was not asked, because too much was waiting."""
        return {"told": self.told, "dropped": self.dropped, "skipped": self._aside.refused}

    def over(self, turn: Live) -> None:
        """A turn's answer has ended and is whole; whether it is learnt from depends on how well it was read."""
        key = (turn.tenant, turn.trajectory)
        before = self._latest.get(key)
        tools = turn.offered or (before.past.tools if before is not None else {})
        if turn.ambiguous or turn.dropped or turn.unseen or not _read_whole(turn):
            return
        if not tools and not any(said.makes_calls for said in turn.history):
            return  # no agent: it could not have called anything
        past = Past(turn.trajectory, turn.scope, (*turn.history, answer_of(turn)), tools)
        self._latest[key] = Latest(turn.id, past, clock.monotonic())
        self._latest.move_to_end(key)
        if len(self._latest) > MAX_TRAJECTORIES:
            self._hand_on(*self._latest.popitem(last=False))

    def take_back(self, tenant: str, trajectory: str, turn: str) -> None:
        """The client asked again: it does not act on what this turn answered."""
        found = self._latest.get((tenant, trajectory))
        if found is not None and found.turn == turn:
            past = replace(found.past, history=found.past.history[:-1])
            self._latest[tenant, trajectory] = replace(found, past=past)

    def judge(self, tenant: str, trajectory: str, outcome: float) -> bool:
        """How a trajectory ended, 0.0 (failed) to 1.0; it is learnt now. False where nothing of it waits any more."""
        latest = self._latest.pop((tenant, trajectory), None)
        if latest is not None:
            past = replace(latest.past, outcome=outcome)
            self._hand_on((tenant, trajectory), replace(latest, past=past))
        return latest is not None

    async def run(self) -> None:
        """Hand on what has been quiet for long enough, for ever."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            quiet_since_s = clock.monotonic() - self._idle_s
            while self._latest and next(iter(self._latest.values())).at_s <= quiet_since_s:
                self._hand_on(*self._latest.popitem(last=False))
            await self._tell()

    async def flush(self) -> None:
        """Hand on everything: the proxy ends."""
        while self._latest:
            self._hand_on(*self._latest.popitem(last=False))
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._tell()
        self.dropped += len(self._ready)

    def _hand_on(self, key: tuple[str, str], latest: Latest) -> None:
        self._ready.append((key[0], latest.past))
        if len(self._ready) > MAX_TRAJECTORIES:  # memory hangs
            self._ready.popleft()
            self.dropped += 1

    async def _tell(self) -> None:
        told = self._aside.do(self._tell_all) if self._ready else None
        if told is not None:
            for error in await asyncio.wrap_future(told):
                self._fault("recall", error)

    def _tell_all(self) -> list[Exception]:
        """In the other thread: to be told of a new tenant may mean to make its memory first. What it raised."""
        errors: list[Exception] = []
        while self._ready:
            tenant, past = self._ready.popleft()
            try:
                self._memories.learnt(tenant, past)
                self.told += 1
            except Exception as error:
                errors.append(error)
        return errors


def answer_of(turn: Live) -> Said:
    """A turn's answer as a message; nobody has read it yet in a request, so it has no digest."""
    made = frozenset(call.id for call in turn.calls if call.id)
    return Said(ASSISTANT, b"", tuple(turn.calls), made, text=visible_text(turn.said))


def _read_whole(turn: Live) -> bool:
    """Whether every call that it began is known: one more would teach that here nothing was called."""
    return turn.answered and turn.named == turn.closed == len(turn.calls)
