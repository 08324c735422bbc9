"""What is wrong with a file of servers is told with its place and what to do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from agentspec.errors import ConfigError
from agentspec.proxy.mcp.run import Options, serve
from agentspec.proxy.mcp.servers import read_servers
from tests.mcp.support import AGENTSPEC, DEAD_PROXY, written


def entry(**word: Any) -> dict[str, Any]:
    return {"command": "shop", "agentspec": word}


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"a": {}}, 'mcpServers.a: write either "command"'),
        ({"a": {"command": "x", "url": "http://y"}}, 'mcpServers.a: write either "command"'),
        ({"a": {"url": "shop.example/mcp"}}, "is no URL; write for example http://"),
        ({"a": {"command": "x", "type": "http"}}, 'needs "url"'),
        ({"a": {"command": "x", "args": "y"}}, "mcpServers.a.args"),
        ({"a": entry(trust=True)}, "mcpServers.a.agentspec.trust: there is no such key; known are trusted"),
        ({"a": entry(trusted=True)}, "a: trusted needs stable_for=SECONDS"),
        ({"a": entry(stable_for=0)}, "mcpServers.a.agentspec.stable_for"),
        ({"a": entry(tools={"get": {"effect": "read"}})}, "a: get: tool 'get': effect=\"read\" needs stable_for"),
        (
            {"a": entry(tools={"get": {"effect": "reed", "stable_for": 1}})},
            "a: get: tool 'get': effect='reed' is unknown",
        ),
        ({"a": entry(tools={"get": {"effect": "read", "stable": 1}})}, "a: get: stable: there is no such key"),
        ({"a": entry(tools={"get": {"effect": "pure", "name": "x"}})}, "a: get: drop name"),
        ({"a": entry(tools={"get": {"effect": "pure", "sandbox": "process"}})}, "only Python functions"),
        ({"a": entry(tools={"get": {"effect": "read", "stable_for": 1, "reads": ["order:{"]}})}, "a: get"),
        ({}, "mcpServers"),
    ],
)
def test_a_wrong_entry_is_told(tmp_path: Path, entries: dict[str, Any], told: str) -> None:
    path = written(tmp_path, **entries)
    with pytest.raises(ConfigError) as raised:
        read_servers(path)
    assert str(path) in str(raised.value) and told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("text", "told"), [("{", "not valid JSON"), ("[]", "valid"), ("{}", "mcpServers is missing")])
def test_a_file_that_is_none_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "servers.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_servers(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_servers(tmp_path / "none.json")


def test_keys_of_other_clients_are_let_through(tmp_path: Path) -> None:
    given = {"mcpServers": {"a": {"command": "x", "disabled": False, "timeout": 5, "alwaysAllow": []}}, "inputs": []}
    path = tmp_path / "servers.json"
    path.write_text(json.dumps(given))
    assert [server.name for server in read_servers(path)] == ["a"]


def tool(name: str, read_only: bool | None, open_world: bool | None = None) -> types.Tool:
    hints = types.ToolAnnotations(read_only_hint=read_only, open_world_hint=open_world)
    return types.Tool(name=name, input_schema={"type": "object"}, annotations=hints)


def test_a_hint_counts_only_from_a_trusted_server(tmp_path: Path) -> None:
    word = {"stable_for": 5, "tools": {"get": {"effect": "pure"}}}
    plain, trusted = read_servers(written(tmp_path, a=entry(**word), b=entry(**word, trusted=True)))
    assert plain.options_of(tool("look", True)) == {"effect": "write"}
    assert trusted.options_of(tool("look", True)) == {"effect": "read", "stable_for": 5, "egress": True}
    assert trusted.options_of(tool("look", True, False)) == {"effect": "read", "stable_for": 5, "egress": False}
    assert trusted.options_of(tool("look", None)) == {"effect": "write"}
    assert trusted.options_of(types.Tool(name="bare", input_schema={"type": "object"})) == {"effect": "write"}
    assert plain.options_of(tool("get", False))["effect"] == "pure"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"proxy": "localhost"}, "--proxy: 'localhost' is no URL"),
        ({"http": "8788"}, "--http: '8788' is no address"),
        ({"http": "0.0.0.0:0"}, "reachable from outside"),
    ],
)
def test_a_wrong_flag_is_told(tmp_path: Path, flags: dict[str, str], told: str) -> None:
    options: Any = {"config": written(tmp_path, a=entry()), "proxy": DEAD_PROXY, **flags}
    with pytest.raises(ConfigError, match=told):
        serve(Options(**options))


def test_a_fault_is_one_line_on_standard_error(tmp_path: Path) -> None:
    command = [*AGENTSPEC, "mcp", "--config", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot read" in done.stderr and len(done.stderr.splitlines()) == 1
