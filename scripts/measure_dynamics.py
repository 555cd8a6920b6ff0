"""Stability of the shipped models in dynamics, and the speed of batched dynamics on this machine.

    python scripts/measure_dynamics.py prepare DATA_DIR inputs.npz      # where the MD17 files are
    python scripts/measure_dynamics.py run inputs.npz --device cuda --ps 20 --out result.json

`prepare` writes what `run` needs of the data: ranges of distances, first frames, distributions of distances.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import geomatt
from geomatt.data import read
from geomatt.data.structures import Structure
from geomatt.model.domain import Domain
from geomatt.simulation import BatchedDynamics, DynamicsConfig, Group, Replica
from geomatt.simulation.forces import engine_forces
from geomatt.simulation.monitor import frame_histogram

MOLECULES = [
    "aspirin", "benzene", "ethanol", "malonaldehyde", "naphthalene", "salicylic_acid", "toluene", "uracil",
]  # fmt: skip
FRAMES, SEEDS = 1000, 5


def prepare(data: Path, target: Path) -> None:
    """Ranges of 1000 frames, `SEEDS` other frames to start from, and h(r) of all, for each molecule."""
    arrays: dict[str, Any] = {}
    random = np.random.default_rng(0)
    for name in MOLECULES:
        frames = read(data / f"md17_{name}.npz")
        order = random.permutation(len(frames))
        domain = Domain.measure(frames.select(order[:FRAMES]))
        starts = frames.select(order[FRAMES : FRAMES + SEEDS])
        arrays[f"{name}.domain"] = np.array(json.dumps(domain.to_dict()))
        arrays[f"{name}.numbers"] = frames[0].numbers
        arrays[f"{name}.starts"] = starts.positions.reshape(SEEDS, -1, 3)
        arrays[f"{name}.histogram"] = frame_histogram(frames.positions.reshape(len(frames), -1, 3))
    np.savez_compressed(target, **arrays)


def simulation(
    inputs: Any, names: list[str], options: argparse.Namespace, *, walls: bool, capture: bool | None = None
) -> BatchedDynamics:
    """All molecules and seeds in one simulation, a group for each model."""
    groups = []
    for name in names:
        domain = Domain.from_dict(json.loads(str(inputs[f"{name}.domain"])))
        domain = Domain(domain.ranges, dataclasses.replace(domain.walls, pairs=options.pairs))
        numbers = inputs[f"{name}.numbers"]
        replicas = [
            Replica.of(Structure(numbers, start), seed, domain, walls=walls, name=name)
            for seed, start in enumerate(inputs[f"{name}.starts"][: options.seeds])
        ]
        potential = geomatt.load(f"md17/{name}{options.suffix}", options.device)
        engine = potential.network.engine()
        prepared = engine.prepare(potential.network.stacked(), keep=True)
        z = torch.from_numpy(np.tile(numbers, (1, len(replicas), 1))).to(options.device)
        offset = potential.normalisation.offset(z[0]).sum(-1)[None]
        scale = torch.tensor([potential.normalisation.scale], device=options.device)
        groups.append(Group(replicas, engine_forces(engine, prepared, z, potential.dtype, offset, scale)))
    config = DynamicsConfig(ensemble=options.ensemble, temperature_K=options.temperature, chain=options.chain)
    return BatchedDynamics(groups, config, device=options.device, capture=capture)


def run(options: argparse.Namespace) -> dict[str, Any]:
    inputs = np.load(options.inputs)
    names = options.molecules.split(",")
    result: dict[str, Any] = {"options": {k: str(v) for k, v in vars(options).items()}, "rows": []}
    if options.device == "cuda":
        result["graph_equals_eager"] = graph_equals_eager(inputs, names, options)
    for walls in {"both": (False, True), "on": (True,), "off": (False,)}[options.walls]:
        dynamics = simulation(inputs, names, options, walls=walls)
        dynamics.run(dynamics.config.interval)  # warm
        steps = round(options.ps * 1000 / dynamics.config.timestep_fs / 10) * 10
        start = time.perf_counter()
        outcome = dynamics.run(steps)
        speed = steps / (time.perf_counter() - start)
        rows = outcome.rows()
        for r, row in enumerate(rows):
            error = outcome.histogram_error(inputs[f"{row['name']}.histogram"])[r]
            result["rows"].append({**row, "walls": walls, "histogram_error": float(error)})
        result[f"steps_per_second_{'with' if walls else 'without'}_walls"] = speed
        print(f"walls {walls}: {speed:.0f} steps/s of {len(rows)} replicas", flush=True)
        for name in names:
            _describe(name, [row for row in result["rows"] if row["name"] == name and row["walls"] == walls])
    return result


def _describe(name: str, rows: list[dict[str, Any]]) -> None:
    intact = sum(not row["failure"] for row in rows)
    times = ", ".join(f"{row['survived_ps']:.2f}" for row in rows)
    mean = {key: np.mean([row[key] for row in rows]) for key in ("wall_share", "mean_temperature_K")}
    error = np.mean([row["histogram_error"] for row in rows])
    print(
        f"  {name}: {intact} of {len(rows)} intact; {times} ps; {mean['mean_temperature_K']:.0f} K; "
        f"walls {100 * mean['wall_share']:.2f} %; h(r) {error:.3f}",
        flush=True,
    )


def graph_equals_eager(inputs: Any, names: list[str], options: argparse.Namespace) -> float:
    """Largest difference of positions in Å after 100 steps with and without a CUDA graph."""
    found = []
    for capture in (True, False):
        dynamics = simulation(inputs, names, options, walls=True, capture=capture)
        dynamics.run(100)
        found.append(dynamics.state.positions.clone())
    difference = float((found[0] - found[1]).abs().max())
    print(f"graph against eager after 100 steps: {difference:.2e} Å", flush=True)
    return difference


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("data", type=Path)
    first.add_argument("target", type=Path)
    second = commands.add_parser("run")
    second.add_argument("inputs", type=Path)
    second.add_argument("--device", default="cpu")
    second.add_argument("--molecules", default=",".join(MOLECULES))
    second.add_argument("--suffix", default=":fast", help="which shipped models: '', :fast")
    second.add_argument("--ensemble", default="nose-hoover")
    second.add_argument("--temperature", type=float, default=500.0)
    second.add_argument("--chain", type=int, default=3)
    second.add_argument("--walls", default="both", choices=["both", "on", "off"])
    second.add_argument("--pairs", default="local", choices=["local", "all"])
    second.add_argument("--ps", type=float, default=10.0)
    second.add_argument("--seeds", type=int, default=SEEDS)
    second.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.command == "prepare":
        prepare(options.data, options.target)
        return
    result = run(options)
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
