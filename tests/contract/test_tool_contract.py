"""What may be declared together: every contradiction is refused, names the tool, and says what to write instead."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agentspec
from agentspec import speculate
from agentspec.errors import ConfigError
from agentspec.sandbox import Sandbox
from tests.contract import importable as tools

READ: dict[str, Any] = {"effect": "read", "stable_for": 30.0}
OVERLAY = Sandbox("overlay", workspace="/srv")
REMOTE = Sandbox("remote", address="127.0.0.1:1")


def refused(function: Any = tools.look_up, **options: Any) -> str:
    with pytest.raises(ConfigError) as error:
        speculate(**options)(function)
    text = str(error.value)
    assert "\n" not in text
    return text


BY_KEY = lambda key: {key}  # noqa: E731

CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "pure + reads": ({"effect": "pure", "reads": {"x"}}, '"read"'),
    "pure + writes": ({"effect": "pure", "writes": {"x"}}, '"read"'),
    "pure + reads by argument": ({"effect": "pure", "reads": BY_KEY}, '"read"'),
    "pure + writes by argument": ({"effect": "pure", "writes": BY_KEY}, '"read"'),
    "read + writes": ({**READ, "writes": {"x"}}, '"write"'),
    "read + writes by argument": ({**READ, "writes": BY_KEY}, '"write"'),
    "read without its age": ({"effect": "read"}, "stable_for=SECONDS"),
    "overlay write without its age": ({"effect": "write", "sandbox": OVERLAY}, "stable_for=SECONDS"),
    "write in a process": ({"effect": "write", "sandbox": "process"}, '"overlay"'),
    "write at a worker": ({"effect": "write", "sandbox": REMOTE}, '"overlay"'),
    "irreversible in a process": ({"effect": "irreversible", "sandbox": "process"}, "drop sandbox"),
    "irreversible in an overlay": ({"effect": "irreversible", "stable_for": 3, "sandbox": OVERLAY}, "drop sandbox"),
    "pure + network": ({"effect": "pure", "sandbox": Sandbox("process", network=True)}, '"read"'),
    "egress without network": ({**READ, "egress": True, "sandbox": "process"}, "network=True"),
    "egress in an overlay without network": ({**READ, "egress": True, "sandbox": OVERLAY}, "network=True"),
    "identity in a process": ({**READ, "identity": lambda: 1, "sandbox": "process"}, "arguments"),
    "no age at all": ({**READ, "stable_for": 0}, "more than 0"),
    "an age before its start": ({**READ, "stable_for": -1}, "more than 0"),
    "an age that is no number": ({**READ, "stable_for": math.nan}, "more than 0"),
    "no time": ({**READ, "timeout_s": 0}, "timeout_s must be more than 0"),
    "negative time": ({**READ, "timeout_s": -0.1}, "timeout_s must be more than 0"),
    "no runs": ({**READ, "max_inflight": 0}, "max_inflight must be more than 0"),
    "negative runs": ({**READ, "max_inflight": -1}, "max_inflight must be more than 0"),
    "no rate": ({**READ, "rate": 0}, "rate must be more than 0"),
    "negative rate": ({**READ, "rate": -5.0}, "rate must be more than 0"),
    "an effect of its own": ({"effect": "delete"}, "pure, read, write, irreversible"),
    "no effect at all": ({"effect": None}, "pure, read, write, irreversible"),
    "a time in words": ({**READ, "timeout_s": "5"}, "timeout_s"),
    "an age in words": ({**READ, "stable_for": "30"}, "stable_for"),
    "a rate in words": ({**READ, "rate": "1"}, "rate"),
    "runs in words": ({**READ, "max_inflight": "2"}, "max_inflight"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_contradiction_is_refused_names_the_tool_and_says_what_to_write(what: str) -> None:
    options, instead = CONTRADICTIONS[what]
    text = refused(**options)
    assert "'look_up'" in text
    assert instead in text


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "one string read": ({**READ, "reads": "orders"}, "reads={'orders'}"),
    "one string written": ({"effect": "write", "writes": "orders"}, "writes={'orders'}"),
    "an empty name": ({**READ, "reads": {""}}, "no name of a domain"),
    "a number for a name": ({**READ, "reads": [3]}, "no name of a domain"),
    "a number for names": ({**READ, "reads": 3}, "reads"),
    "an unknown option": ({**READ, "stable": 3}, "stable_for"),
    "an option with a typo": ({**READ, "read": {"x"}}, "reads"),
    "no effect": ({"stable_for": 3.0}, "effect="),
    "an unknown place": ({**READ, "sandbox": "container"}, "thread, process, overlay, remote"),
    "a place that is none": ({**READ, "sandbox": 3}, "agentspec.Sandbox("),
    "an overlay of nothing": ({**READ, "sandbox": "overlay"}, "workspace=FOLDER"),
    "a worker nowhere": ({**READ, "sandbox": "remote"}, "address=HOST:PORT"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_declaration_is_refused_and_says_what_to_write(what: str) -> None:
    options, instead = WRONG[what]
    assert instead in refused(**options)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"isolation": "overlay"}, "workspace="),
        ({"isolation": "process", "workspace": "/srv"}, "workspace="),
        ({"isolation": "remote"}, "HOST:PORT"),
        ({"isolation": "process", "address": "x:1"}, "address="),
        ({"isolation": "process", "env": "HOME"}, "env={'HOME'}"),
        ({"isolation": "process", "memory_bytes": 0}, "memory_bytes"),
        ({"isolation": "nowhere"}, "thread, process, overlay, remote"),
    ],
    ids=str,
)
def test_a_sandbox_that_contradicts_itself_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        agentspec.Sandbox(**given)
    assert says in str(error.value)


class Shop:
    def method(self, key: str) -> str:
        return key


@pytest.mark.parametrize("sandbox", ["process", OVERLAY, REMOTE], ids=["process", "overlay", "remote"])
def test_what_another_process_cannot_find_or_be_given_is_refused(sandbox: Any) -> None:
    def closure(key: str) -> str:
        return key

    def in_the_script(key: str) -> str:
        return key

    in_the_script.__module__, in_the_script.__qualname__ = "__main__", "in_the_script"
    options = {**READ, "sandbox": sandbox}
    assert "top level of a module" in refused(closure, **options)
    assert "top level of a module" in refused(in_the_script, **options)
    assert "top level of a module" in refused(lambda key: key, **options)
    assert "'self'" in refused(Shop.method, **options)


def test_a_tool_that_takes_a_context_cannot_leave_the_process() -> None:
    from agents import RunContextWrapper

    def lookup(ctx: RunContextWrapper[Any], key: str) -> str:
        return key

    lookup.__qualname__ = "lookup"
    lookup.__annotations__ = {"ctx": RunContextWrapper[Any], "key": str, "return": str}
    assert "'ctx'" in refused(lookup, **READ, sandbox="process")


def test_nothing_in_these_declarations_contradicts_itself() -> None:
    for options in (
        {"effect": "pure", "sandbox": "process"},
        {**READ, "sandbox": Sandbox("process", network=True), "egress": True},
        {**READ, "sandbox": OVERLAY},
        {"effect": "write", "stable_for": 5, "reads": {"a"}, "writes": {"b"}, "sandbox": OVERLAY},
        {"effect": "write", "needs_approval": True},
        {"effect": "irreversible", "writes": BY_KEY},
        {**READ, "reads": None},
        {**READ, "reads": {"*"}, "timeout_s": 0.1, "max_inflight": 1, "rate": 0.01},
    ):
        assert callable(speculate(**options)(tools.look_up))


# Fingerprints and seals

DESCRIBE = """
import json
from agentspec import speculate
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.declare import declared
from tests.contract import constants
place = Sandbox("process", env=set("XYZW"))
words = {"effect": "read", "stable_for": 3, "reads": set("abcdefgh"), "sandbox": place}
made = [declared(speculate(**words)(function)) for function in constants.TOOLS]
print(json.dumps([[tool.spec.fingerprint, tool.seal] for tool in made]))
"""


def described(hash_seed: str) -> list[list[str]]:
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", DESCRIBE], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_fingerprints_and_seals_are_the_same_in_every_process() -> None:
    first, *others = [described(seed) for seed in ("0", "1", "424242")]
    assert others == [first, first]
    assert len({seal for _, seal in first}) == len(first), "different code has different seals"


def test_a_fingerprint_changes_with_the_declaration() -> None:
    from agentspec.tools_sandbox.declare import declared

    def of(**options: Any) -> str:
        return declared(speculate(**options)(tools.look_up)).spec.fingerprint

    variants = [
        READ,
        {**READ, "stable_for": 31.0},
        {**READ, "reads": {"a"}},
        {**READ, "egress": True},
        {**READ, "ahead": False},
        {**READ, "needs_approval": True},
        {**READ, "timeout_s": 5},
        {**READ, "sandbox": "process"},
        {**READ, "sandbox": Sandbox("process", env={"A"})},
        {"effect": "pure"},
        {"effect": "write"},
    ]
    assert len({of(**options) for options in variants}) == len(variants)
    assert of(**READ) == of(**READ)


def test_the_page_on_tools_names_every_option() -> None:
    from agentspec.tools_sandbox.declare import Options

    page = (Path(__file__).parents[2] / "docs/tools.md").read_text()
    missing = [name for name in Options.__annotations__ if name not in page]
    assert missing == []


@pytest.mark.parametrize("what", ["reads", "writes"])
def test_a_function_that_names_an_argument_which_the_tool_has_not_is_refused(what: str) -> None:
    effect = {"effect": "write"} if what == "writes" else READ
    text = refused(**effect, **{what: lambda kye: {kye}})
    assert "'kye'" in text
    assert what in text
