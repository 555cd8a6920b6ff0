"""`geomatt info`, `evaluate`, `predict`, `attention` and `import-authors`: what one does with a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geomatt.cli.console import compile_fast_code, output, progress_bar
from geomatt.cli.options import EnergyUnit, ForceUnit, Key, LengthUnit, parse_keys
from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from geomatt.data.structures import Dataset
    from geomatt.model import Committee, Normalisation, Potential

Model = Annotated[
    Path,
    typer.Argument(
        help="A model file, the folder of a run, or a name of `geomatt models`.", show_default=False
    ),
]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu or cuda; cuda where there is one.", show_default=False)
]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", help="float32 or float64; the model's own by default.", show_default=False),
]
BatchSize = Annotated[int, typer.Option("--batch", help="Structures computed at once.", min=1)]

# For commands that need no labels: whatever a file calls them, and in whatever unit, is no concern then.
WITHOUT_LABELS = ("energy=none", "forces=none")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: geomatt evaluate runs/ethanol md17/ethanol --unit kcal/mol")(evaluate)
    app.command(epilog="Example: geomatt predict runs/ethanol frames.xyz -o predicted.extxyz")(predict)
    app.command(epilog="Example: geomatt attention runs/ethanol ethanol.xyz -o attention.png")(attention)
    app.command(epilog="Example: geomatt info runs/ethanol")(info)
    app.command(
        "import-authors",
        epilog="Example: geomatt import-authors ethanol_model ethanol.safetensors --train-file train.npz",
    )(import_authors)


def info(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON instead.")] = False,
) -> None:
    """Print what a model file says about itself: units, elements, data, training, versions."""
    from geomatt.cli.use_tables import info_table
    from geomatt.model.files import describe, load
    from geomatt.model.potential import Committee

    loaded = load(model)
    members = loaded.members if isinstance(loaded, Committee) else [loaded]
    if as_json:
        described = [describe(member) for member in members]
        print(json.dumps(described if isinstance(loaded, Committee) else described[0], indent=2))
        return
    if isinstance(loaded, Committee):
        output.print(f"A committee of {len(members)} members. The first of them:")
    output.print(info_table(members[0], str(model)))


def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(help="Labelled data: a file, or a name such as md17/ethanol.")],
    unit: Annotated[
        str | None,
        typer.Option(help="Energy unit of the report; the training data's by default.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to write the numbers.", show_default=False)
    ] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Where to write the parity plot.", show_default=False)
    ] = None,
    include_trained: Annotated[
        bool, typer.Option("--include-trained", help="Also use frames the model was trained on.")
    ] = False,
    energy_unit: EnergyUnit = None,
    length_unit: LengthUnit = None,
    force_unit: ForceUnit = None,
    keys: Key = None,
    device: Device = None,
    dtype: Dtype = None,
    batch: BatchSize = 32,
) -> None:
    """Measure a model's errors on labelled data: a table, a JSON file and a parity plot.

    Frames the model was trained or validated on are left out and counted.

    Without --json and --plot the files go beside the model, or here for one that ships with geomatt.
    """
    from geomatt.cli.train_display import announce
    from geomatt.cli.use_tables import error_tables
    from geomatt.data.files import atomic_write, require_writable
    from geomatt.evaluation import evaluate as evaluate_model
    from geomatt.evaluation import parity_plot

    loaded = _load(model, device, dtype)
    dataset = read_data(data, energy_unit, length_unit, keys, force_unit)
    folder = model if model.is_dir() else model.parent if model.is_file() else Path()  # a shipped model: here
    name = Path(data).stem
    json_path = require_writable(json_file or folder / f"evaluate_{name}.json")
    plot_path = require_writable(plot_file or folder / f"parity_{name}.png")
    announce(dataset)
    with progress_bar("evaluating", len(dataset)) as progress:
        result = evaluate_model(
            loaded,
            dataset,
            exclude_trained=not include_trained,
            unit=unit,
            batch_size=batch,
            progress=progress,
        )
    for table in error_tables(result):
        output.print(table)
    if result.trained:
        what = "included, so these errors are too small" if include_trained else "left out"
        output.print(f"{result.trained} frames the model was trained or validated on were {what}.")
    parity_plot(result, plot_path)
    atomic_write(json_path, (json.dumps(result.to_dict(), indent=2) + "\n").encode())
    output.print(f"numbers: {json_path}\nparity plot: {plot_path}", soft_wrap=True, highlight=False)


def predict(
    model: Model,
    structures: Annotated[str, typer.Argument(help="Structures: any file that can be read.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The .extxyz file to write.", show_default=False)],
    length_unit: LengthUnit = None,
    keys: Key = None,
    device: Device = None,
    dtype: Dtype = None,
    batch: BatchSize = 32,
) -> None:
    """Predict energy, forces and atomic energies (eV, Å) for structures, into an extxyz file.

    A committee adds its spread. Existing output is replaced, the input never.
    """
    from geomatt.data.files import require_writable
    from geomatt.evaluation import write_predictions

    if out.exists() and Path(structures).exists() and out.samefile(structures):
        raise GeomAttError(f"{out} is the input. Name another file for the output.")
    if out.suffix.lower() not in (".xyz", ".extxyz"):
        raise GeomAttError(f"Cannot write {out}: the name must end in .extxyz or .xyz.")
    require_writable(out)
    loaded = _load(model, device, dtype)
    dataset = read_data(structures, None, length_unit, [*WITHOUT_LABELS, *(keys or [])])
    with progress_bar("predicting", len(dataset)) as progress:
        predictions = loaded.predict(dataset, batch_size=batch, progress=progress)
    write_predictions(dataset, predictions, out)
    output.print(
        f"{len(dataset)} structures with energy, forces and atomic energies: {out}",
        soft_wrap=True,
        highlight=False,
    )


def attention(
    model: Model,
    structure: Annotated[str, typer.Argument(help="A file with the structure.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The figure: .png, .pdf or .svg.")] = Path(
        "attention.png"
    ),
    frame: Annotated[int, typer.Option(help="Which structure of the file; -1 is the last.")] = 0,
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
    from geomatt.cli.use_tables import bond_table
    from geomatt.data.files import require_writable

    beside = out.with_name(f"{out.stem}_molecule{out.suffix}")
    for path in (out, beside, json_file, npz_file):
        if path is not None:
            require_writable(path)
    loaded = _load(model, device, dtype)
    dataset = read_data(structure, None, length_unit, [*WITHOUT_LABELS, *(keys or [])])
    if not -len(dataset) <= frame < len(dataset):
        raise GeomAttError(f"There is no structure {frame}: {structure} has {len(dataset)}, counted from 0.")
    chosen = dataset[frame]
    records = compute(loaded, chosen)
    output.print(bond_table(bond_scores(records, chosen)))
    attention_figure(records, chosen, out)
    molecule_figure(records, chosen, beside)
    written = [("matrices", out), ("molecule", beside)]
    if json_file is not None:
        written.append(("values", write_json(records, chosen, json_file)))
    if npz_file is not None:
        written.append(("values", write_npz(records, chosen, npz_file)))
    output.print("\n".join(f"{what}: {path}" for what, path in written), soft_wrap=True, highlight=False)


def import_authors(
    directory: Annotated[Path, typer.Argument(help="Folder with params.pt and hyperparameters.json.")],
    out: Annotated[Path, typer.Argument(help="The model file to write.")],
    energy_mean: Annotated[
        float | None, typer.Option(help="Mean of the training energies.", show_default=False)
    ] = None,
    energy_std: Annotated[
        float | None, typer.Option(help="Their standard deviation.", show_default=False)
    ] = None,
    energy_unit: Annotated[
        str | None,
        typer.Option(help="Unit of mean and deviation, or of the training file.", show_default=False),
    ] = None,
    train_file: Annotated[
        str | None,
        typer.Option(
            help="The frames it was trained on: gives mean, deviation, elements.", show_default=False
        ),
    ] = None,
    elements: Annotated[
        str | None, typer.Option(help="Elements it was trained on: H,C,O.", show_default=False)
    ] = None,
    length_unit: LengthUnit = None,
    keys: Key = None,
) -> None:
    """Turn a checkpoint of the authors' published code into a model file.

    It lacks the energies' mean and standard deviation, and the elements it was trained on.

    Give --train-file, or --energy-mean, --energy-std, --energy-unit and --elements.
    """
    from geomatt.model.files import save
    from geomatt.model.geometric_attention.authors import import_authors as convert

    given = elements.split(",") if elements else None
    record: dict[str, Any] = {}
    if train_file is not None:
        if energy_mean is not None or energy_std is not None:
            raise GeomAttError("Give either --train-file or --energy-mean and --energy-std, not both.")
        dataset = read_data(train_file, energy_unit, length_unit, keys)
        normalisation, record = _from_training_data(dataset)
        given = given or [str(z) for z in dataset.elements]
    else:
        normalisation, record = _from_numbers(energy_mean, energy_std, energy_unit)
    if given is None:
        raise GeomAttError("Name the elements the checkpoint was trained on, such as --elements H,C,O.")
    potential = convert(directory, elements=given, normalisation=normalisation)
    potential.record.update(record)
    save(potential, out)
    output.print(f"model: {out}\nnext: geomatt info {out}", soft_wrap=True, highlight=False)


def _from_training_data(dataset: Dataset) -> tuple[Normalisation, dict[str, Any]]:
    from geomatt.data import report_unit
    from geomatt.model import Normalisation

    if not dataset.single_composition:
        raise GeomAttError("The authors' models know one molecule; the training file holds several.")
    record = {
        "report_unit": report_unit(dataset),
        "data": {"name": dataset.name, "fingerprint": dataset.fingerprint(), "structures": len(dataset)},
        "trained_frames": dataset.frame_hashes(),
    }
    return Normalisation.fit(dataset), record


def _from_numbers(
    mean: float | None, std: float | None, unit: str | None
) -> tuple[Normalisation, dict[str, Any]]:
    from geomatt import units
    from geomatt.model import Normalisation

    if mean is None and std is None:
        raise GeomAttError(
            "The checkpoint lacks the mean and standard deviation of the energies. Give --train-file, or "
            "--energy-mean, --energy-std and --energy-unit."
        )
    if mean is None or std is None:
        raise GeomAttError("--energy-mean and --energy-std go together: give both.")
    if unit is None:
        raise GeomAttError("Say the unit of mean and deviation, for example --energy-unit kcal/mol.")
    if not std > 0:
        raise GeomAttError("--energy-std must be positive.")
    name = units.energy_unit(unit)
    factor = units.ENERGY_IN_EV[name]
    return Normalisation(mean * factor, std * factor), {"report_unit": name}


def _load(model: Path, device: str | None, dtype: str | None) -> Potential | Committee:
    import torch

    from geomatt.model.files import load

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load(model, chosen, dtype)
    if chosen == "cpu":
        compile_fast_code()
    return loaded


def read_data(
    path: str,
    energy_unit: str | None,
    length_unit: str | None,
    keys: list[str] | None,
    force_unit: str | None = None,
) -> Dataset:
    from geomatt.data import read

    return read(
        path,
        energy_unit=energy_unit,
        length_unit=length_unit,
        force_unit=force_unit,
        keys=parse_keys(keys),
    )
