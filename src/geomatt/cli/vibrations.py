"""`geomatt vibrations`: normal modes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import console, note, output, progress_bar, say
from geomatt.cli.generated import with_flags
from geomatt.cli.options import (
    Device,
    FrameNumber,
    LengthUnit,
    OutFolder,
    Precise,
    load_model,
    read_structure,
    result_folder,
)
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.simulation.normal_modes import Vibrations

MOST_ROWS = 40  # modes in the table
STILL = 0.01  # eV/Å, a force above which a structure is not stationary


def vibrations(
    model: Annotated[
        str,
        typer.Argument(
            help="A model file, the folder of a run, or a name of `geomatt models`.", show_default=False
        ),
    ],
    structure: Annotated[str, typer.Argument(help="A file with the structure.", show_default=False)],
    out: OutFolder = None,
    relax: Annotated[
        bool, typer.Option("--relax/--no-relax", help="Relax the structure first, to --fmax.")
    ] = True,
    fmax: Annotated[float, typer.Option("--fmax", help="Highest force after relaxing, in eV/Å.")] = 0.001,
    step: Annotated[
        float, typer.Option("--step", help="Displacement of atoms in Å.", min=1e-4, max=0.1)
    ] = 0.005,
    frame: FrameNumber = 0,
    length_unit: LengthUnit = None,
    device: Device = None,
    dtype: Precise = "float64",
) -> None:
    """Compute vibrational frequencies, the zero-point energy and the normal modes.

    Writes the relaxed structure, each mode as a trajectory to look at (modes/), Hessian and
    normal modes as arrays (vibrations.npz), the numbers and a plot into --out; files of an
    earlier call are replaced. Imaginary frequencies are explained.
    """
    from geomatt.data import Dataset, write
    from geomatt.simulation.normal_modes import explain_imaginary
    from geomatt.simulation.normal_modes import vibrations as normal_modes
    from geomatt.simulation.results import draw_vibrations, write_json, write_modes

    start = read_structure(structure, frame, length_unit)
    loaded = load_model(Path(model), device, dtype)
    with result_folder(out, structure, "vibrations") as folder:
        if relax:
            start = _relaxed(loaded, start, fmax)
            write(Dataset.from_structures([start]), folder / "relaxed.extxyz")
        with progress_bar("second derivatives", 6 * len(start)) as advance:
            found = normal_modes(loaded, start, step=step, progress=advance)
        texts = [with_flags(text) for text in explain_imaginary(found, loaded)]
        files = write_modes(found, folder)
        files |= {"numbers": folder / "vibrations.json", "plot": folder / "vibrations.png"}
        values = {
            "model": model,
            "wavenumbers_cm-1": found.wavenumbers.tolist(),
            "reduced_masses_u": found.reduced_masses.tolist(),
            "zero_point_energy_eV": found.zero_point_energy,
            "energy_eV": found.structure.energy,
            "fmax_eV_per_A": found.fmax,
            "translations_and_rotations_cm-1": found.rigid.tolist(),
            "imaginary": texts,
            "step_A": step,
            "dtype": dtype,
        }
        write_json(values, files["numbers"])
        draw_vibrations(found, files["plot"])
        _print(found, texts, files)
        if len(found.imaginary):
            say(f"Next:\n  geomatt relax {model} {files['moved along the imaginary modes']} --all")
        else:
            say(f"Next:\n  geomatt md {model} {files['structure']} --ensemble nve --time 10")


def _relaxed(model: Any, start: Any, fmax: float) -> Any:
    """The structure at the nearest stationary point."""
    from geomatt.simulation.relaxation import RelaxProgress, relax
    from geomatt.simulation.settings import RelaxSettings

    with console.status("relaxing …") as status:

        def show(seen: RelaxProgress) -> None:
            status.update(f"relaxing, step {seen.step}, highest force {seen.fmax:.4f} eV/Å")

        result = relax(model, start, RelaxSettings(fmax=fmax), progress=show)
    note(
        f"Relaxed in {result.steps} steps: {result.energies[-1] - result.energies[0]:+.4f} eV, highest force "
        f"{result.fmax[-1]:.4f} eV/Å, atoms moved by {result.rmsd:.3f} Å (RMSD)."
    )
    return result.end


def _print(found: Vibrations, texts: list[str], files: dict[str, Path]) -> None:
    from rich.table import Table

    table = Table(title="Normal modes", title_justify="left")
    for heading in ("mode", "cm⁻¹", "meV", "reduced\nmass (u)"):
        table.add_column(heading, justify="right")
    table.add_column("atoms that move most")
    shown = range(len(found.wavenumbers))
    for number in shown[:MOST_ROWS]:
        value = found.wavenumbers[number]
        sign = "i" if value < 0 else ""
        table.add_row(
            str(number + 1),
            f"{abs(value):.1f}{sign}",
            f"{abs(value) * 0.1239841984:.1f}{sign}",
            f"{found.reduced_masses[number]:.2f}",
            found.movers(number),
        )
    if len(shown) > MOST_ROWS:
        table.caption = f"{len(shown) - MOST_ROWS} more in the JSON file"
    output.print(table)
    energy = found.zero_point_energy
    output.print(
        f"Zero-point energy: {energy:.4f} eV ({energy * from_ev('kcal/mol'):.2f} kcal/mol), harmonic. "
        f"Translations and rotations, ideally zero: up to {abs(found.rigid).max():.1f} cm⁻¹.",
        highlight=False,
        soft_wrap=True,
    )
    if found.fmax > STILL:
        note(
            f"Warning: the highest force is {found.fmax:.3f} eV/Å, so this is not a stationary point and the "
            "frequencies have no meaning as vibrations. Leave out --no-relax.",
            style="yellow",
        )
    for text in texts:
        note(f"Warning: {text}", style="yellow")
    lines = "\n".join(f"{what}: {file}" for what, file in files.items())
    say(lines)
