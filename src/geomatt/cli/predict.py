"""`geomatt predict`: energies and forces of structures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from geomatt.cli import options
from geomatt.cli.console import count, progress_bar, say
from geomatt.cli.generated import with_options
from geomatt.errors import GeomAttError


@with_options(reading=options.GEOMETRY)
def predict(
    model: options.Model,
    structures: Annotated[str, options.argument("Structures: any file that can be read.")],
    out: Annotated[Path, options.out_option("The .extxyz file to write.")],
    reading: dict[str, Any],
    device: options.Device = None,
    dtype: options.Dtype = None,
    batch: options.BatchSize = 32,
) -> None:
    """Predict energy, forces and atomic energies (eV, Å) for structures, into an extxyz file.

    Periodic structures get their stress too (eV/Å³, in ASE's sign).

    A committee adds its spread, and any model calibrated error bars if it has them. Existing
    output is replaced, the input never.
    """
    from geomatt.evaluation import write_predictions
    from geomatt.files import require_writable

    if out.exists() and Path(structures).exists() and out.samefile(structures):
        raise GeomAttError(f"{out} is the input. Name another file for the output.")
    if out.suffix.lower() not in (".xyz", ".extxyz"):
        raise GeomAttError(f"Cannot write {out}: the name must end in .extxyz or .xyz.")
    require_writable(out)
    loaded = options.load_model(model, device, dtype)
    dataset = options.read_unlabelled(structures, reading)
    with progress_bar("predicting", len(dataset)) as progress:
        predictions = loaded.predict(dataset, batch_size=batch, progress=progress, spread=True)
    write_predictions(dataset, predictions, out, loaded.calibration)
    what = "energy, forces, stress" if any(p.stress is not None for p in predictions) else "energy, forces"
    say(f"{count(len(dataset), 'structure')} with {what} and atomic energies: {out}")
