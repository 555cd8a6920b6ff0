"""Watches a batched simulation for leaving what its model knows, on the device of the simulation.

An alarm is one bit; several may be set at once. Nothing here synchronises the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import chdtri
from torch import Tensor

from geomatt.elements import COVALENT_RADII, atom_labels
from geomatt.model.domain import WARNING
from geomatt.model.domain.limits import Limits
from geomatt.simulation.ensembles import Matter, State

INTACT, BROKEN, DIVERGED, HOT, OUTSIDE, SPREAD = 0, 1, 2, 4, 8, 16
REASONS = {
    INTACT: "",
    BROKEN: "a bond broke",
    DIVERGED: "an atom moved too far in one step",
    HOT: "the temperature ran away",
    OUTSIDE: "a distance left its range in the training data",
    SPREAD: "the members of the committee disagree",
}
DOUBTS = OUTSIDE | SPREAD  # the model may be wrong, but nothing has broken
HOTTEST, RARE = 4.0, 1e-12  # times the temperature, and the probability of so hot a moment in equilibrium
LEAST_HOT = 1000.0  # K
# A bond has broken or formed once the distance is so many times the sum of the covalent radii. Vibrations at
# 500 K stay below 1.25; the gap keeps a bond from counting again and again.
BREAKS, FORMS = 1.5, 1.2


@dataclass(frozen=True)
class Watch:
    """Quantities to watch, and the alarms that stop a replica."""

    hot: bool = True  # a temperature far above that of the thermostat
    outside: float | None = WARNING  # Å a pair may be outside its range in the training data
    spread: float | None = None  # eV/Å the forces of a committee may differ by
    stops: int = HOT  # bits of the alarms that stop a replica; broken bonds have a limit of their own


class BondChange(NamedTuple):
    """A covalent bond that formed or broke."""

    names: str  # such as C3–H12
    what: str  # "formed" or "broke"
    time_fs: float  # when it was first seen


class Watchdog:
    """Alarms and changed bonds of R replicas."""

    def __init__(
        self,
        watch: Watch,
        matter: Matter,
        numbers: np.ndarray,  # (R, N), zero for padding
        distance: Tensor,  # (R, N, N) at the start
        limits: Limits | None,
        spread: Tensor | None,  # (R,) largest disagreement about the force on an atom, as it changes
        temperature_K: float,
    ) -> None:
        self.watch, self.limits, self.spread = watch, limits, spread
        self.stopping = [bit for bit in REASONS if bit & watch.stops]
        device = matter.masses.device
        freedom = matter.freedom.cpu().numpy()
        factor = np.maximum(HOTTEST, chdtri(freedom, RARE) / freedom)
        self.hottest = torch.from_numpy(np.maximum(factor * temperature_K, LEAST_HOT)).to(device)
        self.reach = torch.from_numpy(_reach(numbers)).to(device)  # (R, N, N), nan where no bond can be
        self.bonded = distance / self.reach < 0.5 * (BREAKS + FORMS)
        self.changed_at = torch.full(self.reach.shape, -1, dtype=torch.int64, device=device)
        self.counts = torch.zeros(len(REASONS), len(numbers), dtype=torch.int64, device=device)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors needed to continue a run."""
        return {"bonded": self.bonded, "changed_at": self.changed_at, "counts": self.counts}

    def alarms(self, state: State, distance: Tensor, temperature: Tensor) -> Tensor:
        """Bits (R,) of the alarms of the present positions, with distances (R, N, N); changed bonds noted."""
        relative = distance / self.reach
        changed = (self.bonded & (relative > BREAKS)) | (~self.bonded & (relative < FORMS))
        new = changed & (self.changed_at < 0) & state.alive[:, None, None]
        self.changed_at.copy_(torch.where(new, state.step, self.changed_at))
        found = torch.zeros_like(state.alive, dtype=torch.int64)
        if self.watch.hot:
            found = found + HOT * (temperature > self.hottest)
        if self.watch.outside is not None and self.limits is not None:
            excess = torch.maximum(self.limits.lower - distance, distance - self.limits.upper)
            found = found + OUTSIDE * (excess.flatten(1).amax(1) > self.watch.outside)
        if self.watch.spread is not None and self.spread is not None:
            found = found + SPREAD * (self.spread > self.watch.spread)
        found = found * state.alive
        for row, bit in enumerate(REASONS):
            if bit:
                self.counts[row].add_((found & bit) > 0)
        return found

    def changes(self, numbers: Sequence[np.ndarray], timestep_fs: float) -> list[list[BondChange]]:
        """Bonds that formed or broke, by replica, in their order in time."""
        what = {False: "formed", True: "broke"}  # by whether the atoms were bonded at first
        when, linked = self.changed_at.cpu().numpy(), self.bonded.cpu().numpy()
        result = []
        for r, own in enumerate(numbers):
            label = atom_labels(own)
            found = [
                BondChange(f"{label[i]}–{label[j]}", what[linked[r, i, j]], when[r, i, j] * timestep_fs)
                for i, j in np.argwhere(np.triu(when[r] >= 0)).tolist()
            ]
            result.append(sorted(found, key=lambda change: change.time_fs))
        return result


def words(bits: int) -> str:
    """Alarms in words."""
    return "; ".join(text for bit, text in REASONS.items() if bit and bits & bit)


def _reach(numbers: np.ndarray) -> np.ndarray:
    """Sums of covalent radii (R, N, N); nan for padding, the diagonal and elements without a known radius."""
    radii = np.concatenate([[np.nan], COVALENT_RADII, np.full(200, np.nan)])[numbers]
    reach = radii[:, :, None] + radii[:, None, :]
    reach[:, np.arange(numbers.shape[1]), np.arange(numbers.shape[1])] = np.nan
    return reach
