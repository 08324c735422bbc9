"""`agentspec doctor`: what this machine can do, what is missing, and what to do about it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agentspec.errors import ConfigError, ToolRefused
from agentspec.memory.databases import without_password
from agentspec.memory.ledger_opening import open_engine
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.connect import REDIS_VARIABLE
from agentspec.tools_sandbox.kernel import landlock
from agentspec.tools_sandbox.shared import SharedDomains
from agentspec.tools_sandbox.tiers.overlay import state_folder

_TIERS = {
    "T0": ("thread of the agent's process", "pure and trusted read tools; nothing is isolated"),
    "T1": ('sandbox="process"', "importable tools that can change nothing"),
    "T2": ('Sandbox("overlay", workspace=...)', "writing tools over a copy of their folder"),
    "T3": ('Sandbox("remote", address=...)', "tools on another machine (`agentspec worker`)"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `advice` says why it is missing and what to do; empty where it works."""

    name: str
    works: bool
    what: str
    advice: str = ""


def examine(database: str) -> list[Finding]:
    """Try everything once. Takes a second or two."""
    missing = missing_tiers()
    found = [
        Finding(f"tier {tier}", tier not in missing, f"{how}: {use}", missing.get(tier, ""))
        for tier, (how, use) in _TIERS.items()
    ]
    return [*found, *_machine(), _state(), _database(database), _redis()]


def _machine() -> list[Finding]:
    version = landlock.version()
    enough = version >= landlock.FLOOR
    scoped = "" if version >= landlock.SIGNALS_SINCE else ", so T1 runs no subprocesses (6 is needed: Linux 6.12)"
    advice = "" if enough else f"{landlock.FLOOR} is needed: Linux 6.2, landlock in the kernel's lsm= list"
    return [
        Finding("kernel", True, f"{platform.system()} {platform.release()} on {platform.machine()}"),
        Finding("landlock", enough, f"version {version}{scoped}", advice),
        Finding("user", True, "root" if os.getuid() == 0 else f"uid {os.getuid()}"),
    ]


def _state() -> Finding:
    folder = state_folder()
    name = "state folder"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        return Finding(
            name, False, str(folder), f"{error.strerror}; set AGENTSPEC_STATE to a folder that can be written"
        )
    return Finding(name, True, f"{folder} ({_file_system(folder)})")


def _file_system(path: Path) -> str:
    """Kind of the file system that a path is on."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, target, fs, *_ = line.split()
        if str(path.resolve()).startswith(target) and len(target) >= len(best):
            best, kind = target, fs
    return kind


def _database(url: str) -> Finding:
    shown = without_password(url)
    try:
        open_engine(url).dispose()
    except ConfigError as error:
        return Finding("ledger", False, shown, str(error))
    return Finding("ledger", True, shown)


def _redis() -> Finding:
    url = os.environ.get(REDIS_VARIABLE)
    if not url:
        return Finding("redis", True, f"not asked for (several processes with the same state: set {REDIS_VARIABLE})")
    try:
        SharedDomains(url, "doctor").stamp(frozenset({"doctor"}))
    except (ConfigError, ToolRefused) as error:
        return Finding("redis", False, url, str(error))
    return Finding("redis", True, url)


def as_table(found: list[Finding]) -> Table:
    """For people."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=2)
    table.add_column("why it is missing, and what to do", overflow="fold", ratio=3)
    for one in found:
        mark = Text("yes", style="green") if one.works else Text("no", style="red")
        table.add_row(Text(one.name), mark, Text(one.what), Text(one.advice))
    return table


def as_dict(found: list[Finding]) -> dict[str, Any]:
    """For programs."""
    return {"findings": [asdict(one) for one in found]}
