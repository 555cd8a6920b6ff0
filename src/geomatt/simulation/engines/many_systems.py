"""Many systems evaluated at once, as a simulation of them needs it: checks, walls and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from geomatt.data.batch import Batch
from geomatt.data.structures import Structure
from geomatt.model.domain import Limits, WallResult, warning
from geomatt.model.domain.frames import EXTRAPOLATION
from geomatt.model.output import Output
from geomatt.simulation.inputs import Model, load_model, refuse_overlap

WATCH = 100  # evaluations between two looks at the ranges of distances, which wait for the device


class ManySystems:
    """A model for B systems side by side, on its device and without waiting for it.

    Args:
        model: a model file, the folder of a run, a shipped model's name, a `Potential` or a `Committee`.
        device: where to compute, "cpu" or "cuda".
        dtype: precision of the network; by default the one the model has.
        walls: add the walls where the training data end.
    """

    def __init__(
        self,
        model: Model,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str | None = None,
        walls: bool = True,
    ) -> None:
        self.potential, self.walls = load_model(model, device, dtype, walls=walls), walls
        self.wall_steps = torch.zeros(0, dtype=torch.int64)  # (B,) evaluations with an active wall
        self._limits: Limits | None = None
        self._evaluations = 0
        self._told: set[str] = set()

    def start(self, structures: Sequence[Structure], batch: Batch) -> None:
        """Check systems to simulate and take the limits of the walls from their bonds."""
        potential = self.potential
        for number, structure in enumerate(structures):
            potential.check(structure, f"system {number}")
            refuse_overlap(structure, f"System {number}")
        for structure in {s.numbers.tobytes(): s for s in structures}.values():
            for message in potential.doubts(structure):
                self._warn_once(message, message)
        if potential.domain is not None:
            self._limits = potential.domain.limits(batch)
            for structure, note in zip(structures, self._limits.notes, strict=True):
                if note and not potential.other_composition(structure):
                    self._warn_once(note, f"{note} {EXTRAPOLATION}")
        self._evaluations = 0
        self.wall_steps = torch.zeros(len(batch), dtype=torch.int64, device=batch.numbers.device)

    def evaluate(self, batch: Batch) -> Output:
        """Energies and forces of the systems `start` was given; the next evaluation may overwrite them."""
        found = self.potential.evaluate(batch, keep=True, limits=self._limits if self.walls else None)
        self._watch(batch, found.walls)
        return found

    def _watch(self, batch: Batch, walls: WallResult | None) -> None:
        """Count active walls; now and then look for systems that diverged or left the training data."""
        if walls is not None:
            self.wall_steps += walls.active.flatten(1).any(1)
        domain, look = self.potential.domain, self._evaluations % WATCH == 0
        self._evaluations += 1
        if not look:
            return
        lost = (~batch.positions.isfinite()).flatten(1).any(1)
        if "lost" not in self._told and bool(lost.any()):
            self._warn_once(
                "lost",
                f"The positions of system {int(lost.long().argmax())} are not finite numbers: its simulation "
                "has diverged. Use a shorter time step or a lower temperature.",
            )
        if domain is None or "range" in self._told:
            return
        outside = domain.outside(batch, self._limits)
        known = replace(outside, excess=outside.excess.nan_to_num(nan=-torch.inf))
        message = warning(batch.numbers, known)
        if message:
            self._warn_once("range", message)

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._told:
            self._told.add(about)
            warnings.warn(message, stacklevel=5)
