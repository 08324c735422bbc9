"""An engine behind the real proxy: what is offered for a turn reaches it under the id that the proxy gave it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentspec.protocols import LiveTurn, Offer, ProbeRecord
from agentspec.verifier.adapters.protocol import Handover
from tests.contract.scripted import eventually
from tests.contract.support import Proxy, _schema
from tests.contract.test_gate import Get
from tests.verifier.conformance.conftest import RunningEngine


class Wrote:
    """Stands for a probe that wrote something as soon as the turn had begun to speak."""

    name = "wrote"

    def __init__(self) -> None:
        self.proxy: Any = None

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        if await turn.grown(1):
            self.proxy.deps.desk.drafts.offer(
                turn, ProbeRecord(0.0, wrote='{"name": "get", "arguments": {"key": "A"}}')
            )


def test_a_draft_reaches_the_turn_that_the_proxy_named(engine: RunningEngine, tmp_path: Path) -> None:
    if engine.can.handover is not Handover.POSTED:
        pytest.skip(f"drafts are not posted to it: {engine.can.handover.value}")
    wrote, get = Wrote(), Get()
    url = engine.url if engine.url.endswith("/v1") else f"{engine.url}/v1"
    ledger = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    proxy = Proxy(url, ledger, [wrote], engine=engine.adapter.engine, probe=True)
    wrote.proxy = proxy
    proxy.deps.desk.speculators = [wrote]
    runtime = proxy.join([get.tool])
    question = {"role": "user", "content": f"{uuid.uuid4().hex} Count from one to thirty in words."}
    body = {"model": engine.can.model, "temperature": 0, "max_tokens": min(60, engine.tokens), "messages": [question]}
    body |= {"tools": [_schema("get", {"type": "object"})], "tool_choice": "none"}
    try:
        alone = httpx.post(f"{url}/chat/completions", json=body, timeout=240, trust_env=False).json()
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        counts, asked = proxy.deps.desk.drafts.counts, 0
        with httpx.Client(trust_env=False, timeout=240) as client:
            while asked < 5 and not counts.taken:  # on a busy machine a short answer may be over before the draft comes
                answer = client.post(f"{runtime.base_url}/chat/completions", json=streamed)
                assert answer.status_code == 200
                asked += 1
                eventually(lambda so_far=asked: counts.taken + counts.refused + counts.faults >= so_far, timeout_s=60)
        assert (counts.taken, counts.refused, counts.faults) == (1, asked - 1, 0)
        reader = proxy._reader

        def rows() -> list[Any]:
            return [turn for one in reader.trajectories() for turn in reader.turns(one["trajectory"])]

        told = eventually(lambda: rows() if len(rows()) == asked else None)
        assert {row["completion_tokens"] for row in told} == {alone["usage"]["completion_tokens"]}
    finally:
        runtime.close()
        proxy.stop()
