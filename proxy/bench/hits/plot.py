"""Two pictures: how hits grow with what memory has seen, and whether its probabilities hold."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentspec.errors import ConfigError
from agentspec.proxy.bench.hits.passes import Passed
from agentspec.proxy.bench.hits.pools import ALL
from agentspec.proxy.bench.hits.scoring import FIFTHS, fifths, reliability


def needs_matplotlib(file: Path) -> None:
    """Say before anything is measured that the plot could not be written.

    Raises:
        ConfigError: matplotlib is missing, or the file's folder.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs the package matplotlib: pip install 'agentspec-proxy[bench]'")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"--plot cannot write {file}: make the folder {file.parent} first")


def plot(pools: Mapping[str, Passed], file: Path) -> None:
    """Write the plot of each pool's headline pass; the file's ending decides its format.

    Raises:
        ConfigError: matplotlib is missing, or it cannot write such a file.
    """
    needs_matplotlib(file)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(13, 5.5), layout="constrained")
    FigureCanvasAgg(picture)
    left, right = picture.subplots(1, 2)
    for nth, (name, made) in enumerate(pools.items()):
        colour, width = ("black", 3.0) if name == ALL else (f"C{nth % 10}", 1.2)
        style: dict[str, Any] = {"color": colour, "linewidth": width, "marker": "os^Dv"[nth // 10 % 5], "label": name}
        _growth(left, made, style)
        _reliability(right, made, style)
    _dressed(left, "fifth of the calls, in order", "exact Hit@1", "Growth while learning")
    left.set_xticks(range(1, FIFTHS + 1))
    _dressed(right, "probability told", "share right", "Calibration")
    right.plot([0, 1], [0, 1], color="grey", linestyle=":", linewidth=1)
    picture.legend(*left.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    try:
        picture.savefig(file, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot cannot write {file}: {error}") from error


def _growth(axes: Any, made: Passed, style: Mapping[str, Any]) -> None:
    shares = [float("nan") if value is None else value for value in fifths(made.calls)]
    axes.plot(range(1, FIFTHS + 1), shares, **style)


def _reliability(axes: Any, made: Passed, style: Mapping[str, Any]) -> None:
    bins = reliability(made.calls)
    axes.plot([held.told for held in bins], [held.right for held in bins], **style)


def _dressed(axes: Any, x: str, y: str, title: str) -> None:
    axes.set(xlabel=x, ylabel=y, title=title, ylim=(-0.02, 1.02))
    axes.grid(visible=True, alpha=0.3)
