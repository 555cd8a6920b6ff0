"""The engine for a GPU: one `FusedProgram` per shape of batch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.gpu.layout import Call, Layout, flat
from geomatt.model.interface import Engine, Evaluation, Parameters

if TYPE_CHECKING:
    from geomatt.model.geometric_attention.gpu.program import FusedProgram

KEPT = 4  # programs whose buffers are kept: batches of training and of validation, and the last of an epoch


@dataclass
class FusedWeights:
    """Weights of M networks side by side in one matrix, as they are in training already."""

    parameters: Parameters
    # Programs of their own for weights that are kept: what depends on the weights alone stays in them.
    programs: dict[tuple[int, int, int], FusedProgram] | None


class FusedEngine(Engine):
    """Triton kernels for float32 networks on a GPU."""

    gathers = True

    def __init__(self, config: GeometricAttentionConfig) -> None:
        self.config = config
        self._programs: dict[tuple[int, int, int], FusedProgram] = {}

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.config)

    def serves(self, parameters: Parameters, batch: Batch) -> bool:
        """True if there are kernels for this network, precision and device."""
        on_gpu = batch.positions.is_cuda and batch.positions.dtype == parameters["mu"].dtype == torch.float32
        if not on_gpu or batch.cell is not None or not importlib.util.find_spec("triton"):
            return False
        from geomatt.model.geometric_attention.gpu.program import FusedProgram

        return FusedProgram.supports(self.config, batch.numbers.shape[-1])

    @torch.no_grad()
    def prepare(self, parameters: Parameters, *, keep: bool = False) -> FusedWeights:
        together = self.layout.views(flat(parameters, self.layout))
        return FusedWeights({**parameters, **together}, {} if keep else None)

    def compute(
        self, prepared: FusedWeights, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        members, atoms = len(batch.numbers), batch.numbers.shape[-1]
        count = len(batch) if index is None else index.shape[1]
        program, known = self._program(prepared, (members, count, atoms), batch.positions.device)
        call = program.call(prepared.parameters, batch.numbers, batch.positions, index)
        program.values(call, forces=forces, keep=gradient, known=known)
        found = program.forces if forces else None
        return Evaluation(program.energy, program.atomic, found, state=(program, call))

    def backward(self, state: tuple[FusedProgram, Call], by_energy: Tensor, by_forces: Tensor) -> Tensor:
        program, call = state
        return program.gradient(call, by_energy, by_forces)

    def _program(
        self, weights: FusedWeights, shape: tuple[int, int, int], device: torch.device
    ) -> tuple[FusedProgram, bool]:
        """The program for a shape of batch; True if it has seen these weights, which are kept, before."""
        from geomatt.model.geometric_attention.gpu.program import FusedProgram

        programs = self._programs if weights.programs is None else weights.programs
        if shape in programs:
            return programs[shape], weights.programs is not None
        while len(programs) >= KEPT:
            del programs[next(iter(programs))]
        programs[shape] = FusedProgram(self.config, *shape, device)
        return programs[shape], False
