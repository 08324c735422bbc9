"""What runs ahead in other processes ends with the agent, and what runs on another machine ends with its claim."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from agentspec import speculate
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox import fidelity
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.tiers.remote import KEY_VARIABLE
from tests.contract import importable as tools
from tests.contract.other_agents import OtherAgent
from tests.contract.sandboxed import alive, zygotes
from tests.contract.scripted import eventually

pytestmark = pytest.mark.skipif("T1" in missing_tiers(), reason=f"T1: {missing_tiers().get('T1')}")


@pytest.fixture(autouse=True)
def _trusted(monkeypatch):
    monkeypatch.setattr(fidelity, "CHECKS", 0)
    monkeypatch.setattr(fidelity, "RECHECKED_SHARE", 0.0)


def no_zygotes(before: set[int]) -> None:
    eventually(lambda: not zygotes() - before, "no zygote and no child of one is left")


def read(function: Any, sandbox: Any = "process", **options: Any) -> Any:
    return speculate(effect="read", stable_for=30.0, sandbox=sandbox, **options)(function)


def test_a_runtime_that_is_closed_leaves_no_process(scene):
    before = zygotes()
    made = scene(read(tools.look_up))
    assert made.play("look_up", key="A")["pid"] != os.getpid()
    assert zygotes() - before
    made.runtime.close()
    no_zygotes(before)


def test_a_runtime_that_is_closed_at_once_leaves_no_process(scene):
    """While its tools are still being imported in the zygote."""
    before = zygotes()
    for _ in range(3):
        scene(read(tools.look_up)).runtime.close()
    time.sleep(0.5)  # what would come up late has come up by then
    no_zygotes(before)


def test_a_run_that_never_ends_is_killed_with_its_runtime(scene):
    before = zygotes()
    made = scene(read(tools.never_ends_ahead))
    made.asked("never_ends_ahead", key="A", after=made.started())
    made.runtime.close()
    no_zygotes(before)


def test_a_tier_that_is_closed_in_the_middle_of_a_run_leaves_no_process(scene):
    before = zygotes()
    made = scene(read(tools.never_ends_ahead))
    made.asked("never_ends_ahead", key="A", after=made.started())
    made.runtime._runtime.tiers.close()
    assert made.outcomes == ["failed"]
    no_zygotes(before)


@pytest.mark.parametrize("how", ["leave exit", "leave error", "leave now"])
def test_an_agent_that_ends_leaves_no_process(start, how):
    agent = OtherAgent()
    agent.join(start().url)
    agent.say("prove", "proven")
    left = eventually(lambda: zygotes(agent.pid))
    agent.say(how)
    agent.wait()
    eventually(lambda: not any(map(alive, left)), f"{left} are gone")
    agent.close()


def test_an_agent_that_is_killed_leaves_no_process(start):
    agent = OtherAgent()
    agent.join(start().url)
    agent.say("prove", "proven")
    left = eventually(lambda: zygotes(agent.pid))
    agent.kill()
    eventually(lambda: not any(map(alive, left)), f"{left} are gone")
    agent.close()


def test_a_zygote_that_was_killed_is_started_again(scene):
    before = zygotes()
    made = scene(read(tools.look_up))
    assert made.play("look_up", key="A")["pid"] != os.getpid()
    for pid in zygotes() - before:
        os.kill(pid, signal.SIGKILL)
    results = [made.play("look_up", key=key) for key in "BC"]
    assert [result["key"] for result in results] == ["B", "C"]
    assert results[-1]["pid"] != os.getpid()


# On another machine


@pytest.fixture
def worker(cleanup, monkeypatch):
    """worker(): the address of a worker that serves this suite's tools, in a process of its own; and its process."""
    monkeypatch.setenv(KEY_VARIABLE, "k" * 32)
    command = [sys.executable, "-m", "tests.contract.worker_process"]

    def started(key: str = "k" * 32) -> tuple[str, subprocess.Popen[str]]:
        process = subprocess.Popen(
            command, env=os.environ | {KEY_VARIABLE: key}, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )

        def ended() -> None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                stream.close()

        cleanup.callback(ended)
        assert process.stdout is not None
        return f"127.0.0.1:{int(process.stdout.readline())}", process

    return started


def test_a_read_is_served_from_a_worker(scene, worker):
    address, process = worker()
    made = scene(read(tools.look_up, Sandbox("remote", address=address)))
    served = made.play("look_up", key="A")
    assert served["pid"] not in (os.getpid(), process.pid)
    assert made.outcomes == ["hit"]
    assert made.bets()[0]["tier"] == "T3"


def test_an_async_read_is_served_from_a_worker(scene, worker):
    address, _ = worker()
    made = scene(read(tools.look_up_soon, Sandbox("remote", address=address)))
    agent, (call,) = made.asked("look_up_soon", key="A")
    assert asyncio.run(agent.tools[call.name](**call.arguments))["pid"] != os.getpid()
    assert made.outcomes == ["hit"]


def test_a_worker_that_wants_another_key_runs_nothing(scene, worker):
    address, _ = worker(key="another")
    made = scene(read(tools.look_up, Sandbox("remote", address=address)))
    assert made.play("look_up", key="A") == {"key": "A", "pid": os.getpid()}
    assert made.outcomes[0] != "hit"
    assert "k" * 32 not in made.bets()[0]["reason"]


def test_without_a_key_nothing_is_sent(scene, worker, monkeypatch):
    address, _ = worker()
    monkeypatch.delenv(KEY_VARIABLE)
    made = scene(read(tools.look_up, Sandbox("remote", address=address)))
    assert made.play("look_up", key="A")["pid"] == os.getpid()
    assert KEY_VARIABLE in made.bets()[0]["reason"]


def test_a_worker_that_is_gone_costs_the_bet_and_nothing_else(scene, worker):
    address, process = worker()
    process.kill()
    process.wait()
    made = scene(read(tools.look_up, Sandbox("remote", address=address)))
    began = time.monotonic()
    assert made.play("look_up", key="A")["pid"] == os.getpid()
    assert time.monotonic() - began < 2
    assert made.outcomes[0] in ("failed", "vetoed")


def test_a_worker_that_dies_in_the_middle_of_a_run_costs_the_bet_and_nothing_else(scene, worker):
    address, process = worker()
    made = scene(read(tools.never_ends_ahead, Sandbox("remote", address=address)))
    agent, calls = made.asked("never_ends_ahead", key="A", after=made.connected())
    process.kill()
    assert agent.act(calls) == ["A!"]
    assert made.outcomes[0] != "hit"


def test_a_tool_that_the_worker_has_not_declared_is_not_run_there(scene, worker):
    address, _ = worker()
    made = scene(read(tools.count_lines, Sandbox("remote", address=address)))
    assert made.play("count_lines", name="/etc/hostname") >= 0
    assert "not declared pure or read at this worker" in made.bets()[0]["reason"]
