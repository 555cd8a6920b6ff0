"""Learning curves of a run as a picture."""

from __future__ import annotations

import math
from pathlib import Path

from geomatt.drawing import new_figure, save_figure
from geomatt.training.history import EpochRow
from geomatt.units import from_ev


def plot_history(rows: list[EpochRow], unit: str, path: Path) -> None:
    """Loss and errors against epochs, as a PNG."""
    factor = from_ev(unit)
    figure = new_figure(11, 3.4, dpi=120)
    panels = (
        ("loss", "loss (normalised units)", 1.0),
        ("energy_mae", f"energy MAE ({unit})", factor),
        ("force_mae", f"force MAE ({unit}/Å)", factor),
    )
    for axis, (name, label, scale) in zip(figure.subplots(1, 3), panels, strict=True):
        for part, colour in (("train", "tab:blue"), ("val", "tab:orange")):
            points = [
                (r.epoch, v * scale)
                for r in rows
                if math.isfinite(v := getattr(r, f"{part}_{name}")) and v > 0
            ]
            if points:
                axis.plot(
                    *zip(*points, strict=True),
                    color=colour,
                    label=part,
                    marker="." if len(points) < 30 else "",
                )
                axis.set_yscale("log")
        axis.set(xlabel="epoch", ylabel=label)
        if axis.lines:
            axis.legend()
    save_figure(figure, path)
