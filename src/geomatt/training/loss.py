"""The loss, in the network's normalised units, and its derivative with respect to the predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """ρ |ΔE|² + (1/N) Σ_i |ΔF_i|², mean over the batch (`paper`).

    The authors' released code divides the force term by a further 3N (`authors`).
    """

    weighting: Literal["paper", "authors"] = "paper"
    rho: float = 0.01

    def force_weight(self, atoms: Tensor) -> Tensor:
        """The factor on Σ_i |ΔF_i|² of structures with the given numbers of atoms."""
        return 1.0 / atoms if self.weighting == "paper" else 1.0 / (3.0 * atoms * atoms)

    def __call__(self, energy_error: Tensor, force_error: Tensor | None, atoms: Tensor) -> Tensor:
        """The loss (...) from errors (..., B) and (..., B, N, 3); without forces the energy term alone."""
        per_structure = self.rho * energy_error.square()
        if force_error is not None:
            weight = self.force_weight(atoms.to(force_error.dtype))
            per_structure = per_structure + weight * force_error.square().sum((-1, -2))
        return per_structure.mean(-1)


def slope_weights(loss: Loss, atoms: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The loss's slopes by energies and forces over the errors of these, (..., B) each."""
    per_structure = 2.0 / atoms.shape[-1]
    weight = loss.force_weight(atoms.to(dtype))
    return torch.full_like(weight, loss.rho * per_structure), per_structure * weight


@torch.no_grad()
def loss_slopes(
    loss: Loss, energy_error: Tensor, force_error: Tensor | None, atoms: Tensor
) -> tuple[Tensor, Tensor | None]:
    """∂loss/∂E (..., B) and ∂loss/∂F (..., B, N, 3)."""
    by_energy, by_forces = slope_weights(loss, atoms, energy_error.dtype)
    if force_error is None:
        return by_energy * energy_error, None
    return by_energy * energy_error, by_forces[..., None, None] * force_error
