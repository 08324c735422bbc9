"""Where and on what a figure was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_CHECKOUT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, Any]:
    """The keys `machine`, `commit` and `date` that every report carries."""
    return {"machine": machine(), "commit": commit(_CHECKOUT), "date": datetime.now(UTC).isoformat(timespec="seconds")}


def machine() -> dict[str, Any]:
    """This machine, and the versions that decide speed; nothing that names it."""
    return {
        "os": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_model(),
        "cores": _usable_cores(),
        "memory_gb": _memory_gb(),
        "python": platform.python_version(),
        "torch": _installed("torch"),
    }


def commit(folder: Path) -> str | None:
    """The checked-out commit, or None where there is no checkout or no git."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _usable_cores() -> int:
    """The cores that this process may use, which a container can have fewer of than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (OSError, ValueError, AttributeError):
        return None


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
