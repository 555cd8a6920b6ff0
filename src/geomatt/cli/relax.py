"""`geomatt relax`: geometry optimisation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import console, note, output, say
from geomatt.cli.generated import with_config
from geomatt.cli.options import (
    WITHOUT_LABELS,
    Device,
    FrameNumber,
    LengthUnit,
    OutFolder,
    Precise,
    load_model,
    read_data,
    read_structure,
    result_folder,
)
from geomatt.simulation.settings import RelaxSettings

if TYPE_CHECKING:
    from geomatt.data.structures import Structure
    from geomatt.simulation.relaxation import Relaxed


@with_config(RelaxSettings)
def relax(
    settings: dict[str, Any],
    model: Annotated[
        str,
        typer.Argument(
            help="A model file, the folder of a run, or a name of `geomatt models`.", show_default=False
        ),
    ],
    structure: Annotated[str, typer.Argument(help="A file with the structure.", show_default=False)],
    out: OutFolder = None,
    every: Annotated[bool, typer.Option("--all", help="Relax every structure of the file.")] = False,
    frame: FrameNumber = 0,
    length_unit: LengthUnit = None,
    device: Device = None,
    dtype: Precise = "float64",
) -> None:
    """Relax a structure to the nearest minimum of the energy.

    Writes the relaxed structure, the path to it, the numbers and a plot into --out; files of
    an earlier call are replaced. Ctrl-C ends the relaxation and keeps what it reached.
    """
    from geomatt.simulation.results import draw_relaxation, write_json
    from geomatt.simulation.trajectory import Frame, open_trajectory

    chosen = RelaxSettings(**settings)
    if every:
        starts = list(read_data(structure, None, length_unit, WITHOUT_LABELS))
    else:
        starts = [read_structure(structure, frame, length_unit)]
    loaded = load_model(Path(model), device, dtype)
    with result_folder(out, structure, "relax") as folder:
        files = {name: folder / f"{name}.extxyz" for name in ("relaxed", "path")}
        results: list[Relaxed] = []
        relaxed, path = (open_trajectory(file) for file in files.values())
        try:
            for number, start in enumerate(starts):
                label = f"structure {number + 1} of {len(starts)}, " if every else ""
                result, stopped = _relax_one(loaded, start, chosen, path, label)
                results.append(result)
                relaxed.write(Frame(result.end))
                if stopped:
                    break
        finally:
            relaxed.close()
            path.close()
        files |= {"numbers": folder / "relax.json", "plot": folder / "relax.png"}
        write_json(
            {"model": model, "settings": chosen.to_dict(), "structures": [r.to_dict() for r in results]},
            files["numbers"],
        )
        draw_relaxation(results, files["plot"])
        output.print(_table(results))
        _explain(results, chosen)
        lines = "\n".join(f"{what}: {file}" for what, file in files.items())
        say(lines)
        end = files["relaxed"]
        vibrate = "" if results[0].end.periodic else f"\n  geomatt vibrations {model} {end}"
        say(f"Next:{vibrate}\n  geomatt md {model} {end} --time 10")
        if not all(r.converged for r in results):
            raise typer.Exit(1)


def _relax_one(
    model: Any, start: Structure, settings: RelaxSettings, path: Any, label: str
) -> tuple[Relaxed, bool]:
    """Relax with a line about the present step; True if the user stopped it."""
    from geomatt.simulation.relaxation import RelaxProgress
    from geomatt.simulation.relaxation import relax as relax_structure
    from geomatt.simulation.trajectory import Frame
    from geomatt.training.interruption import stop_on_signal

    with console.status(f"relaxing {label}…") as status, stop_on_signal() as asked:

        def show(seen: RelaxProgress) -> bool:
            path.write(Frame(seen.structure))
            status.update(f"relaxing {label}step {seen.step}, highest force {seen.fmax:.4f} eV/Å")
            return bool(asked)

        return relax_structure(model, start, settings, progress=show), bool(asked)


def _table(results: list[Relaxed]) -> Any:
    from rich.table import Table

    table = Table(title="Relaxation", title_justify="left")
    for heading in (
        "",
        "steps",
        "energy",
        "change",
        "highest\nforce",
        "moved",
        "bonds\nchanged",
        "converged",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, r in enumerate(results):
        table.add_row(
            str(number),
            str(r.steps),
            f"{r.energies[-1]:.4f}",
            f"{r.energies[-1] - r.energies[0]:+.4f}",
            f"{r.fmax[-1]:.4f}",
            f"{r.rmsd:.3f}",
            str(len(r.bonds_changed)),
            "yes" if r.converged else "no",
        )
    table.caption = "Energies in eV, forces in eV/Å, moved: RMSD in Å."
    table.caption_justify = "left"
    return table


def _explain(results: list[Relaxed], settings: RelaxSettings) -> None:
    for number, r in enumerate(results):
        name = f"Structure {number}: " if len(results) > 1 else ""
        for bond, what in r.bonds_changed[:5]:
            note(f"Warning: {name}the bond {bond} {what}.", style="yellow")
        if not r.converged:
            note(
                f"Warning: {name}the highest force is still {r.fmax[-1]:.4f} eV/Å. Give more --steps, use "
                "--optimiser fire, or start from a better geometry.",
                style="yellow",
            )
        if r.wall_steps and r.fmax[-1] <= settings.fmax:
            note(
                f"Warning: {name}walls at the ends of the training data acted in {r.wall_steps} steps. "
                "Compare with --no-walls, and trust the minimum only if it is the same.",
                style="yellow",
            )
