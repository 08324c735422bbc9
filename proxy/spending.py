"""What runs ahead and probes use, held against their budgets: by tool, by endpoint, and all together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from agentspec.config import Settings
from agentspec.effects import ToolSpec
from agentspec.gating.brake_settings import ProbeBudget
from agentspec.gating.budgets import DAY_S, HOUR_S, Budget, Limits
from agentspec.protocols import ProbeRecord, Upstream

_ALL = "*"

Tool = tuple[str, str]
"""Its name and its fingerprint."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in USD."""

    input_usd: float = 0.0
    output_usd: float = 0.0

    def of(self, probe: ProbeRecord) -> float:
        """What a probe cost."""
        return (probe.prompt_tokens * self.input_usd + probe.completion_tokens * self.output_usd) / 1e6


class Spending:
    """All budgets of one proxy but a tenant's for egress. One event loop, no locks."""

    def __init__(self, settings: Settings) -> None:
        tool = Limits(settings.tool_runs_at_once, settings.tool_runs_per_minute)
        self._runs = Budget("runs ahead", Limits(settings.runs_at_once))
        self._tool_runs = Budget("runs ahead of this tool", tool)
        self._tool_usd = Budget("USD for runs ahead of this tool", Limits(), DAY_S)
        self._tool_egress = Budget("wrong guesses told by this tool", Limits(), HOUR_S)
        self._probes = Budget("probes", Limits(settings.probes_at_once, settings.probes_per_minute))
        self._tokens = Budget("tokens of probes", Limits(None, settings.probe_tokens_per_minute))
        self._usd = Budget("USD for probes of this endpoint", Limits(), DAY_S)
        self._prices = Prices(settings.price_input_usd_per_mtok, settings.price_output_usd_per_mtok)
        self._usd_per_run = {name: one.usd_per_run for name, one in settings.tool_budgets.items()}
        for name, one in settings.tool_budgets.items():
            self._tool_runs.limit(name, Limits(one.at_once, one.per_minute))
            self._tool_usd.limit(name, Limits(None, one.usd_per_day))
            self._tool_egress.limit(name, Limits(None, one.egress_discards_per_hour))

    def limit(self, upstream: Upstream, budget: ProbeBudget) -> None:
        """Limits of one endpoint's own."""
        where = id(upstream)
        self._probes.limit(where, Limits(budget.at_once, budget.per_minute))
        self._tokens.limit(where, Limits(None, budget.tokens_per_minute))
        self._usd.limit(where, Limits(None, budget.usd_per_day))

    # Runs ahead

    def refuses_run(self, spec: ToolSpec, now_s: float) -> str | None:
        """Why no run of this tool may begin; None where it may."""
        tool, name = (spec.name, spec.fingerprint), spec.name
        return (
            self._runs.refuses(_ALL, now_s)
            or self._tool_runs.refuses(tool, now_s, name)
            or self._tool_usd.refuses(name, now_s)
            or (self._tool_egress.refuses(name, now_s) if spec.egress else None)
        )

    def run_began(self, tool: Tool, now_s: float) -> None:
        """A run has begun."""
        self._runs.began(_ALL, now_s)
        self._tool_runs.began(tool, now_s)
        if (usd := self._usd_per_run.get(tool[0], 0.0)) > 0.0:
            self._tool_usd.spend(tool[0], usd, now_s)

    def run_over(self, tool: Tool) -> None:
        """A run is over."""
        self._runs.over(_ALL)
        self._tool_runs.over(tool)

    def use(self, spec: ToolSpec, now_s: float) -> tuple[int, float]:
        """Runs ahead of this tool that go on now, and how many began in the last minute."""
        return self._tool_runs.use((spec.name, spec.fingerprint), now_s)

    def told_for_nothing(self, tool: Tool, now_s: float) -> None:
        """Arguments of a call that nobody makes went to a third party."""
        self._tool_egress.spend(tool[0], 1.0, now_s)

    # Probes

    def refuses_probe(self, where: Hashable, now_s: float) -> str | None:
        """Why no probe of this endpoint may begin; None where it may."""
        return (
            self._probes.refuses(where, now_s) or self._tokens.refuses(where, now_s) or self._usd.refuses(where, now_s)
        )

    def probe_began(self, where: Hashable, now_s: float) -> None:
        """A probe is sent."""
        self._probes.began(where, now_s)

    def probe_over(self, where: Hashable, probe: ProbeRecord, now_s: float) -> None:
        """A probe has ended, however it went."""
        self._probes.over(where)
        self._tokens.spend(where, probe.prompt_tokens + probe.completion_tokens, now_s)
        if (usd := self._prices.of(probe)) > 0.0:
            self._usd.spend(where, usd, now_s)
