"""`geomatt attention`: the picture of a model's attention in a structure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from geomatt.cli import options
from geomatt.cli.console import finish, output, progress_bar
from geomatt.cli.generated import with_options


@with_options(reading=options.GEOMETRY)
def attention(
    model: options.Model,
    structure: options.StructureFile,
    reading: dict[str, Any],
    out: Annotated[Path, options.out_option("The figure: .png, .pdf or .svg.")] = Path("attention.png"),
    frame: options.FrameNumber = 0,
    json_file: Annotated[Path | None, options.option("Also write the matrices as JSON.", "--json")] = None,
    npz_file: Annotated[Path | None, options.option("Also write the matrices as npz.", "--npz")] = None,
    untrained: Annotated[
        int | None, options.option("Networks with random weights, as a control; 10 by default.", min=0)
    ] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
) -> None:
    """Draw a model's attention in a structure beside its distances and covalent bonds.

    Writes two figures: the matrices, and the molecule with its strongest pairs (FIG_molecule.png).

    The table says how well each matrix ranks bonded pairs first, beside inverse
    distance and networks that were not trained.
    """
    from geomatt.analysis import attention as compute
    from geomatt.analysis import attention_figure, bond_scores, molecule_figure, untrained_attention
    from geomatt.analysis.controls import UNTRAINED
    from geomatt.analysis.export import write_json, write_npz
    from geomatt.cli.model_tables import bond_table
    from geomatt.drawing import figure_path
    from geomatt.files import require_writable

    files = {"matrices": out, "molecule": out.with_name(f"{out.stem}_molecule{out.suffix}")}
    for path in files.values():
        figure_path(path)
    for path in filter(None, (json_file, npz_file)):
        require_writable(path)
    loaded = options.load_model(model, device, dtype)
    chosen = options.read_structure(structure, frame, reading)
    records = compute(loaded, chosen)
    count = UNTRAINED if untrained is None else untrained
    with progress_bar("untrained networks", count) as advance:
        controls = untrained_attention(loaded, chosen, count, advance)
    output.print(bond_table(bond_scores(records, chosen, controls)))
    attention_figure(records, chosen, files["matrices"])
    molecule_figure(records, chosen, files["molecule"])
    if json_file is not None:
        files["values (JSON)"] = write_json(records, chosen, json_file)
    if npz_file is not None:
        files["values (npz)"] = write_npz(records, chosen, npz_file)
    finish(files)
