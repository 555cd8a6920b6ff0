"""`geomatt sample`: from a molecule to labelled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from geomatt.cli.console import note, output, rate_bar, say
from geomatt.cli.generated import with_config
from geomatt.cli.options import Dask, Processes
from geomatt.data.make.config import SampleConfig

Molecule = Annotated[
    str, typer.Argument(help="A file of any known format, or a SMILES string.", show_default=False)
]


@with_config(SampleConfig)
def sample(
    molecule: Molecule,
    out: Annotated[Path, typer.Option("--out", "-o", help="Data to write: .npz, .xyz or .extxyz.")],
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
    from geomatt.data.make import open_workers, read_molecule
    from geomatt.data.make import sample as make_sample
    from geomatt.data.make.molecule import molecule_name
    from geomatt.data.make.sampling import total_frames

    config = sample_config(settings)
    starts = read_molecule(
        molecule,
        conformers=config.conformers,
        seed=config.seed,
        charge=config.charge,
        multiplicity=config.multiplicity,
    )
    try:
        with (
            open_workers(workers, dask) as chosen,
            rate_bar("sampling", total_frames(config), "frames") as advance,
        ):
            result = make_sample(
                starts, config, out, workers=chosen, progress=advance, name=molecule_name(molecule, starts[0])
            )
    except KeyboardInterrupt:
        stopped()
    output.print(summary_table(result.summary))
    for remark in notes(result.summary):
        note(f"Note: {remark}", style="yellow")
    say(f"data: {out}\nhow it was made: {out.with_suffix('.json')}")
    note(f"Next:\n  geomatt data info {out}\n  geomatt train {out} --out runs/{out.stem}")


def sample_config(settings: dict[str, Any]) -> SampleConfig:
    """The configuration, with the text of arguments turned into values."""
    from geomatt.data.make.method import parse_arguments

    return SampleConfig(**{**settings, "arguments": parse_arguments(settings.get("arguments", {}))})


def stopped() -> None:
    """After Ctrl-C."""
    note("Stopped; everything finished is kept. The same command continues.")
    raise typer.Exit(130)


def summary_table(summary: dict[str, Any]) -> Table:
    """What was sampled."""
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
    """What a user should know about the data."""
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
