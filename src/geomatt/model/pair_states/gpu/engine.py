"""The engine for GPUs: float32, up to 64 atoms. TF32 may train; it never evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Evaluation, Network, Parameters
from geomatt.model.pair_states.ceiling import room_of
from geomatt.model.pair_states.dense.engine import DenseEngine
from geomatt.model.pair_states.dense.program import Program, matrices
from geomatt.model.pair_states.gpu.envelope import EnvelopedTritonKernels
from geomatt.model.pair_states.gpu.halves import ROOM, split
from geomatt.model.pair_states.gpu.kernels import LARGEST, PARTS, TritonKernels

# Precision of torch's products, by what is asked for. Triton's are always float32: they are a small part of
# the work, and its TF32 truncates: networks trained so have forces 0.1 to 0.2 % too large in float32.
TRAINING, EVALUATION = "high", "highest"
MULTIPLIED = ("W_AB", "W1", "W2", "readout.0.weight", "readout.2.weight")


class TritonEngine(DenseEngine):
    """`DenseEngine` with Triton kernels where they serve."""

    gathers = True
    # Products with weights that are kept are those of `halves`, as accurate as in float32 and faster, if the
    # network is bounded closely: states of others may not fit into float16 outside the training data.
    # `scripts/check_halves.py` compares both in dynamics.
    in_halves: ClassVar[bool] = True

    def __init__(self, network: Network, tf32: bool = True) -> None:
        super().__init__(network)
        self.training = TRAINING if tf32 else EVALUATION

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Parameters:
        """Weights of several members are side by side in a matrix whose rows may have any length; products
        with weights are much faster if every member's begin at multiples of 16 bytes."""
        if len(parameters["elements"]) > 1:
            parameters = {**parameters, **{name: parameters[name].contiguous() for name in MULTIPLIED}}
        prepared = super().prepare(parameters, keep=keep)
        single = parameters["K"].dtype == torch.float32
        if keep and self.in_halves and single and _closely_bounded(parameters):
            parts = {name + PARTS: split(w) for name, w in matrices(parameters).items()}
            prepared = {**prepared, **parts}
        return prepared

    def compute(
        self, prepared: Parameters, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        with products_in(self.training if gradient else EVALUATION):
            return super().compute(prepared, batch, index, forces, gradient)

    def backward(self, state: Program, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        with products_in(self.training):
            return super().backward(state, by_energy, by_forces)

    def _program(self, p: Parameters, batch: Batch, index: Tensor | None, gradient: bool) -> Program:
        if batch.positions.dtype != torch.float32 or batch.numbers.shape[2] > LARGEST:
            return super()._program(p, batch, index, gradient)
        kind = EnvelopedTritonKernels if self.config.radius else TritonKernels
        kernels = kind(self.config, p, batch, index, slots=1 + gradient)
        return Program(self.config, p, kernels, batch.positions, gradient)


def _closely_bounded(parameters: Parameters) -> bool:
    return "ceiling" in parameters and room_of(parameters["ceiling"]) <= ROOM


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Torch's matrix products of float32 in the given precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
