"""`agentspec bench replay`: recorded trajectories with tau2's real tools, direct and through agentspec, in pairs.

Each task is played twice in a row, once straight to the recorded endpoint with plain tools, once through a real proxy
with declared tools; which comes first alternates. Both arms have the same model pace and the same tool latency, and
each play has a database of its own. The recorded endpoint refuses probes, so what agentspec gains here it gains without
a model: from calls that complete before the answer ends, and from what it learnt in earlier tasks.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from agentspec.effects import Effect
from agentspec.errors import ConfigError
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.proxy.bench.playing import played_ahead, played_direct
from agentspec.proxy.replay.agent import Play
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.processes import endpoint_process, proxy_process
from agentspec.proxy.replay.recordings import Library, Recording, library_of, load
from agentspec.proxy.replay.tau2_tools import Latency, Toolbox, covers, toolbox

Progress = Callable[[str], None]

LATENCY = Latency(read=0.3, write=0.3, irreversible=0.3)
PACE = Pace(tokens_per_s=200, ttft_ms=200)
QUICK_PACE = Pace(tokens_per_s=400, ttft_ms=100)
QUICK_TASKS = 8


@dataclass(frozen=True)
class Pair:
    """The same task, played both ways."""

    direct: Play
    ahead: Play

    @property
    def ratio(self) -> float:
        """Time with agentspec over time without."""
        return self.ahead.seconds / self.direct.seconds


@dataclass(frozen=True)
class Setting:
    """What both arms of a run share."""

    library: Library
    endpoint: str
    proxy: str
    latency: Latency


def run(  # noqa: PLR0913  (the options of the command, all by keyword)
    data: Sequence[Path],
    quick: bool = False,
    *,
    pace: Pace | None = None,
    latency: Latency = LATENCY,
    parallel: int = 4,
    progress: Progress = lambda line: None,
) -> Report:
    """Play the trajectories of files, or of all files in a folder, both ways.

    Args:
        data: files and folders, in the order in which they are learnt from.
        quick: the first few tasks, by a faster model.
        pace: how fast the recorded model speaks.
        latency: what each kind of tool takes.
        parallel: tasks played at the same time.
        progress: told of each task that is through, and of each difference from the recording.

    Raises:
        ConfigError: tau2 is missing, or no file holds trajectories that its tools can play.
    """
    files = [file for path in data for file in _files(path)]
    recordings = [recording for recording in load(*files) if covers(recording.tools_ref)]
    if not recordings:
        raise ConfigError("none of the files given by --data holds trajectories with tau2's tools")
    if quick:
        recordings = recordings[:QUICK_TASKS]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="agentspec-bench-"))
        ledger = f"sqlite:///{folder}/ledger.sqlite3"
        endpoint = stack.enter_context(endpoint_process(files, pace or (QUICK_PACE if quick else PACE)))
        with proxy_process(endpoint, ledger) as proxy:
            setting = Setting(library_of(*files), endpoint, proxy, latency)
            pairs = list(_told(_pairs(recordings, setting, parallel), len(recordings), progress))
        figures = _figures(pairs, Counter(_claims(ledger)))
    return Report("recorded trajectories, direct and through agentspec", figures, environment())


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        folder = path / "trajectories"
        yield from sorted((folder if folder.is_dir() else path).glob("*.jsonl.gz"))
    else:
        yield path


def _pairs(recordings: Sequence[Recording], setting: Setting, parallel: int) -> Iterator[Pair]:
    """In processes, not threads: building one task's database must not slow another task that is being timed."""
    with ProcessPoolExecutor(parallel, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_pair, range(len(recordings)), recordings, repeat(setting))


def _pair(nth: int, recording: Recording, setting: Setting) -> Pair:
    if nth % 2:
        ahead = _played_ahead(recording, setting)
        return Pair(_played_direct(recording, setting), ahead)
    return Pair(_played_direct(recording, setting), _played_ahead(recording, setting))


def _played_direct(recording: Recording, setting: Setting) -> Play:
    return played_direct(recording, setting.library, setting.endpoint, _toolbox(recording, setting))


def _played_ahead(recording: Recording, setting: Setting) -> Play:
    return played_ahead(recording, setting.library, setting.proxy, _toolbox(recording, setting))


def _toolbox(recording: Recording, setting: Setting) -> Toolbox:
    return toolbox(recording.tools_ref or "", recording.task_id, setting.latency)


def _told(pairs: Iterable[Pair], count: int, progress: Progress) -> Iterator[Pair]:
    for nth, pair in enumerate(pairs, 1):
        seconds = f"{pair.direct.seconds:.1f} s direct, {pair.ahead.seconds:.1f} s with agentspec"
        progress(f"{nth}/{count} task {pair.direct.task_id}: {seconds}")
        for arm, done in (("direct", pair.direct), ("agentspec", pair.ahead)):
            for mismatch in done.mismatches:
                found = f"{mismatch.got[:200]} instead of {mismatch.recorded[:200]}"
                progress(f"  {arm}, step {mismatch.step}, another {mismatch.what}: {found}")
        yield pair


def _claims(ledger: str) -> Iterator[str]:
    """How each real call ended of a tool that may run ahead, by the proxy's own books."""
    for claim in LedgerReader(ledger).claims():
        if Effect(claim["effect"]).changes_nothing:
            yield claim["outcome"]


def _figures(pairs: Sequence[Pair], claims: Counter[str]) -> tuple[Figure, ...]:
    results = sum(pair.ahead.results for pair in pairs)
    served = claims["hit"] + claims["joined"]
    low, ratio, high = _quartiles([pair.ratio for pair in pairs if pair.direct.finished and pair.ahead.finished])
    return (
        Figure("identical", _share(pair.ahead for pair in pairs), "share", n=results),
        Figure("identical_direct", _share(pair.direct for pair in pairs), "share", n=results),
        Figure("results", results, "count", n=len(pairs)),
        Figure("hits", claims["hit"], "count", n=claims.total()),
        Figure("joined", claims["joined"], "count", n=claims.total()),
        Figure("hits_per_claim", served / claims.total() if claims else None, "share", n=claims.total()),
        Figure("time_ratio", ratio, "ratio", low, high, n=len(pairs)),
    )


def _share(plays: Iterable[Play]) -> float | None:
    done = list(plays)
    results = sum(one.results for one in done)
    return sum(one.identical for one in done) / results if results else None


def _quartiles(ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """The median and the quartiles on both sides of it."""
    if len(ratios) < 2:
        return None, ratios[0] if ratios else None, None
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high
