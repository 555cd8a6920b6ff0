"""`geomatt explain`: the attention explorer as one HTML page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geomatt.cli.console import console, output
from geomatt.cli.options import WITHOUT_LABELS, Device, Dtype, Key, LengthUnit, Model, load_model, read_data
from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from geomatt.pages.explorer import Progress


def explain(
    model: Model,
    structures: Annotated[str, typer.Argument(help="Structures or a trajectory: any file that can be read.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    frames: Annotated[int, typer.Option(help="Structures shown at most, evenly chosen.", min=1)] = 100,
    effects: Annotated[
        int | None,
        typer.Option(
            help="Pairs switched off at most, in all frames; about a minute's by default.",
            min=0,
            show_default=False,
        ),
    ] = None,
    off: Annotated[
        list[str] | None,
        typer.Option(
            help="Pairs of atoms to switch off together, such as 0-1,2-5 (repeatable).", show_default=False
        ),
    ] = None,
    untrained: Annotated[
        int | None,
        typer.Option(
            help="Networks with random weights, as a control; usually 5.", min=0, show_default=False
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="Energy unit of the page; the training data's by default.", show_default=False),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Folder for figures of the first structure as PDF, SVG and PNG.", show_default=False
        ),
    ] = None,
    npz_file: Annotated[
        Path | None,
        typer.Option("--npz", help="Write the first structure's matrices as npz.", show_default=False),
    ] = None,
    length_unit: LengthUnit = None,
    keys: Key = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Write a page that shows a model's attention in structures, to open in any browser, offline.

    The molecule in 3-D with its attention, matrices, what switching pairs off
    does to energy and forces, paths of higher orders, energies of atoms, and
    how well attention ranks bonds, with controls.
    """
    from geomatt.analysis.coefficients import attention
    from geomatt.analysis.export import write_npz
    from geomatt.data.files import require_writable
    from geomatt.pages.explorer import explain as make_page
    from geomatt.pages.figures import write_figures
    from geomatt.pages.page import page_path
    from geomatt.units import energy_unit

    page_path(out)
    if npz_file is not None:
        require_writable(npz_file)
    sets = [_pairs(text) for text in off or []]
    loaded = load_model(model, device, dtype)
    dataset = read_data(structures, None, length_unit, [*WITHOUT_LABELS, *(keys or [])])
    with progress_of_page() as tell:
        page = make_page(
            loaded,
            list(dataset),
            name=dataset.name,
            frames=frames,
            effects=effects,
            off=sets,
            untrained=untrained,
            unit=unit and energy_unit(unit),
            progress=tell,
        )
    for block in page.blocks:
        if block.get("note"):
            console.print(f"[bold yellow]Note:[/] {block['text']}", highlight=False, soft_wrap=True)
    page.save(out)
    written = [f"page: {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser"]
    if figures is not None or npz_file is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # already told
            records = attention(loaded, dataset[0])
        if figures is not None:
            written += [f"figure: {path}" for path in write_figures(records, dataset[0], figures)]
        if npz_file is not None:
            written.append(f"values: {write_npz(records, dataset[0], npz_file)}")
    output.print("\n".join(written), soft_wrap=True, highlight=False, markup=False)


def _pairs(text: str) -> list[tuple[int, int]]:
    """Pairs of atoms from "0-1,2-5"."""
    found = [re.fullmatch(r"\s*(\d+)\s*[-–]\s*(\d+)\s*", part) for part in text.split(",")]
    if not all(found):
        raise GeomAttError(f"Cannot read {text!r} as pairs of atoms. Write them like 0-1,2-5.")
    return [(int(match[1]), int(match[2])) for match in found if match]


@contextmanager
def progress_of_page() -> Iterator[Progress]:
    """A bar for each part of the work on a page."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, object] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield tell
