"""`geomatt data`: fetch, look at and convert data sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from geomatt.cli.console import bars, console, facts, note, output, say
from geomatt.cli.generated import with_flags, with_options
from geomatt.cli.options import LABELLED, argument, option
from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from geomatt.data import Dataset

Data = Annotated[str, typer.Argument(help="A file, or a fetched data set such as md17/ethanol.")]

data = typer.Typer(
    help="Fetch, inspect and convert data sets.", no_args_is_help=True, rich_markup_mode="rich"
)


@data.command()
def get(
    name: Annotated[str | None, argument("Such as md17/aspirin, rmd17/ethanol, md22/AT-AT.")] = None,
    source: Annotated[
        Path | None,
        option("Take an existing copy instead: the file, or a directory that holds it.", "--from"),
    ] = None,
) -> None:
    """Fetch a public data set into the cache; without a name, list them.

    A broken download continues where it stopped. The checksum of the first download is remembered, and later
    ones must match it. Set GEOMATT_CACHE to keep the files elsewhere.

    Example: [bold]geomatt data get md17/aspirin[/]
    """
    from rich.progress import DownloadColumn

    from geomatt.data import CATALOGUE, cache_directory, fetch, locate

    if name is None:
        for entry in CATALOGUE:
            say(f"{entry.name}{'  (fetched)' if locate(entry.name) else ''}")
        note(f"Fetched files live in {cache_directory()}.")
        return
    with bars(DownloadColumn()) as tell:
        path, how = fetch(name, source=source, progress=lambda done, total: tell(name, done, total))
    note(f"{name}: {'already there' if how == 'cached' else how}. Units: kcal/mol and Å.")
    say(str(path), markup=False)


@data.command()
@with_options(reading=LABELLED)
def info(
    file: Data,
    reading: dict[str, Any],
) -> None:
    """Print the contents of a data set, and warnings about labels that look wrong.

    Example: [bold]geomatt data info trajectory.npz --energy-unit kcal/mol --length-unit Ang[/]
    """
    from geomatt.data import read
    from geomatt.data.checks import check_labels, energies_compared
    from geomatt.data.mapped import excerpt

    dataset = read(file, **reading)
    looked_at, count = excerpt(dataset), len(dataset)
    if len(looked_at) < count:
        dataset = dataset.select(looked_at)
    facts(_summary(dataset, count))
    warnings = check_labels(dataset)
    for warning in warnings:
        say(f"[bold yellow]Warning:[/] {escape(with_flags(warning))}", markup=True)
    if not warnings and dataset.energies is not None:
        output.print("Nothing about the labels looks wrong.")
        if dataset.forces is not None and not energies_compared(dataset):
            note(
                "Energies were not compared with forces: that needs 30 frames of one molecule without a cell."
            )


@data.command()
@with_options(reading=LABELLED)
def convert(
    sources: Annotated[
        list[str], argument("Files, or fetched data sets such as md17/ethanol; joined.", metavar="IN...")
    ],
    target: Annotated[
        Path, argument("What to write: .npz, .xyz, .extxyz, or a folder .arrays.", metavar="OUT")
    ],
    reading: dict[str, Any],
) -> None:
    """Convert data sets: npz (sGDML keys, one molecule, the units of IN), extxyz (eV and Å) or arrays.

    OUT.arrays is for data larger than memory: a folder that training reads batch by batch.
    It is written file by file, and xyz files part by part.

    Example: [bold]geomatt data convert md17_ethanol.npz ethanol.extxyz[/]
    """
    from geomatt.data import concatenate, locate, read, require_writable, write
    from geomatt.data.mapped import SUFFIX

    if target.suffix.lower() == SUFFIX:
        _to_arrays(sources, target, reading)
        return
    for source in sources:
        origin = Path(source) if Path(source).exists() else locate(source)
        if origin is not None and target.exists() and target.samefile(origin):
            raise GeomAttError(f"{target} is the file to be read. Write to another file.")
    require_writable(target)  # before reading, which may take a while
    with console.status("Reading and writing"):
        dataset = concatenate([read(s, **reading) for s in sources])
        write(dataset, target)
    show_units(dataset)
    note(f"Wrote {len(dataset)} structures.")
    say(str(target), markup=False)


def _to_arrays(sources: list[str], target: Path, reading: dict[str, Any]) -> None:
    """Write memory-mapped arrays, part by part."""
    from geomatt.data.io.readers import read_parts
    from geomatt.data.mapped import write_mapped

    done = 0

    def parts() -> Iterator[Dataset]:
        nonlocal done
        for source in sources:
            for number, part in enumerate(read_parts(source, **reading)):
                if number == 0:
                    show_units(part)
                yield part
                done += len(part)
                status.update(f"{done:,} structures written")

    with console.status("Reading") as status:
        count = write_mapped(parts(), target)
    note(f"Wrote {count:,} structures. Next:\n  geomatt train {target} --out runs/{target.stem}")
    say(str(target), markup=False)


def show_units(dataset: Dataset) -> None:
    """Print to stderr the units of the file, how they are known, and which labels are missing."""
    origin = dataset.origin
    if origin:
        forces = f", forces in {origin['force_unit']} (given)" if "force_unit" in origin else ""
        note(f"Units: {origin['energy_unit']} and {origin['length_unit']} ({origin['units_known']}){forces}.")
    if "notes" in origin:
        note(f"[bold yellow]Note:[/] {escape(with_flags(origin['notes']))}", markup=True)


def _summary(dataset: Dataset, count: int) -> list[tuple[str, str]]:
    """Rows of `data info`: pairs of name and text; `dataset` may be a part of all `count` structures."""
    import numpy as np

    from geomatt import units
    from geomatt.data import report_unit
    from geomatt.elements import formula, symbols

    origin, unit = dataset.origin, report_unit(dataset)
    factor = units.from_ev(unit)
    sizes = dataset.sizes
    compositions = np.unique(dataset.composition(), axis=0)
    formulas = [formula(np.repeat(dataset.elements, row)) for row in compositions[:5]]
    part = f"; what follows is of {len(dataset):,} of them" if len(dataset) < count else ""
    more = f" and {len(compositions) - 5} more" if len(compositions) > 5 else ""
    rows = [
        ("file", origin.get("path", "")),
        ("format", origin.get("format", "")),
        ("name", origin.get("name", "")),
        ("theory", origin.get("theory", "")),
        ("structures", f"{count:,}{part}"),
        ("atoms", f"{sizes.min()}" if sizes.min() == sizes.max() else f"{sizes.min()} to {sizes.max()}"),
        ("formula", ", ".join(formulas) + more),
        ("elements", " ".join(symbols(dataset.elements))),
        ("periodic", "yes" if dataset.pbc is not None and dataset.pbc.any() else "no"),
    ]
    if origin:
        rows.append(
            ("units in file", f"{origin['energy_unit']}, {origin['length_unit']} ({origin['units_known']})")
        )
        if "force_unit" in origin:
            rows.append(("forces in file", f"{origin['force_unit']} (given)"))
    if dataset.energies is not None:
        energies = dataset.energies * factor
        rows.append(("energy", f"mean {energies.mean():.4f}, std {energies.std():.4f} {unit}"))
    if dataset.forces is not None:
        rms = np.sqrt(np.nanmean(dataset.forces**2)) * factor
        rows.append(("force RMS", f"{rms:.4f} {unit}/Å per component"))
    for name, values in (("charges", dataset.charges), ("weights", dataset.weights)):
        if values is not None:
            rows.append((name, f"{values.min():g} to {values.max():g}"))
    rows.append(("note", with_flags(origin.get("notes", ""))))
    return [(name, value) for name, value in rows if value]
