"""A picture of each part of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentspec.errors import ConfigError
from agentspec.gating.calibration import reliability
from agentspec.proxy.bench.agent.arm_figures import Line
from agentspec.proxy.bench.agent.cells import AGENTS, PROBE_S, REASONING_TOKENS, TOOL_S, Hits, Measured
from agentspec.proxy.bench.agent.intervals import median_interval, total_interval
from agentspec.proxy.bench.agent.real_cells import Pairs

BAR = 1.01


def picture(width: float, height: float, columns: int) -> tuple[Any, Any]:
    """An empty picture and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made, made.subplots(1, columns, squeeze=False)[0]


def write(made: Any, file: Path) -> None:
    """Write it.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        made.savefig(file, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plots cannot write {file}: {error}") from error


def plot_grid(cells: Sequence[Measured], file: Path) -> None:
    """The virtual grid: the ratio of every cell; one panel for each who predicts."""
    made, axes = picture(16, 6, len(Hits))
    found = {one.cell: one.ratio for one in cells}
    rows = [(tool_s, tokens) for tool_s in TOOL_S for tokens in REASONING_TOKENS]
    columns = [(probe_s, agents) for agents in AGENTS for probe_s in PROBE_S]
    for axis, hits in zip(axes, Hits, strict=True):
        by_place = {(c.tool_s, c.reasoning_tokens, c.probe_s, c.agents): r for c, r in found.items() if c.hits is hits}
        values = [[by_place[*row, *column] for column in columns] for row in rows]
        axis.imshow(values, cmap="RdYlGn_r", vmin=0.8, vmax=1.2, aspect="auto")
        for y, line in enumerate(values):
            for x, value in enumerate(line):
                axis.text(x, y, f"{value:.3f}", ha="center", va="center", fontsize=7)
        axis.set_title(f"{hits}: time over direct")
        axis.set_xticks(range(len(columns)), [f"P {probe:g} s\n{agents} ag." for probe, agents in columns], fontsize=7)
        axis.set_yticks(range(len(rows)), [f"L {tool:g} s, {tokens} tok." for tool, tokens in rows], fontsize=7)
    write(made, file)


def plot_corners(corners: Sequence[Pairs], file: Path) -> None:
    """The corners on real sockets: every pair, the median and its interval."""
    made, axes = picture(11, 1.5 + 0.45 * len(corners), 1)
    axis = axes[0]
    for y, pairs in enumerate(reversed(corners)):
        axis.plot(pairs.ratios, [y] * len(pairs.ratios), "o", color="C0", alpha=0.25, markersize=4)
        low, high = median_interval(pairs.ratios)
        if low is not None and high is not None:
            axis.plot([low, high], [y, y], color="black", linewidth=2)
        axis.plot([pairs.ratio], [y], "D", color="black", markersize=5)
    axis.set_yticks(range(len(corners)), [pairs.cell.name for pairs in reversed(corners)], fontsize=7)
    axis.axvline(1.0, color="grey", linewidth=1)
    axis.axvline(BAR, color="red", linewidth=1, linestyle=":")
    axis.set(xlabel="time over direct", title="Real sockets: pairs, their median and its 95% interval")
    write(made, file)


def plot_arms(found: Sequence[Line], file: Path) -> None:
    """The arms by domain: time over direct with its interval, share of calls foreseen, and reliability."""
    made, axes = picture(16, 1.5 + 0.3 * len(found), 3)
    rows = list(reversed(found))
    names = [f"{line.arm}, {line.domain}" for line in rows]
    for y, line in enumerate(rows):
        low, high = total_interval(line.on_s, line.off_s)
        if low is not None and high is not None:
            axes[0].plot([low, high], [y, y], color="C0", linewidth=2)
        axes[0].plot([line.ratio], [y], "D", color="black", markersize=4)
        tally = line.tally
        for share, of, mark in ((tally.named, tally.calls, "s"), (tally.exact, tally.calls, "o")):
            axes[1].plot([share / of if of else 0.0], [y], mark, color="C1" if mark == "s" else "C2", markersize=5)
        axes[1].plot([tally.committed / tally.claims if tally.claims else 0.0], [y], "D", color="black", markersize=4)
        if tally.told:
            axes[2].plot(*_reliability(tally.told), marker="o", markersize=3, linewidth=1, label=names[y])
    axes[0].set_yticks(range(len(rows)), names, fontsize=7)
    axes[0].axvline(1.0, color="grey", linewidth=1)
    axes[0].set(xlabel="time over direct", title="Time, with its 95% interval")
    axes[1].set_yticks([])
    axes[1].set(
        xlabel="share of calls", title="Named (square), foreseen (dot), handed over (diamond)", xlim=(-0.02, 1.02)
    )
    axes[2].plot([0, 1], [0, 1], color="grey", linestyle=":")
    axes[2].set(xlabel="probability told", ylabel="share right", title="Reliability")
    axes[2].legend(fontsize=6)
    write(made, file)


def _reliability(told: Sequence[tuple[float, bool]]) -> tuple[list[float], list[float]]:
    """What was told and what came, tenth by tenth."""
    held = reliability(told)
    return [promised for promised, _, _ in held], [came for _, came, _ in held]
