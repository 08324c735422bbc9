"""What a fork costs: beside computing its prefix again, in blocks, and in the time of the turn that it forks."""

from __future__ import annotations

import random

from agentspec.verifier.bench.identity import GREEDY
from agentspec.verifier.bench.measured import Measured, Progress, spread
from agentspec.verifier.bench.rig import Asked, Rig, ask, in_turns
from agentspec.verifier.engine.interface import Submission

_PREFIX_TOKENS = 2048
_PROBES = 64


def forks(rig: Rig, rounds: int, progress: Progress, turn_tokens: int) -> list[Measured]:
    """A fork of a long prefix, many forks of one turn, and a probe beside a running turn of `turn_tokens`."""
    shares = [_share(rig, nth) for nth in range(rounds)]
    progress(f"fork: {shares[-1]:.4f} of computing {_PREFIX_TOKENS} tokens again")
    slower = _slowdowns(rig, rounds, turn_tokens)
    progress(f"probe beside a turn: {slower[-1]:.3f} of the time alone")
    return [spread("fork_share", shares), _copies(rig), spread("probe_slowdown", slower)]


def _text(rig: Rig, tokens: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(min(rig.runner.vocab_size, 50_000)) for _ in range(tokens)]


def _share(rig: Rig, nth: int) -> float:
    """Time to the first token after a prefix that is there, over that of one that is not."""
    prefix = _text(rig, _PREFIX_TOKENS, nth)
    with rig.engine() as engine:
        again = ask(engine, [Submission(prefix, GREEDY, 1)])[0]
        forked = ask(engine, [Submission([*prefix, 11], GREEDY, 1)])[0]
    if forked.cached < _PREFIX_TOKENS - 1:
        raise RuntimeError(f"only {forked.cached} of {_PREFIX_TOKENS} tokens were found")
    return forked.wait_s / again.wait_s


def _copies(rig: Rig) -> Measured:
    """Blocks that each of many probes of one running turn takes for itself: no copy of the turn's."""
    prefix = _text(rig, 512, 5)
    with rig.engine(tokens=16_384) as engine:
        turn = Asked(engine, Submission(prefix, GREEDY, 400))
        turn.until(1)
        before = engine.stats().blocks_used
        probes = [Asked(engine, Submission([*prefix, nth], GREEDY, 2, priority=1)) for nth in range(_PROBES)]
        most = before
        for probe in probes:
            probe.until(1)
            most = max(most, engine.stats().blocks_used)
        turn.ticket.cancel()
        for probe in probes:
            probe.ticket.cancel()
    return Measured("fork_blocks_per_probe", (most - before) / _PROBES, "blocks", n=_PROBES)


def _slowdowns(rig: Rig, rounds: int, turn_tokens: int) -> list[float]:
    """Seconds of a turn's token while a probe runs beside it, over those alone."""
    alone: list[float] = []
    beside: list[float] = []
    prefix = _text(rig, 256, 9)
    with rig.engine() as engine:
        ask(engine, [Submission(prefix, GREEDY, 1)])

        def quiet(_: int) -> None:
            alone.append(1 / ask(engine, [Submission(prefix, GREEDY, turn_tokens)])[0].tokens_per_s)

        def probed(nth: int) -> None:
            turn = Asked(engine, Submission(prefix, GREEDY, turn_tokens))
            turn.until(2)
            probe = Asked(engine, Submission([*prefix, 12 + nth], GREEDY, turn_tokens // 2, priority=1))
            beside.append(1 / turn.whole().tokens_per_s)
            probe.ticket.cancel()

        in_turns(rounds, quiet, probed)
    return [with_it / without for without, with_it in zip(alone, beside, strict=True)]
