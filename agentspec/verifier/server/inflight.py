"""The requests in flight, by the names that clients may call them."""

from __future__ import annotations

from agentspec.errors import RequestError
from agentspec.verifier.engine.interface import Failed
from agentspec.verifier.server.runs import Run

_CANCELLED = Failed("the request was cancelled by another one", "cancelled")


class InFlight:
    """Finds requests for drafts and cancels. Used on the server's event loop only."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Run]] = {}

    def __len__(self) -> int:
        """Names in use."""
        return len(self._runs)

    def add(self, run: Run) -> None:
        for name in run.names:
            self._runs.setdefault(name, []).append(run)

    def remove(self, run: Run) -> None:
        """It is over; may be called more than once."""
        for name in run.names:
            left = [other for other in self._runs.get(name, ()) if other is not run]
            if left:
                self._runs[name] = left
            else:
                self._runs.pop(name, None)

    def called(self, name: str) -> list[Run]:
        """The requests of this name.

        Raises:
            RequestError: there is none (404).
        """
        found = self._runs.get(name)
        if not found:
            raise RequestError(f"no request {name!r} is running", code="unknown_request", status=404)
        return list(found)

    def cancel(self, name: str) -> int:
        """End the requests of this name within a step; their clients get an error. How many there were.

        Raises:
            RequestError: there is none (404).
        """
        runs = self.called(name)
        for run in runs:
            self.remove(run)
            run.cancel()
            for choice in run.choices:
                run.events.put_nowait((choice.index, _CANCELLED))
        return len(runs)
