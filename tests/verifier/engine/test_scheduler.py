"""Who goes first, how much of each, and who makes room."""

from __future__ import annotations

from agentspec.verifier.engine.interface import Limits, Submission, Ticket
from agentspec.verifier.engine.paging import Paging
from agentspec.verifier.engine.scheduler import Plan, Scheduler, shares
from agentspec.verifier.engine.sequence import Sequence
from agentspec.verifier.verification.sampling import SamplingParams

LIMITS = Limits(max_batch=3, prefill_chunk=100, prefill_chunk_busy=10)
GREEDY = SamplingParams(temperature=0)


class Desk:
    """A scheduler over `blocks` blocks of 4 positions, and the numbers of arrivals."""

    def __init__(self, blocks: int = 1000, limits: Limits = LIMITS, spare: int = 4) -> None:
        self.scheduler = Scheduler(Paging(blocks, 4), limits, lambda _: spare)
        self.arrivals = 0

    def arrive(self, tokens: list[int] | int, priority: int = 0, **fields: object) -> Sequence:
        self.arrivals += 1
        prompt = [self.arrivals] * tokens if isinstance(tokens, int) else tokens
        submission = Submission(prompt, GREEDY, max_new=1000, priority=priority, **fields)  # type: ignore[arg-type]
        made = Sequence(submission, Ticket(), lambda _: None, self.arrivals, list(prompt), self.scheduler.room)
        self.scheduler.join(made)
        return made

    def step(self) -> Plan:
        """Run what was planned; who has nothing pending left generates its own order number."""
        plan = self.scheduler.plan()
        for sequence, count in plan.work:
            assert sequence.lease is not None
            sequence.lease.table.filled += count
            if sequence.pending == 0:
                sequence.tokens.append(sequence.order)
            self.scheduler.paging.publish(sequence.lease, sequence.tokens)
        return plan

    def running(self, tokens: int, priority: int = 0) -> Sequence:
        made = self.arrive(tokens, priority)
        while made.generated == 0:
            self.step()
        return made

    def shares(self, *sequences: Sequence, spare: int = 4) -> list[tuple[Sequence, int]]:
        return shares(sequences, LIMITS, lambda _: spare)


def test_turns_go_before_probes_lower_numbers_first_then_older_ones() -> None:
    desk = Desk()
    idle, probe = desk.arrive(5, idle=True), desk.arrive(5, priority=10)
    old, new = desk.arrive(5), desk.arrive(5)
    sooner, other = desk.arrive(5, priority=5), desk.arrive(5, priority=-1)
    assert sorted(desk.scheduler.active, key=lambda s: s.rank) == [other, old, new, sooner, probe, idle]
    assert [s for s, _ in desk.step().work] == [other, old, new]


def test_a_prompt_alone_takes_the_large_chunk() -> None:
    desk = Desk()
    long = desk.arrive(500)
    assert desk.step().work == [(long, 100)]


def test_a_newcomer_takes_small_bites_beside_a_running_turn() -> None:
    desk = Desk()
    running, long = desk.running(5), desk.arrive(500)
    assert desk.step().work == [(running, 1), (long, 10)]


def test_a_turn_is_not_slowed_by_a_running_probe() -> None:
    desk = Desk()
    probe, turn = desk.running(5, priority=10), desk.arrive(500)
    assert desk.step().work == [(turn, 100), (probe, 1)]


def test_prompts_share_one_budget() -> None:
    desk = Desk()
    a, b, c = desk.arrive(60), desk.arrive(60), desk.arrive(60)
    assert desk.step().work == [(a, 60), (b, 40)]
    assert c.computed == 0


def test_beside_a_running_turn_probes_get_the_rows_that_cost_little() -> None:
    desk = Desk(spare=4)
    turn, near, far = desk.running(5), desk.arrive(50, priority=1), desk.arrive(50, priority=2)
    assert desk.step().work == [(turn, 1), (near, 4)]
    assert desk.shares(turn, near, spare=0) == [(turn, 1), (near, 1)]
    assert far.computed == 0


def test_a_prompt_that_a_more_urgent_one_is_about_to_compute_is_waited_for() -> None:
    desk = Desk(limits=Limits(8, 40, 40))
    prompt = list(range(100))
    turn, probe = desk.arrive(prompt), desk.arrive([*prompt, 7, 8], priority=10)
    while probe.lease is None:
        assert next(s for s, _ in desk.step().work) is turn
    assert probe.computed >= 96 and turn.generated > 0


def test_leftovers_go_first_then_those_of_open_sessions() -> None:
    desk = Desk(blocks=12)
    for session in ("open", None, None):
        done = desk.arrive(11, session=session)
        while done.generated < 2:
            desk.step()
        desk.scheduler.leave(done, open_session=True)
    paging = desk.scheduler.paging
    assert paging.pool.idle == 9 and paging.pool.used == 0
    desk.running(24)
    assert paging.tree.evicted == 3
    assert paging.open([1] * 12, []).table.filled == 11
    assert paging.open([2] * 12, []).table.filled < 11


def test_a_session_that_goes_on_is_an_ordinary_one_again() -> None:
    desk = Desk()
    first = desk.running(11)
    desk.scheduler.leave(first, open_session=True)
    second = desk.arrive([9] * 8, session="s")
    desk.step()
    desk.scheduler.leave(second, open_session=True)
    assert any(node.open for node in desk.scheduler.paging.tree.nodes())
    desk.arrive([9] * 9, session="s")
    assert not any(node.open for node in desk.scheduler.paging.tree.nodes())


def test_a_probe_is_dropped_before_a_turn_loses_its_blocks() -> None:
    desk = Desk(blocks=10)
    probe, older, younger = desk.running(8, priority=10), desk.running(8), desk.running(8)
    dropped = []
    while younger.lease is not None:
        dropped += desk.step().dropped
    assert dropped == [probe] and desk.scheduler.dropped == 1
    assert desk.scheduler.preemptions == 1 and older.lease is not None
    while older.generated < 20:
        desk.step()
    desk.scheduler.leave(older)
    before = younger.generated
    while younger.generated == before:
        desk.step()
    assert younger.lease is not None


def test_idle_work_goes_when_any_work_arrives() -> None:
    desk = Desk()
    idle = desk.arrive(8, idle=True)
    assert desk.step().work == [(idle, 8)]
    probe = desk.arrive(8, priority=10)
    plan = desk.step()
    assert plan.dropped == [idle] and plan.work == [(probe, 8)]


def test_a_newcomer_does_not_overtake_one_that_waits_for_room() -> None:
    desk = Desk(blocks=12)
    running, large, small = desk.running(24), desk.arrive(28), desk.arrive(4)
    for _ in range(3):
        desk.step()
    assert large.lease is None and small.lease is None and running.lease is not None


def test_a_turn_that_is_always_overtaken_ages() -> None:
    desk = Desk(limits=Limits(1, 100, 10))
    patient = desk.arrive(4)
    for _ in range(100):
        urgent = desk.running(4, priority=-1)
        desk.scheduler.leave(urgent)
        if patient.generated:
            return
    raise AssertionError("it never ran")


def test_cancelling_gives_all_blocks_back_at_once() -> None:
    desk = Desk(blocks=64)
    turns = [desk.arrive(30) for _ in range(3)]
    desk.step()
    for turn in turns:
        desk.scheduler.leave(turn)
    assert desk.scheduler.paging.pool.used == 0
    failing = desk.arrive(30)
    desk.step()
    kept = desk.scheduler.paging.pool.idle
    desk.scheduler.discard(failing)
    assert desk.scheduler.paging.pool.used == 0
    assert desk.scheduler.paging.pool.idle == kept + 7  # full blocks of earlier steps; the last, partial one is gone
