"""Stability: do models stay intact in long dynamics, and do they sample the right distances?

The protocol of Fu et al. 2023 ("Forces are not enough", arXiv 2210.07237): 500 K, Nosé–Hoover, 0.5 fs,
300 ps, five seeds; a run has failed once a bond is more than 0.5 Å from its mean length in the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

from geomatt.errors import GeomAttError
from geomatt.model import fingerprint
from geomatt.reproduce.frame import Experiment, ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.inputs import MD17, STAND_IN, described_md17, load_md17, md17_model, noted
from geomatt.reproduce.published import left_table
from geomatt.reproduce.stability_runs import (
    BOUNDED,
    KINDS,
    SEEDS,
    WALLS,
    Simulations,
    stability_config,
    used_name,
    variants,
)
from geomatt.reproduce.stability_tables import outcomes, stability_table
from geomatt.reproduce.table import ResultTable

PICOSECONDS = {"nvt": 300.0, "nve": 50.0}
QUICK_PICOSECONDS = {"nvt": 0.05, "nve": 0.05}
SORTS = (KINDS, WALLS, PICOSECONDS, MD17)  # of parts


class Stability(Experiment):
    name = "stability"
    title = "Stability in dynamics"
    description = (
        "Every shipped model of MD17, and SchNet, in 300 ps of dynamics at 500 K, five seeds, with and "
        "without bounds of the network and walls where its data end; and its energy drift at 300 K."
    )
    parts: ClassVar[tuple[str, ...]] = (*KINDS, *WALLS, *PICOSECONDS, *MD17)

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        data, stand_in = load_md17(settings)
        pieces = Pieces(settings, self.name)
        length = QUICK_PICOSECONDS if settings.quick else PICOSECONDS
        rows: dict[str, Any] = {}
        used: dict[str, dict[str, str]] = {}  # fingerprints of the models of each kind
        reached: dict[str, dict[str, float]] = {}  # ps of simulations that are not at their end, by molecule
        missing: dict[str, int] = {}
        every: list[tuple[Simulations, list[str]]] = []
        for kind, ensemble in itertools.product(("fast",) if settings.quick else KINDS, length):
            shipped = {m: model for m in data if (model := md17_model(settings, m, kind)) is not None}
            if kind in settings.parts and not shipped:
                raise GeomAttError(
                    f"There are no {kind} models to simulate. "
                    "SchNet is trained by: geomatt reproduce table1 --part schnet-all, with the same --out."
                )
            for models, conditions in variants(shipped):
                found = Simulations(settings, pieces, kind, models, data, ensemble, length[ensemble])
                used[used_name(kind, conditions[0])] = {m: fingerprint(own) for m, own in models.items()}
                wanted = [
                    (walls, molecule)
                    for walls, molecule in itertools.product(conditions, models)
                    if not found.finished(walls, molecule)
                    and settings.chooses({kind, walls, ensemble, molecule}, *SORTS)
                ]
                for walls_there, molecules in found.together(wanted):
                    found.simulate(walls_there, molecules, progress)
                every.append((found, conditions))
        kinds = set(settings.parts) & set(KINDS) or set(KINDS)
        chosen = [conditions for found, conditions in every if found.kind in kinds]
        if BOUNDED in settings.parts and not any(BOUNDED in conditions for conditions in chosen):
            raise GeomAttError(
                "None of the models chosen has bounds of its network (those of pair states have, which "
                "--quick leaves out). Leave out --part bounded."
            )
        for found, walls in ((found, walls) for found, conditions in every for walls in conditions):
            # After all simulations: other processes may have added some meanwhile.
            name = f"{found.kind}-{walls}-{found.ensemble}"
            rows[name], reached[name] = found.rows(walls)
            there = found.models if walls == BOUNDED else data  # other models have no bounds
            missing[name] = sum(not found.finished(walls, molecule) for molecule in there)
        return {
            "settings": {
                "ps": length,
                "seeds": SEEDS,
                "nvt": stability_config("nvt").to_dict(),
                "stand_in": stand_in,
            },
            "data": described_md17(data, stand_in),
            "split": "starts: frames that no model was trained on",
            "models": used,
            "rows": {name: own for name, own in rows.items() if own},
            "reached_ps": {name: ps for name, ps in reached.items() if ps},
            "missing": {name: count for name, count in missing.items() if count},
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            *noted(
                result,
                (
                    stability_table(result, kind)
                    for kind in KINDS
                    if any(n.rsplit("-", 2)[0] == kind for n in result["rows"])
                ),
            ),
            left_table(
                result, {" ".join(name.rsplit("-", 2)): count for name, count in result["missing"].items()}
            ),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        return " ".join([STAND_IN] * result["settings"]["stand_in"] + outcomes(result)) or "Not run yet."


EXPERIMENT = Stability()
