"""The command `agentspec savings`: what speculation saved, measured against the control group and summed over hits."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console

from agentspec.config import load
from agentspec.gating.holdout import Savings, savings
from agentspec.proxy.cli_bench import AsJson

Database = Annotated[str | None, typer.Option(help="SQLAlchemy URL of the ledger")]


def savings_command(database: Database = None, as_json: AsJson = False) -> None:
    """What speculation saved: measured against trajectories without it, and summed over hits."""
    from agentspec.memory.ledger_reader import LedgerReader

    found = savings(LedgerReader(load({"database": database}).database).trials())
    if as_json:
        print(json.dumps(dataclasses.asdict(found)))
    else:
        Console(highlight=False, soft_wrap=True).print("\n".join(lines(found)), markup=False)


def lines(found: Savings) -> list[str]:
    """The answer in words."""
    groups = (
        f"treated    {found.treated} trajectories, {found.treated_turns} turns",
        f"control    {found.control} trajectories, {found.control_turns} turns (setting holdout_share)",
    )
    return [*groups, f"measured   {_measured(found)}", f"told       {found.told_s:.1f} s, the sum over hits"]


def _measured(found: Savings) -> str:
    if found.difference_s is None or found.measured_s is None:
        return "nothing: one of the two groups is empty"
    turn = f"{found.difference_s:+.3f} s a turn, treated less control"
    if found.low_s is None or found.high_s is None:
        return f"{turn}; too few trajectories for an interval"
    interval = f"95%: {found.low_s:+.3f} to {found.high_s:+.3f}"
    return f"{turn} ({interval}); {found.measured_s:+.1f} s saved over all treated turns"
