"""Dynamics with a model, and the frames of it that are worth a label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from geomatt.data import Dataset
from geomatt.data.batch import collate
from geomatt.data.make.intact import Bonding
from geomatt.data.novelty import novelty
from geomatt.data.structures import Structure
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential
from geomatt.simulation import BatchedDynamics, DynamicsConfig, Group, Replica
from geomatt.simulation.forces import PotentialForces
from geomatt.simulation.outcome import Part
from geomatt.workflow.config import ImproveConfig

APART = 5  # frames of one trajectory between two that are chosen


@dataclass(frozen=True)
class Candidates:
    """Frames of dynamics with a model."""

    structures: list[Structure]
    replica: np.ndarray  # (n,) which trajectory
    time: np.ndarray  # (n,) number of the frame in it


def explore(
    model: AnyPotential,
    starts: Dataset,
    config: ImproveConfig,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> Candidates:
    """Frames of Langevin dynamics from randomly chosen starts of one molecule.

    Trajectories end where a bond breaks, and no walls hold them: frames outside the data are what is wanted.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(starts), config.replicas, replace=len(starts) < config.replicas)
    first = [starts[int(i)] for i in chosen]
    replicas = [Replica.of(s, seed=int(rng.integers(2**31)), domain=model.domain, walls=False) for s in first]
    forces = PotentialForces(model, collate(first, model.dtype, model.device))
    dynamics = BatchedDynamics(
        [Group(replicas, forces)],
        DynamicsConfig(
            ensemble="langevin",
            temperature_K=config.temperature,
            timestep_fs=config.timestep,
            interval=config.stride,
        ),
        device=model.device,
        capture=False,
        keep_frames=True,
    )
    parts: list[Part] = []
    dynamics.run(config.records * config.stride, progress=progress, on_part=parts.append)
    alive = np.concatenate([np.isfinite(p.potential_energy) for p in parts])  # (T, R)
    positions = np.concatenate([p.positions for p in parts])  # (T, R, N, 3)
    structures, owner, time = [], [], []
    for r, start in enumerate(first):
        bonding = Bonding.of(start)
        for t in range(1, len(alive)):  # the first is a frame of the data
            if not alive[t, r] or bonding.fault(positions[t, r]):
                break
            structures.append(replace(start, positions=positions[t, r], energy=None, forces=None, info={}))
            owner.append(r)
            time.append(t)
    if not structures:
        raise GeomAttError(
            "The molecule fell apart at once in dynamics with this model. Train it longer, or use a lower "
            "`temperature`."
        )
    return Candidates(structures, np.array(owner), np.array(time))


def choose(candidates: Candidates, score: np.ndarray, count: int) -> np.ndarray:
    """Numbers of `count` frames with high scores, no two of them close in time if there are enough."""
    order = np.argsort(-score, kind="stable")
    for apart in (APART, 1):
        taken: list[int] = []
        for i in order.tolist():
            same = [j for j in taken if candidates.replica[j] == candidates.replica[i]]
            if all(abs(candidates.time[j] - candidates.time[i]) >= apart for j in same):
                taken.append(i)
            if len(taken) == count:
                break
        if len(taken) == min(count, len(order)):
            break
    return np.sort(np.array(taken, dtype=np.int64))


def scores(model: AnyPotential, known: Dataset, found: list[Structure], how: str, seed: int) -> np.ndarray:
    """The values (n,) frames are chosen by: spread of a committee, distance from known frames, or chance."""
    if how == "random":
        return np.random.default_rng(seed).random(len(found))
    if how == "novel" or len(model.members) < 2:
        return novelty(found, known)
    return uncertainty(model, found)


def uncertainty(model: AnyPotential, structures: list[Structure]) -> np.ndarray:
    """Largest spread of the force on an atom, of each structure (n,), eV/Å."""
    predictions = model.predict(structures, check_domain=False)
    return np.array([float(p.forces_spread.max()) for p in predictions if p.forces_spread is not None])
