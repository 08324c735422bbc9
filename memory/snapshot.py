"""A memory as bytes, and back: tables and arrays only, nothing that could run.

What is gone over again while learning (the replay buffers) is left out; a memory fills them anew.
"""

from __future__ import annotations

import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import msgspec
import numpy as np

from agentspec.memory.hashing import HashedWeights
from agentspec.memory.looking import Parts
from agentspec.memory.observations import Observations, Observed

VERSION = 2
_HEAD = b"agentspec memory %d\n" % VERSION
MAX_BYTES = 2**31
_TEXT = 1

State = dict[str, Any]
Learnt = OrderedDict[str, int]


def encode(state: State) -> bytes:
    """The state as bytes."""
    try:
        raw = msgspec.msgpack.encode(state)
    except UnicodeEncodeError:
        raw = msgspec.msgpack.encode(_writable(state))
    return _HEAD + zlib.compress(raw, 1)


def decode(blob: bytes) -> State:
    """The state that these bytes hold.

    Raises:
        ValueError: they are no dump of this version.
    """
    if not blob.startswith(_HEAD):
        raise ValueError("this is no memory of this version of agentspec")
    opener = zlib.decompressobj()
    try:
        raw = opener.decompress(blob[len(_HEAD) :], MAX_BYTES)
        if not opener.eof:
            raise ValueError("this memory is cut off, or larger than a memory can be")
        state = msgspec.msgpack.decode(raw, type=dict[str, Any], ext_hook=_read_ext)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"this memory cannot be read: {error}") from error
    return state


def state_of(parts: Parts, observations: Observations, learnt: Learnt) -> State:
    """All that a memory has learnt."""
    episodes, names, tallies = parts.episodes, parts.names, parts.pointer.tallies
    episodes.index.settle()
    return {
        "weights": [_weights(one) for one in _all_weights(parts)],
        "numbers": [one.tobytes() for one in _all_numbers(parts)],
        "tables": [[[key, list(counts.items())] for key, counts in table.items()] for table in _all_tables(parts)],
        "slots": list(tallies.slots.items()),
        "words": tallies.words.astype(np.int32).tobytes(),
        "trajectories": tallies.trajectories,
        "unit": names.transitions.unit,
        "seen": list(names.seen),
        "episodes": [
            [number, *episodes.owners[number], calls, episodes.codes[number].tobytes()]
            for number, calls in episodes.calls.items()
        ],
        "next": episodes.next,
        "runs": [[terms.tobytes(), numbers.tobytes()] for terms, numbers in episodes.index.runs],
        "observations": [[*key, one.text, one.version] for key, one in observations.results.items()],
        "learnt": list(learnt.items()),
    }


def take_over(state: State, parts: Parts, observations: Observations, learnt: Learnt) -> None:
    """Fill an empty memory with what another had learnt.

    Raises:
        ValueError: the state is not complete.
    """
    try:
        _take_over(state, parts, observations, learnt)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"this memory is not complete: {error!r}") from error


def _take_over(state: State, parts: Parts, observations: Observations, learnt: Learnt) -> None:
    episodes, names, tallies = parts.episodes, parts.names, parts.pointer.tallies
    for weights, kept in zip(_all_weights(parts), state["weights"], strict=True):
        _fill_weights(weights, kept)
    for numbers, raw in zip(_all_numbers(parts), state["numbers"], strict=True):
        numbers[:] = np.frombuffer(raw, numbers.dtype)
    for table, rows in zip(_all_tables(parts), state["tables"], strict=True):
        plain = any(table is one for one in (names.transitions.counts, names.trigram.counts, parts.confusions.counts))
        for key, counts in rows:
            pairs = {_key(name): count for name, count in counts}
            table[_key(key)] = pairs if plain else Counter(pairs)
    tallies.slots.update({tool: list(slots) for tool, slots in state["slots"]})
    tallies.words[:] = np.frombuffer(state["words"], np.int32)
    tallies.trajectories = state["trajectories"]
    names.transitions.unit = state["unit"]
    names.seen.update(dict.fromkeys(state["seen"]))
    for number, scope, trajectory, calls, codes in state["episodes"]:
        episodes.calls[number], episodes.codes[number] = calls, np.frombuffer(codes, np.uint64)
        episodes.owners[number], episodes.numbers[scope, trajectory] = (scope, trajectory), number
    episodes.next = state["next"]
    episodes.index.runs = [
        (np.frombuffer(terms, np.uint64), np.frombuffer(numbers, np.uint32)) for terms, numbers in state["runs"]
    ]
    for scope, key, text, version in state["observations"]:
        observations.put((scope, key), Observed(text, version))
    learnt.update(dict(state["learnt"]))


def size_bytes(parts: Parts, observations: Observations, learnt: Learnt) -> int:
    """About what a memory takes: arrays and texts exactly, tables by what an entry costs."""
    weights = sum(one.weights.nbytes + one.squares.nbytes for one in _all_weights(parts))
    entries = sum(len(counts) for table in _all_tables(parts) for counts in table.values())
    episodes = sum(len(calls) + 300 for calls in parts.episodes.calls.values())
    results = sum(len(one.text) + 300 for one in observations.results.values())
    return weights + parts.episodes.index.size_bytes + 120 * entries + episodes + results + 150 * len(learnt)


def _all_weights(parts: Parts) -> Iterator[HashedWeights]:
    yield parts.pointer.weights
    yield from (expert.weights for expert in parts.names.experts)
    yield from (expert.weights for expert in parts.weighing.experts)


def _all_numbers(parts: Parts) -> Iterator[Any]:
    """Small arrays, filled in place."""
    yield parts.names.merits
    yield parts.weighing.merits
    yield from (expert.trust for expert in parts.names.experts)
    for expert in parts.weighing.experts:
        yield expert.trust
        yield expert.squares


def _all_tables(parts: Parts) -> Iterator[MutableMapping[Any, Any]]:
    """Tables of counts, in an order that stays."""
    tallies = parts.pointer.tallies
    yield from (tallies.values, tallies.forms, tallies.fields, tallies.sources, tallies.shapes, tallies.witnessed)
    yield from (parts.composer.key_sets, parts.names.transitions.counts, parts.names.trigram.counts)
    yield parts.confusions.counts


def _weights(weights: HashedWeights) -> list[bytes]:
    """The places that were learnt, their weights and their sums of squares."""
    places = np.flatnonzero((weights.weights != 0) | (weights.squares != weights.floor)).astype(np.int32)
    return [places.tobytes(), weights.weights[places].tobytes(), weights.squares[places].tobytes()]


def _fill_weights(weights: HashedWeights, kept: Iterable[bytes]) -> None:
    raw, values, squares = kept
    places = np.frombuffer(raw, np.int32)
    weights.weights[places] = np.frombuffer(values, np.float32)
    weights.squares[places] = np.frombuffer(squares, np.float32)


def _writable(value: Any) -> Any:
    """The same with texts that hold lone surrogates, which no UTF-8 may, as what `_read_ext` reads."""
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return value if value.isascii() else msgspec.msgpack.Ext(_TEXT, raw)
    if isinstance(value, (list, tuple)):
        return [_writable(one) for one in value]
    return {_writable(key): _writable(one) for key, one in value.items()} if isinstance(value, dict) else value


def _read_ext(kind: int, raw: memoryview) -> Any:
    if kind != _TEXT:
        raise ValueError(f"this memory holds something unknown ({kind})")
    return bytes(raw).decode("utf-8", "surrogatepass")


def _key(key: Any) -> Any:
    """A key as it was: lists were tuples."""
    return tuple(_key(one) for one in key) if isinstance(key, list) else key
