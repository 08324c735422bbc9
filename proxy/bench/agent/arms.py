"""The arms: who predicts in each, and what its agent does otherwise. One registry for all harnesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentspec.protocols import Speculator
from agentspec.proxy.bench.agent.predictors import (
    Answers,
    DeclaredProbe,
    MostFrequent,
    Oracle,
    RandomCall,
    Wrong,
    WrongArguments,
)
from agentspec.proxy.desk import Desk

OFF = "off"


@dataclass(frozen=True, slots=True)
class Bench:
    """What a bench lets its arms know.

    Attributes:
        answers: the recorded answers, for the arms that may look.
        probe_s: the time after which those predict.
        accuracy: how often a declared probe is right.
    """

    answers: Answers
    probe_s: float
    accuracy: float


Makes = Callable[[Bench, Desk, Sequence[Speculator]], Sequence[Speculator]]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the same tasks.

    Attributes:
        makes: who predicts; None: the agent goes straight to the endpoint, with undecorated tools.
        parallel_tools: whether that agent runs the calls of one message side by side.
        memory: whether the proxy remembers.
        looks: whether somebody in it looks at the recorded answer.
        probes: whether the proxy really probes; a recorded endpoint refuses that.
    """

    name: str
    makes: Makes | None = None
    parallel_tools: bool = False
    memory: bool = False
    looks: bool = False
    probes: bool = False


def declared_name(accuracy: float) -> str:
    """The name of an arm whose probe is right so often because we say so."""
    return f"probe_declared_{accuracy * 100:.0f}"


def arms(accuracy: float) -> dict[str, Arm]:
    """All arms by name, `off` first."""
    every = (
        Arm(OFF),
        Arm("parallel_tools", parallel_tools=True),
        Arm("eager_only", lambda bench, desk, usual: []),
        Arm("most_frequent", lambda bench, desk, usual: [MostFrequent()]),
        Arm("random", lambda bench, desk, usual: [RandomCall()]),
        Arm("wrong_arguments", lambda bench, desk, usual: [WrongArguments(one) for one in usual], memory=True),
        Arm("recall", lambda bench, desk, usual: usual, memory=True),
        Arm(declared_name(accuracy), lambda bench, desk, usual: [_declared(bench, desk)], looks=True),
        Arm("all", lambda bench, desk, usual: [*usual, _declared(bench, desk)], memory=True, looks=True),
        Arm("oracle", lambda bench, desk, usual: [Oracle(bench.answers, bench.probe_s)], looks=True),
        Arm("hits_0", lambda bench, desk, usual: [Wrong(bench.probe_s)]),
    )
    return {arm.name: arm for arm in every}


def live_arms() -> list[Arm]:
    """The arms for a live model, `off` first."""
    return [
        Arm(OFF),
        Arm("eager_only", lambda bench, desk, usual: []),
        Arm("recall", lambda bench, desk, usual: usual, memory=True),
        Arm("probe", lambda bench, desk, usual: usual, probes=True),
        Arm("all", lambda bench, desk, usual: usual, memory=True, probes=True),
    ]


def _declared(bench: Bench, desk: Desk) -> Speculator:
    return DeclaredProbe(bench.answers, bench.accuracy, bench.probe_s, desk)
