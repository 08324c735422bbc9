"""Clients of the tiny model's server, and the same model with a template that opens its thinking."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from openai import OpenAI
from tokenizers import AddedToken
from transformers import AutoTokenizer

from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.server.app import create_app
from agentspec.verifier.server.service import Service


@pytest.fixture(scope="session")
def client(base_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def http(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=30, trust_env=False) as client:
        yield client


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """A service over a real socket."""
    server = uvicorn.Server(uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_level="warning"))
    started = threading.Event()
    original = server.startup

    async def startup(sockets: list[object] | None = None) -> None:
        await original(sockets)  # type: ignore[arg-type]
        started.set()

    server.startup = startup  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(20)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="session")
def thinking(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A model whose template opens the thinking, unless it is told not to."""
    folder = tmp_path_factory.mktemp("thinking") / "thinker"
    shutil.copytree(tiny_folder, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")])
    opened = "<|im_start|>assistant\n{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_start|>assistant\n", opened)
    tokenizer.save_pretrained(folder)
    service = Service(VerifierConfig(model=str(folder), served_model_name="tiny"))
    yield service
    service.close()


@pytest.fixture(scope="session")
def thinking_http(thinking: Service) -> Iterator[httpx.Client]:
    with serving(thinking) as url, httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
        yield client
