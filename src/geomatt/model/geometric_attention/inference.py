"""Energies, forces, stress and attention of a network, by whichever path is quickest for the structures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.cpu.program import NativeProgram, NativeWeights
from geomatt.model.geometric_attention.dense.program import DenseProgram, Parameters, Prepared
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.geometric_attention.sparse.program import sparse_atomic_energies, sparse_energy_and_forces

Path = Literal["auto", "dense", "sparse"]

# Atoms from which neighbour lists beat all pairs; both give the same numbers.
DENSE_ATOMS = {"cpu": 80, "cuda": 400}


@dataclass(frozen=True)
class Inferred:
    """What a network says of a batch, in its normalised units and Å."""

    atomic: Tensor  # (B, N) atomic energies
    forces: Tensor | None  # (B, N, 3)
    stress: Tensor | None  # (B, 3, 3), nan where a structure has no volume; None without cells
    attention: list[list[Tensor]] | None  # [stream][layer] (B, N, N)


class Evaluator:
    """Evaluates a network whose weights stay as they are: what they alone decide is worked out once."""

    def __init__(self, network: GeometricAttention, table: bool = True) -> None:
        """`table`: tabulate the overlap functions where that can pay; it costs a few evaluations."""
        self.network, self.table = network, table
        self.program = DenseProgram(network.config)
        self.native = NativeProgram(self.program)
        self._parameters: Parameters | None = None
        self._prepared: Prepared | None = None
        self._weights: NativeWeights | None = None

    @torch.no_grad()
    def __call__(self, batch: Batch, *, forces: bool, attention: bool, path: Path = "auto") -> Inferred:
        """Evaluate a batch. `path` forces all pairs ("dense") or neighbour lists ("sparse")."""
        large = batch.numbers.shape[1] > DENSE_ATOMS.get(batch.numbers.device.type, 80)
        if path == "dense" and batch.cell is not None:
            raise GeomAttError("Periodic structures need the sparse path.")
        if batch.cell is not None and attention:
            raise GeomAttError("There are no attention matrices of periodic structures. Set pbc to False.")
        if batch.cell is None and (path == "dense" or attention or (path == "auto" and not large)):
            return self._dense(batch, forces, attention)
        return _sparse(self.network, batch, forces)

    def _dense(self, batch: Batch, forces: bool, attention: bool) -> Inferred:
        program, mu = self.program, self.network.mu
        if self._parameters is None:
            self._parameters = {name: value[None] for name, value in self.network.state_dict().items()}
        # Nodes err by less than float32's resolution; who asks for float64 wants all of its digits.
        keep = self.table and mu.device.type == "cpu" and mu.dtype == torch.float32
        if self.native.serves(self._parameters, batch.positions, keep):
            self._weights = self._weights or self.native.weights(self._parameters, keep)
            work = self.native.batch(self._weights, batch.numbers, batch.positions)
            atomic = work.energies()
            alpha = program.attention(work.alpha()) if attention else None
            return Inferred(atomic, work.forces() if forces else None, None, alpha)
        self._prepared = self._prepared or program.prepare(self._parameters, keep)
        forward = program.forward(self._prepared, batch.numbers[None], batch.positions[None])
        return Inferred(
            forward.atomic[0],
            program.forces(forward, program.adjoints(forward))[0] if forces else None,
            None,
            program.attention(forward.alpha) if attention else None,
        )


def _sparse(network: GeometricAttention, batch: Batch, with_forces: bool) -> Inferred:
    """One structure after the other, each without its padding."""
    atomic = torch.zeros_like(batch.positions[..., 0])
    forces = torch.zeros_like(batch.positions)
    stress = None if batch.cell is None else torch.full_like(batch.cell, torch.nan)
    for b, count in enumerate(batch.atoms.tolist()):
        cell = None if batch.cell is None else batch.cell[b]
        pbc = [False] * 3 if cell is None else (cell != 0).any(-1).tolist()
        if not with_forces and not any(pbc):
            atomic[b, :count] = sparse_atomic_energies(
                network, batch.numbers[b, :count], batch.positions[b, :count]
            )
            continue
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
    return Inferred(atomic, forces if with_forces else None, stress, None)
