"""Declarations in a TOML file, for tools whose code cannot be decorated."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from agentspec.errors import ConfigError
from agentspec.tools_sandbox.declarations import declare_tools
from agentspec.tools_sandbox.declare import declared
from tests.contract.scripted import eventually

SHOP = '''
"""Somebody else's code."""
import os

CALLS = []

def get_order(order_id: str, region: str = "north") -> str:
    CALLS.append(order_id)
    return f"{order_id} {len(CALLS)}"

def change_order(order_id: str) -> str:
    return "changed"

async def fetch(order_id: str) -> str:
    return order_id

class Desk:
    @staticmethod
    def total(order_id: str) -> int:
        return len(order_id)

    def mine(self, order_id: str) -> str:
        return order_id

NOT_A_FUNCTION = 3
'''


@pytest.fixture
def shop(tmp_path, monkeypatch) -> Any:
    """A module that nobody has decorated yet."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/undecorated_shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield importlib.import_module("undecorated_shop")
    sys.modules.pop("undecorated_shop", None)


@pytest.fixture
def file(tmp_path, shop):
    """file(text): the tools that a file with this text declares."""
    path = tmp_path / "tools.toml"

    def read(text: str) -> list[Any]:
        path.write_text(text)
        return declare_tools(path)

    return read


BOTH = """
[tools."undecorated_shop:get_order"]
effect = "read"
reads = ["order:{order_id}"]
stable_for = 30

[tools."undecorated_shop:change_order"]
effect = "write"
writes = ["order:{order_id}"]
"""


def test_the_functions_are_decorated_where_they_are(file, shop):
    get_order, change_order = file(BOTH)
    assert (shop.get_order, shop.change_order) == (get_order, change_order)
    assert [declared(tool).name for tool in (get_order, change_order)] == ["get_order", "change_order"]
    assert shop.get_order("A1") == "A1 1"


def test_what_the_file_declares_runs_ahead_and_its_templates_follow_the_arguments(scene, file, shop):
    made = scene(*file(BOTH))
    agent, calls = made.asked("get_order", order_id="A1")
    shop.change_order("B2")
    assert agent.act(calls) == ["A1 1"]
    made.tell(agent)
    agent, calls = made.asked("get_order", order_id="A1")
    shop.change_order("A1")
    assert agent.act(calls) == ["A1 3"]
    assert made.outcomes == ["hit", "stale"]


def test_every_key_of_a_declaration_arrives(file):
    (tool,) = file("""
[tools."undecorated_shop:get_order"]
effect = "read"
reads = ["orders"]
stable_for = 1.5
egress = true
needs_approval = true
ahead = false
timeout_s = 4
max_inflight = 2
rate = 0.5
name = "lookup"
sandbox = { isolation = "process", network = true, subprocesses = true, env = ["REGION"], memory_bytes = 1000000 }
""")
    spec = declared(tool).spec
    assert (spec.name, spec.effect, spec.reads, spec.stable_for_s) == ("lookup", "read", {"orders"}, 1.5)
    assert (spec.egress, spec.needs_approval, spec.ahead) == (True, True, False)
    assert (spec.timeout_s, spec.max_inflight, spec.rate_per_s) == (4.0, 2, 0.5)
    place = spec.sandbox
    assert (place.tier, place.network, place.subprocesses, place.env) == ("T1", True, True, {"REGION"})
    assert place.memory_bytes == 1_000_000


@pytest.mark.parametrize(
    ("sandbox", "tier"),
    [
        ('sandbox = "process"', "T1"),
        ('sandbox = { isolation = "overlay", workspace = "/srv" }', "T2"),
        ('[tools."undecorated_shop:get_order".sandbox]\nisolation = "remote"\naddress = "127.0.0.1:1"', "T3"),
    ],
)
def test_a_sandbox_is_a_name_or_a_table(file, sandbox, tier):
    (tool,) = file(f'[tools."undecorated_shop:get_order"]\neffect = "read"\nstable_for = 3\n{sandbox}\n')
    assert declared(tool).spec.sandbox.tier == tier


def test_methods_of_a_class_and_async_functions_are_found(file, shop):
    (fetch, mine) = file("""
[tools."undecorated_shop:fetch"]
effect = "pure"
[tools."undecorated_shop:Desk.mine"]
effect = "pure"
""")
    assert declared(fetch).is_async
    assert shop.Desk().mine("A1") == "A1"
    assert shop.Desk.mine is mine


READ = 'effect = "read"\nstable_for = 3\n'

ERRORS = {
    "no effect": ("get_order", "", "effect"),
    "an unknown key": ("get_order", f"{READ}stable = 3", "stable"),
    "a list for a name": ("get_order", f'{READ}reads = "orders"', "reads"),
    "a contradiction": ("get_order", 'effect = "pure"\nreads = ["x"]', "drop reads/writes"),
    "no age": ("get_order", 'effect = "read"', "stable_for=SECONDS"),
    "a wrong type": ("get_order", f'{READ}max_inflight = "two"', "max_inflight"),
    "an unknown effect": ("get_order", 'effect = "delete"', "pure, read, write, irreversible"),
    "an unknown place": ("get_order", f'{READ}sandbox = "container"', "thread, process, overlay, remote"),
    "an unknown key of the place": (
        "get_order",
        f'{READ}sandbox = {{ isolation = "process", folder = "x" }}',
        "folder",
    ),
    "a place without its folder": ("get_order", f'{READ}sandbox = {{ isolation = "overlay" }}', "workspace"),
    "a broken template": ("get_order", f'{READ}reads = ["order:{{"]', "reads"),
    "a template of an argument that it has not": ("get_order", f'{READ}reads = ["order:{{ordr_id}}"]', "ordr_id"),
    "an empty name": ("get_order", f'{READ}reads = [""]', "reads"),
    "no such function": ("get_ordr", READ, "no such function"),
    "no such class": ("Dsk.mine", READ, "no such function"),
    "no function": ("NOT_A_FUNCTION", READ, "NOT_A_FUNCTION"),
    "an imported module's": ("os.getcwd", READ, "os.getcwd"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_names_the_file_and_the_tool_and_what_is_wrong(file, tmp_path, what):
    function, text, says = ERRORS[what]
    with pytest.raises(ConfigError) as refused:
        file(f'[tools."undecorated_shop:{function}"]\n{text}\n')
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'tools.toml'}: undecorated_shop:{function}: ")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no tools"),
        ("[tools]\n", "no tools"),
        ("tools = 3\n", "no tools"),
        ("[tools\n", "not valid TOML"),
        ('[tools."undecorated_shop"]\neffect = "pure"\n', "package.module:function"),
        ('[tools."no.such.module:function"]\neffect = "pure"\n', "no such function"),
        ('[tools."undecorated_shop:get_order"]\neffect = "pure"\n[tool."x:y"]\neffect = "pure"\n', "tool"),
        ("[tools]\n'undecorated_shop:get_order' = 3\n", "undecorated_shop:get_order"),
    ],
    ids=range(8),
)
def test_a_file_that_declares_nothing_is_refused(file, tmp_path, text, says):
    with pytest.raises(ConfigError) as refused:
        file(text)
    assert str(tmp_path / "tools.toml") in str(refused.value)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        declare_tools(tmp_path / "nowhere.toml")


def test_a_file_that_is_refused_has_decorated_nothing(file, shop):
    """Or the half of it that was read counts, and the next try is refused as declared already."""
    before = shop.get_order
    with pytest.raises(ConfigError):
        file(f'{BOTH}[tools."undecorated_shop:nobody"]\neffect = "pure"\n')
    assert shop.get_order is before
    file(BOTH)


def test_the_same_file_twice_is_refused_and_says_that_it_is_declared(file):
    file(BOTH)
    with pytest.raises(ConfigError, match="declared already"):
        file(BOTH)


def test_a_tool_of_a_file_proves_itself_in_a_process(scene, file):
    """Its module is decorated here and undecorated there: it is the same code."""
    (tool,) = file(f'[tools."undecorated_shop:change_order"]\n{READ}sandbox = "process"\n')
    scene(tool)
    tool("A1")
    eventually(lambda: declared(tool).fidelity.equal)
    assert declared(tool).fidelity.barred is None


def test_the_file_may_lie_anywhere(file, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("mine.toml").write_text(BOTH)
    assert len(declare_tools("mine.toml")) == 2
