"""The data an experiment needs: from a folder the user names, or from the download cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from geomatt.data.files import sha256
from geomatt.data.io.readers import read
from geomatt.data.public.catalogue import find_entry
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.reproduce.frame import Settings

# The molecules of the paper's tables, in their order.
MD17 = (
    "aspirin",
    "benzene",
    "ethanol",
    "malonaldehyde",
    "naphthalene",
    "salicylic_acid",
    "toluene",
    "uracil",
)

# How data are made that nobody offers for download; {} is the file to be written.
MADE = {"gfn2/cg-cg": "python scripts/make_dimer.py --out {} (in the repository; 1.5 hours on one core)"}


def load_data(settings: Settings, name: str) -> Dataset:
    """The data set `name`, such as md17/aspirin or gfn2/cg-cg."""
    entry = find_entry(name)
    if settings.data_dir is None:
        if entry is None:
            raise GeomAttError(
                f"{name} cannot be downloaded.{_how_to_make(name, Path('DIR'))} "
                f"Name the folder that holds {name}.npz with --data DIR."
            )
        return read(entry.name)  # says which command fetches it where it is missing
    return read(find_file(settings.data_dir, name))


def find_file(folder: Path, name: str) -> Path:
    """The file of data set `name` under `folder`: md17/md17_aspirin.npz, md17_aspirin.npz, gfn2/cg-cg.npz."""
    found = _look(folder, name)
    if found is not None:
        return found
    entry = find_entry(name)
    get = f" Get it with: geomatt data get {entry.name}, and leave --data away." if entry else ""
    missing = f"{folder} holds no {name}: looked for {', '.join(_file_names(name))}."
    raise GeomAttError(missing + get + _how_to_make(name, folder))


def has_file(settings: Settings, name: str) -> bool:
    """Whether the user's folder holds data set `name`."""
    return settings.data_dir is not None and _look(settings.data_dir, name) is not None


def _look(folder: Path, name: str) -> Path | None:
    for file in _file_names(name):
        for place in (folder / name.rpartition("/")[0], folder):
            if (place / file).is_file():
                return place / file
    return None


def _file_names(name: str) -> list[str]:
    """What the file of a data set may be called."""
    collection, _, molecule = name.rpartition("/")
    entry = find_entry(name)
    names = [f"{collection}_{molecule}.npz", f"{molecule}.npz"]
    if entry is not None:
        names += [entry.filename, *(f"{collection}_{alias}.npz" for alias in entry.aliases)]
    return list(dict.fromkeys(names))


def _how_to_make(name: str, folder: Path) -> str:
    """What to do about data that can only be made, or nothing."""
    return f" Make it with: {MADE[name].format(folder / f'{name}.npz')}." if name in MADE else ""


def described(dataset: Dataset) -> dict[str, Any]:
    """What a result says about data: enough to know it again, and nothing about the user's folders."""
    path = dataset.origin.get("path", "")
    result: dict[str, Any] = {
        "name": dataset.name,
        "structures": len(dataset),
        "fingerprint": dataset.fingerprint(),
    }
    if path and Path(path).is_file():
        result.update(file=Path(path).name, sha256=sha256(Path(path)))
    return result
