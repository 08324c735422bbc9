"""What the measured endpoint answers, read by the SDK that agents use and by a plain client."""

from __future__ import annotations

import time
from typing import Any

import httpx
import openai
import pytest

from agentspec.proxy.bench.wire_endpoint import ANSWER, ANSWER_TEXT, STAMP

MESSAGES: list[Any] = [{"role": "user", "content": "Where is my order?"}]


def client(port: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)


def test_a_whole_answer_is_one_that_the_sdk_reads(endpoint_port: int) -> None:
    with client(endpoint_port) as sdk:
        answer = sdk.chat.completions.create(model="bench", messages=MESSAGES)
    assert answer.choices[0].message.content == ANSWER_TEXT
    assert answer.usage is not None
    assert 900 <= len(ANSWER) <= 1200


def test_a_stream_is_one_that_the_sdk_reads_and_each_chunk_says_when_it_was_sent(endpoint_port: int) -> None:
    before_ns = time.monotonic_ns()
    with client(endpoint_port) as sdk:
        chunks = list(sdk.chat.completions.create(model="bench", messages=MESSAGES, stream=True))
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    stamps = [int(stamp) for stamp in STAMP.findall(said.encode())]
    assert len(stamps) == 5
    assert stamps == sorted(stamps)
    assert before_ns <= stamps[0] <= stamps[-1] <= time.monotonic_ns()
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_connections_are_kept_and_other_paths_answered(endpoint_port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{endpoint_port}", trust_env=False) as plain:
        assert plain.get("/v1/models").json()["data"][0]["id"] == "bench"
        assert plain.get("/elsewhere").status_code == 404
        big = {"messages": [{"role": "user", "content": "x" * 300_000}], "stream": False}
        assert plain.post("/v1/chat/completions", json=big).status_code == 200


def test_what_is_not_http_is_cut_off(endpoint_port: int) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", endpoint_port), timeout=5) as connection:
        connection.sendall(b"\x00\x01nonsense\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            if not connection.recv(100):
                raise ConnectionResetError
