"""`geomatt vibrations`: normal modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from geomatt.cli import options
from geomatt.cli.console import finish, note, output, progress_bar, say, table, warn
from geomatt.cli.generated import with_flags, with_options
from geomatt.cli.relax import ran_away, relax_one
from geomatt.errors import GeomAttError
from geomatt.simulation.settings import RelaxSettings
from geomatt.units import from_ev

if TYPE_CHECKING:
    from geomatt.data.structures import Structure
    from geomatt.model import AnyPotential
    from geomatt.simulation.normal_modes import Vibrations

MOST_ROWS = 40  # modes in the table
STILL = 0.01  # eV/Å, a force above which a structure is not stationary
HEADINGS = ("mode", "cm⁻¹", "meV", "reduced\nmass (u)", "atoms that move most")


@with_options(reading=options.LENGTH_UNIT)
def vibrations(
    reading: dict[str, Any],
    model: options.Model,
    structure: options.StructureFile,
    out: options.OutFolder = None,
    relax: Annotated[
        bool, options.option("Relax the structure first, to --fmax.", "--relax/--no-relax")
    ] = True,
    fmax: Annotated[float, options.option("Highest force after relaxing, in eV/Å.")] = 0.001,
    step: Annotated[float, options.option("Displacement of atoms in Å.", min=0.0001, max=0.1)] = 0.005,
    frame: options.FrameNumber = 0,
    device: options.Device = None,
    dtype: options.Precise = "float64",
) -> None:
    """Compute vibrational frequencies, the zero-point energy and the normal modes.

    Writes the relaxed structure, each mode as a trajectory to look at (modes/), Hessian and
    normal modes as arrays (vibrations.npz), the numbers and a plot into --out; files of an
    earlier call are replaced. Imaginary frequencies are explained.
    """
    from geomatt.data import Dataset, write
    from geomatt.simulation.normal_modes import explain_imaginary, refuse_no_molecule
    from geomatt.simulation.normal_modes import vibrations as normal_modes
    from geomatt.simulation.results import draw_vibrations, write_json, write_modes

    start = options.read_structure(structure, frame, reading)
    refuse_no_molecule(start)  # not after relaxing
    loaded = options.load_model(model, device, dtype)
    with options.result_folder(out, structure, "vibrations") as folder:
        if relax:
            start = _relaxed(loaded, start, fmax)
            write(Dataset.from_structures([start]), folder / "relaxed.extxyz")
        with progress_bar("second derivatives", 6 * len(start)) as advance:
            found = normal_modes(loaded, start, step=step, progress=advance)
        texts = [with_flags(text) for text in explain_imaginary(found, loaded)]
        files = write_modes(found, folder)
        files |= {"numbers": folder / "vibrations.json", "plot": folder / "vibrations.png"}
        values = {
            "model": str(model),
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
        _print(found, texts, relax)
        if len(found.imaginary):
            finish(files, f"geomatt relax {model} {files['moved along the imaginary modes']} --all")
        else:
            finish(files, f"geomatt md {model} {files['structure']} --ensemble nve --time 10")


def _relaxed(model: AnyPotential, start: Structure, fmax: float) -> Structure:
    """The structure at the nearest stationary point."""
    result, stopped = relax_one(model, start, RelaxSettings(fmax=fmax))
    if stopped:
        raise KeyboardInterrupt
    if result.failure:
        raise GeomAttError(f"No vibrations were computed: {ran_away(result)}")
    note(
        f"Relaxed in {result.steps} steps: {result.energies[-1] - result.energies[0]:+.4f} eV, highest force "
        f"{result.fmax[-1]:.4f} eV/Å, atoms moved by {result.rmsd:.3f} Å (RMSD)."
    )
    return result.end


def _print(found: Vibrations, texts: list[str], relaxed: bool) -> None:
    rows = []
    for number, value in enumerate(found.wavenumbers[:MOST_ROWS]):
        sign = "i" if value < 0 else ""
        energy = abs(value) * 0.1239841984
        mass, movers = found.reduced_masses[number], found.movers(number)
        rows.append(
            [str(number + 1), f"{abs(value):.1f}{sign}", f"{energy:.1f}{sign}", f"{mass:.2f}", movers]
        )
    more = len(found.wavenumbers) - MOST_ROWS
    caption = f"{more} more in the JSON file" if more > 0 else None
    output.print(table("Normal modes", HEADINGS, rows, left=HEADINGS[-1:], caption=caption))
    energy = found.zero_point_energy
    say(
        f"Zero-point energy: {energy:.4f} eV ({energy * from_ev('kcal/mol'):.2f} kcal/mol), harmonic. "
        f"Translations and rotations, ideally zero: up to {abs(found.rigid).max():.1f} cm⁻¹."
    )
    if found.fmax > STILL:
        remedy = "Relax it with geomatt relax first, with more --steps" if relaxed else "Leave out --no-relax"
        warn(
            f"the highest force is {found.fmax:.3f} eV/Å, so this is not a stationary point and the "
            f"frequencies have no meaning as vibrations. {remedy}."
        )
    for text in texts:
        warn(text)
