"""`geomatt demo`: from data to attention in about a minute, on data that ships with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import bars, finish, note, output, progress_bar, say
from geomatt.cli.options import option, out_option, set_up_training

if TYPE_CHECKING:
    from geomatt.data.dataset import Dataset
    from geomatt.data.structures import Structure
    from geomatt.model import Potential
    from geomatt.simulation.outcome import Outcome

EPOCHS = 50  # about a minute with the dynamics
MD_STEPS = 10_000  # of 0.5 fs: 5 ps
REPLICAS = 4
# Size S, with an average of the weights that is short enough for so few steps.
SETTINGS = {
    "model": "pair",
    "network": {"channels": 64},
    "learning_rate": 4e-3,
    "warmup": 1,
    "ema_decay": 0.99,
}

NEXT = (
    "geomatt data get md17/aspirin",
    "geomatt train md17/aspirin --out runs/aspirin",
    "geomatt explain runs/aspirin YOUR_MOLECULE.xyz -o explain.html",
)


def demo(
    out: Annotated[Path, out_option("Folder for everything the demo makes.")] = Path("geomatt-demo"),
    epochs: Annotated[
        int, option("Passes over the training data; more give a better model.", min=1)
    ] = EPOCHS,
    md_steps: Annotated[int, option("Steps of molecular dynamics, 0.5 fs each.", min=1)] = MD_STEPS,
) -> None:
    """Train on ethanol, test, run molecular dynamics and draw the attention, in about a minute.

    The data is a GFN2-xTB trajectory at 500 K that ships with the package.
    """
    from geomatt.analysis import (
        attention,
        attention_figure,
        bond_scores,
        molecule_figure,
        untrained_attention,
    )
    from geomatt.cli.model_tables import bond_table, error_tables
    from geomatt.data.public.embedded import ethanol
    from geomatt.evaluation import evaluate, parity_plot
    from geomatt.pages.reports import REPORT, run_report
    from geomatt.simulation.results import write_json

    folder = _free(out)
    dataset = ethanol()
    result, split = _train(dataset, folder, epochs)
    potential = result.potential
    with progress_bar("testing on other frames", len(split.test)) as advance:
        errors = evaluate(potential, dataset, indices=split.test, unit="kcal/mol", progress=advance)
    parity_plot(errors, folder / "parity.png")
    lowest = dataset[int(dataset.energies.argmin())]  # type: ignore[union-attr]
    simulated = _simulate(potential, lowest, md_steps, folder)
    records = attention(potential, lowest)
    attention_figure(records, lowest, folder / "attention.png")
    molecule_figure(records, lowest, folder / "molecule.png")
    scores = bond_scores(records, lowest, untrained_attention(potential, lowest))
    with bars() as tell:
        page = run_report(result, dataset, split, errors, commands=NEXT, dynamics=False, progress=tell)
        page.save(folder / REPORT)
    report = {
        "evaluation": errors.to_dict(),
        "training": {
            k: potential.record[k] for k in ("epochs", "seconds", "hardware", "commit", "seed", "settings")
        },
        "dynamics": {
            "ensemble": simulated.config.ensemble,
            "temperature_K": simulated.config.temperature_K,
            "steps": simulated.steps,
            "time_fs": simulated.steps * simulated.config.timestep_fs,
            "walls": False,
            "replicas": simulated.rows(),
        },
    }
    write_json(report, folder / "demo.json")

    for table in error_tables(errors):
        output.print(table)
    output.print(bond_table(scores))
    say(f"Trained in {result.seconds:.0f} s. {_survival(simulated)}\n")
    pictures = {
        "attention against bonds": "attention.png",
        "the molecule": "molecule.png",
        "predicted against true": "parity.png",
        "loss curves": "loss.png",
    }
    files = {what: folder / name for what, name in pictures.items()}
    files |= {"trajectories": folder / "dynamics", "everything on one page, for a browser": folder / REPORT}
    finish(files, f"geomatt info {folder}", *NEXT)


def _free(out: Path) -> Path:
    """`out`, or the first of out-2, out-3 ... that is not taken: a demo never overwrites anything."""
    folder, count = out, 1
    while folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        count += 1
        folder = out.with_name(f"{out.name}-{count}")
    return folder


def _train(dataset: Dataset, folder: Path, epochs: int) -> Any:
    """Train size S, and return the result with the split."""
    from geomatt.cli.train_display import announce, live_progress
    from geomatt.data.splits import random_split
    from geomatt.training import resolve, train

    announce(dataset)
    config = resolve(
        {"data": "embedded/ethanol", "train": 800, "val": 200, "test": 1000, **SETTINGS, "epochs": epochs}
    )
    set_up_training(config)
    split = random_split(len(dataset), 800, 200, 1000, seed=config.split_seed)
    note(
        f"Training on 800 frames for {epochs} epochs, validating on 200; 1000 more (random split) are "
        f"for testing. Everything goes to {folder}"
    )
    with live_progress() as show:
        return train(dataset, split, config, folder, callback=show), split


def _simulate(potential: Potential, start: Structure, steps: int, folder: Path) -> Outcome:
    """Dynamics at 300 K from the frame of lowest energy, without walls: a bad model would not survive it."""
    from geomatt.simulation.md import MDProgress, run_dynamics
    from geomatt.simulation.settings import MDSettings

    settings = MDSettings(
        time=steps * 0.5e-3,
        timestep=0.5,
        temperature=300.0,
        ensemble="nose-hoover",
        replicas=REPLICAS,
        walls=False,
        interval=min(20, steps),
    )
    with bars() as tell:

        def show(state: MDProgress) -> None:
            tell(f"molecular dynamics, {REPLICAS} replicas at 300 K", state.steps, state.total)

        report = run_dynamics(potential, start, settings, folder / "dynamics", progress=show)
    if report.signal:
        raise typer.Exit(128 + report.signal)
    return report.outcome


def _survival(simulated: Outcome) -> str:
    """A sentence about the replicas at the end."""
    rows = simulated.rows()
    failed = [row for row in rows if row["failure"]]
    ps = simulated.steps * simulated.config.timestep_fs / 1000
    kelvin = sum(row["mean_temperature_K"] for row in rows) / len(rows)
    drift = max((abs(row["drift_meV_per_atom_ps"]) for row in rows), default=0.0)
    text = f"{ps:g} ps of dynamics, {len(rows)} replicas at a mean of {kelvin:.0f} K, without walls: "
    if failed:
        worst = min(failed, key=lambda row: row["survived_ps"])
        text += (
            f"{len(failed)} of {len(rows)} fell apart, the first after {worst['survived_ps']:.2f} ps "
            f"({worst['failure']}). Train for more --epochs."
        )
    else:
        changed = sum(len(row["bonds_changed"]) for row in rows)
        text += "all stayed intact" + (f", though {changed} bonds changed." if changed else ".")
    return text + f" The conserved energy drifts by {drift:.2g} meV per atom and ps at most."
