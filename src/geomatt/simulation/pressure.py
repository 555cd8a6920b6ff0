"""Constant pressure for batched dynamics: a cell whose size fluctuates.

Units as in `ensembles`: eV, Å, u, and Å √(u/eV) for times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.settings import Settings, check_positive
from geomatt.simulation.ensembles import DynamicsConfig, Evaluate, Langevin, Matter, State
from geomatt.units import FEMTOSECOND

BAR = 1.0 / 1.602176634e6  # eV/Å³
EVERY = 10  # steps between changes of the cell
LARGEST = 0.1  # change of ln V at once: a start far from equilibrium is not torn apart


@dataclass(frozen=True)
class Barostat(Settings):
    """Settings of a constant pressure."""

    pressure: float = 1.0  # bar
    pressure_time: float = 1000.0  # fs, relaxation time of the volume
    compressibility: float = 4.5e-5  # 1/bar, of water; another value changes the relaxation time only

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "pressure_time", "compressibility")
        if not math.isfinite(self.pressure):
            raise GeomAttError(f"`pressure` must be a number, not {self.pressure}.")


class ConstantPressure(Langevin):
    """Langevin dynamics, and a volume V that follows a target pressure P₀ (Bernetti & Bussi 2020).

    With ε = ln V, the pressure P of the atoms, compressibility β and relaxation time τ,

        dε = −(β/τ) (P₀ − P − kT/V) dt + √(2 kT β / (V τ)) dW.

    Positions and cell are scaled by exp(dε/3), velocities by its inverse; the shape of the cell stays. The
    term kT/V is the pressure of the centre of mass, whose motion is not simulated.
    """

    def __init__(self, config: DynamicsConfig, matter: Matter, barostat: Barostat) -> None:
        super().__init__(config, matter)
        self.barostat = barostat
        rate = barostat.compressibility / BAR / (barostat.pressure_time * FEMTOSECOND)
        self.mobility = rate * EVERY * self.timestep  # β Δt / τ, Å³/eV

    def step(self, state: State, evaluate: Evaluate, noise: Tensor | None) -> None:
        """`noise`: standard normal numbers (R, N + 1, 3), the last ones for the volume."""
        if noise is None:
            raise TypeError("constant pressure needs noise")
        super().step(state, evaluate, noise[:, :-1])
        if int(state.step) % EVERY == 0:
            before = self.conserved(state)
            self.scale(state, noise[:, -1, 0])
            evaluate(state)
            # What the barostat adds or takes is counted like the heat of the bath.
            work = (before - self.conserved(state)).masked_fill(~state.alive, 0.0)
            state.thermostat[0].add_(work)
            self.guard(state)

    def scale(self, state: State, noise: Tensor) -> None:
        """Change the volumes as `EVERY` steps do."""
        volume = state.volume
        pull = self.matter.pressure(state) + self.kT / volume - self.barostat.pressure * BAR
        change = self.mobility * pull + (2.0 * self.kT * self.mobility / volume).sqrt() * noise
        change = change.clamp(-LARGEST, LARGEST).masked_fill(~state.alive, 0.0)
        factor = torch.exp(change / 3.0)[:, None, None]
        state.cell.mul_(factor)
        state.positions.mul_(factor)
        state.velocities.div_(factor)
