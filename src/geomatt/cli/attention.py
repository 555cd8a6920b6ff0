"""`geomatt attention`: the picture of a model's attention in a structure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geomatt.cli.console import output, say
from geomatt.cli.options import Device, Dtype, FrameNumber, Key, LengthUnit, Model, load_model, read_structure


def attention(
    model: Model,
    structure: Annotated[str, typer.Argument(help="A file with the structure.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The figure: .png, .pdf or .svg.")] = Path(
        "attention.png"
    ),
    frame: FrameNumber = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the matrices as JSON.", show_default=False)
    ] = None,
    npz_file: Annotated[
        Path | None, typer.Option("--npz", help="Also write the matrices as npz.", show_default=False)
    ] = None,
    length_unit: LengthUnit = None,
    keys: Key = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Draw a model's attention in a structure beside its distances and covalent bonds.

    Writes two figures: the matrices, and the molecule with its strongest pairs (FIG_molecule.png).

    The table says how well each matrix ranks bonded pairs first.
    """
    from geomatt.analysis import attention as compute
    from geomatt.analysis import attention_figure, bond_scores, molecule_figure
    from geomatt.analysis.export import write_json, write_npz
    from geomatt.cli.model_tables import bond_table
    from geomatt.data.files import require_writable
    from geomatt.drawing import figure_path

    beside = out.with_name(f"{out.stem}_molecule{out.suffix}")
    for path in (out, beside):
        figure_path(path)
    for path in filter(None, (json_file, npz_file)):
        require_writable(path)
    loaded = load_model(model, device, dtype)
    chosen = read_structure(structure, frame, length_unit, keys)
    records = compute(loaded, chosen)
    output.print(bond_table(bond_scores(records, chosen)))
    attention_figure(records, chosen, out)
    molecule_figure(records, chosen, beside)
    written = [("matrices", out), ("molecule", beside)]
    if json_file is not None:
        written.append(("values", write_json(records, chosen, json_file)))
    if npz_file is not None:
        written.append(("values", write_npz(records, chosen, npz_file)))
    say("\n".join(f"{what}: {path}" for what, path in written))
