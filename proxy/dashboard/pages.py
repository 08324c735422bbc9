"""What each page of the dashboard is told. Every answer is for one viewer, and holds nobody else's rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from agentspec.config import Settings
from agentspec.errors import RequestError
from agentspec.gating.holdout import savings
from agentspec.memory.ledger_queries import ListedRuns
from agentspec.memory.ledger_sums import Window
from agentspec.memory.ledger_tables import OUTCOMES
from agentspec.proxy.dashboard.books import LedgerSource, OpenBooks
from agentspec.proxy.dashboard.entrance import Viewer
from agentspec.proxy.dashboard.feed import live
from agentspec.proxy.dashboard.health import Health
from agentspec.proxy.dashboard.memory_page import forget, memory_of
from agentspec.proxy.dashboard.tools_page import budgets, held_by, tools
from agentspec.proxy.dashboard.waterfall import waterfall
from agentspec.proxy.desk import Desk
from agentspec.proxy.runtimes import Runtimes
from agentspec.recollection import Memories

_PAGE = 50
"""Runs in a page of the list."""
_FORGET_BYTES = 64 * 1024
_STEPS = ((2 * 3600.0, 120), (2 * 86400.0, 3600), (15 * 86400.0, 6 * 3600))
"""Up to so long a time is drawn in steps of so many seconds; a longer one in days."""


@dataclass(frozen=True, slots=True)
class Pages:
    """Answers the front end's questions. All but `live` and `forget` may block."""

    settings: Settings
    source: LedgerSource
    desk: Desk
    runtimes: Runtimes
    about: Health

    def answers(self) -> dict[str, Callable[[Request, Viewer], dict[str, Any]]]:
        """What is read in one answer, by its name in the API."""
        pages = (self.session, self.runs, self.run, self.content, self.savings, self.waste)
        return {page.__name__: page for page in (*pages, self.calibration, self.tools, self.memory, self.health)}

    @property
    def _memories(self) -> Memories | None:
        return self.desk.learner.memories if self.desk.learner is not None else None

    def session(self, _request: Request, viewer: Viewer) -> dict[str, Any]:
        """Who is looking."""
        return {"tenant": viewer.tenant, "tracing": self.settings.tracing, "version": self.about.version}

    # Runs

    def runs(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """A page of runs, and what they can be filtered by."""
        asked, books = request.query_params, self.source.open()
        ended_at = _number(request, "before")
        after = None if ended_at is None else (ended_at, asked.get("before_id", ""))
        return {
            "runs": books.reader.runs(_filter(request, viewer), _PAGE, after),
            "models": books.sums.names("model", viewer.tenant),
        }

    def live(self, request: Request, viewer: Viewer) -> Response:
        """The same list, as it changes."""
        wanted = _filter(request, viewer)
        events = live(lambda: self.source.open().reader.runs(wanted, _PAGE), self.source.written)
        return StreamingResponse(events, media_type="text/event-stream")

    def run(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """One run: its summary and its waterfall."""
        reader, name = self.source.open().reader, request.query_params.get("id", "")
        run = reader.run(name, viewer.tenant)
        if run is None:
            raise RequestError(f"there is no run {name!r} in the ledger (any more)", code="not_found", status=404)
        found = waterfall(reader.turns(name, viewer.tenant))
        return {"run": run, **found.as_json(), "keeps_arguments": self.settings.keep_arguments}

    def content(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """What was said in a turn, where the operator has it kept."""
        turn = request.query_params.get("turn", "")
        return {"content": self.source.open().queries.content(turn, viewer.tenant)}

    # Figures

    def savings(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """Measured against the control group, summed over hits, by tool and by predictor, and over time."""
        books, window = self.source.open(), _window(request, viewer)
        return {
            "measured": asdict(savings(books.queries.trials(window))),
            "holdout_share": self.settings.holdout_share,
            **_sums(books, window),
        }

    def waste(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """What was run for nothing, and why."""
        books, window = self.source.open(), _window(request, viewer)
        return {
            "reasons": books.queries.reasons(window),
            "latest": books.queries.discarded(window),
            "max_discarded_share": self.settings.max_discarded_share,
            "egress_discards_per_hour": self.settings.egress_discards_per_hour,
            **_sums(books, window),
        }

    def calibration(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """Reliability of each predictor: what it promised, and what came."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self.source.open().sums.reliability(_window(request, viewer)):
            found.setdefault(row["predictor"], []).append(row)
        predictors = [_reliability(name, bins) for name, bins in found.items()]
        return {"predictors": sorted(predictors, key=lambda one: (-one["count"], one["predictor"]))}

    def tools(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """Each tool, and the budgets."""
        held = held_by(self.runtimes, viewer)
        listed = tools(self.source.open(), _window(request, viewer), held)
        return {"tools": listed, **budgets(self.settings, self.desk.judge.brakes, viewer, held)}

    def health(self, _request: Request, viewer: Viewer) -> dict[str, Any]:
        """Whether all is well."""
        return self.about.report(viewer)

    # Memory

    def memory(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """What is kept and learnt of a tenant."""
        return memory_of(self._memories, viewer, request.query_params.get("tenant"))

    async def forget(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        """Forget what is asked for."""
        asked = await _body(request)
        return {"forgotten": await run_in_threadpool(forget, self._memories, viewer, asked)}


async def _body(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _FORGET_BYTES:
            raise RequestError("the request is too large", code="request_too_large", status=413)
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise RequestError(f"the request is no JSON: {error}", code="invalid_json") from error
    if not isinstance(found, dict):
        raise RequestError("the request is no JSON object", code="invalid_json")
    return found


def _since(request: Request) -> float | None:
    """The moment from which on rows count: `hours` before now; None for all."""
    hours = _number(request, "hours")
    return None if hours is None else time.time() - hours * 3600.0


def _number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise RequestError(f"{name} is a number, not {text!r}") from None


def _window(request: Request, viewer: Viewer) -> Window:
    return Window(viewer.tenant, _since(request) or 0.0)


def _filter(request: Request, viewer: Viewer) -> ListedRuns:
    asked = request.query_params
    outcome = asked.get("outcome") or None
    if outcome not in (None, *OUTCOMES):
        raise RequestError(f"there is no outcome {outcome!r}; it is one of {', '.join(OUTCOMES)}")
    return ListedRuns(
        tenant=viewer.tenant,
        search=asked.get("text", "")[:200] or None,
        model=asked.get("model") or None,
        outcome=outcome,
        since=_since(request),
        discarded=asked.get("discarded") == "1",
    )


def _sums(books: OpenBooks, window: Window) -> dict[str, Any]:
    """Totals, sums by tool and predictor, and what was saved and wasted over time."""
    first = books.queries.first_run_at(window)
    span_s = 0.0 if first is None else time.time() - first
    step_s = next((step for most, step in _STEPS if span_s <= most), 86400)
    return {
        "totals": books.sums.totals(window),
        "by_tool": books.sums.bets_by("tool", window),
        "by_predictor": books.sums.bets_by("predictor", window),
        "step_s": step_s,
        "over_time": books.queries.over_time(window, step_s),
    }


def _reliability(predictor: str, bins: list[dict[str, Any]]) -> dict[str, Any]:
    """One predictor's bins, and its expected calibration error: gaps weighted by how many predictions they hold."""
    count = sum(one["n"] for one in bins)
    return {
        "predictor": predictor,
        "count": count,
        "right": sum(one["came"] * one["n"] for one in bins),
        "error": sum(abs(one["told"] - one["came"]) * one["n"] for one in bins) / count,
        "bins": [(one["told"], one["came"], one["n"]) for one in bins],
    }
