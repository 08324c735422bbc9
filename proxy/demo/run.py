"""The demo from start to end: engine, proxy and shop come up, every question is asked in both arms, all go down."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
from rich.console import Console
from rich.status import Status

from agentspec import connect
from agentspec.proxy.demo.agent import Agent, Answer
from agentspec.proxy.demo.outcomes import read_outcomes, read_trace
from agentspec.proxy.demo.questions import QUESTIONS, WARM_UP, Question, conversation
from agentspec.proxy.demo.report import DemoReport, Pair, typical
from agentspec.proxy.demo.services import Service, proxy, verifier
from agentspec.proxy.demo.shop import Shop
from agentspec.proxy.demo.tools import Tool, shop_tools, speculated, undecorated

_REQUEST_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to run.

    Attributes:
        model: a folder, a Hugging Face id or a short name; whatever the engine takes.
        questions: how many of the questions to ask; None: all.
        repeats: how often each is asked in each arm.
        keep: leave engine and proxy running.
    """

    model: str = "coder05"
    questions: int | None = None
    repeats: int = 1
    keep: bool = False


@dataclass(frozen=True, slots=True)
class _Arms:
    """The same agent twice: straight to the engine with plain tools, and through agentspec with declared ones."""

    serial: Agent
    speculative: Agent


def run_demo(options: DemoOptions, console: Console | None = None) -> DemoReport:
    """Ask every question in both arms, in alternating order, with progress on `console` (standard error by default).

    Raises:
        ServiceFailed: the engine or the proxy did not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="agentspec-demo-"))
    database_url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    try:
        pairs, since = _measure(options, folder, database_url, console or Console(stderr=True))
        trace = read_trace(database_url, _session("agentspec", typical(pairs)))
        return DemoReport(pairs, read_outcomes(database_url, since), trace)  # the proxy has closed its books by now
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _measure(options: DemoOptions, folder: Path, database_url: str, console: Console) -> tuple[tuple[Pair, ...], float]:
    """The pairs, and the Unix time at which the first was begun."""
    with ExitStack() as stack:
        status = stack.enter_context(console.status("starting"))
        tools = shop_tools(stack.enter_context(Shop()))
        engine, front = stack.enter_context(_services(options, folder, database_url, status))
        with _arms(engine, front, tools) as arms:
            _warm_up(arms, status)
            since = time.time()
            pairs = tuple(_pairs(arms, _plan(options), console, status))
        if options.keep:
            _leave_running(engine, front, console)
    return pairs, since


@contextmanager
def _services(
    options: DemoOptions, folder: Path, database_url: str, status: Status
) -> Iterator[tuple[Service, Service]]:
    def waiting(seconds: float) -> None:
        status.update(f"the engine loads {options.model} ({seconds:.0f} s)")

    with (
        verifier(options.model, folder / "engine.log", waiting) as engine,
        proxy(engine.url, database_url, folder / "proxy.log") as front,
    ):
        yield engine, front


@contextmanager
def _arms(engine: Service, front: Service, tools: list[Tool]) -> Iterator[_Arms]:
    schemas = [tool.schema for tool in tools]
    declared = speculated(tools)
    with (
        openai.OpenAI(
            base_url=f"{engine.url}/v1", api_key="none", max_retries=0, timeout=_REQUEST_TIMEOUT_S
        ) as straight,
        connect(front.url) as runtime,
        openai.OpenAI(base_url=runtime.base_url, api_key="none", max_retries=0, timeout=_REQUEST_TIMEOUT_S) as through,
    ):
        model = straight.models.list().data[0].id
        yield _Arms(
            serial=Agent(straight, model, schemas, undecorated(tools)),
            speculative=Agent(through, model, schemas, declared),
        )


def _warm_up(arms: _Arms, status: Status) -> None:
    """Read the common prompt into the engine's prefix cache, then ask one question in each arm that does not count."""
    status.update("the engine reads the instructions and examples")
    prompt = conversation(WARM_UP.text)
    request: dict[str, object] = {"messages": prompt, "tools": arms.serial.schemas, "max_completion_tokens": 1}
    arms.serial.client.chat.completions.create(model=arms.serial.model, **request)  # type: ignore[call-overload]
    status.update("warm-up")
    arms.serial.ask(WARM_UP.text, "warm-up-serial")
    arms.speculative.ask(WARM_UP.text, "warm-up-agentspec")


def _plan(options: DemoOptions) -> list[Question]:
    return list(QUESTIONS[: options.questions]) * options.repeats


def _pairs(arms: _Arms, questions: list[Question], console: Console, status: Status) -> Iterator[Pair]:
    """Each question in both arms; who goes first alternates, since the second finds more in the cache."""
    for index, question in enumerate(questions):
        order = [("serial", arms.serial), ("agentspec", arms.speculative)]
        answers: dict[str, Answer] = {}
        for name, agent in order if index % 2 == 0 else reversed(order):
            status.update(f"question {index + 1} of {len(questions)}, {name}: {question.text}")
            answers[name] = agent.ask(question.text, _session(name, index))
        pair = Pair(question, answers["serial"], answers["agentspec"])
        times = f"serial {pair.serial.seconds:.1f} s, agentspec {pair.speculative.seconds:.1f} s"
        console.print(f"{question.text} {pair.speculative.text}  [dim]{times}[/dim]", soft_wrap=True)
        yield pair


def _session(arm: str, index: int) -> str:
    return f"demo-{arm}-{index}"


def _leave_running(engine: Service, front: Service, console: Console) -> None:
    for service in (engine, front):
        console.print(f"{service.name} stays at {service.url}")
        service.leave_running()
