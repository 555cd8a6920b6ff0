"""`geomatt sample`: from a molecule to labelled data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from geomatt.cli.console import finish, note, output, rate_bar
from geomatt.cli.generated import options_of, with_options
from geomatt.cli.options import Dask, OutData, Processes, open_pool
from geomatt.data.make.config import SampleConfig

if TYPE_CHECKING:
    from geomatt.data.structures import Structure

Molecule = Annotated[str, typer.Argument(help="A file of any known format, or a SMILES string.")]


@with_options(settings=options_of(SampleConfig))
def sample(
    molecule: Molecule,
    out: OutData,
    settings: dict[str, Any],
    workers: Processes = 1,
    dask: Dask = None,
) -> None:
    """Make labelled data of a molecule: dynamics with a reference method.

    Everything finished is kept in OUT.parts: after Ctrl-C or a crash the same
    command continues, with the same result. Several frames in the file, or
    --conformers of a SMILES string, are several starts. OUT.json says how the
    data was made.
    """
    from geomatt.data.make import sample as make_sample
    from geomatt.data.make.sampling import frames_word, total_frames

    config = SampleConfig(**settings)
    starts, name = starts_of(molecule, config)
    counted = total_frames(config), frames_word(config)
    with open_pool(workers, dask) as pool, rate_bar("sampling", *counted) as advance:
        result = make_sample(starts, config, out, workers=pool, progress=advance, name=name)
    output.print(summary_table(result.summary))
    for remark in notes(result.summary):
        note(f"Note: {remark}", style="yellow")
    files = {"data": out, "how it was made": out.with_suffix(".json")}
    finish(files, f"geomatt data info {out}", f"geomatt train {out} --out runs/{out.stem}")


def starts_of(molecule: str, config: SampleConfig) -> tuple[list[Structure], str]:
    """The structures that sampling starts from, and a name for them."""
    from geomatt.data.make import read_molecule
    from geomatt.data.make.molecule import molecule_name

    given = {name: getattr(config, name) for name in ("conformers", "seed", "charge", "multiplicity")}
    starts = read_molecule(molecule, **given)
    return starts, molecule_name(molecule, starts[0])


def summary_table(summary: dict[str, Any]) -> Table:
    """The table that summarises sampled data."""
    method, settings = summary["made_by"]["method"], summary["made_by"]["settings"]
    table = Table(title=f"{summary['formula']} sampled with {method['calculator']}", show_header=False)
    table.add_row("labelled frames", str(summary["frames"]))
    table.add_row("walkers, starts", f"{settings['walkers']}, {summary['starts']}")
    if settings["how"] == "dynamics":
        for wanted, mean in summary["mean_temperature_K"].items():
            table.add_row(f"mean temperature, {wanted} K wanted", f"{mean:.0f} K")
    table.add_row("spread of energies", f"{summary['energy_spread_eV']:.3f} eV")
    table.add_row("RMS force", f"{summary['force_rms_eV_per_A']:.3f} eV/Å")
    dropped = {"drop": "dropped", "keep": "kept", "stop": "dropped"}[settings["broken"]]
    table.add_row(f"frames that fell apart, {dropped}", str(summary["broken"]))
    table.add_row("calculations repeated", str(summary["repeated_calculations"]))
    table.add_row("time of the last part", f"{summary['seconds']:.1f} s")
    return table


def notes(summary: dict[str, Any]) -> list[str]:
    """Remarks about the data."""
    found = []
    if summary["rearranged_starts"]:
        found.append(
            f"Relaxing changed the bonds of start {summary['rearranged_starts'][0]}: look at the frames."
        )
    if summary["not_converged"]:
        found.append(f"{summary['not_converged']} times a walker started anew because the method failed.")
    if summary["broken"] > 0.1 * summary["frames"]:
        found.append("Many frames fell apart: a lower temperature gives data of the whole molecule.")
    return found
