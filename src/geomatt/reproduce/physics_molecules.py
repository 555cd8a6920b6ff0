"""Dynamics of the shipped models of MD17, and the temperature of its trajectories."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from geomatt.data import Dataset, Structure, collate
from geomatt.model import Potential, fingerprint
from geomatt.reproduce.frame import ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.inputs import md17_model, model_inputs, unseen_frames
from geomatt.simulation import (
    BatchedDynamics,
    DynamicsConfig,
    Group,
    PotentialForces,
    Replica,
    frame_histogram,
)
from geomatt.units import BOLTZMANN

KINDS = ("pair-s", "pair", "fast")  # the first that there is for a molecule, as in md17/aspirin:pair-s
CONFIGS = {
    "nve": DynamicsConfig(ensemble="nve", temperature_K=300.0, timestep_fs=0.5),
    "nvt": DynamicsConfig(ensemble="langevin", temperature_K=500.0, timestep_fs=0.5),
    "own": DynamicsConfig(ensemble="langevin", timestep_fs=0.5),  # at the temperature of the trajectory
    "million": DynamicsConfig(ensemble="langevin", temperature_K=500.0, timestep_fs=0.5, interval=100),
}
STEPS = {"nve": 100_000, "nvt": 200_000, "own": 100_000, "million": 1_000_000}  # 50, 100, 50 and 500 ps
QUICK_STEPS = dict.fromkeys(STEPS, 200)
CURVED, QUICK_CURVED = 50, 2  # frames whose second derivatives give the temperature
SAVE_EVERY = 60.0  # seconds


def run_molecule(
    settings: ExperimentSettings,
    pieces: Pieces,
    progress: ProgressBar,
    part: str,
    molecule: str,
    frames: Dataset,
) -> Any:
    """One simulation of a molecule; None if it is not finished."""
    kind, model = next(
        ((k, m) for k in KINDS if (m := md17_model(settings, molecule, k)) is not None), ("", None)
    )
    if model is None:
        return None
    model.to(settings.device)
    config = CONFIGS[part]
    known: Mapping[str, float] = {}
    if part == "own":
        measured = _temperature(settings, pieces, progress, molecule, model, frames)
        if measured is None:
            return None
        known, config = measured, replace(config, temperature_K=measured["data_K"])
    steps = (QUICK_STEPS if settings.quick else STEPS)[part]
    inputs = {
        **model_inputs(model),
        "data": frames.fingerprint(),
        "config": config.to_dict(),
        "steps": steps,
    }
    name = f"{part}-{molecule}"
    found = pieces.find(name, inputs)
    if found is not None or not settings.wants(part) or settings.out_of_time:
        return found
    started = time.monotonic()
    start = unseen_frames(model, frames, 1, settings.seed)[0]
    dynamics = batched(model, [start], config)
    if not _advance(dynamics, steps, settings, name, progress):
        return None
    outcome = dynamics.outcome()
    reference = frame_histogram(frames.positions.reshape(len(frames), -1, 3))
    row = outcome.rows()[0]
    value = {
        "kind": kind,
        "steps": dynamics.steps,
        **{key: row[key] for key in ("survived_ps", "failure", "mean_temperature_K", "wall_share")},
        "drift_meV_per_atom_ps": row["drift_meV_per_atom_ps"],
        "highest_force_eV_per_A": row["highest_force_eV_per_A"],
        "histogram_error": float(outcome.histogram_error(reference)[0]),
        **known,
    }
    plain = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in value.items()}
    return pieces.put(name, inputs, plain, provenance(settings, time.monotonic() - started))


def batched(
    model: Potential, starts: list[Structure], config: DynamicsConfig, **options: Any
) -> BatchedDynamics:
    """Dynamics of one model from several structures."""
    replicas = [Replica.of(start, seed, model.domain) for seed, start in enumerate(starts)]
    forces = PotentialForces(model, collate(starts, model.dtype, model.device))
    group = Group(replicas, forces)
    return BatchedDynamics([group], config, device=model.device, capture=forces.capturable, **options)


def configurational_temperature(
    forces: np.ndarray, hessian: Callable[[int], np.ndarray], curved: np.ndarray
) -> tuple[float, float]:
    """Temperature in K of a trajectory, and its standard error: k T = ⟨|∇V|²⟩ / ⟨∇²V⟩.

    Holds for positions of a canonical ensemble; velocities are not needed. `forces` (n, 3N) in eV/Å of all
    frames, `hessian` of a frame (3N, 3N), and the numbers `curved` of the frames it is called for. The error
    is that of ten blocks of the trajectory.
    """
    squares = (forces**2).sum(1)
    curvature = np.mean([np.trace(hessian(int(i))) for i in curved])
    blocks = np.array([block.mean() for block in np.array_split(squares, min(10, len(squares)))])
    error = blocks.std(ddof=1) / np.sqrt(len(blocks)) if len(blocks) > 1 else np.nan
    return float(squares.mean() / curvature / BOLTZMANN), float(error / curvature / BOLTZMANN)


def _temperature(
    settings: ExperimentSettings,
    pieces: Pieces,
    progress: ProgressBar,
    molecule: str,
    model: Potential,
    frames: Dataset,
) -> Mapping[str, float] | None:
    """The temperature of the data, by its own forces and the model's second derivatives."""
    count = QUICK_CURVED if settings.quick else CURVED
    inputs = {"model": fingerprint(model), "data": frames.fingerprint(), "frames": count}
    name = f"temperature-{molecule}"
    found = pieces.find(name, inputs)
    if found is not None or not settings.wants("own") or settings.out_of_time:
        return found

    def compute() -> dict[str, float]:
        curved = np.random.default_rng(settings.seed).choice(len(frames), count, replace=False)
        forces = np.asarray(frames.forces).reshape(len(frames), -1)
        with progress(f"temperature of {molecule}", count) as advance:

            def hessian(i: int) -> np.ndarray:
                advance(1)
                return model.hessian(frames[i])

            temperature, error = configurational_temperature(forces, hessian, curved)
        return {"data_K": temperature, "data_K_error": error}

    return pieces.get(name, inputs, compute)


def _advance(
    dynamics: BatchedDynamics, steps: int, settings: ExperimentSettings, name: str, progress: ProgressBar
) -> bool:
    """Run to `steps`, from where an earlier call stopped; False if the time is over before.

    Saved once a minute, so that an interruption costs no more than that.
    """
    checkpoint = settings.work("physics") / f"{name}.safetensors"
    if checkpoint.is_file():
        dynamics.restore(checkpoint)
    saved = time.monotonic()
    with progress(f"dynamics, {name}", steps) as show:
        show(dynamics.steps)
        while dynamics.steps < steps and dynamics.alive:
            part = min(2000, steps - dynamics.steps)
            dynamics.advance(part)
            show(part)
            if settings.out_of_time or time.monotonic() - saved > SAVE_EVERY:
                dynamics.save(checkpoint)
                saved = time.monotonic()
            if settings.out_of_time:
                return False
    checkpoint.unlink(missing_ok=True)
    return True
