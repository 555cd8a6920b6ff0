"""Figure of the learning curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from geomatt.drawing import EMPTY, SERIES, new_figure
from geomatt.reproduce.published import title

MARKERS = ("o", "s", "^")


def learning_figure(curves: Mapping[str, Mapping[str, Mapping[int, float]]]) -> Any:
    """Force errors by molecule (a panel each), network (a curve each) and number of frames."""
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = new_figure(3.5 * len(curves) + 0.2, 3.3)
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (molecule, networks) in zip(axes, curves.items(), strict=True):
        for (label, errors), colour, marker in zip(networks.items(), SERIES, MARKERS, strict=False):
            frames, values = np.array(list(errors), dtype=float), np.array(list(errors.values()))
            axis.plot(frames, values, marker, color=colour, markersize=4, label=label)
            if len(frames) > 1:
                law = np.polyfit(np.log(frames), np.log(values), 1)
                axis.plot(frames, np.exp(np.polyval(law, np.log(frames))), color=colour, linewidth=1.0)
        counts = sorted({count for errors in networks.values() for count in errors})
        axis.set(xscale="log", yscale="log", title=title(molecule), xlabel="training frames")
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xticks([], minor=True)
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.grid(color=EMPTY, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("force MAE, kcal/mol/Å")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
