"""Several data sets as one."""

from __future__ import annotations

from collections.abc import Sequence

from geomatt.arguments import require
from geomatt.data.dataset import JOINED, Dataset
from geomatt.data.mapped import MappedDataset
from geomatt.errors import GeomAttError


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """One data set of several, in order; labels that some of them do not have are marked as missing.

    Energies are needed in all data sets or in none.
    """
    if not datasets:
        raise GeomAttError("There are no data sets to concatenate.")
    for dataset in datasets:
        require("data", dataset, Dataset, "geomatt.read(FILE)")
    if len(datasets) == 1:
        return datasets[0]
    if any(isinstance(dataset, MappedDataset) for dataset in datasets):
        raise GeomAttError(
            "Memory-mapped data cannot be joined to other data in memory. Write all of it into one folder: "
            "geomatt data convert FILE FILE ... OUT.arrays. Sizes or index files then say what trains, "
            "validates and tests."
        )
    without = [d.name or "one of them" for d in datasets if d.energies is None]
    if without and len(without) < len(datasets):
        raise GeomAttError(f"Data sets with and without energies ({without[0]}) cannot be concatenated.")
    return Dataset.from_structures(
        (structure for dataset in datasets for structure in dataset),
        name=JOINED.join(dict.fromkeys(d.name for d in datasets if d.name)),
        origin=_joined_origin([d.origin for d in datasets if d.origin]),
    )


def _joined_origin(origins: Sequence[dict[str, str]]) -> dict[str, str]:
    """Entries that agree are kept, others joined; reports are in eV where the files have different units."""
    joined: dict[str, str] = {}
    for key in dict.fromkeys(key for origin in origins for key in origin):
        values = list(dict.fromkeys(origin[key] for origin in origins if key in origin))
        if key == "path":
            joined[key] = JOINED.join(values)
        elif key == "energy_unit":
            joined[key] = values[0] if len(values) == 1 else "eV"
        else:
            joined[key] = " ".join(values) if key == "notes" else ", ".join(values)
    return joined
