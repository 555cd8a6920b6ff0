"""The loss in the network's units, its derivatives with respect to predictions, and sums of errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.interface import Evaluation

WEIGHTINGS = ("paper", "authors", "unsquared")


@dataclass(frozen=True)
class Loss:
    """Mean over the structures of a batch of an energy, a force and a stress term.

    paper:      ρ |ΔE|² + (1/N) Σ_i |ΔF_i|² + τ |ΔW|²
    authors:    the same with the force term divided by a further 3N, as in the paper authors' code
    unsquared:  ρ |ΔE| + (1/N) Σ_i |ΔF_i| + τ |ΔW|

    W = V σ / N is the virial per atom. With `per_atom` ΔE is divided by N, too. Labels that a structure does
    not have count as right, and a structure may have a weight.
    """

    weighting: str = "paper"
    rho: float = 0.01
    tau: float = 0.0
    per_atom: bool = False

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

    def __call__(self, errors: Errors) -> Tensor:
        """The loss (...) of errors (..., B)."""
        energy = errors.energy / errors.atoms if self.per_atom else errors.energy
        per_structure = self.rho * (energy.square() if self.squared else energy.abs())
        if errors.forces is not None:
            squared = errors.forces.square().sum(-1)  # (..., B, N)
            per_atom = squared if self.squared else squared.sqrt()
            weight = self.force_weight(errors.atoms.to(squared.dtype))
            per_structure = per_structure + weight * per_atom.sum(-1)
        if errors.virial is not None:
            squared = errors.virial.square().sum((-2, -1))
            per_structure = per_structure + self.tau * (squared if self.squared else squared.sqrt())
        if errors.weight is not None:
            per_structure = per_structure * errors.weight
        return per_structure.mean(-1)

    @torch.no_grad()
    def slopes(self, errors: Errors) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """∂loss/∂E (..., B), ∂loss/∂F (..., B, N, 3) and ∂loss/∂σ; zero where an error is zero."""
        share: Tensor | float = 1.0 / errors.atoms.shape[-1]
        if errors.weight is not None:
            share = share * errors.weight
        by_energy = share * self.rho * self._slope(errors.energy)
        if self.per_atom:
            by_energy = by_energy / (errors.atoms**2 if self.squared else errors.atoms)
        by_forces = by_stress = None
        if errors.forces is not None:
            weight = share * self.force_weight(errors.atoms.to(errors.forces.dtype))
            by_forces = weight[..., None, None] * self._slope(errors.forces, -1)
        if errors.virial is not None and errors.volume_per_atom is not None:
            weight = share * self.tau * errors.volume_per_atom
            by_stress = weight[..., None, None] * self._slope(errors.virial, (-2, -1))
        return by_energy, by_forces, by_stress

    def _slope(self, error: Tensor, axes: int | tuple[int, ...] = ()) -> Tensor:
        """Of |error|² or |error|, with a norm over the axes."""
        if self.squared:
            return 2.0 * error
        if axes == ():
            return error.sign()
        norm = torch.linalg.vector_norm(error, dim=axes, keepdim=True)
        return error / torch.where(norm > 0, norm, 1.0)


@dataclass(frozen=True)
class Errors:
    """Predictions less labels of B structures, in normalised units; zero where there is no label."""

    energy: Tensor  # (..., B)
    forces: Tensor | None  # (..., B, N, 3)
    atoms: Tensor  # (..., B)
    virial: Tensor | None = None  # (..., B, 3, 3), per atom
    volume_per_atom: Tensor | None = None  # (..., B)
    weight: Tensor | None = None  # (..., B)
    components: Tensor | float = 0.0  # (...,) labelled components of forces in all structures

    @classmethod
    def of(cls, found: Evaluation, labels: Batch) -> Errors:
        """Of an evaluation and a batch with normalised labels."""
        assert labels.energy is not None
        atoms, forces, virial, volume = labels.atoms, None, None, None
        components: Tensor | float = 0.0
        if labels.forces is not None and found.forces is not None:
            known = ~labels.forces.isnan()
            forces = torch.where(known, found.forces - labels.forces, 0.0)
            components = (known & labels.mask[..., None]).sum((-3, -2, -1))
        if labels.stress is not None and labels.cell is not None and found.stress is not None:
            volume = torch.linalg.det(labels.cell).abs() / atoms.clamp(min=1)
            error = found.stress - labels.stress
            virial = torch.where(error.isnan(), 0.0, error * volume[..., None, None])
        energy = found.energy - labels.energy
        return cls(energy, forces, atoms, virial, volume, labels.weight, components)


class ErrorSums:
    """Sums of loss and absolute errors per member, kept on the device."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.sums = torch.zeros(4, members, dtype=torch.float64, device=device)
        self.structures = 0

    def clear(self, structures: int) -> None:
        """Start anew for so many structures."""
        self.sums.zero_()
        self.structures = structures

    def add(self, loss: Tensor, errors: Errors, first: int = 0) -> None:
        """Add a batch of members from `first` on: loss (M,) and its errors."""
        sums = self.sums[:, first : first + len(loss)]
        sums[0] += loss * errors.energy.shape[1]
        sums[1] += errors.energy.abs().sum(1)
        if errors.forces is not None:
            sums[2] += errors.forces.abs().sum((1, 2, 3))
            sums[3] += errors.components

    def per_member(self) -> list[list[float]]:
        """Sums of loss, |ΔE| and |ΔF|, numbers of structures and of force components, for each member."""
        loss, energy, forces, components = self.sums.tolist()
        count = float(self.structures)
        return [[l, e, f, count, c] for l, e, f, c in zip(loss, energy, forces, components, strict=True)]
