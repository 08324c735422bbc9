from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.engine.branching import kept_nodes, plant, pruned
from agentspec.verifier.engine.paging import Paging
from agentspec.verifier.engine.table import Copy


def tree_of(parents: list[int]) -> TokenTree:
    count = len(parents)
    return TokenTree(tuple(range(100, 100 + count)), tuple(parents), (0.5,) * count, (("x",),) * count)


TREES = st.lists(st.floats(0, 1, exclude_max=True), max_size=12).map(
    lambda picks: tree_of([int(pick * (index + 1)) - 1 for index, pick in enumerate(picks)])
)


def leaves(tree: TokenTree) -> int:
    return len(set(range(len(tree))) - set(tree.parents))


@given(TREES, st.integers(1, 4))
def test_pruning_keeps_the_first_branches_whole(tree: TokenTree, branches: int) -> None:
    cut = pruned(tree, branches)
    assert leaves(cut) <= branches
    assert len(tree) == 0 or cut.tokens[0] == tree.tokens[0]
    if leaves(tree) <= branches:
        assert cut is tree
    for node, parent in enumerate(cut.parents):
        before = tree.parents[tree.tokens.index(cut.tokens[node])]
        assert (parent == ROOT) == (before == ROOT)
        assert parent == ROOT or cut.tokens[parent] == tree.tokens[before]


@given(TREES.filter(len), st.integers(1, 11))
def test_every_node_has_a_row_and_lies_on_a_branch(tree: TokenTree, past: int) -> None:
    paging = Paging(60, 4)
    lease = paging.open([1] * (past + 1), [])
    assert paging.extend(lease.table, past + 1) is not None
    lease.table.filled = past
    planted = plant(tree, lease.table, paging).planted
    assert planted is not None
    assert sorted(planted.rows) == list(range(1, len(planted.tree) + 1))
    segment = planted.segment(7)
    assert segment.tokens[0] == 7 and segment.past == past and segment.logits == len(segment.tokens)
    for branch in segment.branches:
        assert branch.path[0] == 0
        assert len(branch.table) * 4 >= past + len(branch.path)
    covered = {row for branch in segment.branches for row in branch.path}
    assert covered == set(range(len(segment.tokens)))
    node = len(planted.tree) - 1
    path = planted.tree.path(node)
    kept = planted.settle(path, paging)
    assert kept.filled == past + 1 + len(path)
    assert paging.pool.used == len(kept.blocks) == -(-kept.filled // 4)


def test_where_room_is_short_fewer_branches_are_verified() -> None:
    paging = Paging(3, 4)
    lease = paging.open([1] * 6, [])
    assert paging.extend(lease.table, 6) is not None
    lease.table.filled = 5
    done = plant(tree_of([ROOT, ROOT, ROOT]), lease.table, paging)
    assert done.planted is not None and len(done.planted.tree) == 2
    assert done.copies == [Copy(1, 2)]
    done.planted.abandon(paging)
    assert paging.pool.free == 1
    full = plant(tree_of([ROOT, 0, 1, 2, 3, 4, 5, 6, 7]), lease.table, paging)
    assert full.planted is None and full.copies == []


def test_kept_nodes_are_numbered_anew() -> None:
    tree = kept_nodes(tree_of([ROOT, ROOT, 1, 2]), {1, 2, 3})
    assert tree.parents == (ROOT, 0, 1) and tree.tokens == (101, 102, 103)
