"""`geomatt explain`: the attention explorer as one HTML page."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Annotated, Any

from geomatt.cli.console import bars, note, say
from geomatt.cli.generated import with_flags, with_options
from geomatt.cli.options import (
    GEOMETRY,
    Device,
    Dtype,
    Model,
    argument,
    load_model,
    option,
    out_option,
    read_unlabelled,
)
from geomatt.errors import GeomAttError


@with_options(reading=GEOMETRY)
def explain(
    model: Model,
    structures: Annotated[str, argument("Structures or a trajectory: any file that can be read.")],
    reading: dict[str, Any],
    out: Annotated[Path, out_option("The page to write.")] = Path("report.html"),
    frames: Annotated[int, option("Structures shown at most, evenly chosen.", min=1)] = 100,
    effects: Annotated[
        int | None,
        option(
            "Pairs switched off at most, in all frames; as many as take about a minute by default.", min=0
        ),
    ] = None,
    off: Annotated[
        list[str] | None, option("Pairs of atoms to switch off together, such as 0-1,2-5 (repeatable).")
    ] = None,
    untrained: Annotated[
        int | None, option("Networks with random weights, as a control; 10 by default.", min=0)
    ] = None,
    unit: Annotated[str | None, option("Energy unit of the page; the training data's by default.")] = None,
    figures: Annotated[
        Path | None, option("Folder for figures of the first structure as PDF, SVG and PNG.")
    ] = None,
    npz_file: Annotated[Path | None, option("Write the first structure's matrices as npz.", "--npz")] = None,
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
    from geomatt.files import require_writable
    from geomatt.pages.explorer import explain as make_page
    from geomatt.pages.figures import write_figures
    from geomatt.pages.page import page_path
    from geomatt.units import energy_unit

    page_path(out)
    if npz_file is not None:
        require_writable(npz_file)
    sets = [_pairs(text) for text in off or []]
    loaded = load_model(model, device, dtype)
    dataset = read_unlabelled(structures, reading)
    with bars() as tell:
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
            note(f"Note: {with_flags(block['text'])}", style="yellow")
    page.save(out)
    say(f"page: {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser")
    if figures is not None or npz_file is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # already told
            records = attention(loaded, dataset[0])
        for path in [] if figures is None else write_figures(records, dataset[0], figures):
            say(f"figure: {path}")
        if npz_file is not None:
            say(f"values: {write_npz(records, dataset[0], npz_file)}")


def _pairs(text: str) -> list[tuple[int, int]]:
    """Pairs of atoms from "0-1,2-5"."""
    found = [re.fullmatch(r"\s*(\d+)\s*[-–]\s*(\d+)\s*", part) for part in text.split(",")]
    if not all(found):
        raise GeomAttError(f"Cannot read {text!r} as pairs of atoms. Write them like 0-1,2-5.")
    return [(int(match[1]), int(match[2])) for match in found if match]
