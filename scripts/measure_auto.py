"""Measure how long the stages of a finished `geomatt auto` take, and write its figures into the docs.

    geomatt auto "CC(C)=CCC/C(C)=C/CO" --out RUN
    python scripts/measure_auto.py RUN --name geraniol

Repeats a piece of every stage with the run's own molecule and settings, each for about 20 s: a run that was
interrupted, or shared its cores, does not say how long it would have taken. Writes results/auto.json, which
holds a result for each name, and a table of each in docs/from-a-molecule.md. With --table alone, only the
tables are written.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from docs_block import write_block

from geomatt.data import Dataset, read
from geomatt.data.make import SampleConfig, open_workers
from geomatt.data.make.starts import make_start
from geomatt.data.make.walker import Walk, walk
from geomatt.data.make.workers import single
from geomatt.evaluation import evaluate
from geomatt.model import AnyPotential, load
from geomatt.simulation import GeomAttCalculator, run_md
from geomatt.training import Interrupted, TrainProgress, hardware, resolve, train_members
from geomatt.training.dataset import make_splits
from geomatt.training.members import stored_settings
from geomatt.training.record import commit
from geomatt.workflow import AutoConfig

ROOT = Path(__file__).resolve().parents[1]
RESULT, PAGE = "results/auto.json", "docs/from-a-molecule.md"
SECONDS = 20.0  # of each measurement, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--name", help="of the molecule; that of the run by default")
    parser.add_argument("--table", action="store_true", help="write the tables of the results there are")
    options = parser.parse_args()
    if not options.table:
        if options.run is None:
            parser.error("RUN is needed")
        store(measured(options.run, options.name), ROOT / RESULT)
    found = json.loads((ROOT / RESULT).read_text(encoding="utf-8"))
    write_block(ROOT / PAGE, "auto", "\n\n".join(map(table, found.values())))


def store(result: dict[str, Any], path: Path) -> None:
    """Add a result to the file, or replace the one of the same name; the others stay."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found[result["name"]] = result
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def measured(run: Path, name: str | None) -> dict[str, Any]:
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    data, model = read(run / "data.npz"), load(run / "model")
    asked = json.loads((run / "auto.json").read_text(encoding="utf-8"))
    settings = SampleConfig(**report["data"]["made_by"]["settings"])
    trained = report["training"]
    steps = trained["epochs"] * math.ceil(trained["train"] / stored_settings(run / "model")["batch"])
    frames = settings.frames + settings.walkers * settings.equilibration_frames
    counts = {
        "reference calculations": frames * settings.stride,
        "training steps": steps,
        "steps of dynamics": report["dynamics"].get("steps", 0),  # none if it failed
        "frames tested": report["evaluation"]["structures"],
    }
    times = {
        "reference calculations": sampling(settings, data),
        "training steps": training(run, data),
        "steps of dynamics": dynamics(model, data, settings),
        "frames tested": testing(model, data),
    }
    return {
        "name": name or report["name"],
        "formula": report["formula"],
        "atoms": report["atoms"],
        "method": report["data"]["made_by"]["method"],
        "settings": {key: value for key, value in asked.items() if key != "molecule"},
        "fingerprint": asked["molecule"],
        "data": {k: report["data"][k] for k in ("frames", "broken", "not_converged", "repeated_calculations")}
        | {"fingerprint": data.fingerprint()},
        "warnings": report["warnings"],
        "errors": {**report["evaluation"]["overall"], "frames": report["evaluation"]["structures"]},
        "unit": report["evaluation"]["unit"]["energy"],
        "coverage": report["evaluation"].get("coverage"),
        "dynamics": report["dynamics"],
        "stages": {key: {"count": counts[key], "seconds_each": times[key]} for key in counts},
        "hardware": hardware("cpu"),
        "commit": {"training": model.record["commit"], "times": commit()},
    }


def sampling(config: SampleConfig, data: Dataset) -> float:
    """Seconds per reference calculation, in one process with one thread."""
    start = make_start(replace(config, relax=False), data[0])
    task = Walk(start, replace(config, equilibrate=0.0), 0)
    records: list[bytes] = []

    def timed() -> Any:
        began = time.perf_counter()
        records.extend((yield walk, (task, None, 0, 10**9, SECONDS)))
        records.append(str(time.perf_counter() - began).encode())

    with open_workers(1) as workers:
        workers.run([single(walk, task, None, 0, 1, 0.0)])  # the process starts
        workers.run([timed()])
    return float(records.pop()) / (len(records) * config.stride)


def training(run: Path, data: Dataset) -> float:
    """Seconds per step, validation included."""
    config = resolve({}, stored_settings(run / "model")).replace(members=0, epochs=1000, patience=0)
    split = make_splits(config, len(data))
    told: list[tuple[float, int]] = []

    def enough(progress: TrainProgress) -> bool:
        if progress.new_row:
            told.append((time.perf_counter(), progress.epoch))
        return bool(told) and told[-1][0] - told[0][0] > SECONDS

    with tempfile.TemporaryDirectory() as folder, suppress(Interrupted):
        train_members(data, split, config, Path(folder) / "run", callback=enough)
    (first, epoch), (last, end) = told[0], told[-1]
    return (last - first) / ((end - epoch) * math.ceil(len(split[0].train) / config.batch))


def dynamics(model: AnyPotential, data: Dataset, config: SampleConfig, steps: int = 100) -> float:
    """Seconds per step of dynamics."""
    assert data.energies is not None
    lowest = data[int(data.energies.argmin())]
    atoms = Atoms(lowest.numbers, lowest.positions)
    calculator = GeomAttCalculator(model)
    for _ in range(2):  # the first prepares
        began = time.perf_counter()
        run_md(atoms, calculator, steps=steps, timestep_fs=config.timestep, temperature_K=300, ensemble="nve")
    return (time.perf_counter() - began) / steps


def testing(model: AnyPotential, data: Dataset) -> float:
    """Seconds per frame, energies and forces."""
    index = np.arange(min(100, len(data)))
    for _ in range(2):
        began = time.perf_counter()
        evaluate(model, data, indices=index, exclude_trained=False)
    return (time.perf_counter() - began) / len(index)


def table(result: dict[str, Any]) -> str:
    """A molecule in the block of the page."""
    data, motion, errors, unit = (result[key] for key in ("data", "dynamics", "errors", "unit"))
    length, course = "", f"failed: {motion['failure']}"
    if "time_fs" in motion:
        drift = 1000 * motion["drift_eV_per_atom_ps"]
        whole = f"; {motion['failure']}" if motion["failure"] else ", intact"
        length = f", {motion['time_fs'] / 1000:g} ps"
        course = f"{motion['mean_temperature_K']:.0f} K, drift {drift:.2g} meV per atom and ps{whole}"
    tested = f"force MAE on {errors['frames']} frames of other stretches"
    lines = [
        f"| {result['name']}, {result['formula']}, {result['atoms']} atoms | |",
        "|---|---|",
        f"| {tested} | {errors['forces_mae']:.3g} {unit}/Å |",
        f"| energy MAE | {errors['energy_mae']:.3g} {unit} |",
        f"| dynamics at constant energy{length} | {course} |",
    ]
    total = 0.0
    for what, stage in result["stages"].items():
        seconds = stage["count"] * stage["seconds_each"]
        total += seconds
        lines.append(
            f"| {stage['count']:,} {what} | {1000 * stage['seconds_each']:.3g} ms each: {_time(seconds)} |"
        )
    lines += [
        f"| together | {_time(total)} |",
        "",
        f"*{_settings(result['settings'])}; {result['hardware']}, one process "
        f"for {result['method']['calculator']} with one thread. Times are those of single steps, measured "
        f"for {SECONDS:g} s and multiplied (`scripts/measure_auto.py`, `results/auto.json`). "
        f"{data['broken']} frames fell apart, {data['repeated_calculations']} calculations were repeated.*",
    ]
    return "\n".join(lines)


def _settings(given: dict[str, Any]) -> str:
    default = AutoConfig().to_dict()
    other = [f"`{name}` {json.dumps(value)}" for name, value in given.items() if value != default[name]]
    return f"Defaults, but for {', '.join(other)}" if other else "All settings at their defaults"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    main()
