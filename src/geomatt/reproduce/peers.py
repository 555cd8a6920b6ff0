"""Published errors of other networks for 1000 training frames."""

from __future__ import annotations

from collections.abc import Sequence

from geomatt.reproduce.inputs import MD17
from geomatt.reproduce.published import SCHNET, Models, published

_NOT_STATED = (None,) * len(MD17)


def _row(
    energy: Sequence[float | None], forces: Sequence[float | None], digits: int = 3
) -> dict[str, Models]:
    return {m: published(e, f, digits) for m, e, f in zip(MD17, energy, forces, strict=True)}


# aspirin, benzene, ethanol, malonaldehyde, naphthalene, salicylic acid, toluene, uracil
PEERS: dict[str, dict[str, dict[str, Models]]] = {
    "md17": {  # kcal/mol, kcal/mol/Å
        "SchNet": SCHNET,
        "DimeNet": _row(
            (0.204, 0.078, 0.064, 0.104, 0.122, 0.134, 0.102, 0.115),
            (0.499, 0.187, 0.230, 0.383, 0.215, 0.374, 0.216, 0.301),
        ),
        "PaiNN": _row(
            (0.167, None, 0.064, 0.091, 0.116, 0.116, 0.095, 0.106),
            (0.338, None, 0.224, 0.319, 0.077, 0.195, 0.094, 0.139),
        ),
        "NequIP l=3": _row(
            (0.131, None, 0.051, 0.076, 0.113, 0.106, 0.092, 0.104),
            (0.189, None, 0.071, 0.129, 0.039, 0.090, 0.046, 0.076),
        ),
    },
    "rmd17": {  # meV, meV/Å
        "ACE": _row(_NOT_STATED, (17.9, 0.5, 7.3, 11.1, 5.1, 9.3, 6.5, 6.6), 1),
        "FCHL": _row(_NOT_STATED, (20.9, 2.6, 6.2, 10.3, 6.5, 9.5, 8.8, 4.2), 1),
        "NequIP": _row(_NOT_STATED, (8.2, 0.3, 2.8, 5.1, 1.3, 4.0, 1.6, 3.1), 1),
        "MACE": _row(_NOT_STATED, (6.6, 0.3, 2.1, 4.1, 1.6, 3.1, 1.5, 2.1), 1),
    },
}
