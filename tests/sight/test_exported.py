"""A whole run through the real proxy, as a receiver of OpenTelemetry, Prometheus and the ledger see it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from agentspec.memory.ledger_reader import LedgerReader
from agentspec.proxy.doors import hash_of
from agentspec.proxy.export import Wanted, to_jsonl, to_otlp
from agentspec.proxy.telemetry.otel_metrics import ModelMetrics
from tests.contract.scripted import eventually
from tests.sight.conftest import Receiver, attributes
from tests.sight.shop import SPANS_A_SESSION, play

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def kinds(receiver: Receiver) -> Counter[str]:
    return Counter(attributes(span)["openinference.span.kind"] for span in receiver.spans)


def settled(proxy: Any, claims: int) -> LedgerReader:
    """The ledger, when it has everything."""
    proxy.claimed(claims)
    return LedgerReader(proxy.deps.settings.database)


@pytest.fixture
def played(endpoint, start, join, agent_of, receiver):
    """A proxy that tells the receiver, after one session, closed."""
    proxy = start(otel_endpoint=receiver.url, keep_content=True)
    play(endpoint, proxy, join, agent_of, "chat-1", traceparent=f"00-{TRACE}-{PARENT}-01")
    settled(proxy, 2)
    return proxy


def test_a_receiver_gets_the_run_in_the_agents_own_trace(played, receiver):
    played.stop()
    assert kinds(receiver) == SPANS_A_SESSION
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    assert {attributes(span)["session.id"] for span in receiver.spans} == {"chat-1"}
    chats = [span for span in receiver.spans if span.name.startswith("chat ")]
    assert {span.parent_span_id.hex() for span in chats} == {PARENT}
    first = attributes(chats[0])
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (120, 15)
    assert first["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert first["agentspec.reasoning_ms"] == 0.0
    metrics = {metric.name for metric in receiver.metrics}
    assert metrics == {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"}


def test_secrets_are_nowhere_though_content_is_kept(played, receiver):
    played.stop()
    reader = LedgerReader(played.deps.settings.database)
    (run,) = reader.runs()
    written = json.dumps([reader.turns(run["trajectory"]), [reader.content(t["id"]) for t in reader.every_turn()]])
    told = " ".join(str(attributes(span)) for span in receiver.spans)
    for text in (written, told):
        assert "[redacted]" in text
        assert "Where is my order?" in text
        assert "0123456789abcdefghij" not in text


def test_without_content_nothing_that_was_said_is_written(endpoint, start, join, agent_of):
    proxy = start(keep_arguments=False)
    play(endpoint, proxy, join, agent_of, "chat-1")
    reader = settled(proxy, 2)
    (run,) = reader.runs()
    written = json.dumps(reader.turns(run["trajectory"]))
    assert not re.search("order\\?|A1|B2|shipped|shoes|on its way", written.replace("get_order", ""))
    assert [reader.content(turn["id"]) for turn in reader.every_turn()] == [None] * 3


def test_the_ledger_tells_the_whole_run(played):
    reader = LedgerReader(played.deps.settings.database)
    (run,) = reader.runs()
    assert (run["session"], run["turns"], run["calls"], run["claims"], run["served"]) == ("chat-1", 3, 2, 2, 1)
    assert run["hit"] + run["joined"] == run["miss"] == 1
    assert (run["prompt_tokens"], run["completion_tokens"], run["errors"]) == (400, 35, 0)
    first, second, third = reader.turns(run["trajectory"])
    assert first["reasoning_s"] is not None
    assert second["reasoning_s"] is None
    assert [turn["finish"] for turn in (first, second, third)] == ["tool_calls", "tool_calls", "stop"]
    assert [one["came_true"] for turn in (first, second) for one in turn["predictions"]] == [True, False]
    assert [bet["ran"] for turn in (first, second) for bet in turn["bets"]] == [True, True]
    assert first["bets"][0]["threshold"] < first["bets"][0]["probability"]
    assert (first["claims"][0]["bet"], first["engine"], first["api"]) == (
        first["bets"][0]["id"],
        "openai",
        "chat/completions",
    )
    assert first["first_token_s"] <= first["call_s"] <= first["duration_s"]
    content = reader.content(first["id"])
    assert content is not None
    assert json.loads(content["said"])[0]["role"] == "user"
    assert content["reasoning"] == "The order must be looked up first."


def test_what_is_exported_later_is_what_was_sent_at_once(played, receiver, tmp_path):
    played.stop()
    sent = {(span.name, span.span_id, span.trace_id, str(attributes(span))) for span in receiver.spans}
    receiver.spans.clear()
    settings = played.deps.settings
    assert to_otlp(Wanted(LedgerReader(settings.database)), settings) == f"{len(sent)} spans"
    again = {(span.name, span.span_id, span.trace_id, str(attributes(span))) for span in receiver.spans}
    assert again == sent
    file = tmp_path / "out.jsonl"
    assert to_jsonl(Wanted(LedgerReader(settings.database)), file).startswith("1 runs, ")
    tables = Counter(json.loads(line)["table"] for line in file.read_text().splitlines())
    assert tables == {"runs": 1, "turns": 3, "contents": 3, "predictions": 2, "bets": 2, "claims": 2}


def test_a_receiver_that_is_away_costs_nobody_anything(endpoint, start, join, agent_of, receiver):
    receiver.status = 503
    proxy = start(otel_endpoint=receiver.url)
    play(endpoint, proxy, join, agent_of, "chat-1")
    assert settled(proxy, 2).runs()[0]["turns"] == 3
    assert receiver.spans == []


def page(proxy: Any, **headers: str) -> httpx.Response:
    return httpx.get(f"{proxy.url}/metrics", headers=headers, trust_env=False)


def test_prometheus_reads_what_happened(endpoint, start, join, agent_of):
    proxy = start()
    play(endpoint, proxy, join, agent_of, "chat-1")
    settled(proxy, 2)
    eventually(lambda: 'agentspec_claims_total{outcome="miss"' in page(proxy).text, "the page has the last claim")
    found = page(proxy)
    assert found.headers["content-type"].startswith("text/plain")
    samples = {(s.name, *sorted(s.labels.items())): s.value for f in parsed(found.text) for s in f.samples}
    claims = {key[1][1]: value for key, value in samples.items() if key[0] == "agentspec_claims_total"}
    assert sum(claims.values()) == 2
    turns = sum(value for key, value in samples.items() if key[0] == "agentspec_turns_total")
    tokens = {dict(key[1:])["kind"]: 0.0 for key in samples if key[0] == "agentspec_tokens_total"}
    for key, value in samples.items():
        if key[0] == "agentspec_tokens_total":
            tokens[dict(key[1:])["kind"]] += value
    assert (turns, tokens) == (3.0, {"prompt": 400.0, "completion": 35.0})
    assert samples["agentspec_ledger_rows_total", ("result", "dropped")] == 0.0
    assert samples["agentspec_runtimes",] == 1.0


def test_prometheus_own_tool_finds_nothing_to_say_against_the_page(endpoint, start, join, agent_of):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian: prometheus) is not installed")
    proxy = start()
    play(endpoint, proxy, join, agent_of, "chat-1")
    eventually(lambda: 'agentspec_claims_total{outcome="miss"' in page(proxy).text, "the page has the last claim")
    checked = [promtool, "check", "metrics"]
    done = subprocess.run(checked, input=page(proxy).text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_openmetrics_has_exemplars_that_lead_to_the_trace(endpoint, start, join, agent_of):
    proxy = start()
    play(endpoint, proxy, join, agent_of, "chat-1", traceparent=f"00-{TRACE}-{PARENT}-01")
    accept = "application/openmetrics-text; version=1.0.0"
    eventually(lambda: TRACE in page(proxy, accept=accept).text, "the exemplar is there")
    text = page(proxy, accept=accept).text
    assert text.endswith("# EOF\n")
    samples = [s for family in parsed_openmetrics(text) for s in family.samples if s.exemplar is not None]
    assert {sample.exemplar.labels["trace_id"] for sample in samples} == {TRACE}
    assert TRACE not in page(proxy).text


def test_metrics_are_left_out_where_they_are_not_wanted(start):
    proxy = start(metrics=False)
    assert page(proxy).status_code == 404


def test_without_tracing_nothing_is_written_and_all_goes_on(endpoint, start, join, agent_of):
    proxy = start(tracing=False)
    play(endpoint, proxy, join, agent_of, "chat-1")
    assert proxy.deps.desk.books.counts["miss"] == 1
    assert LedgerReader(proxy.deps.settings.database).runs() == []


def test_alive_and_ready(start):
    proxy = start()
    assert httpx.get(f"{proxy.url}/healthz", trust_env=False).json() == {"status": "ok"}
    ready = httpx.get(f"{proxy.url}/readyz", trust_env=False)
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")


def test_the_metrics_of_all_tenants_need_a_key_of_their_own(start):
    keys = [{"tenant": name, "sha256": hash_of(name).hex()} for name in ("shop", "metrics")]
    proxy = start(keys=keys)
    assert page(proxy).status_code == 401
    assert page(proxy, authorization="Bearer shop").status_code == 403
    assert page(proxy, authorization="Bearer metrics").status_code == 200


def test_conventions_metrics_have_their_units_and_labels(turn, probe):
    reader = InMemoryMetricReader()
    metrics = ModelMetrics(reader, Resource.create({}))
    metrics.take("turns", turn("a", engine="anthropic", endpoint="https://api.example.com/v1"))
    metrics.take("turns", turn("b", status=500))
    metrics.take("probes", probe("p", "a"))
    data = json.loads(reader.get_metrics_data().to_json())["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    found = {metric["name"]: metric for metric in data}
    assert {name: metric["unit"] for name, metric in found.items()} == {
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.duration": "s",
    }
    points = found["gen_ai.client.operation.duration"]["data"]["data_points"]
    told = [point["attributes"] for point in points]
    assert {about.get("error.type") for about in told} == {None, "500"}
    assert {about["gen_ai.provider.name"] for about in told} == {"openai", "anthropic"}
    assert points[0]["explicit_bounds"][:3] == [0.01, 0.02, 0.04]
    kinds = {p["attributes"]["gen_ai.token.type"] for p in found["gen_ai.client.token.usage"]["data"]["data_points"]}
    assert kinds == {"input", "output"}
