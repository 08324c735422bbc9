"""Hours in minutes: requests that come, share prefixes, draft, are cancelled; memory has to stay flat."""

from __future__ import annotations

import random
import time
from pathlib import Path

from agentspec.verifier.bench.identity import prompts
from agentspec.verifier.bench.measured import Measured, Progress
from agentspec.verifier.bench.rig import Asked, Rig
from agentspec.verifier.bench.tiny import Bytes
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.suffix import SuffixDrafter
from agentspec.verifier.engine.interface import Submission
from agentspec.verifier.verification.sampling import SamplingParams

_AT_ONCE = 12
_WARM_SHARE = 0.3
"""After this share of the time memory has found its size."""
_MIB = 1 << 20


def soak(rig: Rig, seconds: float, progress: Progress) -> list[Measured]:
    """Run for so long; how much the process grew after warming up, and blocks that nobody gave back."""
    source = random.Random(3)
    texts = prompts(200)
    began, told, done, cancelled = time.monotonic(), 0.0, 0, 0
    warm_bytes = 0
    with rig.engine(ExternalDrafter(Bytes()), NgramDrafter(), SuffixDrafter(Bytes()), tokens=8192) as engine:
        running: list[Asked] = []
        while (passed := time.monotonic() - began) < seconds:
            running += [Asked(engine, _any(source, texts)) for _ in range(_AT_ONCE - len(running))]
            asked = running.pop(source.randrange(len(running)))
            if source.random() < 0.3:
                asked.ticket.cancel()
                cancelled += 1
            else:
                asked.until(1 << 30)
                done += 1
            if not warm_bytes and passed > _WARM_SHARE * seconds:
                warm_bytes = _resident_bytes()
            if passed - told > 30.0:
                told = passed
                progress(f"soak {passed:.0f} s: {done} answers, {cancelled} cancelled, {_resident_bytes() // _MIB} MiB")
        for asked in running:
            asked.ticket.cancel()
        while engine.running:
            time.sleep(0.01)
        left = engine.stats().blocks_used
    grown = (_resident_bytes() - (warm_bytes or _resident_bytes())) / _MIB
    return [
        Measured("soak_grown_mib", grown, "MiB", n=done),
        Measured("soak_blocks_left", left, "blocks", n=cancelled),
        Measured("soak_s", seconds, "s"),
    ]


def _any(source: random.Random, texts: list[list[int]]) -> Submission:
    params = SamplingParams(temperature=source.choice((0.0, 0.8)), seed=source.randrange(1 << 30))
    return Submission(
        source.choice(texts),
        params,
        source.randint(1, 64),
        priority=source.choice((0, 0, 1)),
        session=f"s{source.randrange(50)}",
        workspace=f"w{source.randrange(5)}",
        expected=("something that may be said",) if source.random() < 0.2 else (),
    )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
