"""A tiny Qwen2-style model with random weights, its engine, and a real server on loopback."""

# ruff: noqa: E402 - nothing here can be imported without torch
from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("llguidance")

import uvicorn
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.interface import (
    EngineOptions,
    Event,
    Failed,
    Finished,
    Limits,
    Started,
    Submission,
    Ticket,
    Token,
)
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.server.app import create_app
from agentspec.verifier.server.service import Service
from agentspec.verifier.text import Text
from agentspec.verifier.verification.sampling import SamplingParams

TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

CORPUS = [
    'Plan: I look up the weather, so I call the tool.\n{"name": "get_weather", "arguments": {"city": "Paris"}}',
    'You are a helpful assistant. {"type": "function", "function": {"name": "search", "parameters": {}}}',
    "grün größer ñandú 你好 😀 été",
] * 4


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder: 2 layers, grouped heads, byte-level BPE, a chat template with tools."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special)
    bpe.train_from_iterator(CORPUS, trainer)
    bpe.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("<tool_call>", "</tool_call>")])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(3)
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 32) * 32,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.4,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def runner(tiny_folder: Path) -> Runner:
    return Runner(str(tiny_folder), dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def text(tiny_folder: Path) -> Text:
    return Text(str(tiny_folder))


@dataclass
class Result:
    """One submission's events, gathered; `wait` blocks until the last one."""

    ticket: Ticket
    events: queue.SimpleQueue[Event]
    started: Started | None = None
    tokens: list[Token] = field(default_factory=list)
    reason: str | None = None
    error: str | None = None
    finished: Finished | None = None
    failed: Failed | None = None

    @property
    def ids(self) -> list[int]:
        return [t.id for t in self.tokens]

    def next(self) -> Event:
        event = self.events.get(timeout=30)
        match event:
            case Started():
                self.started = event
            case Token():
                self.tokens.append(event)
            case Finished():
                self.finished, self.reason = event, event.reason
            case Failed():
                self.failed, self.error = event, event.message
        return event

    def wait(self) -> Result:
        while not isinstance(self.next(), Finished | Failed):
            pass
        return self


@dataclass
class Bench:
    """An engine with a synchronous handle on it."""

    engine: Engine

    def submit(self, prompt: list[int], *, max_new: int = 20, **fields: Any) -> Result:
        params = fields.pop("params", SamplingParams(temperature=0))
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        submission = Submission(prompt=prompt, params=params, max_new=max_new, **fields)
        return Result(self.engine.submit(submission, events.put), events)

    def settle(self) -> None:
        """Wait until no sequence is left."""
        until(lambda: self.engine.running == 0)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for another thread to make `condition` true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.002)


@pytest.fixture
def make_bench(runner: Runner, text: Text) -> Iterator[Callable[..., Bench]]:
    """Builds engines (options: max_batch, prefill_chunk, prefill_chunk_busy, and those of `EngineOptions`)."""
    made: list[Engine] = []

    def make(**options: Any) -> Bench:
        limits = Limits(
            options.pop("max_batch", 8), options.pop("prefill_chunk", 64), options.pop("prefill_chunk_busy", 8)
        )
        model = options.pop("runner", runner)
        settings = EngineOptions(limits, **{"cache_bytes": 1 << 24, "max_context": 2048, **options})
        made.append(Engine(model, text, settings))
        return Bench(made[-1])

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


@pytest.fixture(scope="session")
def service(tiny_folder: Path) -> Iterator[Service]:
    service = Service(VerifierConfig(model=str(tiny_folder), served_model_name="tiny"))
    yield service
    service.close()


@pytest.fixture(scope="session")
def base_url(service: Service) -> Iterator[str]:
    """The real server, over a real socket."""
    server = uvicorn.Server(uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
