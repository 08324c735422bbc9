from __future__ import annotations

import pytest

from agentspec.verifier.engine.blocks import BlockPool


def counts(pool: BlockPool) -> tuple[int, int, int]:
    return pool.free, pool.idle, pool.used


def test_neighbours_are_handed_out_together() -> None:
    pool = BlockPool(6)
    assert [pool.allocate() for _ in range(4)] == [0, 1, 2, 3]
    pool.release([2, 0, 1])
    assert [pool.allocate() for _ in range(3)] == [0, 1, 2]


def test_a_block_is_free_when_the_last_one_lets_go() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    pool.share([block])
    pool.release([block])
    assert counts(pool) == (1, 0, 1)
    pool.release([block])
    assert counts(pool) == (2, 0, 0)


def test_what_only_the_tree_holds_is_idle() -> None:
    pool = BlockPool(3)
    block = pool.allocate()
    pool.keep(block)
    assert counts(pool) == (2, 0, 1)
    pool.release([block])
    assert counts(pool) == (2, 1, 0)
    pool.share([block])
    assert counts(pool) == (2, 0, 1)
    pool.drop(block)
    pool.release([block])
    assert counts(pool) == (3, 0, 0)


def test_wrong_bookings_are_refused() -> None:
    pool = BlockPool(1)
    for wrong in (pool.share, pool.release):
        with pytest.raises(ValueError, match="is free"):
            wrong([0])
    with pytest.raises(ValueError, match="not in the tree"):
        pool.drop(0)
    block = pool.allocate()
    pool.keep(block)
    with pytest.raises(ValueError, match="in the tree already"):
        pool.keep(block)
    with pytest.raises(IndexError):
        pool.allocate()
