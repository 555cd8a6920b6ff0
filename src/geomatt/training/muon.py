"""Muon (Jordan et al. 2024): steps of hidden matrices along the orthogonal matrix nearest to their momentum.

All singular values of such a step are about equal, so directions with small gradients advance as well. The
other weights (tables of elements, biases, the last layer) are stepped by Adam.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from geomatt.training.optimiser import Adam
from geomatt.training.weights import Weights

MOMENTUM = 0.95
SIZE = 0.6  # root mean square change of an entry in a step, in learning rates
# Of the quintic iteration, from the authors' code: five rounds bring singular values near 1 (0.7 to 1.2).
COEFFICIENTS, ROUNDS = (3.4445, -4.7750, 2.0315), 5
SMALLEST = 1e-20  # of a norm


class Muon(Adam):
    """The matrices of a network by Muon, all else by Adam."""

    def __init__(
        self, weights: Weights, matrices: Sequence[str], *, ema_decay: float = 0.0, clip: float = 0.0
    ) -> None:
        """`matrices`: names of weights (..., rows, columns), each of which holds one matrix or several."""
        super().__init__(weights, ema_decay=ema_decay, clip=clip)
        self._kernel = None  # it takes the average before matrices are stepped
        self.matrices, self.momentum = tuple(matrices), torch.zeros_like(weights.theta)

    def _update(self, gradient: Tensor) -> None:
        weights = self.weights.parameters
        before = {name: weights[name].clone() for name in self.matrices}
        super()._update(gradient)
        self.momentum.mul_(MOMENTUM).add_(gradient)
        along = self.weights.views(gradient + MOMENTUM * self.momentum)
        rate = (SIZE * self.rate * self.pace).to(gradient.dtype)  # (M,)
        for name in self.matrices:
            step = orthogonal(along[name])  # (M, ..., rows, columns), entries about 1 / √(the longer side)
            size = rate.view(-1, *[1] * (step.dim() - 1)) * max(step.shape[-2:]) ** 0.5
            weights[name].copy_(before[name] - size * step)

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), "momentum": self.momentum}

    def restart(self, member: int, weights: Mapping[str, Tensor]) -> None:
        super().restart(member, weights)
        self.momentum[member] = 0.0


def orthogonal(matrices: Tensor) -> Tensor:
    """About the orthogonal factor U Vᵀ of each matrix U S Vᵀ (..., rows, columns); zero for a zero matrix."""
    norm = torch.linalg.matrix_norm(matrices, keepdim=True)
    x = matrices / norm.clamp(min=SMALLEST)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x  # the smaller product below
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
