"""Attention of a structure, the bonds in it, and figures of both."""

from geomatt.analysis.bonds import BondScore, auroc, average_precision, bond_scores
from geomatt.analysis.coefficients import as_structure, attention
from geomatt.analysis.figures import attention_figure, molecule_figure
from geomatt.data.bonds import bond_matrix, distances

__all__ = [
    "BondScore",
    "as_structure",
    "attention",
    "attention_figure",
    "auroc",
    "average_precision",
    "bond_matrix",
    "bond_scores",
    "distances",
    "molecule_figure",
]
