"""Figures of attention for a paper, in the layout of the original paper's appendix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geomatt.analysis.figures import attention_figure, molecule_figure
from geomatt.data.structures import Structure
from geomatt.files import make_folder
from geomatt.model import AttentionRecord

FORMATS = ("pdf", "svg", "png")


def write_figures(
    records: Sequence[AttentionRecord[np.ndarray]],
    structure: Structure,
    folder: str | os.PathLike[str],
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """The matrices and the molecule, each in every format, in a folder that is made where needed."""
    target = make_folder(Path(folder))
    drawings = {"attention": attention_figure, "molecule": molecule_figure}
    return [
        draw(records, structure, target / f"{name}.{suffix}")
        for name, draw in drawings.items()
        for suffix in formats
    ]
