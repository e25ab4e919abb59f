"""Draw the results of compare_peers.py; runs in an environment with matplotlib.

PYTHON benchmarks/peers/plot.py RESULTS.json PICTURE.svg
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "scramjet"  # the same picture from the same numbers
matplotlib.rcParams["font.size"] = 9
from matplotlib import pyplot  # noqa: E402

OURS, GRID = "#d1495b", "#dddddd"
PALETTE = ("#00798c", "#edae49", "#30638e", "#8d96a3", "#66a182", "#a05195", "#2e4057", "#b07d62")
PANELS = {
    "env": "env steps per second",
    "solve": "seconds to a solved CartPole, process start included",
    "gae": "GAE, steps per second",
}


def colours_of(results: dict[str, Any]) -> dict[str, str]:
    """The same colour for a library in every panel."""
    others = [name for name in results["titles"] if name != "scramjet"]
    return {"scramjet": OURS, **dict(zip(others, PALETTE, strict=False))}


def draw_training(axes: Any, results: dict[str, Any], colours: dict[str, str]) -> None:
    """A line a library over the number of envs, with its spread."""
    for name, title in results["titles"].items():
        rows = [row for row in results["figures"] if (row["peer"], row["work"]) == (name, "training") and row["values"]]
        rows.sort(key=lambda row: row["num_envs"])
        if not rows:
            continue
        sizes = [row["num_envs"] for row in rows]
        axes.plot(sizes, [statistics.median(row["values"]) for row in rows], "o-", color=colours[name], label=title)
        lowest, highest = [min(row["values"]) for row in rows], [max(row["values"]) for row in rows]
        axes.fill_between(sizes, lowest, highest, color=colours[name], alpha=0.15, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="envs", title="steps trained per second")
    axes.set_xticks(sorted({row["num_envs"] for row in results["figures"] if row["work"] == "training"}))
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.minorticks_off()
    axes.legend(fontsize=7, frameon=False)


def draw_bars(axes: Any, results: dict[str, Any], work: str, colours: dict[str, str]) -> None:
    """A bar a library, the best on top."""
    rows = [row for row in results["figures"] if row["work"] == work and row["values"]]
    rows.sort(key=lambda row: statistics.median(row["values"]), reverse=work == "solve")
    medians = [statistics.median(row["values"]) for row in rows]
    spread = [
        [median - min(row["values"]) for row, median in zip(rows, medians, strict=True)],
        [max(row["values"]) - median for row, median in zip(rows, medians, strict=True)],
    ]
    labels = [results["titles"][row["peer"]] for row in rows]
    axes.barh(labels, medians, xerr=spread, color=[colours[row["peer"]] for row in rows], ecolor="#555555")
    axes.set_title(PANELS[work])
    if work != "solve":
        axes.set_xscale("log")


def main() -> None:
    """Four panels, or as many as there are results for."""
    results = json.loads(Path(sys.argv[1]).read_text())
    works = [w for w in ("training", *PANELS) if any(r["work"] == w and r["values"] for r in results["figures"])]
    if not works:
        return
    rows = (len(works) + 1) // 2
    figure, grid = pyplot.subplots(rows, min(2, len(works)), figsize=(11, 4 * rows), squeeze=False)
    colours = colours_of(results)
    for axes in grid.flat[len(works) :]:
        axes.set_visible(False)
    for axes, work in zip(grid.flat, works, strict=False):
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if work == "training":
            draw_training(axes, results, colours)
        else:
            draw_bars(axes, results, work, colours)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
