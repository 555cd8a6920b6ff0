"""Small data and settings for tests of training: molecules held together by springs."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from geomatt.data import Dataset, Structure
from geomatt.training import TrainConfig

TINY = {"features": 8, "overlap_features": 16, "layers": 2, "orders": (2, 3)}


def springs(numbers: list[int], frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions (Å), energies (eV) and forces (eV/Å) around a random rest shape."""
    rng = np.random.default_rng([seed, len(numbers)])
    atoms = len(numbers)
    rest = 1.3 * rng.normal(size=(atoms, 3))
    distance = np.linalg.norm(rest[:, None] - rest[None], axis=-1)
    positions = rest + 0.1 * rng.normal(size=(frames, atoms, 3))
    difference = positions[:, :, None] - positions[:, None]
    lengths = np.linalg.norm(difference, axis=-1) + np.eye(atoms)
    stretch = (lengths - distance) * (1 - np.eye(atoms))
    energies = (stretch**2).sum((1, 2)) / 2 - 100.0
    forces = -2 * (stretch / lengths)[..., None] * difference
    return positions, energies, forces.sum(2)


def molecule(frames: int = 40, numbers: tuple[int, ...] = (6, 1, 1, 8), seed: int = 0) -> Dataset:
    positions, energies, forces = springs(list(numbers), frames, seed)
    return Dataset.from_frames(np.array(numbers), positions, energies, forces, name="springs")


def mixture(frames: int = 20) -> Dataset:
    """Two molecules of different size, alternating."""
    parts = [molecule(frames, (6, 1, 1, 8)), molecule(frames, (8, 1))]
    structures: list[Structure] = [part[i] for i in range(frames) for part in parts]
    return Dataset.from_structures(structures, name="mixture")


def npz(path: Path, frames: int = 40, **changes: object) -> Path:
    """The molecule as an sGDML-style file in eV; `changes` replace fields, None drops one."""
    positions, energies, forces = springs([6, 1, 1, 8], frames)
    fields: dict[str, object] = {
        "R": positions, "E": energies, "F": forces, "z": np.array([6, 1, 1, 8]),
        "e_unit": "eV", "r_unit": "Ang",
    }  # fmt: skip
    fields.update(changes)
    np.savez(path, **{k: v for k, v in fields.items() if v is not None})  # type: ignore[arg-type]
    return path


def history(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's history."""
    return list(csv.DictReader((folder / "history.csv").read_text().splitlines()))


def tiny_config(**changes: object) -> TrainConfig:
    settings: dict[str, object] = {
        "model": "geomatt", **TINY, "train": 20, "val": 10, "test": 5, "epochs": 4, "batch": 8,
        "ema_decay": 0.9, "learning_rate": 3e-3, "warmup": 0,
    }  # fmt: skip
    return TrainConfig.from_dict({**settings, **changes})
