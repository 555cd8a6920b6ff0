"""Energies, forces, stress and attention of a network, by whichever path is quickest for the structures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.dense import DenseProgram
from geomatt.model.geometric_attention import GeometricAttention
from geomatt.model.sparse import sparse_energy_and_forces

Path = Literal["auto", "dense", "sparse"]

# Atoms from which neighbour lists beat all pairs; both give the same numbers.
DENSE_ATOMS = 128


@dataclass(frozen=True)
class Inferred:
    """What a network says of a batch, in its normalised units and Å."""

    atomic: Tensor  # (B, N) atomic energies
    forces: Tensor | None  # (B, N, 3)
    stress: Tensor | None  # (B, 3, 3), nan where a structure has no volume; None without cells
    attention: list[list[Tensor]] | None  # [stream][layer] (B, N, N)


@torch.no_grad()
def infer(
    network: GeometricAttention, batch: Batch, *, forces: bool, attention: bool, path: Path = "auto"
) -> Inferred:
    """Evaluate a batch. `path` forces all pairs ("dense") or neighbour lists ("sparse")."""
    large = batch.numbers.shape[1] > DENSE_ATOMS
    if path == "dense" and batch.cell is not None:
        raise GeomAttError("Periodic structures need the sparse path.")
    if batch.cell is not None and attention:
        raise GeomAttError("Attention matrices of periodic structures are not supported. Set pbc to False.")
    if batch.cell is None and (path == "dense" or attention or (path == "auto" and not large)):
        return _dense(network, batch, forces, attention)
    return _sparse(network, batch)


def _dense(network: GeometricAttention, batch: Batch, forces: bool, attention: bool) -> Inferred:
    program = DenseProgram(network.config)
    parameters = {name: value[None] for name, value in network.state_dict().items()}
    forward = program.forward(parameters, batch.numbers[None], batch.positions[None], slopes=forces)
    return Inferred(
        forward.atomic[0],
        program.forces(forward, program.adjoints(forward))[0] if forces else None,
        None,
        program.attention(forward) if attention else None,
    )


def _sparse(network: GeometricAttention, batch: Batch) -> Inferred:
    """One structure after the other, each without its padding."""
    atomic = torch.zeros_like(batch.positions[..., 0])
    forces = torch.zeros_like(batch.positions)
    stress = None if batch.cell is None else torch.full_like(batch.cell, torch.nan)
    for b, count in enumerate(batch.atoms.tolist()):
        cell = None if batch.cell is None else batch.cell[b]
        pbc = [False] * 3 if cell is None else (cell != 0).any(-1).tolist()
        result = sparse_energy_and_forces(
            network,
            batch.numbers[b, :count],
            batch.positions[b, :count],
            cell if any(pbc) else None,
            pbc,
            stress=all(pbc),
        )
        atomic[b, :count], forces[b, :count] = result.atomic_energies, result.forces
        if stress is not None and result.stress is not None:
            stress[b] = result.stress
    return Inferred(atomic, forces, stress, None)
