"""Answers with drafts beside the same answers without: tool calls that write what the prompt says, and chat."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agentspec import calls, effects, errors, ids
from agentspec.verifier.bench.identity import GREEDY
from agentspec.verifier.bench.measured import Measured, Progress, spread
from agentspec.verifier.bench.rig import Answer, Rig, ask
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.protocol import Drafter
from agentspec.verifier.drafting.suffix import SuffixDrafter
from agentspec.verifier.engine.interface import Submission
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.text import Text
from agentspec.verifier.verification.constraint import Constraint
from agentspec.verifier.verification.grammar import CallRules, GrammarFactory

_QUESTIONS = (
    "Explain in a few sentences what a hash table is and when it is slow.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "What is the difference between a process and a thread? Answer in one paragraph.",
    "Give me five tips for learning to play chess well.",
    "Describe how bread is baked, from flour to crust.",
    "Why is the sky blue? Explain it to a child of ten years.",
)
_SOURCES = (errors, ids, effects, calls)
_WRITE = {
    "name": "write_file",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}


def _wish(path: str, text: str) -> str:
    return f"Here is {path}:\n```python\n{text}\n```\nSave exactly this text as copy_of_{path}, with write_file."


def _call(path: str, text: str) -> str:
    return json.dumps({"name": "write_file", "arguments": {"path": f"copy_of_{path}", "content": text}})


_SHOWN = 'import math\n\n\ndef area(radius):\n    """Of a circle."""\n    return math.pi * radius**2'
_EXAMPLE = (
    {"role": "user", "content": _wish("circle.py", _SHOWN)},
    {"role": "assistant", "content": _call("circle.py", _SHOWN)},
)
"""Small models need to be shown what is meant."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt of a kind, and what its answer must look like."""

    kind: str
    prompt: list[int]
    constraint: Callable[[], Constraint | None]
    new: int


class Prompts:
    """The benches' prompts in the words of one model."""

    def __init__(self, text: Text, vocab_size: int, eos_ids: list[int]) -> None:
        self._text = text
        self._grammar = GrammarFactory(text, vocab_size=vocab_size, eos_ids=eos_ids)

    def chat(self, count: int, new: int) -> list[Turn]:
        """Questions that are answered in prose."""
        asked = [_QUESTIONS[nth % len(_QUESTIONS)] for nth in range(count)]
        prompts = [self._text.render([{"role": "user", "content": question}], []) for question in asked]
        return [Turn("chat", prompt, lambda: None, new) for prompt in prompts]

    def calls(self, count: int, new: int, lines: int) -> list[Turn]:
        """A file of so many lines to be written again under another name, by a tool call."""
        rules = CallRules((_WRITE,), text=False, required=True, parallel=False)
        turns = []
        for nth in range(count):
            source = inspect.getsource(_SOURCES[nth % len(_SOURCES)])
            path = Path(str(_SOURCES[nth % len(_SOURCES)].__file__)).name
            shown = "\n".join(source.splitlines()[:lines])
            messages = [*_EXAMPLE, {"role": "user", "content": _wish(path, shown)}]
            tools = [{"type": "function", "function": {**_WRITE, "description": "Write a text file."}}]
            prompt = self._text.render(messages, tools)
            turns.append(Turn("toolcall", prompt, lambda: self._grammar.constraint(rules), new))
        return turns


Makes = Callable[[], tuple[Drafter, ...]]


def speedups(rig: Rig, text: Text, turns: list[Turn], progress: Progress) -> list[Measured]:
    """Tokens a second where the prompt is there, with each kind of draft over without; and whether all said the same.

    Each answer without drafts is timed twice, before and after the others, which begin with another arm each time.
    """
    arms: dict[str, Makes] = {
        "auto": lambda: (ExternalDrafter(text), NgramDrafter(), SuffixDrafter(text)),
        "ngram": lambda: (NgramDrafter(),),
        "suffix": lambda: (SuffixDrafter(text),),
        "exact": lambda: (ExternalDrafter(text),),
        "wrong": lambda: (ExternalDrafter(text),),
    }
    ratios: dict[str, list[float]] = {}
    same: list[bool] = []
    for nth, turn in enumerate(turns):
        with rig.engine() as engine:
            ask(engine, [Submission(turn.prompt, GREEDY, 1)])
            plain = _played(engine, turn)
            order = [*arms][nth % len(arms) :] + [*arms][: nth % len(arms)]
            drafted = {arm: _played(engine, turn, arms[arm], _expected(text, arm, plain)) for arm in order}
            rate = (plain.whole_per_s + _played(engine, turn).whole_per_s) / 2
        for arm, answer in drafted.items():
            ratios.setdefault(f"{turn.kind}.{arm}", []).append(answer.whole_per_s / rate)
            same.append(answer.tokens == plain.tokens)
        told = ", ".join(f"{arm} {answer.whole_per_s / rate:.2f}x" for arm, answer in drafted.items())
        progress(f"{turn.kind} {nth + 1}/{len(turns)}, {len(plain.tokens)} tokens: {told}")
    return [*_figures(ratios), Measured("identical.real", sum(same) / len(same), "share", n=len(same))]


def _figures(ratios: dict[str, list[float]]) -> list[Measured]:
    figures = {name: spread(f"speedup.{name}", values, "x") for name, values in sorted(ratios.items())}
    main = [replace(figures[f"{kind}.auto"], name=f"speedup.{kind}") for kind in ("toolcall", "chat")]
    worst = min(float(figure.value or 0.0) for figure in figures.values())
    return [*main, Measured("speedup.worst_setting", worst, "x"), *figures.values()]


def _expected(text: Text, arm: str, plain: Answer) -> tuple[str, ...]:
    if arm == "exact":
        return (b"".join(map(text.piece, plain.tokens)).decode(errors="replace"),)
    return ("Nothing of this is ever said, whatever the question may be. " * 20,) if arm == "wrong" else ()


def _played(engine: Engine, turn: Turn, make: Makes = tuple, expected: tuple[str, ...] = ()) -> Answer:
    """The answer of an engine that has the prompt already, and drafters that have seen nothing."""
    engine.redraft(make())
    return ask(engine, [Submission(turn.prompt, GREEDY, turn.new, constraint=turn.constraint(), expected=expected)])[0]
