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
        self._alike: dict[tuple[int, ...], list[str]] = {}  # by their sides: their steps are found together
        for name in self.matrices:
            self._alike.setdefault(tuple(sorted(weights.shapes[name][-2:])), []).append(name)

    def _update(self, gradient: Tensor) -> None:
        weights = self.weights.parameters
        before = {name: weights[name].clone() for name in self.matrices}
        super()._update(gradient)
        self.momentum.mul_(MOMENTUM).add_(gradient)
        along = self.weights.views(gradient + MOMENTUM * self.momentum)
        rate = (SIZE * self.rate * self.pace).to(gradient.dtype)[:, None, None, None]
        for (_, longer), names in self._alike.items():
            slopes = [_wide(along[name]) for name in names]  # (M, k, shorter, longer) each
            # Entries of an orthogonal matrix are about 1 / √longer.
            steps = longer**0.5 * rate * orthogonal(torch.cat(slopes, 1))
            for name, step in zip(names, steps.split([s.shape[1] for s in slopes], 1), strict=True):
                value = before[name]
                value -= (step.mT if _tall(value) else step).reshape(value.shape)
                weights[name].copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), "momentum": self.momentum}

    def restart(self, member: int, weights: Mapping[str, Tensor]) -> None:
        super().restart(member, weights)
        self.momentum[member] = 0.0


def orthogonal(matrices: Tensor) -> Tensor:
    """About U Vᵀ of each matrix U S Vᵀ (M, k, shorter, longer); zero for a zero matrix."""
    norm = torch.linalg.matrix_norm(matrices, keepdim=True)
    x = (matrices / norm.clamp(min=SMALLEST)).flatten(0, 1)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.view(matrices.shape)


def _wide(matrices: Tensor) -> Tensor:
    """(M, ..., rows, columns) as (M, k, shorter, longer)."""
    wide = matrices.mT if _tall(matrices) else matrices
    return wide.reshape(len(wide), -1, *wide.shape[-2:])


def _tall(matrices: Tensor) -> bool:
    return matrices.shape[-2] > matrices.shape[-1]
