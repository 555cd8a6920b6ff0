"""`TritonKernels` for networks with a radius: what `dense.envelope` does."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from geomatt.model.pair_states.gpu import enveloped
from geomatt.model.pair_states.gpu.kernels import TritonKernels, _blocks, _pointers

PAIRS = 256  # of a program
ROWS, REDUCED_PAIRS = 32, 64  # of a program that sums over rows


class EnvelopedTritonKernels(TritonKernels):
    """One batch of M networks with a radius, on a GPU."""

    has_envelope: ClassVar[bool] = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.envelope, self.envelope_slope = (self._new(self.members, self.columns) for _ in range(2))
        self.n_envelope = torch.zeros_like(self.envelope)
        self._envelope(None, self.envelope)
        self.sums_of_envelope = self._atom_sums(self.envelope)

    def _envelope(self, r_dot: Tensor | None, out: Tensor) -> None:
        enveloped.envelope_kernel[(_blocks(self.columns, PAIRS), self.members)](
            self.positions, self.species, self.positions if r_dot is None else r_dot, out,
            self.envelope_slope, out, self.batch, self.atoms, self.columns, RADIUS=self.config.radius,
            DOT=r_dot is not None, BP=PAIRS,
        )  # fmt: skip

    def _atom_sums(self, x: Tensor) -> Tensor:
        """Own pair and scaled sum over the others of each atom, (M, B·N, 2, 1), of pairs (M, columns)."""
        matrices = x[:, : self.batch * self.atoms**2].unflatten(1, (self.batch, self.atoms, self.atoms))
        own = matrices.diagonal(dim1=-2, dim2=-1)  # (M, B, N)
        others = (matrices.sum(-1) - own) * self.scale.view(self.members, self.batch, 1)
        return torch.stack([own, others], -1).flatten(1, 2)[..., None]

    def initial_dot(self, r_dot: Tensor, x_dot: Tensor) -> None:
        super().initial_dot(r_dot, x_dot)
        self.envelope_dot = torch.empty_like(self.envelope)
        self._envelope(self.r_dot, self.envelope_dot)
        self.sums_of_dot = self._atom_sums(self.envelope_dot)

    def _by_distance(self, n_x: Tensor) -> Tensor:
        return super()._by_distance(n_x).addcmul_(self.n_envelope, self.envelope_slope)

    def activate_adjoint(
        self, n_u: Tensor, h: Tensor, n_next: Tensor, b2: Tensor, n_h: Tensor, n_x: Tensor,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        # First, because n_X may be in the place of the one it follows from.
        enveloped.by_envelope_kernel[(_blocks(self.columns, REDUCED_PAIRS), self.members)](
            *_pointers(n_u), *_pointers(h), *_pointers(n_next), *_pointers(b2), self.n_envelope, self.scale,
            self.mask, **self._sizes(), ATOMS=n_u.dim() == 4, ROWS=ROWS, BP=REDUCED_PAIRS,
        )  # fmt: skip
        super().activate_adjoint(n_u, h, n_next, b2, n_h, n_x, ceiling)

    def gather(self, x: Tensor, u: Tensor, b2: Tensor | None, x_sums: Tensor, u_sums: Tensor) -> None:
        super().gather(x, u, None, x_sums, u_sums)
        if b2 is not None:
            x_sums.addcmul_(self.sums_of_envelope, b2[:, None, None])

    def gather_dot(self, x: Tensor, u: Tensor, b2: Tensor, x_sums: Tensor, u_sums: Tensor) -> None:
        super().gather(x, u, None, x_sums, u_sums)
        x_sums.addcmul_(self.sums_of_dot, b2[:, None, None])

    def update_biases(self, adjoint: Tensor) -> Tensor:
        both = torch.stack([self.envelope, self.envelope_dot], 1).flatten(1)  # (M, 2P)
        return (adjoint.flatten(3) @ both[..., None]).squeeze(-1).transpose(0, 1)

    def last_bias(self, by_b2: Tensor, adjoint: Tensor) -> Tensor:
        both = torch.stack([self.sums_of_envelope, self.sums_of_dot], 1)  # (M, 2, B·N, 2, 1)
        return (adjoint * both).sum((1, 2, 3))
