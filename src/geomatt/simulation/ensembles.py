"""One step of molecular dynamics for many replicas at once: NVE, Langevin, Nosé–Hoover and Bussi.

Every step works in place on fixed tensors without synchronising, so that a CUDA graph can hold it. A replica
that is no longer alive has neither velocities nor forces: it stays where it is. Numbers enter as arguments of
kernels (`masked_fill`), never as tensors from the host (`where` with a number), which a graph cannot copy.

Symbols: R replicas, N atoms (padded), C thermostats in a chain. Units: eV, Å, u, and Å √(u/eV) for times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from geomatt.errors import GeomAttError
from geomatt.settings import Settings, check_not_negative, check_positive
from geomatt.simulation.settings import ENSEMBLES
from geomatt.units import BOLTZMANN, FEMTOSECOND

NOISY = ("langevin", "bussi", "npt")  # those that draw random numbers
MOVE = 0.5  # Å an atom may move in a step; thermal motion is 50 times slower


@dataclass(frozen=True)
class DynamicsConfig(Settings):
    """Settings of a simulation. Temperature, time step and the limit for bonds are those of Fu et al. 2023.

    Their (arXiv 2210.07237) single thermostat, as their code has it, is `chain=1, damping_fs=14.14` here: a
    time of 20 steps of 0.5 fs, and a mass of twice n kT τ² in our definition.
    """

    ensemble: Literal["nve", "langevin", "nose-hoover", "bussi", "npt"] = "nose-hoover"
    temperature_K: float = 500.0  # of the thermostat and of the first velocities
    timestep_fs: float = 0.5
    # τ of Nosé–Hoover, with masses Q₁ = n kT τ² and Q_k = kT τ², and relaxation time of Bussi's thermostat
    damping_fs: float = 20.0
    chain: int = 3  # thermostats of Nosé–Hoover; 1 is the original method
    friction: float = 0.01  # of Langevin dynamics and NPT, 1/fs
    # True for molecules in empty space: the centre of mass rests, and so does rotation unless Langevin forces
    # drive it. False where an outer field holds the atoms.
    free: bool = True
    interval: int = 10  # steps between observations
    bond_limit: float | None = 0.5  # Å a bond may be off its mean length before a replica has failed

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ensemble not in ENSEMBLES:
            raise GeomAttError(f"Unknown `ensemble` {self.ensemble!r}. Use one of: {', '.join(ENSEMBLES)}.")
        check_positive(self, "timestep_fs", "damping_fs", "chain", "interval")
        check_not_negative(self, "temperature_K", "friction")
        if self.ensemble in ("nose-hoover", "bussi") and not self.temperature_K > 0:
            raise GeomAttError(f"The ensemble {self.ensemble} needs a positive `temperature_K`.")

    @property
    def rotates(self) -> bool:
        """True if rotation as a whole is one of the motions that share the temperature."""
        return not self.free or self.ensemble in ("langevin", "npt")


@dataclass
class State:
    """Everything that changes from step to step."""

    positions: Tensor  # (R, N, 3) float64
    velocities: Tensor  # (R, N, 3) float64, zero for padding
    forces: Tensor  # (R, N, 3) float64, zero for padding
    energy: Tensor  # (R,) float64, potential energy
    alive: Tensor  # (R,) bool
    thermostat: Tensor  # (C, R) float64, η; Langevin and Bussi keep the heat given to the bath in the first
    thermostat_velocity: Tensor  # (C, R) float64, dη/dt
    step: Tensor  # () int64, steps done
    cell: Tensor  # (R, 3, 3) float64, rows are lattice vectors; (0,) for molecules
    stress: Tensor  # (R, 3, 3) float64, eV/Å³ in ASE's sign; (0,) for molecules

    def tensors(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def lattice(self) -> Tensor | None:
        """The cells (R, 3, 3), None for molecules."""
        return self.cell if self.cell.numel() else None

    @property
    def volume(self) -> Tensor:
        """Of the cells (R,), Å³."""
        return torch.linalg.det(self.cell).abs()


@dataclass(frozen=True)
class Matter:
    """Constants of a simulation."""

    masses: Tensor  # (R, N, 1) float64, zero for padding
    inverse: Tensor  # (R, N, 1) float64, 1/m, zero for padding
    freedom: Tensor  # (R,) float64, degrees of freedom, at least 1

    def doubled_kinetic_energy(self, velocities: Tensor) -> Tensor:
        """Σ m v² (R,)."""
        return (self.masses * velocities.square()).sum((1, 2))

    def temperature(self, velocities: Tensor) -> Tensor:
        """In K (R,)."""
        return self.doubled_kinetic_energy(velocities) / (self.freedom * BOLTZMANN)

    def pressure(self, state: State) -> Tensor:
        """In eV/Å³ (R,), of the motion of the atoms and their forces."""
        trace = state.stress.diagonal(dim1=1, dim2=2).sum(-1)
        return (self.doubled_kinetic_energy(state.velocities) / state.volume - trace) / 3.0


Evaluate = Callable[[State], None]  # writes forces and energy of the positions


class Verlet:
    """Velocity Verlet, the NVE ensemble."""

    def __init__(self, config: DynamicsConfig, matter: Matter) -> None:
        self.config, self.matter = config, matter
        self.timestep = config.timestep_fs * FEMTOSECOND
        self.kT = BOLTZMANN * config.temperature_K

    def step(self, state: State, evaluate: Evaluate, noise: Tensor | None) -> None:
        self.kick(state)
        self.drift(state, self.timestep)
        evaluate(state)
        self.kick(state)
        self.guard(state)
        state.step.add_(1)

    def conserved(self, state: State) -> Tensor:
        """The quantity (R,) that exact dynamics would keep: here the total energy."""
        return state.energy + 0.5 * self.matter.doubled_kinetic_energy(state.velocities)

    def kick(self, state: State) -> None:
        state.velocities.addcmul_(state.forces, self.matter.inverse, value=0.5 * self.timestep)

    def drift(self, state: State, time: float) -> None:
        state.positions.add_(state.velocities, alpha=time)

    def guard(self, state: State) -> None:
        """Stop replicas in which the next step would move an atom too far, or by NaN."""
        half = 0.5 * self.timestep
        upcoming = torch.addcmul(state.velocities, state.forces, self.matter.inverse, value=half)
        fastest = upcoming.abs().amax((1, 2))  # nan if any is
        state.alive.logical_and_(fastest * self.timestep <= MOVE)
        stop(state)


class NoseHoover(Verlet):
    """A chain of thermostats (Martyna, Klein & Tuckerman 1992) around velocity Verlet, time-reversible.

    With w = dη/dt, thermostat k has the acceleration (Q_{k−1} w²_{k−1} − T_k) / Q_k, damped by w_{k+1}; the
    first sees Σ m v² in place of Q w², with T_1 = n kT. All others have T_k = kT.
    """

    def __init__(self, config: DynamicsConfig, matter: Matter) -> None:
        super().__init__(config, matter)
        target = torch.full((config.chain, len(matter.freedom)), self.kT, dtype=torch.float64)
        self.target = target.to(matter.freedom.device)
        self.target[0] *= matter.freedom
        self.masses = self.target * (config.damping_fs * FEMTOSECOND) ** 2
        drive = torch.cat([torch.ones_like(self.masses[:1]), self.masses[:-1]])
        self.gain, self.loss = drive / self.masses, -self.target / self.masses  # (C, R)

    def step(self, state: State, evaluate: Evaluate, noise: Tensor | None) -> None:
        self.couple(state)
        super().step(state, evaluate, noise)
        self.couple(state)

    def couple(self, state: State) -> None:
        """Half a step of the thermostats, which scale the velocities."""
        time = 0.5 * self.timestep
        w = state.thermostat_velocity.unbind()
        doubled = self.matter.doubled_kinetic_energy(state.velocities)

        def accelerate(k: int) -> None:
            push = torch.addcmul(self.loss[k], self.gain[k], w[k - 1].square() if k else doubled)
            if k == len(w) - 1:
                w[k].add_(push, alpha=0.5 * time)
            else:
                damping = torch.exp(w[k + 1] * (-0.25 * time))
                w[k].mul_(damping).add_(push, alpha=0.5 * time).mul_(damping)

        for k in reversed(range(len(w))):
            accelerate(k)
        scale = torch.exp(w[0] * -time)
        state.velocities.mul_(scale[:, None, None])
        doubled = doubled * scale.square()
        state.thermostat.add_(state.thermostat_velocity, alpha=time)
        for k in range(len(w)):
            accelerate(k)

    def conserved(self, state: State) -> Tensor:
        """Total energy with that of the thermostats."""
        kinetic = 0.5 * (self.masses * state.thermostat_velocity.square()).sum(0)
        return super().conserved(state) + kinetic + (self.target * state.thermostat).sum(0)


class Langevin(Verlet):
    """BAOAB (Leimkuhler & Matthews 2013). The random forces on a free molecule leave its centre at rest."""

    def __init__(self, config: DynamicsConfig, matter: Matter) -> None:
        super().__init__(config, matter)
        self.keep = math.exp(-config.friction * config.timestep_fs)
        self.width = (self.kT * (1.0 - self.keep**2) * matter.inverse).sqrt()  # (R, N, 1)
        self.share = matter.masses / matter.masses.sum(1, keepdim=True)  # (R, N, 1)

    def step(self, state: State, evaluate: Evaluate, noise: Tensor | None) -> None:
        """`noise`: standard normal numbers (R, N, 3)."""
        if noise is None:
            raise TypeError("Langevin dynamics needs noise")
        self.kick(state)
        self.drift(state, 0.5 * self.timestep)
        push = self.width * noise
        if self.config.free:
            push = push - (self.share * push).sum(1, keepdim=True)
        push = push.masked_fill(~(state.alive[:, None, None] & (self.matter.masses > 0)), 0.0)
        before = self.matter.doubled_kinetic_energy(state.velocities)
        state.velocities.mul_(self.keep).add_(push)
        give_heat(state, before - self.matter.doubled_kinetic_energy(state.velocities))
        self.drift(state, 0.5 * self.timestep)
        evaluate(state)
        self.kick(state)
        self.guard(state)
        state.step.add_(1)

    def conserved(self, state: State) -> Tensor:
        """Total energy with the heat given to the bath."""
        return super().conserved(state) + state.thermostat[0]


class Bussi(Verlet):
    """Velocity Verlet, then velocities scaled by a random factor (Bussi, Donadio & Parrinello 2007).

    With K the kinetic energy, n degrees of freedom, c = exp(−Δt/τ), q = (1 − c) kT / 2K and standard normal
    numbers r_i, the factor is α² = c + q Σ r_i² + 2 r_1 √(c q). The motion of the whole is left as it is.
    """

    def __init__(self, config: DynamicsConfig, matter: Matter) -> None:
        super().__init__(config, matter)
        self.keep = math.exp(-config.timestep_fs / config.damping_fs)
        count = torch.arange(3 * matter.masses.shape[1], device=matter.freedom.device)
        self.used = (count < matter.freedom[:, None]).double()  # (R, 3 N), n of the random numbers

    def step(self, state: State, evaluate: Evaluate, noise: Tensor | None) -> None:
        """`noise`: standard normal numbers (R, N, 3)."""
        if noise is None:
            raise TypeError("Bussi's thermostat needs noise")
        super().step(state, evaluate, noise)
        doubled = self.matter.doubled_kinetic_energy(state.velocities).clamp(min=1e-30)
        drawn = noise.flatten(1)
        first = drawn[:, 0]
        pull = (1.0 - self.keep) * self.kT / doubled
        squares = (drawn.square() * self.used).sum(1)
        root = (self.keep * pull).sqrt()
        factor = self.keep + pull * squares + 2.0 * first * root
        # α is negative where the random part outweighs what is kept.
        sign = torch.sign(first * pull.sqrt() + self.keep**0.5)
        state.velocities.mul_((sign * factor.clamp(min=0.0).sqrt())[:, None, None])
        give_heat(state, doubled - self.matter.doubled_kinetic_energy(state.velocities))

    def conserved(self, state: State) -> Tensor:
        """Total energy with the heat given to the bath."""
        return super().conserved(state) + state.thermostat[0]


def give_heat(state: State, doubled: Tensor) -> None:
    """Add half of `doubled` (R,), the doubled kinetic energy taken from the atoms, to the bath's energy."""
    state.thermostat[0].add_(doubled.masked_fill(~state.alive, 0.0), alpha=0.5)


def stop(state: State) -> None:
    """Take velocities and forces from replicas that are not alive, and bring their thermostats to rest."""
    stopped = ~state.alive
    state.velocities.masked_fill_(stopped[:, None, None], 0.0)
    state.forces.masked_fill_(stopped[:, None, None], 0.0)
    state.thermostat_velocity.masked_fill_(stopped, 0.0)


INTEGRATORS: dict[str, type[Verlet]] = {
    "nve": Verlet,
    "langevin": Langevin,
    "nose-hoover": NoseHoover,
    "bussi": Bussi,
}
