"""α^(2) of a trained model as a function of the distance, inside and beyond its grid of distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geomatt.data import Batch, Structure
from geomatt.model import Potential, load
from geomatt.reproduce.pair_scores import alpha_of_distance

MODEL = "md17/aspirin"
FARTHEST = 12.0  # Å
STEP = 0.02  # Å


def range_curves(name: str = MODEL) -> dict[str, Any]:
    """α^(2)(d) of each layer of a shipped model up to 12 Å, and where it stops changing."""
    potential = load(name).members[0]
    network = potential.network.double()
    d = np.arange(0.0, FARTHEST + STEP / 2, STEP)
    alpha = alpha_of_distance(network, d)
    d_max = float(network.config.to_dict()["d_max"])
    layers = [_layer(d, values, d_max) for values in alpha]
    constant = max(layer["constant_from"] for layer in layers)
    pairs = _mean_distances(potential)
    return {
        "model": name,
        "d_max": d_max,
        "distance": d.round(3),
        "alpha": alpha.round(9),
        "layers": layers,
        "constant_from": constant,
        "pairs": len(pairs),
        "pairs_beyond": int((pairs > constant).sum()),
        "pairs_beyond_d_max": int((pairs > d_max).sum()),
    }


def two_molecules(structure: Structure, name: str, apart: tuple[float, float]) -> dict[str, Any]:
    """Two copies of a molecule at two distances beyond the grid: their energies, and the forces between them.

    Energies are the network's own, in units of the standard deviation of its training energies.
    """
    network = load(name).members[0].network.double()
    single = structure.positions - structure.positions.mean(0)
    found = {}
    for distance in apart:
        pair = np.concatenate([single, single + np.array([distance, 0.0, 0.0])])
        positions = torch.from_numpy(pair)[None].requires_grad_()
        numbers = torch.from_numpy(np.tile(structure.numbers, 2))[None]
        energy = network.atomic_energies(Batch(numbers, positions)).sum()
        (slope,) = torch.autograd.grad(energy, positions)
        found[distance] = (float(energy.detach()), slope[0, : len(single)].sum(0).abs().max().item())
    with torch.no_grad():
        numbers = torch.from_numpy(structure.numbers)[None]
        alone = float(network.atomic_energies(Batch(numbers, torch.from_numpy(single)[None])).sum())
    near, far = (found[distance] for distance in apart)
    return {
        "model": name,
        "apart": apart,
        "energy_change": abs(far[0] - near[0]),
        "net_force": max(near[1], far[1]),
        "beyond_additive": near[0] - 2.0 * alone,
    }


def _mean_distances(potential: Potential) -> np.ndarray:
    """The mean distance of every pair of atoms in the training frames."""
    assert potential.domain is not None
    ranges = potential.domain.to_dict()["ranges"]
    return np.array(ranges["mean"])[np.array(ranges["classes"])]


def _layer(d: np.ndarray, alpha: np.ndarray, d_max: float) -> dict[str, float]:
    """Numbers of one curve; the largest value is that at distances between two atoms, 0.8 Å or more."""
    far, largest = float(alpha[-1]), float(np.abs(alpha[d >= 0.8]).max())
    changes = np.flatnonzero(np.abs(alpha - far) > 1e-6 * largest)
    return {
        "largest": largest,
        "far": far,
        "at_d_max": float(np.interp(d_max, d, alpha)),
        "constant_from": float(d[min(changes[-1] + 1, len(d) - 1)]),
    }
