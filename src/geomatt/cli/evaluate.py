"""`geomatt evaluate`: errors of a model on labelled data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from geomatt.cli.console import output, progress_bar, say
from geomatt.cli.options import (
    BatchSize,
    Device,
    Dtype,
    EnergyUnit,
    ForceUnit,
    Key,
    LengthUnit,
    Model,
    load_model,
    read_data,
)


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
    report_file: Annotated[
        Path | None,
        typer.Option("--report", help="Also write the errors as an HTML page.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for both files.", show_default=False)
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

    Without --json and --plot both files are written next to the model, or into --out;
    for a model that ships with geomatt only where you say.
    """
    from geomatt.cli.explain import progress_of_page
    from geomatt.cli.model_tables import error_tables
    from geomatt.cli.train_display import announce
    from geomatt.data.files import atomic_write, require_writable
    from geomatt.drawing import figure_path
    from geomatt.evaluation import calibration_plot, parity_plot
    from geomatt.evaluation import evaluate as evaluate_model
    from geomatt.pages import evaluation_report
    from geomatt.pages.page import page_path

    loaded = load_model(model, device, dtype)
    dataset = read_data(data, energy_unit, length_unit, keys, force_unit)
    json_path, plot_path = _targets(model, data, out, json_file, plot_file)
    if json_path is not None:
        require_writable(json_path)
    if plot_path is not None:
        figure_path(plot_path)
    if report_file is not None:
        page_path(report_file)
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
    if json_path is not None:
        atomic_write(json_path, (json.dumps(result.to_dict(), indent=2) + "\n").encode())
        say(f"numbers: {json_path}")
    if plot_path is not None:
        parity_plot(result, plot_path)
        say(f"parity plot: {plot_path}")
    if plot_path is not None and result.coverage is not None:
        coverage_path = plot_path.with_name(f"calibration_{plot_path.name.removeprefix('parity_')}")
        calibration_plot(result, coverage_path)
        say(f"calibration plot: {coverage_path}")
    elif len(loaded.members) > 1 and result.coverage is None:
        say(
            "The spread of this committee is not calibrated: members are calibrated when geomatt train ends, "
            "folds are not."
        )
    if report_file is not None:
        with progress_of_page() as tell:
            evaluation_report(loaded, result, tell).save(report_file)
        say(f"report: {report_file}")
    if json_path is None and plot_path is None and report_file is None:
        output.print("No file was written: name a folder for numbers and picture with --out.")


def _targets(
    model: Path, data: str, out: Path | None, json_file: Path | None, plot_file: Path | None
) -> tuple[Path | None, Path | None]:
    """Where numbers and picture go; the names hold model and data, so that no two overwrite each other."""
    shipped = not model.exists()
    from geomatt.data.files import make_folder

    if out is not None:
        make_folder(out)
    folder = out or (None if shipped else model if model.is_dir() else model.parent)
    default_name = not shipped and (model.is_dir() or model.name == "model.safetensors") and out is None
    parts = [] if default_name else [_plain(str(model))]
    name = "_".join([*parts, Path(data).stem])
    return (
        json_file or (folder and folder / f"evaluate_{name}.json"),
        plot_file or (folder and folder / f"parity_{name}.png"),
    )


def _plain(name: str) -> str:
    """A model's name as part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in name.removesuffix(".safetensors")).strip("-")
