"""Physics: drift, hot dynamics, distances, a vibrational spectrum, a torsion and a million steps.

What a reader of a force-field paper asks of its models. Energies and forces of a reference are compared where
one can be computed: GFN2-xTB, with a model trained on its trajectory of ethanol that ships with the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, Pieces, ProgressBar
from geomatt.reproduce.inputs import STAND_IN, described_md17, load_md17, noted
from geomatt.reproduce.physics_molecules import QUICK_STEPS, STEPS, run_molecule
from geomatt.reproduce.physics_tables import (
    REFERENCE,
    dynamics_table,
    spectrum_figure,
    torsion_figure,
    xtb_table,
)
from geomatt.reproduce.physics_xtb import against_xtb
from geomatt.reproduce.published import left_table, title
from geomatt.reproduce.table import ResultTable


class Physics(Experiment):
    name = "physics"
    title = "Physics"
    description = (
        "Energy drift at 300 K, dynamics and distances at 500 K, a million steps, and against GFN2-xTB a "
        "torsion profile and a vibrational spectrum of ethanol."
    )
    parts: ClassVar[tuple[str, ...]] = (*STEPS, "xtb")

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        data, stand_in = load_md17(settings)
        pieces = Pieces(settings, self.name)
        rows: dict[str, dict[str, Any]] = {part: {} for part in STEPS}
        missing: dict[str, int] = {}
        for part in STEPS:
            for molecule, frames in data.items():
                if part == "million" and molecule != "ethanol":
                    continue
                found = run_molecule(settings, pieces, progress, part, molecule, frames)
                if found is None:
                    missing[part] = missing.get(part, 0) + 1
                else:
                    rows[part][molecule] = found
        xtb = against_xtb(settings, pieces, progress)
        if xtb is None:
            missing["xtb"] = 1
        return {
            "settings": {"steps": QUICK_STEPS if settings.quick else STEPS, "stand_in": stand_in},
            "data": described_md17(data, stand_in),
            "split": "starts: frames that no model was trained on",
            "rows": rows,
            "xtb": xtb,
            "missing": missing,
            "pieces": pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            *noted(result, [dynamics_table(result)]),
            xtb_table(result["xtb"]),
            left_table(result, gpu=False),
        ]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        found = result["xtb"]
        if found is None:
            return []
        return [
            Drawing(
                "physics-torsion",
                f"Relaxed torsion C–C–O–H of ethanol: the model, and {REFERENCE} at the same geometries.",
                lambda: torsion_figure(found),
            ),
            Drawing(
                "physics-spectrum",
                f"Vibrational density of states of ethanol at 300 K, from velocities: model and {REFERENCE}.",
                lambda: spectrum_figure(found),
            ),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        stand_in = result["settings"]["stand_in"]
        sentences = [STAND_IN] if stand_in else []
        drifts = [row["drift_meV_per_atom_ps"] for row in result["rows"]["nve"].values()]
        if drifts:
            worst = max(drifts, key=abs)
            of = f"{len(drifts)} molecule{'s' if len(drifts) > 1 else ''}"
            sentences.append(f"The largest energy drift of {of} is {worst:+.2g} meV per atom and ps.")
        nvt, own = result["rows"]["nvt"], result["rows"]["own"]
        if own:
            found = ", ".join(f"{title(m)} {row['data_K']:.0f} K" for m, row in own.items())
            whose = "its trajectory by its" if stand_in else "the trajectories of MD17 by their"
            sentences.append(f"Temperatures of {whose} forces: {found}.")
        if both := [m for m in own if m in nvt]:
            errors = ", ".join(
                f"{title(m)} {own[m]['histogram_error']:.3f} in place of {nvt[m]['histogram_error']:.3f}"
                for m in both
            )
            sentences.append(f"Errors of h(r) there, and at 500 K: {errors}.")
        for where, rows in (("500 K", nvt), ("the temperature of its data", own)):
            sentences += [
                f"**{title(m).capitalize()} at {where} stopped after {row['survived_ps']:.1f} ps: "
                f"{row['failure']}.**"
                for m, row in rows.items()
                if row["failure"]
            ]
        for row in result["rows"]["million"].values():
            end = "intact" if not row["failure"] else f"stopped: {row['failure']}"
            sentences.append(
                f"{row['steps']:,} steps of ethanol at 500 K: {end}, walls active in "
                f"{100 * row['wall_share']:.2g} % of them, error of h(r) {row['histogram_error']:.3f}."
            )
        if result["xtb"] is not None:
            found = result["xtb"]
            torsion = found["torsion"]
            halves = 100 * found["spectrum"]["halves_reference"]
            sentences.append(
                f"Torsion of ethanol against {REFERENCE}: RMS difference {1000 * torsion['rms_eV']:.1f} meV, "
                f"barrier {1000 * torsion['barrier_model_eV']:.0f} and "
                f"{1000 * torsion['barrier_reference_eV']:.0f} meV. Spectra overlap by "
                f"{100 * found['spectrum']['overlap']:.0f} %; those of two halves of the {REFERENCE} runs "
                f"by {halves:.0f} %."
            )
        return " ".join(sentences) or "Not run yet."


EXPERIMENT = Physics()
