"""Simulations of the experiment stability: their pieces, and how they are run together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from geomatt.data import Dataset, collate
from geomatt.locks import LockedError, file_lock
from geomatt.model import Network, Potential
from geomatt.reproduce.frame import ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.inputs import model_inputs, unseen_frames
from geomatt.simulation import (
    BatchedDynamics,
    DynamicsConfig,
    Group,
    Replica,
    engine_forces,
    frame_histogram,
    read_extra,
)

SEEDS = 5
SHIPPED = ("pair", "pair-s", "fast", "paper")  # models, as in md17/aspirin:fast
KINDS = (*SHIPPED, "schnet")  # the last: those that table 1 has trained
# Walls where the data end; "bounded": with bounds of the network as well (`geomatt.model.bounds`). Models
# ship with both, those of networks without bounds with walls.
WALLS = {"bounded": True, "walls": True, "free": False}
BOUNDED = "bounded"
SO_FAR = "-so-far"  # ends the names of pieces of simulations that are not at their end
PART = 1000  # steps between looks at the time
KEEP = 30.0  # seconds between states that are kept
TOGETHER = 2  # molecules in a call


def variants(models: Mapping[str, Potential]) -> list[tuple[dict[str, Potential], list[str]]]:
    """Models as they ship and without bounds, each with the conditions under which they are simulated."""
    bounded = {m: model for m, model in models.items() if model.bounded}
    free = {m: model.without_bounds() for m, model in models.items()}
    others = (free, [walls for walls in WALLS if walls != BOUNDED])
    return [(bounded, [BOUNDED]), others] if bounded else [others]


def used_name(kind: str, condition: str) -> str:
    """Of the models of a kind, in the result."""
    return f"{kind}-{BOUNDED}" if condition == BOUNDED else kind


def piece_inputs(model: Potential, data: Dataset, ensemble: str, ps: float) -> dict[str, Any]:
    """Everything that simulations of a molecule depend on."""
    return {
        **model_inputs(model),
        "data": data.fingerprint(),
        "config": stability_config(ensemble).to_dict(),
        "ps": ps,
        "seeds": SEEDS,
    }


def put_rows(
    pieces: Pieces, name: str, inputs: Mapping[str, Any], rows: Any, done: float, made: dict[str, Any]
) -> None:
    """Keep the rows of simulations that have come to `done` ps; of those not at their end the longest."""
    if done >= inputs["ps"]:
        pieces.put(name, inputs, rows, made)
    elif done > (pieces.find(name + SO_FAR, inputs) or {"ps": 0.0})["ps"]:
        pieces.put(name + SO_FAR, inputs, {"ps": done, "rows": rows}, made)


def stability_config(ensemble: str) -> DynamicsConfig:
    if ensemble == "nve":
        return DynamicsConfig(ensemble="nve", temperature_K=300.0)
    return DynamicsConfig(ensemble="nose-hoover", temperature_K=500.0)


@dataclass(frozen=True)
class Simulations:
    """Simulations of the models of one kind in one ensemble; each molecule and condition is a piece."""

    settings: ExperimentSettings
    pieces: Pieces
    kind: str
    models: Mapping[str, Potential]
    data: Mapping[str, Dataset]
    ensemble: str
    ps: float

    def finished(self, walls: str, molecule: str) -> bool:
        return molecule in self.models and self._find(walls, molecule) is not None

    def rows(self, walls: str) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """Of all replicas that there are, and how far molecules have come that are not at their end."""
        rows: list[dict[str, Any]] = []
        reached: dict[str, float] = {}
        for molecule in self.models:
            found = self._find(walls, molecule)
            if found is None and (earlier := self._find(walls, molecule, SO_FAR)):
                found, reached[molecule] = earlier["rows"], earlier["ps"]
            rows += found or []
        return rows, reached

    def together(self, wanted: Sequence[tuple[str, str]]) -> list[tuple[list[str], list[str]]]:
        """Which conditions and molecules to run as one simulation.

        A simulation is continued as it was begun, with all that it began with. On a GPU the rest are run
        together, on a CPU molecule by molecule: it gains nothing by more at once, and finished ones are kept.
        """
        found, left = [], list(wanted)
        for path in sorted(
            self._checkpoint([], []).parent.glob(f"{self.kind}-{self.ensemble}+*.safetensors")
        ):
            walls, molecules = (part.split("-") for part in path.stem.split("+")[1:])
            if not self._begun(path, molecules):
                continue
            if set(units := list(itertools.product(walls, molecules))) & set(left):
                found.append((walls, molecules))
                left = [unit for unit in left if unit not in units]
        alike: dict[tuple[str, ...], list[str]] = {}
        for molecule in dict.fromkeys(molecule for _, molecule in left):
            alike.setdefault(tuple(walls for walls, m in left if m == molecule), []).append(molecule)
        for conditions, molecules in alike.items():
            alone = [[molecule] for molecule in molecules] if self.settings.device == "cpu" else [molecules]
            found += [(list(conditions), own) for own in alone]
        return found

    def simulate(self, walls: Sequence[str], molecules: Sequence[str], progress: ProgressBar) -> None:
        """All seeds of molecules under conditions, as one simulation.

        Its state is kept now and then: a deadline or Ctrl-C ends it, and the next call continues it. What
        another process is simulating is left to it.
        """
        checkpoint = self._checkpoint(walls, molecules)
        with suppress(LockedError), file_lock(checkpoint.with_suffix(".lock")):
            if all(self.finished(*unit) for unit in itertools.product(walls, molecules)):
                return  # by another process, meanwhile
            self._simulate(walls, molecules, checkpoint, progress)

    def _simulate(
        self, walls: Sequence[str], molecules: Sequence[str], checkpoint: Path, progress: ProgressBar
    ) -> None:
        settings, begun = self.settings, self._begun(checkpoint, molecules)
        if settings.out_of_time and not begun:
            return
        started, made = time.monotonic(), provenance(settings, 0.0)
        inputs = self._all_inputs(molecules)
        config = stability_config(self.ensemble)
        models = {molecule: self.models[molecule] for molecule in molecules}
        dynamics = BatchedDynamics(
            simulated_groups(models, self.data, settings, walls), config, device=settings.device
        )
        steps = round(self.ps * 1000 / config.timestep_fs / config.interval) * config.interval
        if begun:
            dynamics.restore(checkpoint)
            earlier = begun["made"]
            made = earlier if settings.out_of_time else {**made, "seconds": earlier["seconds"]}
        before, kept = made["seconds"], started
        label = molecules[0] if len(molecules) == 1 else f"{len(molecules)} molecules"
        with progress(f"dynamics, {self.kind}-{self.ensemble}, {label}", steps) as advance:
            advance(dynamics.steps)
            while dynamics.steps < steps and not settings.out_of_time:
                part = min(PART, steps - dynamics.steps)
                dynamics.advance(part)
                advance(part)
                now = time.monotonic()
                made["seconds"] = round(before + now - started, 3)
                if now - kept >= KEEP or dynamics.steps == steps or settings.out_of_time:
                    dynamics.save(checkpoint, {"made": made, "inputs": inputs})
                    kept = now
        if dynamics.steps:
            self._keep(dynamics, walls, molecules, made)
        if dynamics.steps >= steps:
            checkpoint.unlink()

    def _begun(self, checkpoint: Path, molecules: Sequence[str]) -> dict[str, Any]:
        """What the file of a simulation of these models, data and seed says; empty for any other, or none."""
        if not set(molecules) <= set(self.models) or not checkpoint.is_file():
            return {}
        extra = read_extra(checkpoint)
        same = isinstance(extra, dict) and extra.get("inputs") == self._all_inputs(molecules)
        return extra if same else {}

    def _keep(
        self, dynamics: BatchedDynamics, walls: Sequence[str], molecules: Sequence[str], made: dict[str, Any]
    ) -> None:
        """Rows of all replicas as pieces; each has its share of the time."""
        outcome, done = dynamics.outcome(), dynamics.steps * dynamics.config.timestep_fs / 1000
        share = {**made, "seconds": round(made["seconds"] / (len(walls) * len(molecules)), 3)}
        references = {
            m: frame_histogram(self.data[m].positions.reshape(len(self.data[m]), -1, 3)) for m in molecules
        }
        rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for r, row in enumerate(outcome.rows()):
            condition, _, molecule = row["name"].partition(" ")
            row["name"] = molecule
            row["histogram_error"] = float(outcome.histogram_error(references[molecule])[r])
            own = {key: _finite(value) for key, value in row.items()}
            rows.setdefault((condition, molecule), []).append(own)
        for (condition, molecule), own_rows in rows.items():
            inputs = self._inputs(molecule)
            put_rows(self.pieces, self._name(condition, molecule), inputs, own_rows, done, share)

    def _find(self, walls: str, molecule: str, suffix: str = "") -> Any:
        return self.pieces.find(self._name(walls, molecule) + suffix, self._inputs(molecule))

    def _name(self, walls: str, molecule: str) -> str:
        return f"{self.kind}-{walls}-{self.ensemble}-{molecule}"

    def _inputs(self, molecule: str) -> dict[str, Any]:
        return piece_inputs(self.models[molecule], self.data[molecule], self.ensemble, self.ps)

    def _all_inputs(self, molecules: Sequence[str]) -> dict[str, Any]:
        return {"seed": self.settings.seed, **{m: self._inputs(m) for m in molecules}}

    def _checkpoint(self, walls: Sequence[str], molecules: Sequence[str]) -> Path:
        name = f"{self.kind}-{self.ensemble}+{'-'.join(walls)}+{'-'.join(molecules)}.safetensors"
        return self.settings.work("stability") / name


def simulated_groups(
    models: Mapping[str, Potential],
    data: Mapping[str, Dataset],
    settings: ExperimentSettings,
    wanted: Sequence[str],
) -> list[Group]:
    """Replicas of all molecules. Models of equal settings are evaluated by one call for two molecules each.

    Next to each other in size, as the smaller one is padded to the larger: with all in one call padding would
    be half of the work. Calls run at the same time (`BatchedDynamics`).
    """
    elements = sorted({z for model in models.values() for z in model.network.config.elements})
    networks = {m: model.network.with_elements(elements) for m, model in models.items()}
    alike: dict[Any, list[str]] = {}
    for molecule, model in models.items():
        alike.setdefault((networks[molecule].config, model.bounded), []).append(molecule)
    groups = []
    for members in alike.values():
        members.sort(key=lambda m: data[m].sizes.max())
        size = TOGETHER if networks[members[0]].vectorises else 1
        for part in (members[k : k + size] for k in range(0, len(members), size)):
            groups.append(_group({m: models[m] for m in part}, networks, data, settings, wanted))
    return groups


def _group(
    models: Mapping[str, Potential],
    networks: Mapping[str, Network],
    data: Mapping[str, Dataset],
    settings: ExperimentSettings,
    wanted: Sequence[str],
) -> Group:
    """Five replicas of each molecule, with and without walls, from frames that its model has not seen."""
    replicas, numbers, offsets = [], [], []
    for molecule, model in models.items():
        starts = unseen_frames(model, data[molecule], SEEDS, settings.seed)
        for walls in wanted:
            for seed, start in enumerate(starts):
                name = f"{walls} {molecule}"
                replicas.append(Replica.of(start, seed, model.domain, walls=WALLS[walls], name=name))
        batch = collate(starts * len(wanted), model.dtype, settings.device)
        numbers.append(batch.numbers)
        offsets.append(model.normalisation.offset(batch.numbers).sum(-1))
    size = max(z.shape[-1] for z in numbers)
    padded = torch.stack([functional.pad(z, (0, size - z.shape[-1])) for z in numbers])  # (M, B, N)
    members = [networks[molecule].to(settings.device) for molecule in models]
    engine = members[0].engine()
    every = [network.tensors() for network in members]
    prepared = engine.prepare({n: torch.stack([own[n] for own in every]) for n in every[0]}, keep=True)
    scale = torch.tensor([model.normalisation.scale for model in models.values()], dtype=torch.float64)
    dtype = next(iter(models.values())).dtype
    return Group(
        replicas,
        engine_forces(engine, prepared, padded, dtype, torch.stack(offsets), scale.to(settings.device)),
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
