"""`geomatt relax`: geometry optimisation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli import options
from geomatt.cli.console import console, finish, note, output, table, warn
from geomatt.cli.generated import options_of, with_options
from geomatt.simulation.settings import RelaxSettings

if TYPE_CHECKING:
    from geomatt.data.structures import Structure
    from geomatt.model import AnyPotential
    from geomatt.simulation.relaxation import Relaxed

HEADINGS = ("", "steps", "energy", "change", "highest\nforce", "moved", "bonds\nchanged", "con-\nverged")


@with_options(settings=options_of(RelaxSettings), reading=options.LENGTH_UNIT)
def relax(
    settings: dict[str, Any],
    reading: dict[str, Any],
    model: options.Model,
    structure: options.StructureFile,
    out: options.OutFolder = None,
    every: Annotated[bool, options.option("Relax every structure of the file.", "--all")] = False,
    frame: options.FrameNumber = 0,
    device: options.Device = None,
    dtype: options.Precise = "float64",
) -> None:
    """Relax a structure to the nearest minimum of the energy.

    Writes the relaxed structure, the path to it, the numbers and a plot into --out; files of
    an earlier call are replaced. Ctrl-C ends the relaxation and keeps what it reached.

    A relaxation that runs away, as one of a molecule that the model does not know, is stopped.
    """
    from geomatt.simulation.inputs import refuse
    from geomatt.simulation.results import draw_relaxation, write_json
    from geomatt.simulation.trajectory import open_trajectory

    chosen = RelaxSettings(**settings)
    if every:
        starts = list(options.read_unlabelled(structure, reading))
    else:
        starts = [options.read_structure(structure, frame, reading)]
    loaded = options.load_model(model, device, dtype)
    for number, start in enumerate(starts):  # before hours are spent on those before it
        refuse(loaded, start, f"structure {number}" if every else "")
    with options.result_folder(out, structure, "relax") as folder:
        files = {name: folder / f"{name}.extxyz" for name in ("relaxed", "path")}
        results: list[Relaxed] = []
        stopped = False
        relaxed, path = (open_trajectory(file) for file in files.values())
        try:
            for number, start in enumerate(starts):
                label = f"structure {number + 1} of {len(starts)}, " if every else ""
                result, stopped = relax_one(loaded, start, chosen, label, path)
                results.append(result)
                relaxed.write(marked(result))
                if stopped:
                    break
        finally:
            relaxed.close()
            path.close()
        files |= {"numbers": folder / "relax.json", "plot": folder / "relax.png"}
        write_json(
            {"model": str(model), "settings": chosen.to_dict(), "structures": [r.to_dict() for r in results]},
            files["numbers"],
        )
        draw_relaxation(results, files["plot"])
        caption = "Energies in eV, forces in eV/Å, moved: RMSD in Å."
        rows = [_row(number, result) for number, result in enumerate(results)]
        output.print(table("Relaxation", HEADINGS, rows, no_wrap=True, caption=caption))
        _explain(results, chosen, stopped)
        if stopped:
            finish(files)
            again = f"geomatt relax {model} {files['relaxed']}"
            note(f"Stopped; the last geometry is kept. Go on with:\n  {again}")
            raise typer.Exit(130)
        finish(files, *_next(model, structure, files["relaxed"], results))
        if not all(r.converged for r in results):
            raise typer.Exit(1)


def _next(model: Path, structure: str, relaxed: Path, results: list[Relaxed]) -> list[str]:
    """Commands that go on with the first structure that did not run away, or make another model."""
    number = next((n for n, r in enumerate(results) if not r.failure), None)
    if number is None:
        label = f"geomatt label {structure} --out labelled.extxyz   # then train on it, too"
        auto = (
            f"geomatt auto {structure} --out {Path(structure).stem}_model   # trains a model of this molecule"
        )
        return [label] if results[0].end.periodic else [auto]
    which = f" --frame {number}" if number else ""
    commands = [f"geomatt md {model} {relaxed}{which} --time 10"]
    end = results[number].end
    if results[number].converged and not end.periodic and len(end) > 1:
        commands.insert(0, f"geomatt vibrations {model} {relaxed}{which}")
    return commands


def marked(result: Relaxed) -> Structure:
    """The end of a relaxation; one that ran away says so in its file."""
    return replace(result.end, info={"failure": result.failure}) if result.failure else result.end


def ran_away(result: Relaxed) -> str:
    """What happened in a relaxation that ran away, and what to do."""
    change = result.energies[-1] - result.energies[0]
    what = "ran away and was stopped at" if result.ran_away else "ended at"
    return (
        f"the relaxation {what} step {result.steps}: {result.failure}; the energy changed by {change:+.3g} "
        "eV. The model does not know this structure: use a model trained on this molecule or material, or "
        "start from a better geometry."
    )


def relax_one(
    model: AnyPotential, start: Structure, settings: RelaxSettings, label: str = "", path: Any = None
) -> tuple[Relaxed, bool]:
    """Relax with a line about the present step; `path` gets every step. True if the user stopped it."""
    from geomatt.simulation.relaxation import RelaxProgress
    from geomatt.simulation.relaxation import relax as relax_structure
    from geomatt.training.interruption import stop_on_signal

    with console.status(f"relaxing {label}…") as status, stop_on_signal() as asked:

        def show(seen: RelaxProgress) -> bool:
            if path is not None:
                path.write(seen.structure)
            status.update(f"relaxing {label}step {seen.step}, highest force {seen.fmax:.4f} eV/Å")
            return bool(asked)

        return relax_structure(model, start, settings, progress=show), bool(asked)


def _row(number: int, r: Relaxed) -> list[str]:
    return [
        str(number),
        str(r.steps),
        _short(r.energies[-1], 1e9),
        _short(r.energies[-1] - r.energies[0], 1e4, "+"),
        _short(r.fmax[-1], 1e4),
        f"{r.rmsd:.3f}",
        str(len(r.bonds_changed)),
        "stopped" if r.ran_away else "yes" if r.converged else "no",
    ]


def _short(value: float, largest: float, sign: str = "") -> str:
    """Four decimals below `largest`, a power of ten above, so that the table stays narrow."""
    return format(value, f"{sign}.4f" if abs(value) < largest else f"{sign}.2e")


def _explain(results: list[Relaxed], settings: RelaxSettings, stopped: bool) -> None:
    for number, r in enumerate(results):
        name = f"Structure {number}: " if len(results) > 1 else ""
        if r.failure:
            warn(name + ran_away(r))
        for bond, what in r.bonds_changed[: 0 if r.ran_away else 5]:
            warn(f"{name}the bond {bond} {what}.")
        if r.failure:
            continue
        if not r.converged and not (stopped and number == len(results) - 1):
            other = "" if settings.optimiser == "fire" else "use --optimiser fire, "
            warn(
                f"{name}the highest force is still {r.fmax[-1]:.2g} eV/Å. Give more --steps, {other}or start "
                "from a better geometry."
            )
        if r.wall_steps and r.fmax[-1] <= settings.fmax:
            warn(
                f"{name}walls at the ends of the training data acted in {r.wall_steps} steps. "
                "Compare with --no-walls, and trust the minimum only if it is the same."
            )
