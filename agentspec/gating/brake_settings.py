"""Settings of the gate and its brakes: how much speculation may cost, go on at once, and use in a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings

Limit = Annotated[int | None, Field(ge=0)]
Amount = Annotated[float | None, Field(ge=0)]


class ToolBudget(BaseModel):
    """What runs ahead of one tool may come to: `[tool_budgets.NAME]` in the file. What is left out is as for all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_once: Limit = None
    per_minute: Limit = None
    usd_per_run: Annotated[float, Field(ge=0)] = 0.0
    """What a run costs, for `usd_per_day`."""
    usd_per_day: Amount = None
    egress_discards_per_hour: Limit = None
    """Wrong guesses that may tell its third party something, all tenants together."""
    miss_cost_share: Amount = None
    """What a second of a discarded run costs: nothing where the tool waits for others, most of it where it computes."""


class ProbeBudget(BaseModel):
    """What probes of one endpoint may come to: `budget` of an `[[upstreams]]`. What is left out is as for all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_once: Limit = None
    per_minute: Limit = None
    tokens_per_minute: Limit = None
    usd_per_day: Amount = None
    """At the prices that are set (`price_input_usd_per_mtok`, `price_output_usd_per_mtok`)."""


class BrakeSettings(BaseSettings):
    """What an operator may say of the gate. Part of `Settings`."""

    max_runs_per_turn: int = Field(16, ge=0, description="runs ahead that one turn may have")
    chain_depth: int = Field(1, ge=0, le=3, description="turns that are looked ahead beyond the running one (0: none)")
    miss_cost_share: float = Field(0.05, ge=0, description="what a discarded run costs, as a share of its tool seconds")
    max_discarded_share: float = Field(
        0.49, ge=0, le=1, description="share of runs ahead that may be discarded, by predictor (1: any)"
    )
    holdout_share: float = Field(
        0.02, ge=0, le=1, description="share of trajectories without speculation, to measure what it saves"
    )
    runs_at_once: int = Field(64, ge=0, description="runs ahead that may go on at once in all")
    tool_runs_at_once: int = Field(16, ge=0, description="the same, of one tool")
    tool_runs_per_minute: int = Field(600, ge=0, description="runs ahead of one tool that may start in a minute")
    tool_budgets: Mapping[str, ToolBudget] = Field(
        {},
        description="by tool: at_once, per_minute, usd_per_run, usd_per_day, egress_discards_per_hour, miss_cost_share",
    )
    probes_at_once: int = Field(16, ge=0, description="probes that may go on at once at one endpoint")
    probes_per_minute: int = Field(1200, ge=0, description="probes that may start in a minute at one endpoint")
    probe_tokens_per_minute: int = Field(
        4_000_000, ge=0, description="tokens of probes, prompts included, in a minute at one endpoint"
    )
    max_queued_requests: int = Field(
        4, ge=0, description="vllm, sglang: no probes while more requests wait in the engine"
    )
    engine_metrics: bool = Field(True, description="vllm, sglang: ask the engine's /metrics for its queue")
    egress_discards_per_hour: int = Field(
        60, ge=0, description="wrong guesses that may tell a third party something, per tenant (tools with egress)"
    )
