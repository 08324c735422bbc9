"""The suffix automaton's inner loops, compiled.

An automaton is four arrays. `states [5, n]` int32: length of the longest string, suffix link, how often it was seen,
where it was last seen, first edge. `edges [4, m]` int32: source, token, target, next edge of the same source. `table`
int32: open addressing from (source, token) to the edge, -1: free. `sizes`: states, edges, last state, tokens read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentspec.compiling import compiled

LENGTH, LINK, COUNT, RECENT, HEAD = 0, 1, 2, 3, 4
SOURCE, TOKEN, TARGET, NEXT = 0, 1, 2, 3
STATES, EDGES, LAST, READ = 0, 1, 2, 3
_CHAIN = 48  # suffixes of a position whose counts are kept up to date, the longest first
_FAN = 96  # continuations of a context that are looked at
_BRANCHES = 3  # of them drafted
_DOUBT = 1.5
_LEAST_REACH = 0.02

Ints = NDArray[np.int32]


@compiled("int64(int32[:,::1], int32[::1], int64, int64)")
def _slot(edges: Ints, table: Ints, source: int, token: int) -> int:
    """Where the edge of (source, token) is in the table, or the free place where it would be."""
    mask = table.shape[0] - 1
    mixed = np.uint64(source) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(token + 1) * np.uint64(0xBF58476D1CE4E5B9)
    place = int((mixed ^ (mixed >> np.uint64(29))) & np.uint64(0x7FFFFFFF)) & mask
    while table[place] >= 0 and (edges[SOURCE, table[place]] != source or edges[TOKEN, table[place]] != token):
        place = (place + 1) & mask
    return int(place)


@compiled("int64(int32[:,::1], int32[::1], int64, int64)")
def _target(edges: Ints, table: Ints, source: int, token: int) -> int:
    found = table[_slot(edges, table, source, token)]
    return int(edges[TARGET, found]) if found >= 0 else -1


@compiled("void(int32[:,::1], int32[::1], int64)")
def index(edges: Ints, table: Ints, count: int) -> None:
    """Enter the first `count` edges into an empty table."""
    for edge in range(count):
        table[_slot(edges, table, edges[SOURCE, edge], edges[TOKEN, edge])] = edge


@compiled("void(int32[:,::1], int32[:,::1], int32[::1], int64[::1], int64, int64, int64)")
def _connect(  # noqa: PLR0913
    states: Ints, edges: Ints, table: Ints, sizes: NDArray[np.int64], source: int, token: int, target: int
) -> None:
    edge = sizes[EDGES]
    table[_slot(edges, table, source, token)] = edge
    edges[SOURCE, edge] = source
    edges[TOKEN, edge] = token
    edges[TARGET, edge] = target
    edges[NEXT, edge] = states[HEAD, source]
    states[HEAD, source] = edge
    sizes[EDGES] = edge + 1


@compiled("int64(int32[:,::1], int32[:,::1], int32[::1], int64[::1], int64, int64, int64)")
def _split(  # noqa: PLR0913
    states: Ints, edges: Ints, table: Ints, sizes: NDArray[np.int64], before: int, token: int, old: int
) -> int:
    """The state of the shorter strings of `old`, which now occur where its longer ones do not."""
    twin = int(sizes[STATES])
    sizes[STATES] = twin + 1
    states[LENGTH, twin] = states[LENGTH, before] + 1
    states[LINK, twin] = states[LINK, old]
    states[COUNT, twin] = states[COUNT, old]
    states[RECENT, twin] = states[RECENT, old]
    states[HEAD, twin] = -1
    edge = states[HEAD, old]
    while edge >= 0:
        _connect(states, edges, table, sizes, twin, edges[TOKEN, edge], edges[TARGET, edge])
        edge = edges[NEXT, edge]
    state = before
    while state >= 0:
        place = table[_slot(edges, table, state, token)]
        if place < 0 or edges[TARGET, place] != old:
            break
        edges[TARGET, place] = twin
        state = states[LINK, state]
    states[LINK, old] = twin
    return twin


@compiled("void(int32[:,::1], int32[:,::1], int32[::1], int64[::1], int32[::1])")
def extend(states: Ints, edges: Ints, table: Ints, sizes: NDArray[np.int64], tokens: Ints) -> None:
    """Read more text (Blumer et al. 1985; amortised constant time a token). There must be room."""
    for token in tokens:
        last = int(sizes[LAST])
        new = int(sizes[STATES])
        sizes[STATES] = new + 1
        states[LENGTH, new] = states[LENGTH, last] + 1
        states[COUNT, new] = 0
        states[HEAD, new] = -1
        state = last
        after = -1
        while state >= 0:
            after = _target(edges, table, state, token)
            if after >= 0:
                break
            _connect(states, edges, table, sizes, state, token, new)
            state = int(states[LINK, state])
        if state < 0:
            states[LINK, new] = 0
        elif states[LENGTH, after] == states[LENGTH, state] + 1:
            states[LINK, new] = after
        else:
            states[LINK, new] = _split(states, edges, table, sizes, state, token, after)
        sizes[LAST] = new
        seen = new
        for _ in range(_CHAIN):
            if seen <= 0:
                break
            states[COUNT, seen] += 1
            states[RECENT, seen] = sizes[READ]
            seen = int(states[LINK, seen])
        sizes[READ] += 1


@compiled("UniTuple(int64, 2)(int32[:,::1], int32[:,::1], int32[::1], int64, int64, int32[::1])")
def follow(  # noqa: PLR0913
    states: Ints, edges: Ints, table: Ints, state: int, length: int, tokens: Ints
) -> tuple[int, int]:
    """Move a match over new tokens: the longest suffix that occurs in the text, as (state, length)."""
    for token in tokens:
        while state > 0 and states[LENGTH, states[LINK, state]] >= length:
            state = int(states[LINK, state])  # its state was split since
        after = _target(edges, table, state, token)
        while after < 0 and state > 0:
            state = int(states[LINK, state])
            length = int(states[LENGTH, state])
            after = _target(edges, table, state, token)
        if after >= 0:
            state, length = after, length + 1
    return state, length


@compiled("int64(int32[:,::1], int32[:,::1], int64, int64[::1], float64[::1])")
def _best(states: Ints, edges: Ints, state: int, best: NDArray[np.int64], share: NDArray[np.float64]) -> int:
    """The most frequent continuations (the later seen first), as edges with their shares; how many."""
    found, total = 0, 0
    edge = int(states[HEAD, state])
    for _ in range(_FAN):
        if edge < 0:
            break
        if edges[TOKEN, edge] >= 0:
            target = edges[TARGET, edge]
            total += states[COUNT, target]
            place = found
            while place > 0:
                other = edges[TARGET, best[place - 1]]
                if states[COUNT, other] > states[COUNT, target] or (
                    states[COUNT, other] == states[COUNT, target] and states[RECENT, other] >= states[RECENT, target]
                ):
                    break
                if place < _BRANCHES:
                    best[place] = best[place - 1]
                place -= 1
            if place < _BRANCHES:
                best[place] = edge
                found = min(found + 1, _BRANCHES)
        edge = int(edges[NEXT, edge])
    total = max(total, states[COUNT, state] - 1, 1)
    for index in range(found):
        share[index] = states[COUNT, edges[TARGET, best[index]]] / total
    return found


@compiled("UniTuple(int64, 2)(int32[:,::1], int32[:,::1], int64, int64)")
def anchor(states: Ints, edges: Ints, state: int, length: int) -> tuple[int, int]:
    """The longest end of a match that was followed by anything, as (state, length)."""
    while state > 0 and states[LENGTH, states[LINK, state]] >= length:
        state = int(states[LINK, state])  # its state was split since
    while state > 0:
        edge = int(states[HEAD, state])
        while edge >= 0 and edges[TOKEN, edge] < 0:
            edge = int(edges[NEXT, edge])
        if edge >= 0:
            break
        state = int(states[LINK, state])
        length = int(states[LENGTH, state])
    return state, length


@compiled("int64(int32[:,::1], int32[:,::1], int64, int64, int64, int32[:,::1], float64[::1])")
def draft(  # noqa: PLR0913
    states: Ints,
    edges: Ints,
    state: int,
    length: int,
    limit: int,
    nodes: Ints,
    confidences: NDArray[np.float64],
) -> int:
    """Fill a tree of what may follow an `anchor`, the likeliest node first; how many nodes.

    Args:
        limit: depth at most.
        nodes: `[2, most]`, filled with token and parent (-1: none).
        confidences: `[most]`: the share of a continuation, times what a match of this length is worth.
    """
    most = nodes.shape[1]
    best = np.empty(_BRANCHES, np.int64)
    share = np.empty(_BRANCHES, np.float64)
    waiting = np.empty((4, most * _BRANCHES + _BRANCHES), np.int64)  # token, parent, state, depth
    chance = np.empty(waiting.shape[1], np.float64)
    reach = np.empty(waiting.shape[1], np.float64)
    parent, depth, base, count, size = -1, 0, 1.0, 0, 0
    while True:
        worth = (length + depth) / (length + depth + _DOUBT)
        for index in range(_best(states, edges, state, best, share) if depth < limit else 0):
            waiting[0, size] = edges[TOKEN, best[index]]
            waiting[1, size] = parent
            waiting[2, size] = edges[TARGET, best[index]]
            waiting[3, size] = depth
            chance[size] = share[index] * worth
            reach[size] = base * chance[size]
            size += 1
        top = int(np.argmax(reach[:size])) if size > 0 else 0
        if size == 0 or count == most or reach[top] < _LEAST_REACH:
            return count
        nodes[0, count] = waiting[0, top]
        nodes[1, count] = waiting[1, top]
        confidences[count] = chance[top]
        parent, state, depth, base = count, int(waiting[2, top]), int(waiting[3, top]) + 1, reach[top]
        count += 1
        size -= 1
        waiting[:, top] = waiting[:, size]
        reach[top], chance[top] = reach[size], chance[size]
