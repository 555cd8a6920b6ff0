"""Several data sets as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geomatt.data.structures import JOINED, MISSING, Dataset
from geomatt.errors import GeomAttError


def concatenate(datasets: Sequence[Dataset]) -> Dataset:
    """One data set of several, in order; labels that some of them do not have are marked as missing.

    Energies are needed in all data sets or in none: total energies of different methods do not mix.
    """
    if not datasets:
        raise GeomAttError("There are no data sets to concatenate.")
    if len(datasets) == 1:
        return datasets[0]
    without = [d for d in datasets if d.energies is None]
    if without and len(without) < len(datasets):
        raise GeomAttError(
            f"{without[0].name or 'A data set'} has no energies, but the others have. Leave it out."
        )

    def rows(name: str) -> np.ndarray | None:
        arrays = [getattr(d, name) for d in datasets]
        if all(array is None for array in arrays):
            return None
        shape, value = MISSING[name]
        filled = [
            np.full((len(d), *shape), value) if a is None else a
            for d, a in zip(datasets, arrays, strict=True)
        ]
        return np.concatenate(filled)

    forces = None
    if any(d.forces is not None for d in datasets):
        forces = np.concatenate(
            [np.full(d.positions.shape, np.nan) if d.forces is None else d.forces for d in datasets]
        )
    return Dataset(
        np.concatenate([d.numbers for d in datasets]),
        np.concatenate([d.positions for d in datasets]),
        np.concatenate([[0], np.cumsum(np.concatenate([d.sizes for d in datasets]))]),
        energies=None
        if without
        else np.concatenate([d.energies for d in datasets if d.energies is not None]),
        forces=forces,
        info=(
            [item for d in datasets for item in (d.info or [{}] * len(d))]
            if any(d.info is not None for d in datasets)
            else None
        ),
        name=JOINED.join(dict.fromkeys(d.name for d in datasets if d.name)),
        origin=_joined_origin([d.origin for d in datasets if d.origin]),
        **{name: rows(name) for name in MISSING},
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
