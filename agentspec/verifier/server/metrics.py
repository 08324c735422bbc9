"""`/metrics`: the engine's figures under vLLM's names where vLLM has them, so that the same readers and boards work."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentspec.verifier.engine.interface import EngineStats
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.server.runs import Run

_LABEL = "model_name"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """Counts what the server sees, and asks the engine for the rest when the page is read."""

    def __init__(self, model: str, engine: Engine) -> None:
        self._model = model
        self._registry = CollectorRegistry()
        self._registry.register(_EngineFigures(model, engine))
        self._ended = Counter(
            "vllm:request_success", "Choices that ended.", [_LABEL, "finished_reason"], registry=self._registry
        )
        self._first = Histogram(
            "vllm:time_to_first_token_seconds", "Arrival to first token.", [_LABEL],
            registry=self._registry, buckets=_SECONDS,
        )  # fmt: skip
        self._whole = Histogram(
            "vllm:e2e_request_latency_seconds", "Arrival to the end.", [_LABEL],
            registry=self._registry, buckets=_SECONDS,
        )  # fmt: skip

    def ended(self, run: Run) -> None:
        """A request is over."""
        for choice in run.choices:
            self._ended.labels(self._model, choice.reason or "abort").inc()
        if run.first_token_s is not None:
            self._first.labels(self._model).observe(run.first_token_s - run.began_s)
        if run.finished:
            self._whole.labels(self._model).observe(time.monotonic() - run.began_s)

    def page(self) -> bytes:
        """Prometheus' text form."""
        return generate_latest(self._registry)


class _EngineFigures(Collector):
    def __init__(self, model: str, engine: Engine) -> None:
        self._model = model
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        """No names ahead of time: registering must not ask the engine."""
        return []

    def collect(self) -> Iterable[Metric]:
        stats = self._engine.stats()
        for name, told, value in _gauges(stats):
            gauge = GaugeMetricFamily(name, told, labels=[_LABEL])
            gauge.add_metric([self._model], value)
            yield gauge
        for name, told, value in _counters(stats):
            counter = CounterMetricFamily(name, told, labels=[_LABEL])
            counter.add_metric([self._model], value)
            yield counter
        yield from self._drafters(stats)

    def _drafters(self, stats: EngineStats) -> Iterable[Metric]:
        labels = [_LABEL, "source"]
        drafted = CounterMetricFamily("agentspec_verifier_drafted_tokens", "Tokens tested, by drafter.", labels=labels)
        accepted = CounterMetricFamily("agentspec_verifier_accepted_tokens", "Those that stood.", labels=labels)
        for source, count in stats.drafts.items():
            drafted.add_metric([self._model, source], count.drafted)
            accepted.add_metric([self._model, source], count.accepted)
        yield drafted
        yield accepted


def _gauges(stats: EngineStats) -> Iterable[tuple[str, str, float]]:
    blocks = stats.blocks_used + stats.blocks_cached + stats.blocks_free
    yield "vllm:num_requests_running", "Sequences that hold memory.", stats.running
    yield "vllm:num_requests_waiting", "Sequences that hold none.", stats.waiting
    yield "vllm:kv_cache_usage_perc", "Share of blocks that sequences hold, 0 to 1.", stats.blocks_used / max(1, blocks)
    yield "agentspec_verifier_blocks_cached", "Blocks that only the cache of prefixes holds.", stats.blocks_cached
    yield "agentspec_verifier_step_seconds", "A forward's time, decaying average.", stats.step_s


def _counters(stats: EngineStats) -> Iterable[tuple[str, str, float]]:
    yield "vllm:prompt_tokens", "Prompt tokens that were run or found.", stats.prefill_tokens + stats.cached_tokens
    yield "vllm:generation_tokens", "Generated tokens.", stats.decode_tokens
    yield "vllm:prefix_cache_queries", "Prompt tokens looked up.", stats.prefill_tokens + stats.cached_tokens
    yield "vllm:prefix_cache_hits", "Prompt tokens that were found.", stats.cached_tokens
    yield "vllm:num_preemptions", "Sequences that lost their memory and were computed again.", stats.preemptions
    drafted, accepted = (sum(getattr(c, of) for c in stats.drafts.values()) for of in ("drafted", "accepted"))
    yield "vllm:spec_decode_num_draft_tokens", "Draft tokens that were put to the test.", drafted
    yield "vllm:spec_decode_num_accepted_tokens", "Those that stood.", accepted
    yield "agentspec_verifier_dropped_requests", "Probes and idle work that made room.", stats.dropped
    yield "agentspec_verifier_steps", "Forwards.", stats.steps
