"""Attention of a structure, the bonds in it, and figures of both."""

from typing import TYPE_CHECKING

from geomatt.lazy import lazy_names

if TYPE_CHECKING:
    from geomatt.analysis.bonds import (
        BondScore,
        auroc,
        average_precision,
        bond_matrix,
        bond_scores,
        distances,
        symmetrised,
    )
    from geomatt.analysis.coefficients import as_structure, attention
    from geomatt.analysis.drawing import (
        FAINT,
        INK,
        SERIES,
        colour_bar,
        figure_path,
        frame_cells,
        label_atoms,
        new_figure,
        save_figure,
        show_matrix,
        style,
    )
    from geomatt.analysis.figures import attention_figure, draw_atoms, molecule_figure
    from geomatt.analysis.projection import flat_view

_MODULES = {
    "FAINT": "drawing",
    "INK": "drawing",
    "SERIES": "drawing",
    "BondScore": "bonds",
    "as_structure": "coefficients",
    "attention": "coefficients",
    "attention_figure": "figures",
    "auroc": "bonds",
    "average_precision": "bonds",
    "bond_matrix": "bonds",
    "bond_scores": "bonds",
    "colour_bar": "drawing",
    "distances": "bonds",
    "draw_atoms": "figures",
    "figure_path": "drawing",
    "flat_view": "projection",
    "frame_cells": "drawing",
    "label_atoms": "drawing",
    "molecule_figure": "figures",
    "new_figure": "drawing",
    "save_figure": "drawing",
    "show_matrix": "drawing",
    "style": "drawing",
    "symmetrised": "bonds",
}

__all__ = list(_MODULES)
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
