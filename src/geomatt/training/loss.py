"""The loss, in the network's normalised units, and its derivatives with respect to the predictions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geomatt.errors import GeomAttError

WEIGHTINGS = ("paper", "authors", "unsquared")


@dataclass(frozen=True)
class Loss:
    """Mean over the structures of a batch of an energy and a force term.

    paper:      ρ |ΔE|² + (1/N) Σ_i |ΔF_i|²
    authors:    the same with the force term divided by a further 3N, as in the paper authors' code
    unsquared:  ρ |ΔE| + (1/N) Σ_i |ΔF_i|
    """

    weighting: str = "paper"
    rho: float = 0.01

    def __post_init__(self) -> None:
        if self.weighting not in WEIGHTINGS:
            raise GeomAttError(
                f"Unknown loss `weighting` {self.weighting!r}. Use one of: {', '.join(WEIGHTINGS)}."
            )

    @property
    def squared(self) -> bool:
        return self.weighting != "unsquared"

    def force_weight(self, atoms: Tensor) -> Tensor:
        """The factor on the sum over atoms, for structures with the given numbers of atoms."""
        return 1.0 / (3.0 * atoms * atoms) if self.weighting == "authors" else 1.0 / atoms

    def __call__(self, energy_error: Tensor, force_error: Tensor | None, atoms: Tensor) -> Tensor:
        """The loss (...) from errors (..., B) and (..., B, N, 3); without forces the energy term alone."""
        per_structure = self.rho * (energy_error.square() if self.squared else energy_error.abs())
        if force_error is not None:
            squared = force_error.square().sum(-1)  # (..., B, N)
            per_atom = squared if self.squared else squared.sqrt()
            per_structure = per_structure + self.force_weight(atoms.to(squared.dtype)) * per_atom.sum(-1)
        return per_structure.mean(-1)

    @torch.no_grad()
    def slopes(
        self, energy_error: Tensor, force_error: Tensor | None, atoms: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """∂loss/∂E (..., B) and ∂loss/∂F (..., B, N, 3); zero where an error is zero."""
        share = 1.0 / atoms.shape[-1]
        by_energy = share * self.rho * (2.0 * energy_error if self.squared else energy_error.sign())
        if force_error is None:
            return by_energy, None
        weight = share * self.force_weight(atoms.to(force_error.dtype))[..., None, None]
        if self.squared:
            return by_energy, 2.0 * weight * force_error
        norm = force_error.norm(dim=-1, keepdim=True)
        return by_energy, weight * force_error / torch.where(norm > 0, norm, 1.0)
