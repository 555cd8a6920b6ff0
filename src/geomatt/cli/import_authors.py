"""`geomatt import-authors`: checkpoints of the paper authors' code as model files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from geomatt.cli.console import finish
from geomatt.cli.generated import with_options
from geomatt.cli.options import GEOMETRY, argument, option
from geomatt.errors import GeomAttError

if TYPE_CHECKING:
    from geomatt.data.dataset import Dataset
    from geomatt.model import Normalisation


@with_options(reading=GEOMETRY)
def import_authors(
    directory: Annotated[Path, argument("Folder with params.pt and hyperparameters.json.")],
    out: Annotated[Path, argument("The model file to write.")],
    reading: dict[str, Any],
    energy_mean: Annotated[float | None, option("Mean of the training energies.")] = None,
    energy_std: Annotated[float | None, option("Their standard deviation.")] = None,
    energy_unit: Annotated[str | None, option("Unit of mean and deviation, or of the training file.")] = None,
    train_file: Annotated[
        str | None, option("The frames it was trained on: gives mean, deviation, elements.")
    ] = None,
    elements: Annotated[str | None, option("Elements it was trained on: H,C,O.")] = None,
) -> None:
    """Turn a checkpoint of the authors' published code into a model file.

    It lacks the energies' mean and standard deviation, and the elements it was trained on.

    Give --train-file, or --energy-mean, --energy-std, --energy-unit and --elements.
    """
    from geomatt.data import read
    from geomatt.model.files import save
    from geomatt.model.geometric_attention.authors import import_authors as convert

    given = elements.split(",") if elements else None
    record: dict[str, Any] = {}
    if train_file is not None:
        if energy_mean is not None or energy_std is not None:
            raise GeomAttError("Give either --train-file or --energy-mean and --energy-std, not both.")
        dataset = read(train_file, energy_unit=energy_unit, **reading)
        normalisation, record = _from_training_data(dataset)
        given = given or [str(z) for z in dataset.elements]
    else:
        normalisation, record = _from_numbers(energy_mean, energy_std, energy_unit)
    if given is None:
        raise GeomAttError("Name the elements the checkpoint was trained on, such as --elements H,C,O.")
    potential = convert(directory, elements=given, normalisation=normalisation)
    potential.record.update(record)
    save(potential, out)
    finish({"model": out}, f"geomatt info {out}")


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
