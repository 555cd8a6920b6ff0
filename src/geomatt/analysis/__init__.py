"""Attention of a structure, the bonds in it, interventions on pairs, and figures."""

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
        hydrogen_bonds,
        symmetrised,
    )
    from geomatt.analysis.coefficients import as_structure, attention
    from geomatt.analysis.controls import untrained_attention, untrained_networks
    from geomatt.analysis.deletion import (
        BY_ATTENTION,
        BY_CHANCE,
        BY_DISTANCE,
        BY_EFFECT,
        DELETED,
        DeletionCurve,
        Faithfulness,
        deletion_curves,
        faithfulness,
    )
    from geomatt.analysis.figures import attention_figure, draw_atoms, molecule_figure
    from geomatt.analysis.intervention import Intervention, PairEffects, intervene, pair_effects
    from geomatt.analysis.projection import flat_view

__all__, __getattr__, __dir__ = lazy_names(__name__)
