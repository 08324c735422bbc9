"""Prefixes found, forked, copied where they are written, and given up in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.engine.paging import Lease, Paging
from agentspec.verifier.engine.radix import common_prefix
from agentspec.verifier.engine.table import Copy

TOKENS = st.lists(st.integers(0, 2), max_size=12)


def computed(paging: Paging, tokens: list[int]) -> Lease:
    """A sequence that has computed all of `tokens`."""
    lease = paging.open([*tokens, -1], [])
    assert paging.extend(lease.table, len(tokens)) is not None
    lease.table.filled = len(tokens)
    paging.publish(lease, tokens)
    return lease


@given(TOKENS, TOKENS)
def test_common_prefix_is_the_longest_one(a: list[int], b: list[int]) -> None:
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


@given(st.lists(TOKENS, max_size=6), TOKENS)
def test_what_is_found_is_the_longest_prefix_of_what_was_kept(kept: list[list[int]], wanted: list[int]) -> None:
    paging = Paging(100, 4)
    for tokens in kept:
        paging.close(computed(paging, tokens), tokens)
    lease = paging.open([*wanted, -1], [])
    assert lease.table.filled == max((common_prefix(tokens, wanted) for tokens in kept), default=0)
    paging.drop(lease.table)
    assert paging.pool.used == 0


def test_the_same_prefix_is_kept_once() -> None:
    paging = Paging(100, 4)
    a, b = computed(paging, list(range(8))), paging.open([99, 98], [])
    assert paging.extend(b.table, 8) is not None
    b.table.filled = 8
    before = paging.pool.used
    paging.publish(b, list(range(8)))
    assert b.table.blocks == a.table.blocks
    assert paging.pool.used == before - 2


def test_a_fork_copies_nothing_until_it_writes() -> None:
    paging = Paging(100, 4)
    turn = computed(paging, list(range(10)))
    used = paging.pool.used
    probes = [paging.open([*range(10), 50 + i], [(turn, list(range(10)))]) for i in range(64)]
    assert paging.pool.used == used == 3
    assert all(p.table.filled == 10 and p.table.blocks == turn.table.blocks for p in probes)
    for probe in probes:
        copies = paging.extend(probe.table, 11)
        assert copies == [Copy(turn.table.blocks[2], probe.table.blocks[2])]
        assert probe.table.blocks[:2] == turn.table.blocks[:2]
    assert paging.pool.used == used + 64
    assert paging.extend(turn.table, 12) == []


def test_a_fork_at_a_blocks_end_never_copies() -> None:
    paging = Paging(100, 4)
    turn = computed(paging, list(range(8)))
    probe = paging.open([*range(8), 9], [])
    assert paging.extend(probe.table, 9) == []
    assert probe.table.blocks[:2] == turn.table.blocks


def test_no_room_changes_nothing() -> None:
    paging = Paging(4, 4)
    turn = computed(paging, list(range(8)))
    fork = paging.fork(turn.table, 6)
    assert paging.extend(fork, 20) is None
    assert fork.blocks == turn.table.blocks and paging.pool.free == 2


def test_a_longer_answer_takes_the_place_of_the_shorter_one_in_the_tree() -> None:
    paging = Paging(100, 4)
    paging.close(computed(paging, [1, 2, 3, 4, 5]), [1, 2, 3, 4, 5])
    paging.close(computed(paging, [1, 2, 3, 4, 5, 6]), [1, 2, 3, 4, 5, 6])
    paging.close(computed(paging, [1, 2, 3, 4, 5]), [1, 2, 3, 4, 5])
    assert len(paging.tree) == 2
    assert paging.pool.idle == 2 and paging.pool.used == 0


def test_the_least_recently_used_leaf_goes_first() -> None:
    paging = Paging(100, 4)
    for first in (1, 2, 3):
        tokens = [first] * 8
        paging.close(computed(paging, tokens), tokens)
    paging.drop(paging.open([1] * 9, []).table)
    assert paging.tree.evict(3) == 3
    assert [paging.open([first] * 9, []).table.filled for first in (1, 2, 3)] == [8, 0, 4]


def test_what_a_sequence_uses_is_not_evicted() -> None:
    paging = Paging(100, 4)
    running = computed(paging, [1] * 8)
    paging.close(computed(paging, [2] * 4), [2] * 4)
    assert paging.tree.evict(10) == 1
    paging.close(running, [1] * 8)
    assert paging.tree.evict(10) == 2
    assert paging.pool.free == 100


def test_many_uses_do_not_make_the_tree_grow() -> None:
    paging = Paging(100, 4)
    for _ in range(3000):
        paging.close(computed(paging, [1] * 5), [1] * 5)
    assert len(paging.tree._leaves) < 2000
    assert paging.tree.evict(10) == 2


def test_only_so_many_open_sessions_are_remembered() -> None:
    paging = Paging(2000, 4)
    for session in range(300):
        tokens = [session] * 4
        paging.close(computed(paging, tokens), tokens, str(session))
    assert sum(bool(node.open) for node in paging.tree.nodes()) == 256
