"""Results of a batched simulation, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from geomatt.elements import atom_labels
from geomatt.simulation.ensembles import DynamicsConfig
from geomatt.simulation.monitor import SERIES, Monitor, histogram_error
from geomatt.simulation.watchdog import REASONS, BondChange


@dataclass(frozen=True)
class Part:
    """Records of a stretch of a run: T observations of R replicas, nan once a replica has failed."""

    time_fs: np.ndarray  # (T,)
    temperature_K: np.ndarray  # (T, R)
    potential_energy: np.ndarray  # (T, R) eV, walls included
    conserved_energy: np.ndarray  # (T, R) eV, with that of the thermostats or of the bath
    highest_force: np.ndarray  # (T, R) eV/Å, on one atom
    spread: np.ndarray  # (T, R) eV/Å, largest disagreement of a committee; nan for one model
    pressure: np.ndarray  # (T, R) bar; nan for molecules
    volume: np.ndarray  # (T, R) Å³; nan for molecules
    alarm: np.ndarray  # (T, R) bits of `watchdog.REASONS`
    frames: np.ndarray | None = None  # (T, 3, R, N, 3): positions in Å, velocities in Å per Å √(u/eV), forces
    cells: np.ndarray | None = None  # (T, R, 3, 3) Å

    @property
    def positions(self) -> np.ndarray:
        """In Å (T, R, N, 3)."""
        assert self.frames is not None, "frames were not kept"
        return self.frames[:, 0]

    @classmethod
    def join(cls, parts: Sequence[Part]) -> Part:
        names = ("time_fs", *SERIES)
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class WallUse(NamedTuple):
    """A pair of atoms that a wall acted on."""

    names: str  # such as C3–H12
    share: float  # of the steps its replica was alive
    worst: float  # Å outside the range in the training data


@dataclass(frozen=True)
class Outcome:
    """A run of R replicas; a failed one counts until its failure only."""

    names: list[str]
    seeds: list[int]
    sizes: np.ndarray  # (R,) atoms
    config: DynamicsConfig
    steps: int
    records: Part
    survived_ps: np.ndarray  # (R,) time of the last observation of an intact molecule
    failures: list[str]  # why a replica stopped, empty for those that completed
    worst_bond: np.ndarray  # (R,) Å, largest difference of a bond from its mean length
    histogram: np.ndarray  # (R, BINS + 1) counts of distances
    wall_share: np.ndarray  # (R,) share of steps with a wall active
    wall_use: list[list[WallUse]]  # by replica, the most frequent first
    bond_changes: list[list[BondChange]]  # by replica, in their order in time; empty if not watched
    alarms: list[dict[str, int]]  # by replica: how many observations had an alarm

    @property
    def intact(self) -> np.ndarray:
        """Replicas (R,) that completed."""
        return np.array([not reason for reason in self.failures])

    @property
    def mean_temperature(self) -> np.ndarray:
        """In K (R,), over all observations but the start."""
        return _mean(self.records.temperature_K[1:])

    @property
    def mean_pressure(self) -> np.ndarray:
        """In bar (R,), over all observations but the start; nan for molecules."""
        return _mean(self.records.pressure[1:])

    @property
    def mean_volume(self) -> np.ndarray:
        """In Å³ (R,), over all observations but the start; nan for molecules."""
        return _mean(self.records.volume[1:])

    @property
    def drift(self) -> np.ndarray:
        """Slope of the conserved energy (R,), meV per atom and ps; nan with fewer than three observations.

        For Langevin dynamics and Bussi's thermostat the heat given to the bath is counted.
        """
        slopes = []
        for r, size in enumerate(self.sizes):
            energy = self.records.conserved_energy[:, r]
            good = np.isfinite(energy)
            if good.sum() < 3:
                slopes.append(np.nan)
                continue
            time = self.records.time_fs[good] / 1000.0
            slope = np.polyfit(time - time.mean(), energy[good] - energy[good][0], 1)[0]
            slopes.append(1000.0 * slope / size)
        return np.array(slopes)

    @property
    def highest_force(self) -> np.ndarray:
        """In eV/Å (R,), of all observations."""
        return np.where(np.isnan(self.records.highest_force), -np.inf, self.records.highest_force).max(0)

    def histogram_error(self, reference: np.ndarray) -> np.ndarray:
        """Error of the distribution of distances (R,) against reference counts, `frame_histogram`'s."""
        return histogram_error(self.histogram, reference)

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict per replica, for tables and files."""
        temperature, drift, force = self.mean_temperature, self.drift, self.highest_force
        pressure, volume = self.mean_pressure, self.mean_volume
        return [
            {
                "name": name,
                "seed": self.seeds[r],
                "survived_ps": float(self.survived_ps[r]),
                "failure": self.failures[r],
                "mean_temperature_K": float(temperature[r]),
                "drift_meV_per_atom_ps": float(drift[r]),
                "highest_force_eV_per_A": float(force[r]),
                **(
                    {"mean_pressure_bar": float(pressure[r]), "mean_volume_A3": float(volume[r])}
                    if np.isfinite(volume[r])
                    else {}
                ),
                "worst_bond_A": float(self.worst_bond[r]),
                "wall_share": float(self.wall_share[r]),
                "wall_pairs": self.wall_use[r][:5],
                "bonds_changed": self.bond_changes[r],
                "alarms": self.alarms[r],
            }
            for r, name in enumerate(self.names)
        ]

    @classmethod
    def of(
        cls,
        replicas: Sequence[Any],
        config: DynamicsConfig,
        steps: int,
        monitor: Monitor,
        parts: Sequence[Part],
    ) -> Outcome:
        """Read everything off the device."""
        failed = monitor.failed_at.cpu().numpy()
        last = np.where(failed < 0, steps, np.maximum(failed - config.interval, 0))
        alive_steps = np.maximum(np.where(failed < 0, steps, failed), 1)
        pairs, worst = monitor.wall_pairs.cpu().numpy(), monitor.wall_worst.cpu().numpy()
        return cls(
            [r.name for r in replicas],
            [r.seed for r in replicas],
            np.array([len(r.numbers) for r in replicas]),
            config,
            steps,
            Part.join(parts),
            last * config.timestep_fs / 1000.0,
            [REASONS[int(code)] for code in monitor.reason.cpu()],
            monitor.worst_bond.cpu().numpy(),
            monitor.histogram.cpu().numpy(),
            monitor.wall_steps.cpu().numpy() / alive_steps,
            [
                _wall_use(replica.numbers, pairs[r], worst[r], int(alive_steps[r]))
                for r, replica in enumerate(replicas)
            ],
            *_watched(replicas, config, monitor),
        )


def _mean(values: np.ndarray) -> np.ndarray:
    """Means (R,) of values (T, R) that are numbers."""
    count = np.isfinite(values).sum(0)
    return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)


def _watched(
    replicas: Sequence[Any], config: DynamicsConfig, monitor: Monitor
) -> tuple[list[list[BondChange]], list[dict[str, int]]]:
    """Changed bonds, and how often each alarm was seen, by replica."""
    dog = monitor.watchdog
    if dog is None:
        return [[] for _ in replicas], [{} for _ in replicas]
    counts = dog.counts.cpu().numpy()
    alarms = [
        {text: int(count) for text, count in zip(REASONS.values(), column, strict=True) if count}
        for column in counts.T
    ]
    return dog.changes([r.numbers for r in replicas], config.timestep_fs), alarms


def _wall_use(numbers: np.ndarray, counts: np.ndarray, worst: np.ndarray, steps: int) -> list[WallUse]:
    label = atom_labels(numbers)
    found = [
        WallUse(f"{label[i]}–{label[j]}", float(counts[i, j] / steps), float(worst[i, j]))
        for i, j in np.argwhere(np.triu(counts[: len(numbers), : len(numbers)])).tolist()
    ]
    return sorted(found, key=lambda use: -use.share)
