"""Measure what keeps a model of several molecules near its data: walls, bounds, and other remedies.

    python scripts/measure_mixed.py --out DIR [--minutes 40] [--quick]

Pair states of size S are trained on five small molecules, sampled here with GFN2-xTB at 500 K; a sixth one is
never trained on. Each remedy is measured by errors on frames of other trajectories, by energies of displaced
atoms as in measure_holes.py, and by dynamics from frames not trained on. Data, models and every measurement
are kept in DIR, so that the same command continues after Ctrl-C or --minutes; what is missing then is left
out of the tables. Writes results/mixed.json and the tables in docs/simulation.md; --quick, a small setting
to try the script, writes DIR/mixed-quick.json and prints. With --table, only the tables.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from docs_block import write_block
from mixed_data import QUICK, TRAINED, UNSEEN, Setting, sampled, with_perturbed
from mixed_remedies import (
    SCALE,
    STEEP,
    STIFFNESS,
    Added,
    ByReference,
    Coordination,
    Repulsion,
    Term,
    neighbour_ranges,
    shortest_distances,
)
from mixed_tables import tables
from rich.progress import track

from geomatt.data import Dataset, Split, Structure, collate, concatenate
from geomatt.data.make import Method
from geomatt.data.make.method import NotConverged, Reference
from geomatt.model import Potential, fingerprint
from geomatt.reproduce import ExperimentSettings
from geomatt.reproduce.frame import Pieces, provenance, write_json
from geomatt.simulation import BatchedDynamics, DynamicsConfig, Group, PotentialForces, Replica
from geomatt.simulation.forces import Forces
from geomatt.training import resolve, train
from geomatt.training.folder import CONFIG

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = "results/mixed.json", "docs/simulation.md"
SPREADS = (0.1, 0.2, 0.4)  # Å, along each axis, as in measure_holes.py
HOLE = 1.0  # eV
TIMES = {500.0: 10.0, 800.0: 10.0, 1500.0: 5.0}  # ps of dynamics at a temperature in K
PARTS = 50  # of a progress bar


@dataclass(frozen=True)
class Remedy:
    """A model and what is added to it."""

    model: str = "long"  # long, short, perturbed
    bounds: bool = False
    walls: bool = False
    term: str = ""  # repulsion, coordination
    kelvin: tuple[float, ...] = (1500.0,)  # of its dynamics


REMEDIES = {
    "none": Remedy(kelvin=tuple(TIMES)),
    "bounds and walls (the default)": Remedy(bounds=True, walls=True, kelvin=tuple(TIMES)),
    "walls": Remedy(walls=True),
    "bounds": Remedy(bounds=True),
    "repulsion": Remedy(term="repulsion"),
    "coordination": Remedy(term="coordination"),
    "perturbed frames": Remedy("perturbed"),
    "perturbed frames and bounds": Remedy("perturbed", bounds=True),
    "bounds and repulsion": Remedy(bounds=True, term="repulsion"),
    "bounds and coordination": Remedy(bounds=True, term="coordination"),
    "fewer epochs, none": Remedy("short", kelvin=(800.0, 1500.0)),
    "fewer epochs, bounds and walls": Remedy("short", bounds=True, walls=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for data, models and measurements")
    parser.add_argument("--minutes", type=float, help="no new measurement is begun after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small setting, to try the script")
    parser.add_argument("--table", action="store_true", help="write the tables of the result there is")
    given = parser.parse_args()
    target = ROOT / RESULT
    if not given.table:
        if given.out is None:
            parser.error("--out is needed")
        deadline = None if given.minutes is None else time.monotonic() + 60.0 * given.minutes
        settings = ExperimentSettings(quick=given.quick, out=given.out, seed=given.seed, deadline=deadline)
        result = measure(settings, QUICK if given.quick else Setting())
        target = given.out / "mixed-quick.json" if given.quick else target
        write_json(target, result)
    made = tables(json.loads(target.read_text(encoding="utf-8")))
    print(made) if given.quick else write_block(ROOT / PAGE, "mixed", made)


def measure(settings: ExperimentSettings, setting: Setting) -> dict[str, Any]:
    """All remedies; `pieces` that are there are not computed again."""
    pieces = Pieces(settings, "mixed")
    data = {name: sampled(settings, setting, name, "frames") for name in TRAINED}
    tests = {name: sampled(settings, setting, name, "tests") for name in (*TRAINED, *UNSEEN)}
    bench = Bench(settings, setting, pieces, concatenate(list(data.values())), tests)
    rows: dict[str, Any] = {}
    reference = bench.reference_holes()
    for label, remedy in REMEDIES.items():
        rows[label] = {"model": remedy.model, **bench.errors(label, remedy), **bench.holes(label, remedy)}
    for kelvin in TIMES:
        for label, remedy in REMEDIES.items():
            if kelvin in remedy.kelvin:
                runs = bench.dynamics(label, remedy, kelvin)
                rows[label].setdefault("dynamics", {})[f"{kelvin:g}"] = runs
    made = pieces.made.values()
    return {
        "setting": vars(setting),
        "trained": TRAINED,
        "unseen": UNSEEN,
        "reference": Method().theory,
        "stiffness_of_coordination": STIFFNESS,
        "data": {name: {"structures": len(d), "fingerprint": d.fingerprint()} for name, d in data.items()},
        "tests": {name: {"structures": len(d), "fingerprint": d.fingerprint()} for name, d in tests.items()},
        "models": bench.about_models(),
        "ps": {f"{kelvin:g}": setting.scale * ps for kelvin, ps in TIMES.items()},
        "reference_holes": reference,
        "reference_dynamics": {f"{max(TIMES):g}": bench.dynamics("reference", None, max(TIMES))},
        "remedies": rows,
        "config": DynamicsConfig().to_dict(),
        "seed": settings.seed,
        "seconds": round(sum(piece["seconds"] for piece in made), 1),
        **{name: sorted({str(piece[name]) for piece in made}) for name in ("commit", "hardware", "torch")},
    }


class Bench:
    """The data, the models, and what is measured on them."""

    def __init__(
        self,
        settings: ExperimentSettings,
        setting: Setting,
        pieces: Pieces,
        data: Dataset,
        tests: dict[str, Dataset],
    ) -> None:
        self.settings, self.setting, self.pieces, self.tests = settings, setting, pieces, tests
        self.data = data
        self.shortest, self.neighbours = shortest_distances(data), neighbour_ranges(data)
        self.models = {
            "long": self._train("long", data, setting.epochs),
            "short": self._train("short", data, setting.few),
            "perturbed": self._train(
                "perturbed", with_perturbed(settings, setting, pieces, data), setting.epochs
            ),
        }
        domain = self.models["long"].domain
        assert domain is not None
        self.domain = domain  # bonds to watch are the same for all models
        rng = np.random.default_rng(settings.seed)
        self.moved = {
            name: {
                f"{spread:g}": [
                    replace(f, positions=f.positions + spread * rng.normal(size=f.positions.shape))
                    for f in frames
                ]
                for spread in SPREADS
            }
            for name, frames in tests.items()
        }

    def about_models(self) -> dict[str, Any]:
        def about(model: Potential) -> dict[str, Any]:
            record = model.record
            sizes = {role: len(getattr(Split.from_dict(record["split"]), role)) for role in ("train",)}
            keys = ("epochs", "seconds", "validation")
            return {"fingerprint": fingerprint(model), **sizes, **{key: record[key] for key in keys}}

        return {name: about(model) for name, model in self.models.items()}

    def _train(self, name: str, data: Dataset, epochs: int) -> Potential:
        """One of 20 of the unperturbed frames validates."""
        order = np.random.default_rng(self.settings.seed).permutation(len(self.data))
        validation = order[: len(self.data) // 20]
        split = Split(np.setdiff1d(np.arange(len(data)), validation), validation, np.array([], dtype=int))
        given = {"epochs": epochs, "network": {"channels": 64}, "seed": self.settings.seed}
        folder = self.settings.work("mixed") / name
        print(f"training {name}", flush=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # labels of perturbed frames are far from the others
            there = (folder / CONFIG).is_file()
            return train(data, split, resolve(given), folder, resume=there).potential

    def reference_holes(self) -> dict[str, Any]:
        """Changes of the energy by GFN2-xTB, where it converges."""

        def compute() -> dict[str, Any]:
            found: dict[str, dict[str, list[float]]] = {}
            for name, frames in track(self.tests.items(), description="reference"):
                energy = Reference(Method(), frames[0])
                for spread, moved in self.moved[name].items():
                    for frame, structure in zip(frames, moved, strict=True):
                        try:
                            change = energy(structure.positions)[0] - (frame.energy or 0.0)
                        except NotConverged:
                            continue
                        found.setdefault(name, {}).setdefault(spread, []).append(change)
            return summary(found)

        found: dict[str, Any] = self.pieces.get("reference", self._inputs(), compute)
        return found

    def holes(self, label: str, remedy: Remedy) -> dict[str, Any]:
        """Changes of the energy, with what is added."""

        def compute() -> dict[str, Any]:
            model = self._model(remedy)
            found: dict[str, dict[str, list[float]]] = {}
            for name, frames in self.tests.items():
                first = collate(list(frames), model.dtype)
                before = model.evaluate(first, forces=False).energy
                for spread, moved in self.moved[name].items():
                    energy, _ = self._evaluate(model, remedy, list(frames), moved)
                    found.setdefault(name, {})[spread] = (energy - before).tolist()
            return summary(found)

        return {"holes": self.pieces.get(f"holes-{label}", self._inputs(remedy), compute)}

    def errors(self, label: str, remedy: Remedy) -> dict[str, Any]:
        """Mean absolute errors on the unseen frames, in eV and eV/Å, with what is added."""

        def compute() -> dict[str, Any]:
            model = self._model(remedy)
            found = {}
            for name, frames in self.tests.items():
                energy, forces = self._evaluate(model, remedy, list(frames), list(frames))
                true = np.array([f.energy for f in frames]), np.array([f.forces for f in frames])
                found[name] = {
                    "energy": float(np.abs(energy.numpy() - true[0]).mean()),
                    "forces": float(np.abs(forces.numpy() - true[1]).mean()),
                }
            return found

        return {"errors": self.pieces.get(f"errors-{label}", self._inputs(remedy), compute)}

    def dynamics(self, label: str, remedy: Remedy | None, kelvin: float) -> list[dict[str, Any]] | None:
        """Replicas side by side, one row each, without a remedy by GFN2-xTB; None if no time is left."""
        config = DynamicsConfig(temperature_K=kelvin)
        setting, ps = self.setting, self.setting.scale * TIMES[kelvin]
        shown = setting.replicas if remedy else setting.reference_replicas
        inputs = {**self._inputs(remedy), "config": config.to_dict(), "ps": ps, "replicas": setting.replicas}
        inputs |= {} if remedy else {"shown": shown, "domain": self.data.fingerprint()}
        name = f"dynamics-{label}-{kelvin:g}"
        known = self.pieces.find(name, inputs)
        if known is not None or self.settings.out_of_time:
            return known  # type: ignore[no-any-return]
        started = time.monotonic()
        rng = np.random.default_rng(self.settings.seed)
        starts: list[tuple[str, Structure, int]] = []  # molecule, frame, seed
        for molecule, frames in self.tests.items():
            drawn = rng.choice(len(frames), setting.replicas, replace=False)
            first = len(starts) // shown * setting.replicas
            starts += [(molecule, frames[int(i)], first + n) for n, i in enumerate(drawn[:shown])]
        walls = remedy is not None and remedy.walls
        replicas = [Replica.of(frame, seed, self.domain, walls=walls) for _, frame, seed in starts]
        forces = self._forces(remedy, [frame for _, frame, _ in starts])
        run = BatchedDynamics([Group(replicas, forces)], config, walls=self.domain.walls)
        if isinstance(forces, Added | ByReference):
            forces.alive = run.state.alive
        blocks = round(ps * 1000 / config.timestep_fs / config.interval)
        for part in track(range(PARTS), description=f"{label}, {kelvin:g} K"):
            if run.alive:
                run.advance(config.interval * (blocks * (part + 1) // PARTS - blocks * part // PARTS))
        rows = []
        for r, row in enumerate(run.outcome().rows()):
            share = row["wall_share"]
            if isinstance(forces, Added):
                steps = max(1000 * row["survived_ps"] / config.timestep_fs, 1.0)
                share = min(float(forces.acted[r]) / steps, 1.0)
            keys = ("survived_ps", "failure", "mean_temperature_K", "worst_bond_A")
            numbers = {key: row[key] for key in keys}
            rows.append({"molecule": starts[r][0], **numbers, "acted": share})
        plain = [{k: None if v != v else v for k, v in row.items()} for row in rows]  # nan
        made = provenance(self.settings, time.monotonic() - started)
        return self.pieces.put(name, inputs, plain, made)  # type: ignore[no-any-return]

    def _forces(self, remedy: Remedy | None, starts: list[Structure]) -> Forces:
        if remedy is None:
            return ByReference(starts)
        model = self._model(remedy)
        batch = collate(starts, model.dtype)
        forces = PotentialForces(model, batch)
        return Added(forces, self._term(remedy, batch.numbers), len(starts)) if remedy.term else forces

    def _inputs(self, remedy: Remedy | None = None) -> dict[str, Any]:
        tests = {name: d.fingerprint() for name, d in self.tests.items()}
        found: dict[str, Any] = {"tests": tests, "spreads": SPREADS, "hole": HOLE}
        if remedy is not None:
            found["model"] = fingerprint(self._model(remedy))
            found["walls"], found["term"] = remedy.walls, remedy.term
            found["constants"] = [STIFFNESS, STEEP, SCALE] if remedy.term else []
            found["data"] = self.data.fingerprint()
        return found

    def _model(self, remedy: Remedy) -> Potential:
        model = self.models[remedy.model]
        return model if remedy.bounds else model.without_bounds()

    def _term(self, remedy: Remedy, numbers: torch.Tensor) -> Term:
        if remedy.term == "repulsion":
            return Repulsion(numbers, self.shortest)
        return Coordination(numbers, self.neighbours)

    def _evaluate(
        self, model: Potential, remedy: Remedy, first: list[Structure], moved: list[Structure]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Energies and forces; walls are those of dynamics that begins with the `first` structures."""
        begin, batch = collate(first, model.dtype), collate(moved, model.dtype)
        limits = self.domain.limits(begin) if remedy.walls else None
        found = model.evaluate(batch, limits=limits)
        assert found.forces is not None
        energy, forces = found.energy, found.forces.double()
        if remedy.term:
            more, push = self._term(remedy, batch.numbers)(batch.positions)
            energy, forces = energy + more, forces + push
        return energy, forces


def summary(changes: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """By spread, for the molecules trained on and the unseen one: median, lowest, and how many in holes."""
    found: dict[str, Any] = {}
    for group, names in (("trained", TRAINED), ("unseen", UNSEEN)):
        found[group] = {}
        for spread in (f"{s:g}" for s in SPREADS):
            every = np.concatenate([changes[name][spread] for name in names])
            found[group][spread] = {
                "structures": len(every),
                "median": float(np.median(every)),
                "lowest": float(every.min()),
                "in_holes": int((every < -HOLE).sum()),
            }
    return found


if __name__ == "__main__":
    main()
