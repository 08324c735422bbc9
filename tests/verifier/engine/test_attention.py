"""Paged attention: right, and (compiled) with the same bits whatever else runs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from agentspec.verifier.engine.forward import Branch, Runner, Segment, chain
from agentspec.verifier.engine.kv import BLOCK_TOKENS, KvShape, KvStore, Layout, Span
from agentspec.verifier.engine.kv_compiled import CompiledStore
from agentspec.verifier.engine.kv_gathered import GatheredStore
from agentspec.verifier.engine.linears import works
from agentspec.verifier.engine.table import Copy

LENGTH = 150
BLOCKS = -(-LENGTH // BLOCK_TOKENS)
STORES = [CompiledStore, GatheredStore]


def shape(dim: int, heads: int = 2) -> KvShape:
    return KvShape(1, heads, dim, torch.float32, torch.device("cpu"))


def written(layout: Layout, row: int, position: int, table: list[int]) -> None:
    layout.rows.append(row)
    layout.blocks.append(table[position // BLOCK_TOKENS])
    layout.offsets.append(position % BLOCK_TOKENS)


def attended(store: KvStore, parts: list[torch.Tensor], chunks: list[int], table: list[int]) -> torch.Tensor:
    """Query, key and value `[LENGTH, heads, dim]` given in chunks of rows."""
    found, at = [], 0
    for count in chunks:
        layout = Layout([Span(0, count, at, table)])
        for row in range(count):
            written(layout, row, at + row, table)
        rows = [part[at : at + count] for part in parts]
        found.append(store.attention(layout)(0, *rows, 0.3))
        at += count
    return torch.cat(found)


@pytest.mark.parametrize("make", STORES)
@pytest.mark.parametrize(("dim", "groups"), [(64, 7), (24, 1), (20, 4)])
def test_it_is_causal_attention(make: type[CompiledStore] | type[GatheredStore], dim: int, groups: int) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(LENGTH, heads, dim) for heads in (2 * groups, 2, 2)]
    table = random.Random(1).sample(range(20), BLOCKS)
    got = attended(make(shape(dim), 20), parts, [100, 1, 49], table)
    query, key, value = (part.transpose(0, 1)[None] for part in parts)
    want = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(got, want[0].transpose(0, 1), atol=2e-6, rtol=2e-5)


def test_bits_depend_neither_on_chunks_nor_on_where_blocks_lie() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(LENGTH, heads, 64) for heads in (14, 2, 2)]
    rng = random.Random(3)
    results = []
    for chunks in ([LENGTH], [1] * LENGTH, [7, 64, 31, 48], [149, 1]):
        table = rng.sample(range(40), BLOCKS)
        results.append(attended(CompiledStore(shape(64), 40), parts, chunks, table))
    assert all(torch.equal(result, results[0]) for result in results)


def test_large_scores_and_fresh_memory_do_no_harm() -> None:
    query = torch.full((1, 2, 8), 60.0)
    key = torch.full((1, 2, 8), 60.0)
    value = torch.randn(1, 2, 8)
    layout = Layout([Span(0, 1, 0, [0])])
    written(layout, 0, 0, [0])
    assert torch.equal(CompiledStore(shape(8), 1).attention(layout)(0, query, key, value, 1.0), value)


@pytest.mark.parametrize("make", STORES)
def test_blocks_are_copied_in_order(make: type[CompiledStore] | type[GatheredStore]) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(LENGTH, 2, 16) for _ in range(3)]
    store = make(shape(16), 20)
    attended(store, [part[:-1] for part in parts], [LENGTH - 1], [0, 1, 2, 3, 4])
    store.copy([Copy(4, 9), Copy(9, 10), Copy(0, 9)])
    last = [part[-1:] for part in parts]
    results = []
    for table in ([0, 1, 2, 3, 10], [9, 1, 2, 3, 4]):
        layout = Layout([Span(0, 1, LENGTH - 1, table)])
        written(layout, 0, LENGTH - 1, table)
        results.append(store.attention(layout)(0, *last, 0.3))
    assert torch.equal(*results)


@pytest.mark.parametrize("make", STORES)
def test_each_branch_of_a_tree_sees_what_it_would_alone(
    runner: Runner, make: type[CompiledStore] | type[GatheredStore]
) -> None:
    """The last token 5; after it 6 7, or 6 8, or 9: rows lie 5 6 7 8 9."""
    store = make(runner.kv_shape, 40)
    prompt = list(range(10, 80))
    tables = [[0, 1, 2], [0, 1, 12], [0, 1, 22]]
    runner.run([chain(prompt, 0, tables[0], 0)], store)
    store.copy([Copy(2, 12), Copy(2, 22)])
    paths = ((0, 1, 2), (0, 1, 3), (0, 4))
    branches = tuple(Branch(table, path) for table, path in zip(tables, paths, strict=True))
    tree = runner.run([Segment([5, 6, 7, 8, 9], len(prompt), branches, 5), chain([7], 0, [30], 1)], store)[0]
    for table, path in zip(tables, paths, strict=True):
        tokens = prompt + [[5, 6, 7, 8, 9][row] for row in path]
        rows = runner.run([chain(tokens, 0, range(33, 37), len(path))], store)[0]
        if make is CompiledStore and works():
            assert torch.equal(rows, tree[list(path)])
        torch.testing.assert_close(rows, tree[list(path)], atol=2e-4, rtol=1e-4)
        after = runner.run([chain([20], len(tokens), table, 1)], store)[0]
        whole = runner.run([chain([*tokens, 20], 0, range(33, 37), 1)], store)[0]
        torch.testing.assert_close(after, whole, atol=2e-4, rtol=1e-4)


def test_half_precision_takes_torchs_attention(tiny_folder: Path, runner: Runner) -> None:
    half = Runner(str(tiny_folder), dtype="bfloat16", device="cpu")
    store = half.store(8)
    assert isinstance(store, GatheredStore)
    prompt = list(range(10, 80))
    half.run([chain(prompt[:50], 0, [3, 1, 2], 0)], store)
    got = half.run([chain(prompt[50:], 50, [3, 1, 2], 1)], store)[0]
    want = runner.run([chain(prompt, 0, range(3), 1)], runner.store(3))[0]
    assert got.dtype is torch.float32
    assert float(torch.corrcoef(torch.cat([got, want]))[0, 1]) > 0.99
