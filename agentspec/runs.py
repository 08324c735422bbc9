"""A run ahead of time: what a tier is given, and what may be done with a run that it has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentspec.sandbox import Sandbox


class Run(Protocol):
    """One run of a tool ahead of time."""

    started_s: float
    """Monotonic clock."""

    def cancel(self) -> bool:
        """Drop it: stop it if it is still going on, and undo what it left. False when it cannot be stopped
        (a thread): it is left to end on its own."""
        ...

    def differs(self) -> str | None:
        """The same call has now really run: what of the changes that this run made is otherwise, None for nothing."""
        ...

    def commit(self) -> None:
        """It is over and its result is about to be handed over: make what it changed real.

        Raises:
            ToolRefused: the state that it ran in is not the state of now; nothing was changed.
        """
        ...


class Tier(Protocol):
    """A place where tools run ahead."""

    name: str

    def start(self, work: Work) -> Run:
        """Start the work and return at once; its end is reported through `work.done`.

        Raises:
            ToolRefused: this work cannot run here.
        """
        ...

    def forget_everything(self) -> None:
        """In a child process after a fork: nothing of the parent's runs here."""
        ...

    def prepare(self, tools: Sequence[Any]) -> None:
        """These declared tools will run here: get ready for them; may take its time.

        Raises:
            ToolRefused: this machine cannot have this tier.
        """
        ...

    def close(self) -> None:
        """End what it has started."""
        ...


class CommittingTier(Tier, Protocol):
    """A tier whose runs may change something that is kept apart until their claim."""

    def recover(self, sandbox: Sandbox) -> None:
        """Before a real call: bring to its end what a crash has left half committed.

        Raises:
            ToolRefused: it could not be brought to its end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """All that a run in another process sees of this one, read at one moment."""

    cwd: str
    basics: Mapping[str, str]
    """Environment variables that every program may know."""
    declared: Mapping[str, str]
    """Those that the tool's owner named."""


@dataclass(frozen=True, slots=True)
class Order:
    """A call as it goes to another process: which function, which arguments, where.

    `arguments` is what the model gave, as JSON; `form` how the function wants it (`signature.Form`).
    """

    module: str
    qualname: str
    seal: str
    """Of the function's code: the other process must mean the same."""
    arguments: Mapping[str, Any]
    form: str
    place: Place
    sandbox: Sandbox
    timeout_s: float
    changes_nothing: bool = True
    """Declared `pure` or `read`."""


@dataclass(frozen=True, slots=True)
class Work:
    """A tool's function, bound to everything it needs, and where its end is reported."""

    tool: str
    call: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]
    """Called once from any thread with (result, None) or (None, error)."""
    order: Order | None = None
    """The same call for a tier that runs it in another process."""
    loop: Any = None
    """The event loop on which an async tool must run; None for a plain function."""
    context: Any = None
    """The `contextvars.Context` to run in."""
