"""From a molecule to a force field: sample, check, train, evaluate, try out, report."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from geomatt.arguments import path_of, require
from geomatt.data import Dataset, check_labels, read
from geomatt.data.make import SampleConfig, Workers, sample
from geomatt.data.make.intact import Bonding
from geomatt.data.make.sampling import fingerprint, frames_word, total_frames
from geomatt.data.structures import Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate, parity_plot
from geomatt.model import AnyPotential, load
from geomatt.pages.reports import REPORT
from geomatt.training import TrainCallback, resolve, train_members
from geomatt.training.dataset import make_splits, resolve_inputs, resolve_sizes
from geomatt.training.folder import CONFIG
from geomatt.training.members import stored_settings
from geomatt.workflow.config import AutoConfig
from geomatt.workflow.pages import auto_page
from geomatt.workflow.report import report_text
from geomatt.workflow.stages import Watch, stages, unwatched

DATA, MODEL = "data.npz", "model"


def auto(
    molecule: Sequence[Structure],
    config: AutoConfig,
    out: str | os.PathLike[str],
    *,
    workers: Workers | None = None,
    watch: Watch = unwatched,
    training: Callable[[], AbstractContextManager[TrainCallback | None]] = nullcontext,
    name: str = "",
) -> dict[str, Any]:
    """Make a force field of a molecule in the folder `out`; returns the report, also in `report.json`.

    Every stage is stored when it is finished, and continued when it is not: the same call goes on after any
    interruption. `watch(what, total, unit)` and `training()` give what is told about progress.
    """
    folder = path_of("out", out)
    require("settings", config, AutoConfig, "AutoConfig(frames=1000)")
    settings = {**config.to_dict(), "molecule": fingerprint(molecule)}
    with stages(folder, "auto", settings) as done:
        if not (folder / DATA).is_file():
            sampling = _sample_config(config)
            with watch("sampling", total_frames(sampling), frames_word(sampling)) as advance:
                sample(molecule, sampling, folder / DATA, workers=workers, progress=advance, name=name)
        dataset = read(folder / DATA)
        checked = done.once("check", lambda: {"warnings": check_labels(dataset)})
        with training() as callback:
            trained = _train(dataset, config, folder, callback)
        model = load(folder / MODEL)
        motion = done.once("dynamics", lambda: _try_out(model, dataset, config, folder, watch))
        data = done.once("data", dict)

        def errors_and_page() -> dict[str, Any]:
            with watch("testing", len(dataset), "frames") as advance:
                result = evaluate(model, dataset, unit="kcal/mol", progress=advance)
            parity_plot(result, folder / "parity.png")
            page = auto_page(model, result, folder / MODEL, data, checked["warnings"], motion)
            page.save(folder / REPORT)
            return result.to_dict()

        errors = done.once("evaluation", errors_and_page)
        report = {
            "name": name or dataset.name,
            "formula": formula(dataset[0].numbers),
            "atoms": len(dataset[0]),
            "folder": str(folder),
            "data": data,
            "warnings": checked["warnings"],
            "training": trained,
            "evaluation": errors,
            "dynamics": motion,
        }
        done.write("report", {**report, "folder": folder.name})
        (folder / "report.txt").write_text(report_text(report), encoding="utf-8")
    return report


def _sample_config(config: AutoConfig) -> SampleConfig:
    names = SampleConfig.__dataclass_fields__
    return SampleConfig(**{name: getattr(config, name) for name in names})


def _train(
    dataset: Dataset, config: AutoConfig, folder: Path, callback: TrainCallback | None
) -> dict[str, Any]:
    """Train, or continue to. Tests use stretches of frames of their own: neighbours in time are alike."""
    resume = (folder / MODEL / CONFIG).is_file()
    given = {
        "data": str((folder / DATA).resolve()),
        "model": config.model,
        "network": config.network,
        "epochs": config.epochs,
        "members": config.members,
        "train": config.train_frames,
        "val": config.validation_frames,
        "split": "blocked",
        "report_unit": "kcal/mol",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "seed": config.seed,
    }
    asked = resolve({} if resume else given, stored_settings(folder / MODEL) if resume else None)
    asked = resolve_sizes(asked.replace(data=given["data"]), len(dataset))
    if not resume:
        asked = resolve_inputs(asked, dataset)
    results = train_members(
        dataset,
        make_splits(asked, len(dataset)),
        asked,
        folder / MODEL,
        resume=resume,
        callback=callback,
    )
    return {
        "model": asked.model,
        "members": len(results),
        "train": asked.train,
        "validation": asked.val,
        "epochs": max(r.epochs for r in results),
        "seconds": round(sum(r.seconds for r in results), 1),
    }


def _try_out(
    model: AnyPotential, dataset: Dataset, config: AutoConfig, folder: Path, watch: Watch
) -> dict[str, Any]:
    """Dynamics at constant energy from the frame of lowest energy; a drift is an error of the force field."""
    from ase import Atoms

    from geomatt.simulation import GeomAttCalculator, run_md

    assert dataset.energies is not None
    lowest = dataset[int(dataset.energies.argmin())]
    steps = max(1, round(1000 * config.picoseconds / config.timestep))
    calculator = GeomAttCalculator(model)
    with watch("dynamics at constant energy", steps, "steps") as advance:
        try:
            result = run_md(
                Atoms(lowest.numbers, lowest.positions),
                calculator,
                steps=steps,
                timestep_fs=config.timestep,
                temperature_K=config.start_temperature,
                ensemble="nve",
                seed=config.seed,
                trajectory=folder / "dynamics.traj",
                progress=advance,
            )
        except GeomAttError as error:  # a diverged simulation is a result
            return {"failure": str(error)}
    fault = Bonding.of(lowest).fault(result.atoms.positions)
    return {
        **result.to_dict(),
        "trajectory": "dynamics.traj",
        "failure": f"the molecule fell apart ({fault})" if fault else "",
        "steps_with_walls": calculator.wall_steps,
    }
