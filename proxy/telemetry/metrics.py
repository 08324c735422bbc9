"""Metrics for Prometheus, from the ledger's rows. A registry of their own; units in the names, seconds and tokens.

What is told by name is bounded: after so many different models, tools or predictors the next ones are `other`, since
names come from requests. Turns carry an exemplar (the trace's id) where the scraper asks for OpenMetrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.process_collector import ProcessCollector

from agentspec.proxy.telemetry.spans import trace_id

M = TypeVar("M", Counter, Histogram)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_MOST_NAMES = 100
_OTHER = "other"
_PROBE_OUTCOMES = ("predicted", "no call", "cut off")
_SERVED = ("hit", "joined")


class Names:
    """Lets the first so many different names through."""

    def __init__(self, most: int = _MOST_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str | None) -> str:
        """The name as a label."""
        label = name or "unknown"
        if label in self._known:
            return label
        if len(self._known) >= self._most:
            return _OTHER
        self._known.add(label)
        return label


class Labelled(Generic[M]):
    """A metric's series by their labels: the library's own look-up checks them each time."""

    def __init__(self, metric: M) -> None:
        self._metric: M = metric
        self._series: dict[tuple[str, ...], M] = {}

    def __call__(self, *labels: str) -> M:
        """The series with these labels."""
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = self._metric.labels(*labels)
        return found


class RowMetrics:
    """Counts rows. One thread hands them in; any may scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        self._models, self._tools, self._predictors = Names(), Names(), Names()
        self._turns = _turn_metrics(registry)
        self._bets = _bet_metrics(registry)
        self._take = {
            "turns": self._turn,
            "probes": self._probe,
            "predictions": self._prediction,
            "bets": self._bet,
            "claims": self._claim,
        }

    def take(self, table: str, row: Mapping[str, Any]) -> None:
        """A row of the ledger."""
        if (take := self._take.get(table)) is not None:
            take(row)

    def _turn(self, row: Mapping[str, Any]) -> None:
        model, its = self._models(row["model"]), self._turns
        its["turns"](model, row["api"] or "", str(row["status"]), str(bool(row["held_out"])).lower()).inc()
        exemplar = {"trace_id": _trace(row)}
        if row["duration_s"] is not None:
            its["duration"](model).observe(row["duration_s"], exemplar)
        for name in ("first_token_s", "reasoning_s"):
            if row[name] is not None:
                its[name](model).observe(row[name])
        self._tokens(row, model, "turn")

    def _probe(self, row: Mapping[str, Any]) -> None:
        model = self._models(row["model"])
        outcome = row["outcome"] if row["outcome"] in _PROBE_OUTCOMES else "failed"
        self._turns["probes"](model, outcome.replace(" ", "_")).inc()
        self._turns["probe"](model).observe(row["duration_s"])
        self._tokens(row, model, "probe")

    def _tokens(self, row: Mapping[str, Any], model: str, what: str) -> None:
        for kind, name in (("prompt", "prompt_tokens"), ("completion", "completion_tokens")):
            if row[name]:
                self._turns["tokens"](model, what, kind).inc(row[name])
        if row["cost_usd"]:
            self._turns["cost"](model, what).inc(row["cost_usd"])

    def _prediction(self, row: Mapping[str, Any]) -> None:
        came = {True: "yes", False: "no", None: "unknown"}[row["came_true"]]
        self._bets["predictions"](self._predictors(row["predictor"]), came).inc()

    def _bet(self, row: Mapping[str, Any]) -> None:
        its, about = self._bets, (self._predictors(row["predictor"]), self._tools(row["tool"]))
        its["bets"](*about, row["outcome"]).inc()
        if row["saved_s"]:
            its["saved"](*about).inc(row["saved_s"])
        if row["wasted_s"]:
            its["wasted"](*about).inc(row["wasted_s"])
        if row["egress"] and row["outcome"] not in (*_SERVED, "vetoed"):
            its["egress"](about[1]).inc()

    def _claim(self, row: Mapping[str, Any]) -> None:
        tool, its = self._tools(row["tool"]), self._bets
        its["claims"](tool, row["outcome"]).inc()
        its["tool"](tool).observe(row["latency_s"])
        its["wait"](tool, row["outcome"]).observe(row["waited_s"])


def _trace(turn: Mapping[str, Any]) -> str:
    parts = (turn.get("traceparent") or "").split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else trace_id(turn["id"])


def _turn_metrics(registry: CollectorRegistry) -> dict[str, Any]:
    def counter(name: str, what: str, labels: Iterable[str]) -> Labelled[Counter]:
        return Labelled(Counter(f"agentspec_{name}", what, labels, registry=registry))

    def seconds(name: str, what: str) -> Labelled[Histogram]:
        name = f"agentspec_{name}_seconds"
        return Labelled(Histogram(name, what, ["model"], registry=registry, buckets=_SECONDS))

    return {
        "turns": counter("turns", "Model requests and their answers.", ["model", "api", "status", "held_out"]),
        "duration": seconds("turn_duration", "From the request until its answer was over."),
        "first_token_s": seconds("time_to_first_token", "From the request until the first text, reasoning or call."),
        "reasoning_s": seconds("reasoning_duration", "How long the model's reasoning came."),
        "tokens": counter("tokens", "Tokens as endpoints count them.", ["model", "what", "kind"]),
        "cost": counter("cost_usd", "What tokens of hosted endpoints cost, in US dollars.", ["model", "what"]),
        "probes": counter("probes", "Forked generations that predict.", ["model", "outcome"]),
        "probe": seconds("probe_duration", "How long probes took."),
    }


def _bet_metrics(registry: CollectorRegistry) -> dict[str, Any]:
    def counter(name: str, what: str, labels: Iterable[str]) -> Labelled[Counter]:
        return Labelled(Counter(f"agentspec_{name}", what, labels, registry=registry))

    def seconds(name: str, what: str, labels: Iterable[str]) -> Labelled[Histogram]:
        name = f"agentspec_{name}_seconds"
        return Labelled(Histogram(name, what, labels, registry=registry, buckets=_SECONDS))

    about = ["predictor", "tool"]
    return {
        "predictions": counter("predictions", "Candidates as predictors offered them.", ["predictor", "came_true"]),
        "bets": counter("bets", "Predictions that the gate judged, by how they ended.", [*about, "outcome"]),
        "saved": counter("saved_seconds", "Tool seconds that handed-over results saved, summed by hits.", about),
        "wasted": counter("wasted_seconds", "Tool seconds of runs ahead that nobody got.", about),
        "egress": counter("egress_discarded", "Discarded runs ahead that told a third party something.", ["tool"]),
        "claims": counter(
            "claims", "Real calls of declared tools, by how they got their results.", ["tool", "outcome"]
        ),
        "tool": seconds("tool_duration", "How long tools ran, ahead or not.", ["tool"]),
        "wait": seconds("claim_wait", "How long agents waited for results.", ["tool", "outcome"]),
    }
