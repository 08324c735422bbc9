"""Which trajectory does a request belong to? The index of turns that were relayed.

A request continues the turn whose messages are its longest known prefix, if the message after that prefix is the
answer that we relayed (same calls, same ids). Several such turns: ambiguous, and no bets are placed.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentspec import trajectory as rules
from agentspec.calls import ToolCall, canonical_json

MAX_TURNS = 20_000


class Answer(Protocol):
    """What has been relayed of a turn's answer so far."""

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that it made."""
        ...

    @property
    def answered(self) -> bool:
        """Whether the agent has an answer that it can go on from."""
        ...


@dataclass(frozen=True, slots=True)
class Relayed:
    """An answer that is over, without the request and all else that it came with."""

    calls: list[ToolCall]
    answered: bool


@dataclass(slots=True, eq=False)
class Turn:
    """A turn in the index: where it stands and what was relayed in it."""

    id: str
    trajectory: str
    prefix: str
    length: int
    """Messages in its request."""
    answer: Answer | None = None
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request stands."""

    turn: Turn
    parents: tuple[Turn, ...] = ()
    """The turn it continues; several when that is ambiguous, none when it begins a trajectory."""
    supersedes: Turn | None = None
    """The turn that it is a retry of."""

    @property
    def ambiguous(self) -> bool:
        """Whether bets would be on an unknown trajectory."""
        return len(self.parents) > 1


class TrajectoryIndex:
    """Turns by the hash of their messages. One event loop, no locks."""

    def __init__(self) -> None:
        self._by_prefix: defaultdict[str, list[Turn]] = defaultdict(list)
        self._order: OrderedDict[str, Turn] = OrderedDict()

    def place(self, messages: Sequence[rules.Message], *, tenant: str, session: str | None, retry: bool) -> Placement:
        """Find a request's trajectory and enter its turn. Reads only the request; nothing waits."""
        hashes = rules.chain(messages, seed=f"{tenant}|{session or ''}")
        whole = hashes[-1] if hashes else ""
        parents = self._parents(messages, hashes)
        supersedes = self._retried(whole) if retry else None
        if supersedes is not None:
            self._forget(supersedes)
        turn = Turn(secrets.token_hex(8), self._name(tenant, session, parents, supersedes), whole, len(messages))
        self._enter(turn)
        if len(parents) == 1:
            parents[0].continued = True
        return Placement(turn, tuple(parents), supersedes)

    def _parents(self, messages: Sequence[rules.Message], hashes: list[str]) -> list[Turn]:
        for length in range(len(hashes) - 1, 0, -1):
            known = self._by_prefix.get(hashes[length - 1])
            if known:
                return [turn for turn in known if _continues(messages[length], turn)]
        return []

    def _retried(self, whole: str) -> Turn | None:
        """The turn that a retry repeats: the only one of its messages without an answer, or the only one at all."""
        known = [turn for turn in self._by_prefix.get(whole, ()) if not turn.continued]
        waiting = [turn for turn in known if turn.answer is None or not turn.answer.answered]
        candidates = waiting or known
        return candidates[0] if len(candidates) == 1 else None

    @staticmethod
    def _name(tenant: str, session: str | None, parents: list[Turn], supersedes: Turn | None) -> str:
        if session:
            return f"{tenant[:8]}:{session}"
        if supersedes is not None:
            return supersedes.trajectory
        if len(parents) == 1 and not parents[0].continued:
            return parents[0].trajectory
        return secrets.token_hex(8)

    def _enter(self, turn: Turn) -> None:
        self._by_prefix[turn.prefix].append(turn)
        self._order[turn.id] = turn
        while len(self._order) > MAX_TURNS:
            _, oldest = self._order.popitem(last=False)
            self._forget(oldest)

    def _forget(self, turn: Turn) -> None:
        known = self._by_prefix.get(turn.prefix, [])
        if turn in known:
            known.remove(turn)
        if not known:
            self._by_prefix.pop(turn.prefix, None)


def _continues(answer: rules.Message, turn: Turn) -> bool:
    """Whether this message is the answer that the turn relayed."""
    relayed = turn.answer
    if answer.get("role") != "assistant" or relayed is None or not relayed.answered:
        return False
    ids = {call.id for call in relayed.calls if call.id}
    told = rules.call_ids([answer])
    if ids and told and told.isdisjoint(ids):
        return False
    return [_plain(call) for call in rules.calls_of(answer)] == [_plain(call) for call in relayed.calls]


def _plain(call: ToolCall) -> tuple[str, str]:
    return call.name, canonical_json(rules.plain_numbers(call.arguments))
