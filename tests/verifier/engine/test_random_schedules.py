"""Random schedules over a memory that remembers what was written where: 10^5 steps without a model."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.engine.branching import Planted, plant
from agentspec.verifier.engine.interface import Limits, Submission, Ticket
from agentspec.verifier.engine.paging import Paging
from agentspec.verifier.engine.scheduler import Plan, Scheduler
from agentspec.verifier.engine.sequence import Sequence
from agentspec.verifier.verification.sampling import SamplingParams

SIZE = 4
SEEDS, STEPS = 25, 4000
LONGEST_WAIT_STEPS = 600
GREEDY = SamplingParams(temperature=0)


class World:
    """A scheduler, its memory, and sequences whose next token is a function of those before."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        blocks = self.rng.choice([10, 16, 40, 90])
        limits = Limits(self.rng.choice([2, 5, 12]), self.rng.choice([8, 30]), self.rng.choice([3, 8]))
        self.paging = Paging(blocks, SIZE)
        self.scheduler = Scheduler(self.paging, limits, lambda _: self.rng.randrange(4))
        self.cells: list[list[int]] = [[0] * SIZE for _ in range(blocks)]
        self.histories: list[list[int]] = [[1]]
        self.arrivals = 0
        self.counts: Counter[str] = Counter()

    def arrive(self) -> None:
        rng = self.rng
        base = rng.choice(self.histories)
        cut = rng.randrange(len(base) + 1)
        prompt = base[:cut] + [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
        prompt = prompt[: self.scheduler.room - 1]
        kind = rng.choice(["turn", "turn", "probe", "idle"])
        submission = Submission(
            prompt,
            GREEDY,
            max_new=rng.randrange(1, 30),
            priority=rng.choice([-1, 0, 0, 0]) if kind == "turn" else rng.choice([1, 10]),
            session=rng.choice([None, "a", "b"]),
            idle=kind == "idle",
        )
        self.arrivals += 1
        made = Sequence(submission, Ticket(), lambda _: None, self.arrivals, list(prompt), self.scheduler.room)
        self.scheduler.join(made)
        self.histories = [*self.histories[-12:], made.tokens]

    def step(self) -> None:
        before = self.scheduler.preemptions, self.scheduler.dropped
        plan = self.scheduler.plan()
        self.counts["preempted"] += self.scheduler.preemptions - before[0]
        self.counts["dropped"] += self.scheduler.dropped - before[1]
        planted = self.draft(plan)
        for copy in plan.copies:
            self.counts["copies"] += 1
            self.cells[copy.target] = list(self.cells[copy.source])
        for sequence, count in plan.work:
            self.write(sequence, count, planted.get(id(sequence)))
        for sequence, count in plan.work:
            self.advance(sequence, count, planted.get(id(sequence)))

    def draft(self, plan: Plan) -> dict[int, Planted]:
        """Random trees for those that decode: mostly right, often wrong, sometimes forked."""
        found = {}
        for sequence, count in plan.work:
            room = min(5, sequence.limit - len(sequence.tokens) - 1)
            if count != 1 or sequence.pending != 1 or room < 1 or self.rng.random() < 0.5:
                continue
            assert sequence.lease is not None
            done = plant(self.tree(sequence.tokens, room), sequence.lease.table, self.paging)
            plan.copies += done.copies
            if done.planted is not None:
                found[id(sequence)] = done.planted
                self.counts["branches"] += len(done.planted.paths) > 1
        return found

    def tree(self, tokens: list[int], room: int) -> TokenTree:
        nodes: list[tuple[int, int]] = []
        paths: list[list[int]] = [[]]
        for _ in range(self.rng.randrange(1, 9)):
            parent = self.rng.randrange(-1, len(nodes))
            path = paths[parent + 1]
            token = next_token(tokens + path) if self.rng.random() < 0.6 else self.rng.randrange(3)
            if len(path) < room and (parent, token) not in nodes:
                nodes.append((parent, token))
                paths.append([*path, token])
        return TokenTree(
            tuple(token for _, token in nodes),
            tuple(parent for parent, _ in nodes),
            (0.5,) * len(nodes),
            (("random",),) * len(nodes),
        )

    def write(self, sequence: Sequence, count: int, planted: Planted | None) -> None:
        """What the forward would write, and where; and what it would see there before."""
        assert sequence.lease is not None
        past = sequence.computed
        self.check(sequence)
        if planted is None:
            branches = [(sequence.lease.table.blocks, sequence.tokens[past : past + count])]
        else:
            segment = planted.segment(sequence.tokens[-1])
            assert segment.past == past
            branches = [(list(b.table), [segment.tokens[row] for row in b.path]) for b in segment.branches]
        for blocks, tokens in branches:
            prefix = sequence.tokens[:past] + tokens
            for position in range(past, past + len(tokens)):
                block = blocks[position // SIZE]
                assert self.paging.pool.references(block) == 1, "somebody else holds a block that is written"
                self.cells[block][position % SIZE] = mark(prefix, position)

    def check(self, sequence: Sequence) -> None:
        """All that a sequence believes to be computed is there."""
        assert sequence.lease is not None
        table = sequence.lease.table
        for position in range(table.filled):
            cell = self.cells[table.blocks[position // SIZE]][position % SIZE]
            assert cell == mark(sequence.tokens, position)

    def advance(self, sequence: Sequence, count: int, planted: Planted | None) -> None:
        lease = sequence.lease
        assert lease is not None
        self.counts["tokens"] += count
        tree = planted.tree if planted else TokenTree()
        generates = count == sequence.pending
        path, node = [], -1
        if generates:
            while node is not None and len(sequence.tokens) < sequence.limit:
                sequence.tokens.append(next_token(sequence.tokens))
                node = tree.child(node, sequence.tokens[-1])
                path += [] if node is None else [node]
        if planted is not None:
            lease.table = planted.settle(path, self.paging)
            self.counts["accepted"] += len(path)
        else:
            lease.table.filled += count
        self.paging.publish(lease, sequence.tokens)
        self.check(sequence)
        if len(sequence.tokens) >= sequence.limit:
            self.counts["finished"] += 1
            self.scheduler.leave(sequence, open_session=self.rng.random() < 0.5)

    def audit(self) -> None:
        """Every reference is accounted for."""
        pool, tree = self.paging.pool, self.paging.tree
        held = Counter(b for s in self.scheduler.active if s.lease is not None for b in s.lease.table.blocks)
        kept = Counter(node.block for node in tree.nodes())
        assert len(tree) == len(kept) and max(kept.values(), default=1) == 1
        for block in range(pool.total):
            assert pool.references(block) == held[block] + kept[block]
        assert pool.used == len(held) and pool.idle == len(set(kept) - set(held))
        assert pool.free + pool.idle + pool.used == pool.total


def next_token(tokens: list[int]) -> int:
    return mark(tokens, len(tokens) - 1) % 3


def mark(tokens: list[int], position: int) -> int:
    """Stands for keys and values of a position: they depend on all tokens up to it (here: on the last 16)."""
    return hash((position, *tokens[max(0, position - 15) : position + 1]))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_block_is_lost_or_shared_wrongly_and_every_turn_comes_to_its_end(seed: int) -> None:
    world = World(seed)
    rng, scheduler = world.rng, world.scheduler
    rate = (0.1, 0.25, 0.5)[seed % 3]
    for step in range(STEPS):
        if rng.random() < rate and len(scheduler.active) < 25:
            world.arrive()
        if rng.random() < 0.02 and scheduler.active:
            scheduler.leave(rng.choice(scheduler.active))
        if rng.random() < 0.005 and scheduler.active:
            scheduler.discard(rng.choice(scheduler.active))
        world.step()
        assert all(s.starved < LONGEST_WAIT_STEPS for s in scheduler.active if s.is_turn)
        if step % 20 == 0:
            world.audit()
    for _ in range(5000):
        if not scheduler.active:
            break
        world.step()
    world.audit()
    assert not scheduler.active and world.paging.pool.used == 0
    assert min(world.counts[name] for name in ("finished", "copies", "accepted", "branches")) > 50
