"""Which trajectory does a request belong to? The index of turns that were relayed.

A request that names the answer it continues (`previous_response_id`, `conversation`) continues that. Any other
continues the turn whose messages are its longest known prefix, if what follows that prefix is the answer that we
relayed (same calls, same ids). Several such turns: ambiguous, and no bets are placed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeGuard

from agentspec import trajectory as rules
from agentspec.calls import ToolCall
from agentspec.ids import new_id
from agentspec.trajectory import ASSISTANT, TOOL, Said
from agentspec.wire.request import Schemas, TurnRequest

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

    @property
    def items(self) -> set[str]:
        """Ids of its parts, as far as the endpoint keeps them."""
        ...

    @property
    def unseen(self) -> bool:
        """Whether its calls could not be read: any calls may be its."""
        ...


@dataclass(frozen=True, slots=True)
class Relayed:
    """An answer that is over, without the request and all else that it came with."""

    calls: list[ToolCall]
    answered: bool
    items: set[str] = field(default_factory=set)
    unseen: bool = False


@dataclass(slots=True, eq=False)
class Turn:
    """A turn in the index: where it stands and what was relayed in it."""

    id: str
    trajectory: str
    prefix: bytes
    length: int
    """Messages in its request."""
    names: list[str] = field(default_factory=list)
    """What later requests may call it by: its answer's id, its conversation."""
    history: Sequence[Said] = ()
    """The whole trajectory up to its answer, where its request need not repeat it."""
    tools: Schemas = field(default_factory=dict)
    """The tools that it offers, where later requests need not repeat them."""
    about: Mapping[str, str] = field(default_factory=dict)
    """What it says of those tools."""
    parent: str | None = None
    answer: Answer | None = None
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request stands.

    Attributes:
        history: the trajectory's messages up to here.
        new: the messages that came since the turn that it continues answered, those of its answer included.
        parents: the turn it continues; several when that is ambiguous, none when it begins a trajectory.
        dropped: turns whose answers were lost on the way: the one it is a retry of, those that the user interrupted.
        tools: the tools that it offers.
        unsure: it names an answer that failed or is still on its way.
        about: what is said of its tools, by name.
    """

    turn: Turn
    history: Sequence[Said]
    new: Sequence[Said]
    parents: tuple[Turn, ...] = ()
    dropped: tuple[Turn, ...] = ()
    tools: Schemas = field(default_factory=dict)
    unsure: bool = False
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def ambiguous(self) -> bool:
        """Whether bets would be on an unknown trajectory."""
        return self.unsure or len(self.parents) > 1


def trajectory_of(tenant: str, session: str) -> str:
    """The trajectory that a tenant's agent calls its session (`x-agentspec-session`)."""
    return f"{hashlib.blake2b(tenant.encode(), digest_size=4).hexdigest()}:{session}"


class TrajectoryIndex:
    """Turns by the hash of their messages and by the names that endpoints gave them. One event loop, no locks."""

    def __init__(self) -> None:
        self._by_prefix: defaultdict[bytes, list[Turn]] = defaultdict(list)
        self._by_name: dict[str, Turn] = {}
        self._order: OrderedDict[str, Turn] = OrderedDict()

    def place(self, request: TurnRequest, *, tenant: str, session: str | None, retry: bool) -> Placement:
        """Find a request's trajectory and enter its turn. Reads only the request; nothing waits."""
        said, kept = request.said, _kept_name(request)
        hashes = rules.chain(said, seed=f"{tenant}|{session or ''}|{kept or ''}")
        whole = hashes[-1] if hashes else b""
        named = self._by_name.get(f"{tenant}|{kept}") if kept else None
        lost: list[Turn] = []
        parents = self._parents(said, hashes, lost) if kept is None else [named] if _is_answered(named) else []
        only = parents[0] if len(parents) == 1 else None
        retried = self._retried(whole) if retry else None
        if retried is not None:
            lost.append(retried)
        self._drop(lost, only)
        new = said[parents[0].length :] if parents and kept is None else said
        history = _whole(only, new, repeated=kept is None) if only is not None and only.history else said
        offer = only if only is not None and request.same_tools else request
        turn = Turn(
            new_id(), self._name(tenant, session, parents, retried), whole, len(said), parent=only.id if only else None
        )
        self._enter(turn)
        if request.kept:
            turn.history, turn.tools, turn.about = history, offer.tools, offer.about
        if request.conversation is not None:
            self.name(turn, tenant, f"conversation {request.conversation}")
        if only is not None:
            only.continued = True
        unsure = named is not None and only is None
        return Placement(turn, history, new, tuple(parents), tuple(lost), offer.tools, unsure, offer.about)

    def name(self, turn: Turn, tenant: str, name: str) -> None:
        """A later request may call this turn by this name."""
        key = f"{tenant}|{name}"
        turn.names.append(key)
        self._by_name[key] = turn

    def _drop(self, lost: Sequence[Turn], parent: Turn | None) -> None:
        """Forget turns whose answers were lost; who continues their parent now begins no branch beside them."""
        for turn in lost:
            self._forget(turn)
            if parent is not None and turn.parent == parent.id:
                parent.continued = False

    def _parents(self, said: Sequence[Said], hashes: list[bytes], dropped: list[Turn]) -> list[Turn]:
        """The turns that these messages continue; `dropped` takes those that were broken off on the way to them."""
        interrupted: list[Turn] = []
        for length in range(len(hashes) - 1, 0, -1):
            known = self._by_prefix.get(hashes[length - 1])
            if not known:
                continue
            found = [turn for turn in known if _answer_in(said[length:], turn) is not None]
            if found:
                dropped += interrupted
                return found
            if not all(_is_broken_off(turn) for turn in known):
                return []
            interrupted += known
        return []

    def _retried(self, whole: bytes) -> Turn | None:
        """The turn that a retry repeats: the only one of its messages without an answer, or the only one at all."""
        known = [turn for turn in self._by_prefix.get(whole, ()) if not turn.continued]
        waiting = [turn for turn in known if turn.answer is None or not turn.answer.answered]
        candidates = waiting or known
        return candidates[0] if len(candidates) == 1 else None

    @staticmethod
    def _name(tenant: str, session: str | None, parents: list[Turn], supersedes: Turn | None) -> str:
        if session:
            return trajectory_of(tenant, session)
        if supersedes is not None:
            return supersedes.trajectory
        if len(parents) == 1 and not parents[0].continued:
            return parents[0].trajectory
        return new_id()

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
        for name in turn.names:
            if self._by_name.get(name) is turn:
                del self._by_name[name]


def _is_answered(turn: Turn | None) -> TypeGuard[Turn]:
    return turn is not None and turn.answer is not None and turn.answer.answered


def _is_broken_off(turn: Turn) -> bool:
    return isinstance(turn.answer, Relayed) and not turn.answer.answered


def answer_name(identity: str) -> str:
    """What an answer's id is called in the index."""
    return f"answer {identity}"


def _kept_name(request: TurnRequest) -> str | None:
    """What the request calls the part of its trajectory that the endpoint keeps."""
    if request.previous is not None:
        return answer_name(request.previous)
    return f"conversation {request.conversation}" if request.conversation is not None else None


def _whole(parent: Turn, new: Sequence[Said], *, repeated: bool) -> Sequence[Said]:
    """The trajectory: the parent's, its answer as it was relayed, and what came since (`repeated`: with the answer)."""
    calls = parent.answer.calls if parent.answer is not None else []
    answer = Said(ASSISTANT, b"", tuple(calls), frozenset(call.id for call in calls if call.id))
    told = _answer_in(new, parent) or () if repeated else ()
    return (*parent.history, answer, *(one for place, one in enumerate(new) if place not in told))


def _answer_in(after: Sequence[Said], turn: Turn) -> Sequence[int] | None:
    """Where among these messages the answer stands that the turn relayed; None if they do not begin with it.

    Some clients write parallel calls one by one, each followed by its result.
    """
    relayed = turn.answer
    if not after or after[0].role != ASSISTANT or relayed is None or not relayed.answered:
        return None
    places: list[int] = []
    calls: list[ToolCall] = []
    for place, one in enumerate(after):
        if one.role not in (ASSISTANT, TOOL) or (one.role == TOOL and len(calls) >= len(relayed.calls)):
            break
        if one.role == ASSISTANT:
            places.append(place)
            calls += one.calls
    return places if _is_answer([after[place] for place in places], calls, relayed) else None


def _is_answer(parts: Sequence[Said], calls: Sequence[ToolCall], relayed: Answer) -> bool:
    if relayed.unseen:
        return True
    refers = frozenset[str]().union(*(part.refers for part in parts))
    if refers:
        return not refers.isdisjoint(relayed.items)
    told = frozenset[str]().union(*(part.made for part in parts))
    ids = {call.id for call in relayed.calls if call.id}
    if ids and told and told.isdisjoint(ids):
        return False
    return rules.same_calls(calls, relayed.calls)
