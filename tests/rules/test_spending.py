"""Budgets by tool and by endpoint: rate, concurrency, money, tokens and what third parties are told."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.config import Settings, load
from agentspec.effects import Effect, ToolSpec
from agentspec.errors import ConfigError
from agentspec.gating.brake_settings import ProbeBudget
from agentspec.protocols import ProbeRecord
from agentspec.proxy.spending import Spending


def tool(name: str, *, egress: bool = False) -> ToolSpec:
    return ToolSpec(name, Effect.PURE, "v1", egress=egress)


def ran(spending: Spending, spec: ToolSpec, now_s: float = 0.0) -> None:
    spending.run_began((spec.name, spec.fingerprint), now_s)
    spending.run_over((spec.name, spec.fingerprint))


def spends(**budget: Any) -> Spending:
    return Spending(Settings(tool_budgets={"search": budget}))


SEARCH, GET = tool("search"), tool("get")


def test_a_tool_has_a_rate_of_its_own() -> None:
    spending = spends(per_minute=1)
    for spec in (SEARCH, GET):
        assert spending.refuses_run(spec, 0.0) is None
        ran(spending, spec)
    assert spending.refuses_run(SEARCH, 1.0) == "the budget of 1 runs ahead of this tool a minute is spent"
    assert spending.refuses_run(GET, 1.0) is None
    assert spending.refuses_run(SEARCH, 61.0) is None


def test_so_many_runs_of_a_tool_go_on_at_once() -> None:
    spending = spends(at_once=1)
    spending.run_began(("search", "v1"), 0.0)
    assert spending.refuses_run(SEARCH, 0.0) == "1 runs ahead of this tool are under way, the budget says no more"
    spending.run_over(("search", "v1"))
    assert spending.refuses_run(SEARCH, 0.0) is None


def test_a_tool_that_costs_money_has_so_much_a_day() -> None:
    spending = spends(usd_per_run=0.25, usd_per_day=0.5)
    for _ in range(2):
        assert spending.refuses_run(SEARCH, 0.0) is None
        ran(spending, SEARCH)
    assert spending.refuses_run(SEARCH, 80_000.0) == "the budget of 0.5 USD for runs ahead of this tool a day is spent"
    assert spending.refuses_run(GET, 80_000.0) is None
    assert spending.refuses_run(SEARCH, 87_000.0) is None


def test_a_tool_may_tell_its_third_party_so_many_wrong_guesses_in_an_hour() -> None:
    spending, search = spends(egress_discards_per_hour=1), tool("search", egress=True)
    assert spending.refuses_run(search, 0.0) is None
    spending.told_for_nothing(("search", "v1"), 0.0)
    assert spending.refuses_run(search, 10.0) == "the budget of 1 wrong guesses told by this tool an hour is spent"
    assert spending.refuses_run(tool("post", egress=True), 10.0) is None
    assert spending.refuses_run(search, 3601.0) is None


def probe(tokens: int) -> ProbeRecord:
    return ProbeRecord(0.0, prompt_tokens=tokens, completion_tokens=tokens, outcome="predicted")


class Somewhere:
    """Stands for an endpoint: only which one it is counts."""


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        (ProbeBudget(per_minute=1), "the budget of 1 probes a minute is spent"),
        (ProbeBudget(tokens_per_minute=2000), "the budget of 2000 tokens of probes a minute is spent"),
        (ProbeBudget(usd_per_day=0.003), "the budget of 0.003 USD for probes of this endpoint a day is spent"),
    ],
)
def test_an_endpoint_has_budgets_of_its_own_for_probes(budget: ProbeBudget, why: str) -> None:
    here: Any = Somewhere()
    there: Any = Somewhere()
    spending = Spending(Settings(price_input_usd_per_mtok=1.0, price_output_usd_per_mtok=2.0))
    spending.limit(here, budget)
    for where in (id(here), id(there)):
        assert spending.refuses_probe(where, 0.0) is None
        spending.probe_began(where, 0.0)
        spending.probe_over(where, probe(1000), 1.0)
    assert spending.refuses_probe(id(here), 2.0) == why
    assert spending.refuses_probe(id(there), 2.0) is None


def test_probes_of_an_endpoint_at_once() -> None:
    here: Any = Somewhere()
    spending = Spending(Settings())
    spending.limit(here, ProbeBudget(at_once=1))
    spending.probe_began(id(here), 0.0)
    assert spending.refuses_probe(id(here), 0.0) == "1 probes are under way, the budget says no more"


def test_budgets_stand_in_the_file(tmp_path: Any) -> None:
    file = tmp_path / "agentspec.toml"
    file.write_text(
        """
[tool_budgets.search]
at_once = 2
usd_per_run = 0.01
usd_per_day = 5.0

[[upstreams]]
url = "http://127.0.0.1:9/v1"
models = ["m"]
budget = {tokens_per_minute = 100}
"""
    )
    settings = load(file=file)
    assert (settings.tool_budgets["search"].at_once, settings.tool_budgets["search"].usd_per_day) == (2, 5.0)
    assert settings.upstreams[0].budget.tokens_per_minute == 100
    file.write_text("[tool_budgets.search]\nper_second = 1\n")
    with pytest.raises(ConfigError, match="no such setting"):
        load(file=file)
