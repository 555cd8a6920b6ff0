"""The hand-written sweeps as an engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine, Evaluation, Network, Parameters
from geomatt.model.pair_states.dense.envelope import EnvelopedKernels
from geomatt.model.pair_states.dense.kernels import TorchKernels
from geomatt.model.pair_states.dense.program import Program, prepare


@dataclass
class DenseEvaluation(Evaluation):
    """An evaluation with the sweeps that a gradient continues."""

    program: Program | None = None


class DenseEngine(Engine):
    """Plain torch, on any device and in any precision."""

    def __init__(self, network: Network) -> None:
        self.config = network.config
        self.names = [name for name, _ in network.named_parameters()]

    @torch.no_grad()
    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Parameters:
        return prepare(parameters)

    @torch.no_grad()
    def evaluate(
        self,
        prepared: Parameters,
        batch: Batch,
        *,
        index: Tensor | None = None,
        forces: bool = True,
        gradient: bool = False,
    ) -> DenseEvaluation:
        program = self._program(prepared, batch, index, gradient)
        atomic = program.forward()
        found = program.adjoints() if forces or gradient else None
        energy = atomic.sum(-1)
        if gradient:
            return DenseEvaluation(energy, None, found, program=program)
        return DenseEvaluation(energy, atomic, found)

    @torch.no_grad()
    def gradient(
        self,
        evaluation: DenseEvaluation,
        by_energy: Tensor,
        by_forces: Tensor | None,
        by_stress: Tensor | None = None,
    ) -> Tensor:
        program = evaluation.program
        assert program is not None
        assert evaluation.forces is not None
        if by_forces is None:
            by_forces = torch.zeros_like(evaluation.forces)
        program.tangents(by_forces)
        program.hats(by_energy)
        found = program.gradients()
        return torch.cat([found[name].flatten(1) for name in self.names], 1)

    def _program(self, p: Parameters, batch: Batch, index: Tensor | None, gradient: bool) -> Program:
        """The sweeps over a batch, or over the structures `index` (M, B) of it."""
        if index is not None:
            batch = batch.rows(index)
        kind = EnvelopedKernels if self.config.radius else TorchKernels
        kernels = kind(self.config, p, batch.numbers, batch.positions)
        return Program(self.config, p, kernels, batch.positions, gradient)
