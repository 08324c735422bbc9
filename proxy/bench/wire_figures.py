"""From windows to figures: medians over the rounds, with their least and greatest, and differences within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentspec.proxy.bench.figures import Figure
from agentspec.proxy.bench.wire_arms import DIRECT, LITELLM, OFF, ON
from agentspec.proxy.bench.wire_bodies import Size
from agentspec.proxy.bench.wire_load import Sample, percentile

SATURATED = 0.9
"""Share of its core from which on a server is what limits the throughput."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load."""

    size: Size
    connections: int
    streamed: bool = False

    @property
    def label(self) -> str:
        return f"{'stream.' if self.streamed else ''}{self.size}.c{self.connections}"


@dataclass(frozen=True, slots=True)
class Window:
    """One arm under one load for a while. CPU times in seconds: the server's, and the load generator's with the
    endpoint's. `settled_cpu_s` is the server's with what it did after the last answer.
    """

    sample: Sample
    cpu_s: float
    settled_cpu_s: float
    other_cpu_s: float

    @property
    def busy(self) -> float:
        """Share of its core that the server used."""
        return self.cpu_s / self.sample.elapsed_s

    @property
    def others_busy(self) -> float:
        """Share of their core that load generator and endpoint used."""
        return self.other_cpu_s / self.sample.elapsed_s

    @property
    def rps_per_core(self) -> float:
        """Answers per second where the server's core was full; otherwise answers per second of its CPU time."""
        if not self.cpu_s or self.busy >= SATURATED:
            return self.sample.rps
        return self.sample.requests / self.settled_cpu_s

    @property
    def cpu_us(self) -> float:
        """CPU time for each request."""
        return self.settled_cpu_s * 1e6 / self.sample.requests


Windows = Mapping[tuple[str, Cell], Sequence[Window]]
Measure = Callable[[Window], float | None]
SMALL_1, SMALL_16 = Cell(Size.SMALL, 1), Cell(Size.SMALL, 16)
LARGE_16, STREAM_16 = Cell(Size.LARGE, 16), Cell(Size.SMALL, 16, streamed=True)
PRIMARY = (SMALL_1, SMALL_16, STREAM_16, LARGE_16)
"""What the aims are about."""
SECONDARY = (
    *(Cell(size, count) for size, count in ((Size.SMALL, 64), (Size.LARGE, 1), (Size.LARGE, 64))),
    Cell(Size.GROWING, 16),
    *(Cell(Size.SMALL, count, streamed=True) for count in (1, 64)),
    *(Cell(Size.LARGE, count, streamed=True) for count in (1, 16, 64)),
)
ARMS = (DIRECT, OFF, ON, LITELLM)


def figures_of(windows: Windows, rss_mb: Mapping[str, float]) -> tuple[Figure, ...]:
    """All figures: those that have aims first. The names are always the same; without LiteLLM its own are None."""
    return (
        *_aims(windows),
        *_beside_litellm(windows),
        *(Figure(_named("rss_mb", arm), rss_mb.get(arm), "MB", n=1) for arm in (OFF, ON, LITELLM)),
        *(figure for arm in ARMS for cell in (*PRIMARY, *SECONDARY) for figure in _details(windows, arm, cell)),
    )


def _aims(windows: Windows) -> Iterator[Figure]:
    yield _figure(
        "added_p50_ms.c1", "ms", _added(windows, OFF, SMALL_1, latency(0.5)), _requests(windows, OFF, SMALL_1)
    )
    chunks = _chunks(windows, OFF, STREAM_16)
    for name, measure, count in (
        ("added_ttft_ms", ttft(0.5), _requests(windows, OFF, STREAM_16)),
        ("added_chunk_p50_ms", chunk(0.5), chunks),
        ("added_chunk_p99_ms", chunk(0.99), chunks),
    ):
        yield _figure(f"{name}.c16", "ms", _added(windows, OFF, STREAM_16, measure), count)
    rates = _each(windows, OFF, SMALL_16, lambda window: window.rps_per_core)
    yield _figure("rps_per_core.c16", "requests/s", rates, _requests(windows, OFF, SMALL_16))
    for prefix, arm in (("cpu_us", OFF), ("cpu_us_speculating", ON)):
        for cell in (SMALL_16, LARGE_16, Cell(Size.GROWING, 16)):
            spent = _each(windows, arm, cell, lambda window: window.cpu_us)
            yield _figure(f"{prefix}.{cell.label}", "us", spent, _requests(windows, arm, cell))
    added = _added(windows, ON, SMALL_1, latency(0.5))
    yield _figure("added_p50_ms_speculating.c1", "ms", added, _requests(windows, ON, SMALL_1))


def _beside_litellm(windows: Windows) -> Iterator[Figure]:
    """Theirs over ours for costs, ours over theirs for throughput: greater is better for us."""
    count = _requests(windows, LITELLM, SMALL_16)
    spent = [_each(windows, arm, SMALL_16, lambda window: window.cpu_us) for arm in (LITELLM, OFF)]
    yield _figure("litellm_cpu_ratio.c16", "ratio", _ratios(*spent), count)
    added = [_added(windows, arm, SMALL_1, latency(0.5)) for arm in (LITELLM, OFF)]
    yield _figure("litellm_added_p50_ratio.c1", "ratio", _ratios(*added), _requests(windows, LITELLM, SMALL_1))
    rates = [_each(windows, arm, SMALL_16, lambda window: window.rps_per_core) for arm in (OFF, LITELLM)]
    yield _figure("litellm_rps_ratio.c16", "ratio", _ratios(*rates), count)


def _details(windows: Windows, arm: str, cell: Cell) -> Iterator[Figure]:
    """One arm under one load."""
    requests, chunks = _requests(windows, arm, cell), _chunks(windows, arm, cell)
    whole = [(f"p{share * 100:.0f}_ms", "ms", latency(share)) for share in (0.5, 0.95, 0.99)]
    stream = [(f"ttft_p{share * 100:.0f}_ms", "ms", ttft(share)) for share in (0.5, 0.95, 0.99)]
    stream += [(f"chunk_p{share * 100:.0f}_ms", "ms", chunk(share)) for share in (0.5, 0.95, 0.99)]
    measures: list[tuple[str, str, Measure]] = [*(stream if cell.streamed else whole)]
    if not cell.streamed:
        measures.append(("rps", "requests/s", lambda window: window.sample.rps))
    if arm != DIRECT:
        measures.append(("request_cpu_us", "us", lambda window: window.cpu_us))
    for name, unit, measure in measures:
        count = chunks if name.startswith("chunk_") else requests
        yield _figure(f"{name}.{arm}.{cell.label}", unit, _each(windows, arm, cell, measure), count)


def latency(share: float) -> Measure:
    """The percentile of the time to the complete answer."""
    return lambda window: percentile(window.sample.latency_ms, share)


def ttft(share: float) -> Measure:
    """The percentile of the time to the first chunk."""
    return lambda window: percentile(window.sample.ttft_ms, share)


def chunk(share: float) -> Measure:
    """The percentile of the time that chunks were under way."""
    return lambda window: percentile(window.sample.chunk_ms, share)


def _each(windows: Windows, arm: str, cell: Cell, measure: Measure) -> list[float]:
    """The measure in each round."""
    values = (measure(window) for window in windows.get((arm, cell), ()))
    return [value for value in values if value is not None]


def _added(windows: Windows, arm: str, cell: Cell, measure: Measure) -> list[float]:
    """In each round, what an arm adds to the direct one."""
    direct = _each(windows, DIRECT, cell, measure)
    return [value - base for value, base in zip(_each(windows, arm, cell, measure), direct, strict=False)]


def _ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=False) if b > 0]


def _requests(windows: Windows, arm: str, cell: Cell) -> int:
    return sum(window.sample.requests for window in windows.get((arm, cell), ()))


def _chunks(windows: Windows, arm: str, cell: Cell) -> int:
    return sum(len(window.sample.chunk_ms) for window in windows.get((arm, cell), ()))


def _figure(name: str, unit: str, rounds: Sequence[float], count: int) -> Figure:
    if not rounds:
        return Figure(name, None, unit, n=0)
    return Figure(name, statistics.median(rounds), unit, min(rounds), max(rounds), n=count)


def _named(name: str, arm: str) -> str:
    return {OFF: name, ON: f"{name}_speculating"}.get(arm, f"{name}_{arm}")
