"""Interventions: what changes in energy and forces when pairs of atoms are switched off.

A network with a switch (see `Network.atomic_energies`) is evaluated with and without the pairs; forces are
derivatives of the energy that is left. Pairs are switched off in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.analysis.coefficients import Model
from geomatt.data.batch import collate
from geomatt.data.structures import AtomsLike, Structure, as_structure
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential, Network, Potential, loaded
from geomatt.model.autograd import AutogradEngine

Layers = int | Sequence[int] | None
BATCH = 16  # switches evaluated at once


@dataclass(frozen=True)
class Intervention:
    """Changes caused by switching pairs off: values with the pairs off minus intact ones."""

    energy: float  # eV
    atomic_energies: np.ndarray  # (N,), eV
    forces: np.ndarray  # (N, 3), eV/Å


@dataclass(frozen=True)
class PairEffects:
    """Changes caused by switching off each pair alone; symmetric, zero diagonals."""

    energy: np.ndarray  # (N, N) absolute change, eV
    forces: np.ndarray  # (N, N) root mean square change over all components, eV/Å


@dataclass(frozen=True)
class Switched:
    """Predictions with different sets of pairs switched off, and intact. K sets."""

    intact_forces: np.ndarray  # (N, 3), eV/Å
    energy: np.ndarray  # (K,) change, eV
    atomic_energies: np.ndarray  # (K, N) change
    forces: np.ndarray  # (K, N, 3) change


def intervene(
    model: Model, atoms: Structure | AtomsLike, pairs: Iterable[Sequence[int]], layers: Layers = None
) -> Intervention:
    """The change of energy and forces when `pairs` of atoms are switched off together.

    `pairs` are pairs of atom indices in any order, such as [(0, 1), (4, 2)]. `layers` (counted from 0, as in
    attention records; None for all) are those the pairs are off in; a network may have one more of them
    than rounds, the first for what pairs bring in at the start. In cells all images of a pair are off. A
    committee gives the mean of its members.
    """
    potential, structure = loaded(model), as_structure(atoms)
    found = switched(potential, structure, _matrix(pairs, len(structure))[None], layers)
    return Intervention(float(found.energy[0]), found.atomic_energies[0], found.forces[0])


def pair_effects(
    model: Model, atoms: Structure | AtomsLike, layers: Layers = None, *, batch_size: int = BATCH
) -> PairEffects:
    """The change of energy and forces for each pair of atoms switched off alone."""
    potential, structure = loaded(model), as_structure(atoms)
    size = len(structure)
    i, j = np.triu_indices(size, 1)
    off = np.zeros((len(i), size, size), dtype=bool)
    off[np.arange(len(i)), i, j] = off[np.arange(len(i)), j, i] = True
    found = switched(potential, structure, off, layers, batch_size=batch_size)
    energy, forces = np.zeros((size, size)), np.zeros((size, size))
    energy[i, j] = energy[j, i] = np.abs(found.energy)
    forces[i, j] = forces[j, i] = root_mean_square(found.forces)
    return PairEffects(energy, forces)


def switched(
    potential: AnyPotential,
    structure: Structure,
    off: np.ndarray,
    layers: Layers = None,
    *,
    batch_size: int = BATCH,
) -> Switched:
    """Changes for each of K sets of pairs, `off` (K, N, N) symmetric and True where a pair is off."""
    potential.check(structure)
    members = [_of_member(member, structure, off, layers, batch_size) for member in potential.members]
    atomic, forces = (np.mean(values, axis=0) for values in zip(*members, strict=True))
    changed = atomic[1:] - atomic[0]
    return Switched(forces[0], changed.sum(-1), changed, forces[1:] - forces[0])


def root_mean_square(forces: np.ndarray) -> np.ndarray:
    """Over atoms and components of (..., N, 3)."""
    return np.sqrt(np.mean(forces**2, axis=(-2, -1)))


def _of_member(
    member: Potential, structure: Structure, off: np.ndarray, layers: Layers, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Atomic energies (1 + K, N) and forces (1 + K, N, 3), the first intact. Without energy offsets."""
    network = member.network
    chosen = _layers(network, layers)
    engine, weights = AutogradEngine(network), network.stacked()
    every = torch.from_numpy(np.concatenate([np.zeros_like(off[:1], shape=(1, *off.shape[1:])), off]))
    one = collate([structure], network.dtype, network.device)
    atomic, forces = [], []
    for part in every.to(network.device).split(batch_size):
        batch = one.apply(lambda x, count=len(part): x.expand(count, *x.shape[1:]))  # type: ignore[misc]
        found = engine.evaluate(weights, batch.as_member(), switch=_switch(network, part, chosen))
        assert found.forces is not None
        atomic.append(found.atomic[0].double())
        forces.append(found.forces[0].double())
    scale = float(member.normalisation.scale)
    return scale * torch.cat(atomic).cpu().numpy(), scale * torch.cat(forces).cpu().numpy()


def _switch(network: Network, off: Tensor, layers: Sequence[int]) -> Tensor:
    """(layers, B, N, N): zero for the pairs that are off, one for the others."""
    switch = torch.ones(network.switch_layers, *off.shape, dtype=network.dtype, device=off.device)
    switch[list(layers)] = (~off).to(switch)
    return switch


def _layers(network: Network, layers: Layers) -> list[int]:
    count = network.switch_layers
    if not count:
        raise GeomAttError(
            f"The network {network.kind!r} has no switch on pairs, so none can be switched off. Give its "
            "`atomic_energies` a `switch`, and it `switch_layers`."
        )
    if layers is None:
        return list(range(count))
    chosen = list(layers) if isinstance(layers, Iterable) else [layers]
    known = range(count)
    if not chosen or any(not isinstance(layer, int | np.integer) or layer not in known for layer in chosen):
        raise GeomAttError(f"`layers` must be among 0 to {count - 1}, not {chosen}.")
    return [int(layer) for layer in chosen]


def _matrix(pairs: Iterable[Sequence[int]], atoms: int) -> np.ndarray:
    """True (N, N) for the pairs, in both directions."""
    listed: list[Any] = list(pairs) if isinstance(pairs, Iterable) else [pairs]
    if not listed:
        return np.zeros((atoms, atoms), dtype=bool)
    index = np.array(
        [tuple(pair) if isinstance(pair, Iterable) else (pair,) for pair in listed], dtype=object
    )
    if index.shape != (len(listed), 2) or not all(isinstance(n, int | np.integer) for n in index.flat):
        raise GeomAttError("`pairs` must be pairs of atom indices, such as [(0, 1), (2, 5)].")
    i, j = index.astype(int).T
    if min(i.min(), j.min()) < 0 or max(i.max(), j.max()) >= atoms or (i == j).any():
        raise GeomAttError(f"`pairs` must name two different atoms out of 0 to {atoms - 1} each.")
    matrix = np.zeros((atoms, atoms), dtype=bool)
    matrix[i, j] = matrix[j, i] = True
    return matrix
