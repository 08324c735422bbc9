"""What memory is told: whole answers that the agent acts on, once per trajectory, when it has been quiet."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agentspec.aside import Aside
from agentspec.calls import ToolCall
from agentspec.config import Engine
from agentspec.errors import RequestError
from agentspec.events import FAILED, CallComplete, CallNamed, TextDelta, TurnEnd
from agentspec.proxy import learning
from agentspec.proxy.feedback import take_feedback
from agentspec.proxy.learning import Learner
from agentspec.proxy.live import Live
from agentspec.proxy.trajectories import trajectory_of
from agentspec.recollection import Past
from agentspec.trajectory import ASSISTANT, USER, Said
from agentspec.wire.apis import CHAT
from tests.contract.scripted import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

TOOLS = {"get": {"type": "object"}}
GET = ToolCall("get", {"key": "A"}, "c1")
ASKED = (Said(USER, b"q" * 16, text="Where is A?"),)


class Told:
    """Memories that write down what they are told."""

    def __init__(self) -> None:
        self.pasts: list[tuple[str, Past]] = []
        self.fails = 0
        self.may = threading.Event()
        self.may.set()

    def of(self, tenant: str) -> Any:
        raise NotImplementedError

    def learnt(self, tenant: str, past: Past) -> None:
        self.may.wait(PATIENCE_S)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("no")
        self.pasts.append((tenant, past))


class Scene:
    """A learner, what it told, and its faults."""

    def __init__(self) -> None:
        self.told, self.faults = Told(), list[str]()
        self.aside = Aside("test")
        self.learner = Learner(self.told, self.aside, 0.0, lambda who, error: self.faults.append(f"{who} {error}"))

    async def after(self, *turns: Live) -> list[Past]:
        for turn in turns:
            self.learner.over(turn)
        await self.learner.flush()
        return [past for _, past in self.told.pasts]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.told.may.set()
    made.aside.close()


def answered(*calls: ToolCall, history: Any = ASKED, end: str = "stop", **more: Any) -> Live:
    """A turn whose answer is over."""
    known: dict[str, Any] = {"id": "turn", "trajectory": "t", "scope": "s", "tenant": "n", "offered": TOOLS} | more
    request: Any = None
    upstream: Any = None
    turn = Live(request, history, CHAT, Engine.VLLM, upstream, [], "", b"", **known)
    turn.status = 200
    turn.take(TextDelta("Let me look."))
    for index, call in enumerate(calls):
        turn.take(CallNamed(index, call.name, call.id))
        turn.take(CallComplete(index, call.name, call))
    turn.take(TurnEnd(end))
    return turn


async def test_a_trajectory_is_told_with_its_answer(scene: Scene) -> None:
    (past,) = await scene.after(answered(GET))
    assert scene.told.pasts[0][0] == "n"
    assert (past.trajectory, past.scope, past.tools, past.outcome) == ("t", "s", TOOLS, None)
    *before, answer = past.history
    assert tuple(before) == ASKED
    assert (answer.role, answer.calls, answer.made, answer.text) == (ASSISTANT, (GET,), {"c1"}, "Let me look.")


async def test_only_the_latest_of_a_trajectory_is_told_and_each_tenants_own(scene: Scene) -> None:
    longer = (*ASKED, *ASKED)
    pasts = await scene.after(answered(GET), answered(history=longer), answered(GET, tenant="other"))
    assert [len(past.history) for past in pasts] == [3, 2]
    assert [tenant for tenant, _ in scene.told.pasts] == ["n", "other"]


def unread(turn: Live) -> Live:
    turn.take(CallNamed(9, "get", "c9"))
    turn.take(CallComplete(9, "get", None))
    return turn


def marked(turn: Live, **marks: Any) -> Live:
    for name, value in marks.items():
        setattr(turn, name, value)
    return turn


@pytest.mark.parametrize(
    "turn",
    [
        answered(GET, ambiguous=True),
        marked(answered(GET), dropped=True),
        marked(answered(GET), unseen=True),
        marked(answered(GET), broken=True),
        marked(answered(GET), status=500),
        answered(GET, end=FAILED),
        unread(answered(GET)),
        answered(offered={}),
    ],
    ids=["ambiguous", "asked again", "unseen", "broken off", "an error", "failed", "a call unread", "no agent"],
)
async def test_what_nobody_acts_on_or_nobody_could_read_is_not_told(scene: Scene, turn: Live) -> None:
    assert await scene.after(turn) == []


async def test_an_answer_is_taken_back_when_the_client_asks_again(scene: Scene) -> None:
    scene.learner.over(answered(GET))
    scene.learner.take_back("n", "t", "another turn")
    scene.learner.take_back("other", "t", "turn")
    scene.learner.take_back("n", "t", "turn")
    (past,) = await scene.after()
    assert tuple(past.history) == ASKED


async def test_a_last_request_without_tools_keeps_those_of_before(scene: Scene) -> None:
    (past,) = await scene.after(answered(GET), answered(offered={}))
    assert past.tools == TOOLS


async def test_quiet_trajectories_are_told_while_the_proxy_runs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "_LOOK_EVERY_S", 0.01)
    busy = Learner(scene.told, scene.aside, 600.0, lambda who, error: None)
    busy.over(answered(GET, trajectory="busy"))
    scene.learner.over(answered(GET))
    running = [asyncio.create_task(learner.run()) for learner in (busy, scene.learner)]
    await asyncio.to_thread(eventually, lambda: scene.told.pasts)
    for task in running:
        task.cancel()
    assert [past.trajectory for _, past in scene.told.pasts] == ["t"]


async def test_the_oldest_make_room(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MAX_TRAJECTORIES", 2)
    for number in "abc":
        scene.learner.over(answered(GET, trajectory=number))
    assert [past.trajectory for _, past in scene.learner._ready] == ["a"]


async def test_a_memory_that_fails_is_a_fault_and_the_next_trajectory_is_told(scene: Scene) -> None:
    scene.told.fails = 1
    assert [past.trajectory for past in await scene.after(answered(GET), answered(GET, trajectory="u"))] == ["u"]
    assert scene.faults == ["recall no"]


async def test_a_memory_that_hangs_is_waited_for_no_longer_than_that(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "_LAST_WORDS_S", 0.05)
    monkeypatch.setattr(learning, "MAX_TRAJECTORIES", 3)
    scene.told.may.clear()
    for number in range(20):
        scene.learner.over(answered(GET, trajectory=str(number)))
    assert await scene.after() == []
    assert scene.learner.counts() == {"told": 0, "dropped": 19, "skipped": 0}


async def test_what_somebody_says_of_its_end_is_learnt_with_it_at_once(scene: Scene) -> None:
    scene.learner.over(answered(GET))
    assert scene.learner.judge("n", "t", 0.0)
    assert [past.outcome for past in await scene.after()] == [0.0]
    assert not scene.learner.judge("n", "t", 1.0) and not scene.learner.judge("other", "t", 1.0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"session": "a", "outcome": true}', 404), (b'{"session": "a", "outcome": 2}', 400), (b"no", 400),
        (b'{"session": "a"}', 400), (b'{"session": "a", "outcome": "yes"}', 400),
        (b'{"session": "a", "outcome": NaN}', 400),
    ],
)  # fmt: skip
async def test_bad_feedback_is_told_what_is_wrong_with_it(scene: Scene, body: bytes, status: int) -> None:
    with pytest.raises(RequestError) as told:
        take_feedback(scene.learner, "n", body)
    assert told.value.status == status


async def test_feedback_finds_the_session_of_its_tenant_only(scene: Scene) -> None:
    scene.learner.over(answered(GET, trajectory=trajectory_of("n", "mine")))
    body = b'{"session": "mine", "outcome": false}'
    with pytest.raises(RequestError):
        take_feedback(scene.learner, "m", body)
    take_feedback(scene.learner, "n", body)
    assert [past.outcome for past in await scene.after()] == [0.0]
    with pytest.raises(RequestError):
        take_feedback(None, "n", body)
