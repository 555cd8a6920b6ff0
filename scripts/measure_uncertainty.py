"""Measure error bars: a committee of four against a single model with estimates from its training data.

    python scripts/measure_uncertainty.py --out DIR [--workers 2]

Models are trained on frames at 400 K, and tested on other frames at 400 K and on frames at 1000 K, far from
the training data. Writes results/uncertainty.json and a table in docs/from-a-molecule.md; needs tblite and
RDKit. Continues after Ctrl-C. With --table alone, only the table is written.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from docs_block import write_block
from scipy.stats import spearmanr

from geomatt.data import read
from geomatt.data.batch import collate
from geomatt.data.dataset import Dataset
from geomatt.data.make import SampleConfig, open_workers, read_molecule, sample
from geomatt.data.splits import Split
from geomatt.evaluation import evaluate
from geomatt.model import AnyPotential, Potential, load
from geomatt.model.calibration import LEVELS, force_errors
from geomatt.training import hardware, resolve, train_members
from geomatt.training.dataset import make_splits, resolve_sizes
from geomatt.training.folder import CONFIG

ROOT = Path(__file__).resolve().parents[1]
MOLECULES = {"ethanol": "CCO", "malonaldehyde": "O=CC=CO"}
METHOD, COLD, HOT = "GFN2-xTB", 400.0, 1000.0
FRAMES = {COLD: 700, HOT: 300}
SETTINGS = {
    "members": 4, "epochs": 120, "train": 300, "val": 100, "test": 300, "split": "blocked",
    "network": {"channels": 32},
}  # fmt: skip
LEVEL = 0.9
RESULT, PAGE = "results/uncertainty.json", "docs/from-a-molecule.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="write the table of the result there is")
    options = parser.parse_args()
    if options.table:
        found = json.loads((ROOT / RESULT).read_text(encoding="utf-8"))
        write_block(ROOT / PAGE, "uncertainty", table(found))
        return
    if options.out is None:
        parser.error("--out is needed")
    options.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "method": METHOD,
        "frames": {f"{t:g} K": n for t, n in FRAMES.items()},
        "settings": SETTINGS,
        "level": LEVEL,
        "molecules": {},
    }
    for name, smiles in MOLECULES.items():
        with open_workers(options.workers) as workers:
            data = {t: _sampled(options.out, name, smiles, t, workers) for t in FRAMES}
        model = _committee(data[COLD], options.out / f"{name}_model")
        split = Split.from_dict(model.record["split"])
        tests = {"like the training data": data[COLD].select(split.test), f"{HOT:g} K": data[HOT]}
        rows = {
            words: {"committee": _quality(model, frames), "single model": _quality(model.members[0], frames)}
            for words, frames in tests.items()
        }
        result["molecules"][name] = {"tests": rows, **_times(model.members[0], data[COLD])}
        print(name, json.dumps(rows, indent=1), flush=True)
    result |= {"hardware": hardware("cpu"), "commit": model.record["commit"]}  # of the training
    text = json.dumps(result, indent=2) + "\n"
    (ROOT / RESULT).write_text(text, encoding="utf-8")
    write_block(ROOT / PAGE, "uncertainty", table(result))


def _sampled(folder: Path, name: str, smiles: str, temperature: float, workers: Any) -> Dataset:
    path = folder / f"{name}_{temperature:g}.npz"
    if not path.is_file():
        frames, seed = FRAMES[temperature], 1 if temperature == COLD else 2
        config = SampleConfig(METHOD, frames=frames, temperature=(temperature,), seed=seed)
        sample(read_molecule(smiles), config, path, workers=workers, name=name)
    return read(path)


def _committee(data: Dataset, folder: Path) -> AnyPotential:
    config = resolve_sizes(resolve(SETTINGS), len(data))
    train_members(data, make_splits(config, len(data)), config, folder, resume=(folder / CONFIG).is_file())
    return load(folder)


def _quality(model: AnyPotential, frames: Dataset) -> dict[str, Any]:
    """Errors, how well spread or estimate rank them, and shares of errors below the error bars."""
    found = evaluate(model, frames)
    assert found.forces is not None
    assert found.forces_spread is not None
    assert found.energies_spread is not None
    assert found.coverage is not None
    assert found.data.forces is not None
    assert found.data.energies is not None
    assert model.calibration is not None
    assert model.calibration.forces is not None
    force = force_errors(found.forces, found.data.forces)
    energy = np.abs(found.energies - found.data.energies)
    return {
        "force_mae_eV_per_A": found.overall.forces_mae,
        "rank_correlation": {
            "forces": float(spearmanr(found.forces_spread, force)[0]),
            "energy": float(spearmanr(found.energies_spread, energy)[0]),
        },
        "covered": {kind: both["calibrated"][LEVELS.index(LEVEL)] for kind, both in found.coverage.items()},
        "mean_bar": {
            "forces_eV_per_A": float(model.calibration.forces.bar(found.forces_spread, LEVEL).mean()),
            "energy_eV": float(model.calibration.energy.bar(found.energies_spread, LEVEL).mean()),
        },
    }


def _times(model: Potential, data: Dataset, frames: int = 100) -> dict[str, float]:
    """Milliseconds for a frame, in batches: of the model with forces, and of its error estimate."""
    batch = collate([data[i] for i in range(frames)], model.dtype)
    assert model.estimate is not None
    found = {}
    for name, work in (("model_ms", model.evaluate), ("estimate_ms", model.estimate.errors)):
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            with torch.no_grad():
                work(batch)
            seconds.append(time.perf_counter() - began)
        found[name] = 1000 * float(np.median(seconds)) / frames
    return found


def table(result: dict[str, Any]) -> str:
    """The result in Markdown."""
    lines = [
        "| tested on | model | rank correlation with errors: forces, energy "
        "| errors below 90 % bars: forces, energy | mean bar: forces (meV/Å), energy (meV) |",
        "|---|---|---|---|---|",
    ]
    for name, molecule in result["molecules"].items():
        for words, models in molecule["tests"].items():
            for model, found in models.items():
                rank, covered, bar = (found[k] for k in ("rank_correlation", "covered", "mean_bar"))
                lines.append(
                    f"| {name}, {words} | {model} | {rank['forces']:.2f}, {rank['energy']:.2f} "
                    f"| {covered['forces']:.0%}, {covered['energy']:.0%} "
                    f"| {1000 * bar['forces_eV_per_A']:.0f}, {1000 * bar['energy_eV']:.0f} |"
                )
    times = [m["estimate_ms"] / m["model_ms"] for m in result["molecules"].values()]
    settings = result["settings"]
    return "\n".join(
        [
            *lines,
            "",
            f"*{result['method']}, pair states with {settings['network']['channels']} channels trained on "
            f"{settings['train']} frames at {COLD:g} K and calibrated on {settings['val']} more, tested on "
            f"other frames at {COLD:g} K and on frames at {HOT:g} K; a committee of {settings['members']} "
            f"and its first member. The estimate takes {min(times):.0%} to {max(times):.0%} of the time of "
            "the model (`scripts/measure_uncertainty.py`, `results/uncertainty.json`).*",
        ]
    )


if __name__ == "__main__":
    main()
