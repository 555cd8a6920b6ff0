"""`geomatt evaluate`: errors of a model on labelled data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from geomatt.cli.console import bars, finish, output, progress_bar, say
from geomatt.cli.generated import with_options
from geomatt.cli.options import (
    LABELLED,
    BatchSize,
    Device,
    Dtype,
    Model,
    Unit,
    argument,
    load_model,
    option,
    out_option,
)


@with_options(reading=LABELLED)
def evaluate(
    model: Model,
    data: Annotated[str, argument("Labelled data: a file, or a name such as md17/ethanol.")],
    reading: dict[str, Any],
    unit: Unit = None,
    json_file: Annotated[Path | None, option("Where to write the numbers.", "--json")] = None,
    plot_file: Annotated[Path | None, option("Where to write the parity plot.", "--plot")] = None,
    report_file: Annotated[Path | None, option("Also write the errors as an HTML page.", "--report")] = None,
    out: Annotated[Path | None, out_option("Folder for numbers and plot.")] = None,
    include_trained: Annotated[
        bool, option("Also use frames the model was trained on.", "--include-trained")
    ] = False,
    device: Device = None,
    dtype: Dtype = None,
    batch: BatchSize = 32,
) -> None:
    """Measure a model's errors on labelled data: a table, a JSON file and a parity plot.

    Frames the model was trained or validated on are left out and counted.

    Without --json and --plot both files are written next to the model, or into --out;
    for a model that ships with geomatt only with --json, --plot or --out.
    """
    from geomatt.cli.model_tables import error_tables
    from geomatt.cli.train_display import announce
    from geomatt.data import read
    from geomatt.drawing import figure_path
    from geomatt.evaluation import calibration_plot, parity_plot
    from geomatt.evaluation import evaluate as evaluate_model
    from geomatt.files import atomic_write, require_writable
    from geomatt.pages import evaluation_report
    from geomatt.pages.page import page_path

    loaded = load_model(model, device, dtype)
    dataset = read(data, **reading)
    given = {"numbers": json_file, "parity plot": plot_file, "report": report_file}
    files = _targets(model, data, out) | {what: path for what, path in given.items() if path is not None}
    checks = {"numbers": require_writable, "parity plot": figure_path, "report": page_path}
    for what, path in files.items():
        checks[what](path)
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
    if "numbers" in files:
        atomic_write(files["numbers"], (json.dumps(result.to_dict(), indent=2) + "\n").encode())
    if "parity plot" in files:
        plot = parity_plot(result, files["parity plot"])
        if result.coverage is not None:
            name = f"calibration_{plot.name.removeprefix('parity_')}"
            files["calibration plot"] = calibration_plot(result, plot.with_name(name))
    if len(loaded.members) > 1 and result.coverage is None:
        say(
            "The spread of this committee is not calibrated: members are calibrated when geomatt train ends, "
            "folds are not."
        )
    if "report" in files:
        with bars() as tell:
            evaluation_report(loaded, result, tell).save(files["report"])
    if files:
        finish(files)
    else:
        say("No file was written: name a folder for numbers and plot with --out.")


def _targets(model: Path, data: str, out: Path | None) -> dict[str, Path]:
    """Where numbers and plot go; the names hold model and data, so that no two overwrite each other."""
    from geomatt.files import make_folder

    shipped = not model.exists()
    if out is not None:
        folder = make_folder(out)
    elif shipped:
        return {}
    else:
        folder = model if model.is_dir() else model.parent
    known = not shipped and (model.is_dir() or model.name == "model.safetensors") and out is None
    plain = "".join(c if c.isalnum() else "-" for c in str(model).removesuffix(".safetensors")).strip("-")
    name = Path(data).stem if known else f"{plain}_{Path(data).stem}"
    return {"numbers": folder / f"evaluate_{name}.json", "parity plot": folder / f"parity_{name}.png"}
