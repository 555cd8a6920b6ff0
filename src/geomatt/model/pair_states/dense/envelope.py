"""`TorchKernels` for networks with a radius: the envelope u on initial states and on what a round adds.

    X₀ = u (K φ) ∘ g ∘ h        U = u silu(H + b₁)        X ← X + W₂ U + u b₂

So U holds the envelope, and W₂ acts on it as before. u depends on distances: n_u = −∂E/∂u is summed over the
rounds and joins the forces by du/dd, and u̇ = du/dd ḋ enters the tangents. For i = j u is one, for padding
zero.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.pair_states.ceiling import saturation_slope
from geomatt.model.pair_states.dense.kernels import TorchKernels, silu_hat, silu_slope
from geomatt.model.pair_states.envelope import envelope, envelope_slope


class EnvelopedKernels(TorchKernels):
    """One batch of M networks with a radius."""

    def _geometry(self, positions: Tensor) -> None:
        super()._geometry(positions)
        difference = positions[..., :, None, :] - positions[..., None, :, :]
        distance = difference.square().sum(-1).sqrt().flatten(1)[:, None]  # (M, 1, P)
        self.envelope = envelope(distance, self.config.radius) * self.mask
        self.envelope_slope = envelope_slope(distance, self.config.radius) * self.mask
        self.slope = self.slope * self.envelope + self.phi * self.envelope_slope
        self.phi = self.phi * self.envelope
        self.n_envelope = torch.zeros_like(self.envelope)

    def initial_dot(self, r_dot: Tensor, x_dot: Tensor) -> None:
        super().initial_dot(r_dot, x_dot)
        d_dot = ((r_dot[..., :, None, :] - r_dot[..., None, :, :]) * self.direction).sum(-1)
        self.envelope_dot = self.envelope_slope * d_dot.flatten(1)[:, None]

    def _by_distance(self, n_x: Tensor) -> Tensor:
        return super()._by_distance(n_x) + (self.n_envelope * self.envelope_slope)[:, 0]

    def activate(
        self, h: Tensor, b1: Tensor, u: Tensor, x: Tensor, b2: Tensor, x_next: Tensor | None,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        super().activate(h, b1, u, x, b2, None, ceiling)
        u.mul_(self.envelope)
        if x_next is not None:
            torch.addcmul(x, b2[..., None], self.envelope, out=x_next)

    def activate_dot(
        self, h: Tensor, h_dot: Tensor, u_dot: Tensor, x_dot: Tensor, b2: Tensor, x_dot_next: Tensor | None
    ) -> None:
        silu_slope(h_dot, h, u_dot)
        u_dot.mul_(self.envelope).addcmul_(functional.silu(h), self.envelope_dot)
        if x_dot_next is not None:
            torch.addcmul(x_dot, b2[..., None], self.envelope_dot, out=x_dot_next)

    def activate_adjoint(
        self, n_u: Tensor, h: Tensor, n_next: Tensor, b2: Tensor, n_h: Tensor, n_x: Tensor,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        n_u, n_next = self._of_pairs(n_u), self._of_pairs(n_next)
        self.n_envelope += (n_u * functional.silu(h)).sum(1, keepdim=True)
        self.n_envelope += torch.bmm(b2[:, None], n_next)
        silu_slope(n_u * self.envelope, h, n_h)
        if ceiling is not None:
            n_h *= saturation_slope(h, ceiling[..., None], 1)
        if n_x.data_ptr() != n_next.data_ptr():
            n_x.copy_(n_next)

    def activate_hat(
        self, u_hat: Tensor, n_u: Tensor, h: Tensor, h_dot: Tensor, hat_next: Tensor, h_hat: Tensor,
        x_hat: Tensor,
    ) -> None:  # fmt: skip
        n_u = self._of_pairs(n_u)
        hat = self._of_pairs(u_hat) * self.envelope + n_u * self.envelope_dot
        silu_hat(hat, n_u * self.envelope, h, h_dot, h_hat)
        x_hat.copy_(self._of_pairs(hat_next))

    def counts(self) -> Tensor:
        """Own pair and scaled sum over the others of the envelope, (M, B·N, 2, 1)."""
        return self._sums(self.envelope)

    def gather_dot(self, x: Tensor, u: Tensor, b2: Tensor, x_sums: Tensor, u_sums: Tensor) -> None:
        super().gather_dot(x, u, b2, x_sums, u_sums)
        x_sums.addcmul_(self._sums(self.envelope_dot), b2[:, None, None])

    def update_biases(self, adjoint: Tensor) -> Tensor:
        hat, n = adjoint.unbind(3)  # (T, M, C, P)
        found = (hat * self.envelope + n * self.envelope_dot).sum(-1)
        return found.transpose(0, 1)

    def last_bias(self, by_b2: Tensor, adjoint: Tensor) -> Tensor:
        n = adjoint[:, 1]  # (M, B·N, 2, C); `by_b2` has the part of the hats
        return by_b2 + (n * self._sums(self.envelope_dot)).sum((1, 2))
