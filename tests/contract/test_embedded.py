"""The engine in the agent's process: begun, closed, forked, ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import agentspec
from agentspec.errors import ConfigError
from agentspec.memory.ledger_reader import LedgerReader
from tests.contract.scripted import speaks

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"


def ask(engine: Any) -> bytes:
    with engine.http_client("httpx") as client:
        answer: httpx.Response = client.post(f"{engine.base_url}/chat/completions", json=BODY)
    return answer.content


def test_an_answer_comes_byte_for_byte_and_is_in_the_books(endpoint, ledger):
    endpoint.answers(speaks("Hello."))
    engine = agentspec.embedded(endpoint.url, tools=(), database=ledger)
    assert ask(engine) == b"".join(speaks("Hello."))
    engine.close()
    assert [row["turns"] for row in LedgerReader(ledger).trajectories()] == [1]


def test_a_client_of_a_closed_engine_is_told_so_and_nothing_begins_anew(endpoint, ledger):
    engine = agentspec.embedded(endpoint.url, tools=(), database=ledger)
    client = engine.http_client("httpx")
    engine.close()
    with pytest.raises(httpx.ConnectError, match="closed"):
        client.post(f"{engine.base_url}/chat/completions", json=BODY)


def test_two_engines_of_one_process_do_not_meet(endpoint, tmp_path):
    ledgers = [f"sqlite:///{tmp_path / name}.sqlite3" for name in "ab"]
    engines = [agentspec.embedded(endpoint.url, tools=(), database=ledger) for ledger in ledgers]
    endpoint.script = lambda exchange, number: speaks()
    for engine in engines:
        assert ask(engine)
    for engine in engines:
        engine.close()
    assert [len(LedgerReader(ledger).trajectories()) for ledger in ledgers] == [1, 1]


def test_a_child_after_a_fork_has_an_engine_of_its_own(endpoint, ledger):
    endpoint.script = lambda exchange, number: speaks()
    engine = agentspec.embedded(endpoint.url, tools=(), database=ledger)
    assert ask(engine)
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            ended = 0 if ask(engine) == b"".join(speaks()) else 2
        finally:
            os._exit(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ask(engine)
    engine.close()


def test_a_process_that_ends_without_closing_leaves_whole_books(endpoint, ledger, tmp_path):
    endpoint.script = lambda exchange, number: speaks()
    code = (
        "import agentspec\n"
        f"engine = agentspec.embedded({endpoint.url!r}, tools=(), database={ledger!r})\n"
        f"engine.http_client('httpx').post(engine.base_url + '/chat/completions', json={BODY!r})\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
    assert [row["turns"] for row in LedgerReader(ledger).trajectories()] == [1]


def test_a_wrong_setting_is_named(endpoint):
    with pytest.raises(ConfigError, match="engin"):
        agentspec.embedded(endpoint.url, engin="vllm")
