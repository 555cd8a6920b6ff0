"""Pictures: time and memory per atom against the number of atoms, and validation errors while learning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.files import atomic_output, require_writable
from geomatt.errors import GeomAttError

COLOURS = ("#2b59a8", "#d1495b", "#4f9d69", "#e08e45")  # one for each machine
STYLES = {
    "sparse": {"linestyle": "-", "marker": "o", "label": "neighbour lists"},
    "dense": {"linestyle": "--", "marker": "s", "label": "all pairs"},
}


def scaling_plot(results: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Draw the scaling points of result files, a colour for each machine; returns the path."""
    target = _picture(path)
    results = [r for r in results if r["scaling"]]
    if not results:
        raise GeomAttError("There is nothing to draw: no scaling was measured. Add it: --suite scaling")
    figure, left, right = _two_panels()
    for result, colour in zip(results, COLOURS, strict=False):
        for kind in STYLES:
            points = [p for p in result["scaling"] if p["path"] == kind]
            _time(left, points, kind, colour)
            _memory(right, points, kind, colour)
    for axis, label in ((left, "time per atom (µs)"), (right, "peak memory per atom (KiB)")):
        axis.set(xscale="log", yscale="log", xlabel="atoms", ylabel=label)
    left.legend(handles=_handles(results), frameon=False, fontsize=8.5)
    figure.suptitle("Energy and forces of random matter, float32", fontsize=10, color="#555555")
    return _save(figure, target)


def curves_plot(result: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Draw the validation errors of a result file's trainings over each other; returns the path."""
    target = _picture(path)
    if not result.get("curves"):
        raise GeomAttError("There is nothing to draw: no training was compared. Add it: --suite curves")
    figure, left, right = _two_panels()
    # The literal one below, broad and pale, so that both show where they agree.
    looks = {
        "literal": {"color": "#e3b4a0", "linewidth": 5.0},
        "geomatt": {"color": COLOURS[0], "linewidth": 1.2},
    }
    for axis, kind, per in ((left, "energy", ""), (right, "forces", "/Å")):
        for curve in sorted(result["curves"], key=lambda c: c["name"] != "literal"):
            epochs = range(1, len(curve[kind]) + 1)
            axis.plot(epochs, curve[kind], label=curve["name"], **looks[curve["name"]])
        unit = result["curves"][0]["unit"]
        axis.set(yscale="log", xlabel="epoch", ylabel=f"validation MAE, {kind} ({unit}{per})")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    left.legend(frameon=False, fontsize=8.5)
    title = f"Ethanol, same seed and data, {result['machine']['hardware']}"
    figure.suptitle(title, fontsize=10, color="#555555")
    return _save(figure, target)


def _picture(path: str | os.PathLike[str]) -> Path:
    target = require_writable(Path(path))
    if target.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise GeomAttError(f"Cannot draw {target}: the name must end in .png, .pdf or .svg.")
    return target


def _two_panels() -> tuple[Any, Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    for axis in axes:
        axis.grid(color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, *axes


def _save(figure: Any, target: Path) -> Path:
    with atomic_output(target) as temporary:
        figure.savefig(temporary, format=target.suffix[1:].lower())
    return target


def _style(kind: str, colour: str) -> dict[str, Any]:
    return {
        "color": colour,
        "linestyle": STYLES[kind]["linestyle"],
        "marker": STYLES[kind]["marker"],
        "markersize": 4.5,
        "markerfacecolor": colour if kind == "sparse" else "white",
        "linewidth": 1.4,
    }


def _time(axis: Any, points: list[dict[str, Any]], kind: str, colour: str) -> None:
    if not points:
        return
    atoms = np.array([p["atoms"] for p in points])
    low, median, high = (
        np.array([np.percentile(p["seconds"], q) for p in points]) / atoms * 1e6 for q in (25, 50, 75)
    )
    axis.fill_between(atoms, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(atoms, median, **_style(kind, colour))


def _memory(axis: Any, points: list[dict[str, Any]], kind: str, colour: str) -> None:
    known = [(p["atoms"], p["memory"] / p["atoms"] / 1024) for p in points if p["memory"]]
    if known:
        axis.plot(*zip(*known, strict=True), **_style(kind, colour))


def _handles(results: Sequence[dict[str, Any]]) -> list[Any]:
    from matplotlib.lines import Line2D

    machines = [
        Line2D([], [], color=colour, linewidth=3, label=r["machine"]["hardware"])
        for r, colour in zip(results, COLOURS, strict=False)
    ]
    return machines + [
        Line2D([], [], **_style(kind, "#444444"), label=style["label"]) for kind, style in STYLES.items()
    ]
