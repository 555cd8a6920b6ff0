"""The data of `measure_mixed.py`: molecules, frames of dynamics with GFN2-xTB, and perturbed ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geomatt.data import Dataset, read
from geomatt.data.make import Method, SampleConfig, read_molecule, sample
from geomatt.data.make.method import NotConverged, Reference
from geomatt.reproduce import ExperimentSettings
from geomatt.reproduce.frame import Pieces

TRAINED = {"ethanol": "CCO", "acetaldehyde": "CC=O", "acetic acid": "CC(=O)O", "acetamide": "CC(N)=O",
           "methylamine": "CN"}  # fmt: skip
UNSEEN = {"glycolaldehyde": "OCC=O"}
PERTURBED = (0.05, 0.3)  # Å: range of the displacements of perturbed training frames


@dataclass(frozen=True)
class Setting:
    """How much is measured."""

    frames: int = 300  # of each molecule, to train and validate on
    tests: int = 100  # of each molecule, from trajectories of their own
    perturbed: int = 60  # of each molecule, for the model that learns from them
    epochs: int = 100
    few: int = 25  # epochs of the less accurate model
    scale: float = 1.0  # of the times of dynamics
    replicas: int = 5  # of each molecule
    reference_replicas: int = 2  # with GFN2-xTB: the first of them
    equilibrate: float = 500.0  # fs


QUICK = Setting(
    frames=40,
    tests=5,
    perturbed=5,
    epochs=2,
    few=1,
    scale=0.002,
    replicas=2,
    reference_replicas=1,
    equilibrate=20.0,
)


def sampled(settings: ExperimentSettings, setting: Setting, name: str, role: str) -> Dataset:
    """Frames of a molecule; those of tests are from trajectories of their own."""
    config = SampleConfig(
        frames=getattr(setting, role),
        walkers=4 if role == "frames" else 2,
        stride=20 if role == "frames" else 40,
        equilibrate=setting.equilibrate,
        seed=settings.seed + (0 if role == "frames" else 1000),
    )
    made_with = hashlib.sha256(repr(config).encode()).hexdigest()[:10]
    path = settings.work("mixed") / f"{name.replace(' ', '_')}-{role}-{made_with}.npz"
    if not path.is_file():
        molecule = read_molecule({**TRAINED, **UNSEEN}[name])
        print(f"sampling {name}, {role}", flush=True)
        sample(molecule, config, path, name=name)
    return read(path)


def with_perturbed(settings: ExperimentSettings, setting: Setting, pieces: Pieces, data: Dataset) -> Dataset:
    """The training frames, then some of them with all atoms displaced, labelled anew."""
    count = setting.perturbed

    def label() -> list[list[Any]]:
        rng, found = np.random.default_rng(settings.seed + 1), []
        per_molecule = setting.frames
        for first in range(0, len(data), per_molecule):
            energy = Reference(Method(), data[first])
            for i in first + rng.choice(per_molecule, count, replace=False):
                frame = data[int(i)]
                moved = frame.positions + rng.uniform(*PERTURBED) * rng.normal(size=(len(frame), 3))
                try:
                    found.append([int(i), moved, *energy(moved)])
                except NotConverged:
                    continue
        return found

    inputs = {"data": data.fingerprint(), "count": count, "spread": PERTURBED}
    rows = pieces.get("perturbed", inputs, label)
    moved = [
        replace(data[i], positions=np.array(r), energy=energy, forces=np.array(f)) for i, r, energy, f in rows
    ]
    return Dataset.from_structures([*data, *moved], name="mixture and perturbed frames")
