from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.engine.kv import KvBuffer, KvShape
from agentspec.verifier.engine.prefix import PrefixCache, Source, best_source, common_prefix

SHAPE = KvShape(layers=1, heads=1, head_dim=1, dtype=torch.float32, device=torch.device("cpu"))
TOKENS = st.lists(st.integers(0, 2), max_size=12)


def source(tokens: list[int]) -> Source:
    return Source(tokens, KvBuffer(SHAPE, 64))


@given(TOKENS, TOKENS)
def test_common_prefix_is_the_longest_one(a: list[int], b: list[int]) -> None:
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_best_source_shares_most() -> None:
    near, far = source([1, 2, 3, 9]), source([1, 2])
    assert best_source([1, 2, 3, 4], [far, near]) == (near, 3)
    assert best_source([7], [far, near]) == (None, 0)


def test_cache_evicts_the_least_recently_used() -> None:
    one = source([0]).kv.nbytes
    cache = PrefixCache(2 * one)
    a, b, c = source([1, 1]), source([2, 2]), source([3, 3])
    cache.add(a)
    cache.add(b)
    cache.touch(a)
    cache.add(c)
    assert cache.sources() == [a, c]
    assert cache.nbytes == 2 * one


def test_cache_keeps_only_the_longer_of_two_that_begin_alike() -> None:
    cache = PrefixCache(1 << 20)
    long = source([1, 2, 3])
    cache.add(source([1, 2]))
    cache.add(long)
    cache.add(source([1]))
    assert cache.sources() == [long]
    assert cache.nbytes == long.kv.nbytes


def test_cache_refuses_what_is_larger_than_itself() -> None:
    cache = PrefixCache(8)
    cache.add(source([1]))
    assert len(cache) == 0 and cache.nbytes == 0


def test_fork_copies_and_leaves_the_original_alone() -> None:
    kv = KvBuffer(SHAPE, 10)
    kv.data.fill_(1)
    twin = kv.fork(4, 200)
    twin.data.fill_(2)
    assert twin.capacity >= 200
    assert bool((kv.data == 1).all())
    assert kv.room_for(4, kv.capacity) is kv
    grown = kv.room_for(4, kv.capacity + 1)
    assert grown.capacity > kv.capacity
    assert torch.equal(grown.data[:, :, :, :4], kv.data[:, :, :, :4])
