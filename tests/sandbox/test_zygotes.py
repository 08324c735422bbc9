"""What cannot be forked from is refused with its reason, at once, and does not stop other tools."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentspec.errors import ToolRefused
from agentspec.runs import Order
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.environment import place_here
from agentspec.tools_sandbox.kernel import landlock
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.child import Child
from agentspec.tools_sandbox.tiers.zygote_client import ZygoteClient
from agentspec.tools_sandbox.tool import code_seal
from tests.sandbox import tools
from tests.sandbox.modules import ends_the_process, starts_a_thread
from tests.sandbox.support import eventually

FINE = ("tests.sandbox.tools", "echo", code_seal(tools.echo))


@pytest.fixture
def zygote() -> Iterator[ZygoteClient]:
    client = ZygoteClient({})
    yield client
    client.close()


def test_a_module_that_starts_threads_is_refused(zygote: ZygoteClient) -> None:
    name = "tests.sandbox.modules.starts_a_thread"
    with pytest.raises(ToolRefused, match="starts threads"):
        zygote.check((name, "tool", code_seal(starts_a_thread.tool)))


def test_nothing_is_forked_from_a_zygote_that_grew_threads(zygote: ZygoteClient) -> None:
    zygote.check(FINE)
    grown = zygote.pid
    name = "tests.sandbox.modules.starts_a_thread"
    with pytest.raises(ToolRefused):
        zygote.prepare([("tests.sandbox.modules.starts_a_thread", "tool", code_seal(starts_a_thread.tool))])
        zygote.check((name, "tool", code_seal(starts_a_thread.tool)))
    zygote.check(FINE)
    assert zygote.pid != grown
    assert len(os.listdir(f"/proc/{zygote.pid}/task")) == 1


def test_a_module_that_ends_the_zygote_is_refused_at_once_and_others_go_on(zygote: ZygoteClient) -> None:
    began_s = time.monotonic()
    name = "tests.sandbox.modules.ends_the_process"
    with pytest.raises(ToolRefused, match="died of its import"):
        zygote.check((name, "tool", code_seal(ends_the_process.tool)))
    assert time.monotonic() - began_s < 20.0
    zygote.check(FINE)


def test_a_function_that_is_not_there_or_is_other_code_is_refused(zygote: ZygoteClient) -> None:
    with pytest.raises(ToolRefused, match="cannot be imported"):
        zygote.check(("tests.sandbox.tools", "no_such_function", "0" * 16))
    with pytest.raises(ToolRefused, match="not the same code"):
        zygote.check(("tests.sandbox.tools", "echo", "0" * 16))
    zygote.check(FINE)


def test_more_tools_than_one_message_holds_are_imported(zygote: ZygoteClient) -> None:
    zygote.prepare([FINE, *(("tests.sandbox.tools", f"missing_{n}", "0" * 16) for n in range(1000))])
    zygote.check(FINE)


def test_a_zygote_that_was_killed_is_replaced_and_its_children_are_not_the_next_ones(zygote: ZygoteClient) -> None:
    for _ in range(3):
        zygote.check(FINE)
        assert zygote.pid is not None
        os.kill(zygote.pid, signal.SIGKILL)
        child = eventually(lambda: born(zygote), "a child of the next one is born")
        assert not child.gone.is_set()
        zygote.kill(child)


def born(zygote: ZygoteClient) -> Child | None:
    try:
        return zygote.spawn(frames.Plan("process", memory_bytes=2**30, landlock=landlock.version()))
    except ToolRefused:
        return None


def test_a_run_sees_the_environment_of_its_order_and_not_a_later_one(zygote: ZygoteClient, monkeypatch: Any) -> None:
    zygote.check(FINE)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    place = place_here(())
    order = Order(*FINE, {"value": 1}, "plain", place, Sandbox("process"), 10.0)
    monkeypatch.setenv("TZ", "America/Lima")
    job = zygote.job(order)
    assert job.env is not None
    assert job.env["TZ"] == "Asia/Tokyo"
