"""Pictures: time and memory per atom against the number of atoms, and validation errors while learning."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.bench.settings import LITERAL
from geomatt.drawing import figure_path, new_figure, save_figure
from geomatt.errors import GeomAttError

COLOURS = ("#2b59a8", "#d1495b", "#4f9d69", "#e08e45")  # one for each machine and network
STYLES = {"sparse": ("neighbour lists", "-", "o"), "dense": ("all pairs", "--", "s")}


def scaling_plot(results: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Draw the scaling points of result files, a colour for each machine and network; returns the path."""
    series: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        several = len({p.get("model") for p in result["scaling"]}) > 1
        for point in result["scaling"]:
            name = f", {point['model']}" if several else ""
            series.setdefault(result["machine"]["hardware"] + name, []).append(point)
    if not series:
        raise GeomAttError("There is nothing to draw: no scaling was measured. Measure the suite scaling.")
    figure, left, right = _two_panels(path, "Energy and forces of random matter, float32")
    for (name, points), colour in zip(series.items(), itertools.cycle(COLOURS), strict=False):
        for kind in STYLES:
            own = [p for p in points if p["path"] == kind]
            times = [1e6 / p["atoms"] * np.percentile(p["seconds"], (25, 50, 75)) for p in own]
            if own:
                atoms, (low, middle, high) = [p["atoms"] for p in own], np.transpose(times)
                left.fill_between(atoms, low, high, color=colour, alpha=0.15, linewidth=0)
                left.plot(atoms, middle, **_style(kind, colour))
            known = [(p["atoms"], p["memory"] / p["atoms"] / 1024) for p in own if p["memory"]]
            if known:
                right.plot(*zip(*known, strict=True), **_style(kind, colour))
        left.plot([], [], color=colour, linewidth=3, label=name)
    for kind, (label, *_) in STYLES.items():
        left.plot([], [], label=label, **_style(kind, "#444444"))
    for axis, label in ((left, "time per atom (µs)"), (right, "peak memory per atom (KiB)")):
        axis.set(xscale="log", yscale="log", xlabel="atoms", ylabel=label)
    return _save(figure, left, path)


def curves_plot(result: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Draw the validation errors of a result file's trainings over each other; returns the path."""
    if not result.get("curves"):
        raise GeomAttError("There is nothing to draw: no training was compared. Measure the suite curves.")
    title = f"Ethanol, same seed and data, {result['machine']['hardware']}"
    figure, left, right = _two_panels(path, title)
    # Automatic differentiation below, wide and pale, so that both curves are visible where they agree.
    below, above = {"color": "#e3b4a0", "linewidth": 5.0}, {"color": COLOURS[0], "linewidth": 1.2}
    for axis, kind, per in ((left, "energy", ""), (right, "forces", "/Å")):
        for curve in sorted(result["curves"], key=lambda c: c["name"] != LITERAL):
            look = below if curve["name"] == LITERAL else above
            axis.plot(range(1, len(curve[kind]) + 1), curve[kind], label=curve["name"], **look)
        unit = result["curves"][0]["unit"]
        axis.set(yscale="log", xlabel="epoch", ylabel=f"validation MAE, {kind} ({unit}{per})")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    return _save(figure, left, path)


def _two_panels(path: str | os.PathLike[str], title: str) -> tuple[Any, Any, Any]:
    figure_path(path)
    figure = new_figure(9.6, 4.2, dpi=150)
    axes = figure.subplots(1, 2)
    for axis in axes:
        axis.grid(color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10, color="#555555")
    return figure, *axes


def _style(kind: str, colour: str) -> dict[str, Any]:
    _, line, marker = STYLES[kind]
    face = colour if kind == "sparse" else "white"
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 4.5, "linewidth": 1.4,
            "markerfacecolor": face}  # fmt: skip


def _save(figure: Any, legend: Any, path: str | os.PathLike[str]) -> Path:
    legend.legend(frameon=False, fontsize=8.5)
    return save_figure(figure, path)
