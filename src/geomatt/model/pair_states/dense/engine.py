"""The hand-written sweeps as an engine."""

from __future__ import annotations

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.interface import Engine, Evaluation, Network, Parameters
from geomatt.model.pair_states.ceiling import refuse_ceiling
from geomatt.model.pair_states.dense.envelope import EnvelopedKernels
from geomatt.model.pair_states.dense.kernels import TorchKernels
from geomatt.model.pair_states.dense.program import Program, prepare


class DenseEngine(Engine):
    """Plain torch, on any device and in any precision."""

    def __init__(self, network: Network) -> None:
        self.config = network.config
        self.names = [name for name, _ in network.named_parameters()]

    @torch.no_grad()
    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Parameters:
        return prepare(parameters)

    def compute(
        self, prepared: Parameters, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        if batch.cell is not None:
            raise GeomAttError(
                "The engine dense is for molecules: it knows no images of atoms in a cell. "
                "Set `engine` to auto or sparse."
            )
        if gradient:
            refuse_ceiling(prepared)
        program = self._program(prepared, batch, index, gradient)
        atomic = program.forward()
        found = program.adjoints() if forces or gradient else None
        return Evaluation(atomic.sum(-1), atomic, found, state=program if gradient else None)

    def backward(self, state: Program, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        state.tangents(by_forces)
        state.hats(by_energy)
        found = state.gradients()
        return torch.cat([found[name].flatten(1) for name in self.names], 1)

    def _program(self, p: Parameters, batch: Batch, index: Tensor | None, gradient: bool) -> Program:
        """The sweeps over a batch, or over the structures `index` (M, B) of it."""
        if index is not None:
            batch = batch.rows(index)
        kind = EnvelopedKernels if self.config.radius else TorchKernels
        kernels = kind(self.config, p, batch.numbers, batch.positions)
        return Program(self.config, p, kernels, batch.positions, gradient)
