"""Velocities to start from, and the degrees of freedom a temperature is counted over."""

from __future__ import annotations

import numpy as np
import torch

from geomatt.units import BOLTZMANN


def rigid_motions(masses: np.ndarray, positions: np.ndarray, rotations: bool) -> np.ndarray:
    """Orthonormal translations, and optionally rotations, in √m-weighted coordinates (3N, rank).

    A straight molecule has two rotations, an atom none.
    """
    root = np.sqrt(masses)[:, None]
    axes = np.eye(3)
    motions = [root * axis for axis in axes]
    if rotations:
        arms = positions - (masses[:, None] * positions).sum(0) / masses.sum()
        motions += [root * np.cross(axis, arms) for axis in axes]
    basis, size, _ = np.linalg.svd(np.stack([m.reshape(-1) for m in motions], 1), full_matrices=False)
    return basis[:, size > 1e-6 * size.max()]


def maxwell_boltzmann(
    masses: np.ndarray, positions: np.ndarray, temperature_K: float, seed: int, *, held: np.ndarray
) -> np.ndarray:
    """Maxwell–Boltzmann velocities (N, 3) in Å per Å √(u/eV), without the motions `held`.

    The same seed gives the same velocities on every device and in every batch.
    """
    generator = torch.Generator().manual_seed(seed)
    weighted = torch.randn(positions.size, generator=generator, dtype=torch.float64).numpy()
    weighted -= held @ (held.T @ weighted)
    return np.sqrt(BOLTZMANN * temperature_K) * weighted.reshape(-1, 3) / np.sqrt(masses)[:, None]


def aligned(positions: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Positions (N, 3) turned and moved onto reference positions (Kabsch)."""
    middle, target = positions.mean(0), reference.mean(0)
    left, _, right = np.linalg.svd((positions - middle).T @ (reference - target))
    flip = np.diag([1.0, 1.0, np.sign(np.linalg.det(left @ right))])
    return (positions - middle) @ left @ flip @ right + target
