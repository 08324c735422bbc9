"""Settings of the gate and its brakes: how much speculation may cost, go on at once, and use in a minute."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class BrakeSettings(BaseSettings):
    """What an operator may say of the gate. Part of `Settings`."""

    max_runs_per_turn: int = Field(16, ge=0, description="runs ahead that one turn may have")
    miss_cost_share: float = Field(0.15, ge=0, description="what a discarded run costs, as a share of its tool seconds")
    max_discarded_share: float = Field(
        0.4, ge=0, le=1, description="share of runs ahead that may be discarded, by predictor (1: any)"
    )
    holdout_share: float = Field(
        0.02, ge=0, le=1, description="share of trajectories without speculation, to measure what it saves"
    )
    runs_at_once: int = Field(64, ge=0, description="runs ahead that may go on at once in all")
    tool_runs_at_once: int = Field(16, ge=0, description="the same, of one tool")
    tool_runs_per_minute: int = Field(600, ge=0, description="runs ahead of one tool that may start in a minute")
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
