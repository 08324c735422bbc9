"""What agentspec needs of any engine: probes that share the turn's prefix, drafts that change nothing, cancels."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from agentspec.verifier.adapters.protocol import Cancelling, Handover
from tests.verifier.conformance.conftest import RunningEngine, Said

LONG = " ".join(f"Order {number} of the shop went to shelf {number * 7 % 31}." for number in range(15))
QUESTION = {"role": "user", "content": f"{LONG}\nCount from one to thirty in words, and say nothing else."}
OPENING = '{"name": "'


@pytest.fixture
def asked(engine: RunningEngine) -> dict[str, Any]:
    """A chat that no engine has seen."""
    mark = uuid.uuid4().hex
    return {"messages": [{"role": "system", "content": mark}, QUESTION], "max_tokens": engine.tokens}


@pytest.fixture(scope="module")
def accepted() -> dict[bool, int]:
    """Tokens that were accepted without a posted draft, and with one."""
    return {}


def cached(said: Said) -> int | None:
    details = said.usage.get("prompt_tokens_details")
    return details.get("cached_tokens") if isinstance(details, dict) else None


def test_it_answers_and_says_what_it_can_do(engine: RunningEngine) -> None:
    assert engine.adapter.health(engine.url).up
    assert engine.can.model
    assert engine.can.engine is engine.adapter.engine
    assert engine.can.continue_final_message


def test_a_greedy_answer_is_the_same_twice(engine: RunningEngine, asked: dict[str, Any]) -> None:
    first, again = engine.chat(asked), engine.chat(asked)
    assert first.text and first.text == again.text
    assert first.usage["completion_tokens"] <= engine.tokens


def test_a_probe_continues_the_turn_and_shares_its_prefix(engine: RunningEngine, asked: dict[str, Any]) -> None:
    engine.chat(asked)
    probe = engine.chat(engine.adapter.probe_body(asked, OPENING, 8))
    assert probe.text, "what comes is the rest of a text that has begun"
    assert not probe.text.startswith(OPENING)
    assert probe.usage["completion_tokens"] <= 8
    if (reused := cached(probe)) is not None:
        assert reused >= 0.8 * probe.usage["prompt_tokens"]


def test_a_probe_beside_its_turn_changes_nothing_of_it(engine: RunningEngine, asked: dict[str, Any]) -> None:
    alone, probes = engine.chat(asked), list[Said]()

    def probe() -> None:
        probes.append(engine.chat(engine.adapter.probe_body(asked, OPENING, 8)))

    beside = threading.Thread(target=probe)
    together = engine.chat(asked, meanwhile=beside.start)
    beside.join()
    assert together.text == alone.text
    assert probes[0].text


@pytest.mark.parametrize("kind", ["exact", "wrong", "half", "garbage"])
def test_drafts_change_no_answer(engine: RunningEngine, asked: dict[str, Any], kind: str) -> None:
    if engine.can.handover not in (Handover.POSTED, Handover.CORPUS):
        pytest.skip(f"drafts are not handed over to it: {engine.can.handover.value}")
    plain, name = engine.chat(asked), uuid.uuid4().hex
    half = len(plain.text) // 2
    texts = {
        "exact": plain.text,
        "wrong": plain.text[::-1],
        "half": plain.text[:half] + " " + plain.text[half:][::-1],
        "garbage": "\u2028\x00{[" * 50,
    }
    statuses: list[int] = []

    def offer() -> None:
        statuses.append(engine.send(engine.adapter.offer_drafts(name, [texts[kind]])))

    before = engine.drafts()
    drafted = engine.chat(asked, name, offer)
    assert statuses == [200]
    assert drafted.text == plain.text
    counted = engine.drafts().since(before)
    assert 0 <= counted.accepted <= counted.drafted
    if (
        kind == "exact" and engine.adapter.name == "vllm"
    ):  # ours drafts only where that pays, for a tiny model it may not
        assert counted.accepted >= plain.usage["completion_tokens"] // 3
    used = engine.adapter.used(drafted.usage)
    assert used is None or 0 <= used.accepted <= used.drafted
    if engine.adapter.shares_drafts:
        assert engine.send(engine.adapter.withdraw_drafts(name)) == 200


def test_what_a_probe_wrote_is_a_draft_for_its_turn_by_itself(engine: RunningEngine, asked: dict[str, Any]) -> None:
    """An engine that drafts from what it has generated needs no hand-over (SPORK's partial-token accept)."""
    if engine.can.handover is not Handover.OWN:
        pytest.skip(f"drafts are handed over to it: {engine.can.handover.value}")
    before = engine.drafts()
    plain = engine.chat(asked)
    first = engine.drafts()
    again = engine.chat(asked)
    assert again.text == plain.text
    assert engine.drafts().since(first).accepted > first.since(before).accepted


def test_drafts_for_nobody_are_refused(engine: RunningEngine) -> None:
    if engine.can.handover is not Handover.POSTED:
        pytest.skip(f"drafts are not posted to it: {engine.can.handover.value}")
    assert engine.send(engine.adapter.offer_drafts("nobody", ["x"])) == 404


@pytest.mark.parametrize("posted", [False, True])
def test_drafts_of_one_request_are_not_used_for_another(
    engine: RunningEngine, asked: dict[str, Any], posted: bool, accepted: dict[bool, int]
) -> None:
    """Two requests run at once; what is posted for the one is an exact draft for the other, which gains nothing."""
    if engine.can.handover is not Handover.POSTED:
        pytest.skip(f"drafts are not posted to it: {engine.can.handover.value}")
    plain, name = engine.chat(asked), uuid.uuid4().hex
    runs, done = threading.Event(), threading.Event()

    def hold() -> None:
        runs.set()
        done.wait(120)

    other = {"messages": [{"role": "user", "content": "Say blue again and again."}], "max_tokens": 2 * engine.tokens}
    holder = threading.Thread(target=engine.chat, args=(other, name, hold))
    holder.start()
    assert runs.wait(120)
    before = engine.drafts()
    if posted:
        assert engine.send(engine.adapter.offer_drafts(name, [plain.text])) == 200
    apart = {**asked, "cache_salt": uuid.uuid4().hex}  # our engine drafts from what it wrote, within a salt
    mine = engine.chat(apart, uuid.uuid4().hex)
    done.set()
    holder.join()
    assert mine.text == plain.text
    used = engine.adapter.used(mine.usage) or engine.drafts().since(before)
    accepted[posted] = used.accepted  # an engine's own drafters count as well
    if posted:
        assert accepted[True] <= accepted[False] + plain.usage["completion_tokens"] // 3


def test_a_request_is_cancelled_by_its_id(engine: RunningEngine, asked: dict[str, Any]) -> None:
    if engine.can.cancelling is not Cancelling.BY_ID or engine.adapter.request_header is None:
        pytest.skip("a request is cancelled by closing its connection only")
    name, statuses = uuid.uuid4().hex, list[int]()
    long = {**asked, "max_tokens": 400, "ignore_eos": True}
    ended = engine.chat(long, name, lambda: statuses.append(engine.send(engine.adapter.cancel(name))))
    assert statuses == [200]
    assert ended.broken or ended.finish != "length"
    assert ended.pieces < 200
    assert engine.chat(asked).text, "others are served"
