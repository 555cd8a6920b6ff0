"""The data of an experiment, from a folder the user names or from the download cache."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data import Dataset, Structure, find_entry, frame_list, locate, read, sha256
from geomatt.errors import GeomAttError
from geomatt.model import Potential, fingerprint, load
from geomatt.reproduce.frame import Drawing, ExperimentSettings
from geomatt.reproduce.table import ResultTable

# The molecules of the paper's tables, in their order.
MD17 = (
    "aspirin", "benzene", "ethanol", "malonaldehyde", "naphthalene", "salicylic_acid", "toluene", "uracil",
)  # fmt: skip
STAND_IN = (
    "**MD17 was not found: the package's own ethanol data (GFN2-xTB) are used instead**, so these numbers "
    "cannot be compared with published ones."
)
STAND_IN_NOTE = "Measured on the package's own ethanol data, whatever the title says."  # in captions
# How to make data that cannot be downloaded; {} is the file to write.
MADE = {"gfn2/cg-cg": "python scripts/make_dimer.py --out {} (in the repository; 1.5 hours on one core)"}


# What `described` says about the frames of a data set with a list.
LISTED = "those of the committed results"


def load_data(settings: ExperimentSettings, name: str) -> Dataset:
    """The data set `name`, such as md17/aspirin or gfn2/cg-cg; of MD17 the listed frames."""
    dataset, note = listed_frames(_load(settings, name), name)
    if note and not settings.quick:
        warnings.warn(note, stacklevel=2)
    return dataset


def listed_frames(dataset: Dataset, name: str) -> tuple[Dataset, str]:
    """The frames of `dataset` that the committed results were measured on, in their order.

    The second value says which frames do not match. A listed frame that is not found is replaced by the one
    with its number, so that all others keep their place in the splits; if fewer than half are found, the data
    set is used as it is.
    """
    listed = frame_list(name)
    if listed is None:
        return dataset, ""
    rows = listed.find(dataset)
    missing = np.flatnonzero(rows < 0)
    note, frames = "", LISTED
    if len(missing):
        note = (
            f"{len(missing)} of the {len(listed)} frames of {name} that our results were measured on are not "
            f"in this file (first: number {listed.numbers[missing[0]]} of the public file). "
        )
        by_number = (listed.numbers[missing] < len(dataset)).all()
        if 2 * len(missing) < len(listed) and by_number:
            rows[missing] = listed.numbers[missing]
            note += "The frames with their numbers are used instead: results may differ slightly from ours."
            frames = f"{LISTED}, except {len(missing)}"
        else:
            note += "All frames of the file are used: training and test frames differ from ours."
            frames, rows = "not those of the committed results", np.arange(len(dataset))
    chosen = dataset.select(rows)
    chosen.origin = {**dataset.origin, "frames": frames}
    return chosen, note


def frames_note(result: Mapping[str, Any]) -> str:
    """A sentence on the frames of a result, for the note of its table; empty for data without a list."""
    frames = {name: about["frames"] for name, about in result["data"].items() if "frames" in about}
    other = [name for name, which in frames.items() if which != LISTED]
    if other:
        return f"Frames of {', '.join(other)}: not (all) those of our results."
    return "Frames: the listed ones, which are the same with every copy of MD17." if frames else ""


def noted(result: Mapping[str, Any], tables: Iterable[ResultTable]) -> list[ResultTable]:
    """Tables; with a caveat in their notes if they were measured on the package's own data."""
    return [replace(table, note=_with_caveat(result, table.note)) for table in tables]


def captioned(result: Mapping[str, Any], drawings: Iterable[Drawing]) -> list[Drawing]:
    """Figures; with a caveat in their captions if they show the package's own data."""
    return [replace(drawing, caption=_with_caveat(result, drawing.caption)) for drawing in drawings]


def _with_caveat(result: Mapping[str, Any], text: str) -> str:
    return f"{STAND_IN_NOTE} {text}".strip() if result["settings"]["stand_in"] else text


def _load(settings: ExperimentSettings, name: str) -> Dataset:
    if settings.data is not None:
        return read(find_file(settings.data, name))
    entry = find_entry(name)
    if entry is None:
        raise GeomAttError(
            f"{name} cannot be downloaded.{_how_to_make(name, Path('DIR'))} "
            f"Give the folder that contains {name}.npz as `data`."
        )
    return read(entry.name)  # if it is missing, the error names the command that downloads it


def load_or_embedded(
    settings: ExperimentSettings, names: Sequence[str], embedded: str
) -> tuple[dict[str, Dataset], bool]:
    """Data sets by name, and False; for a quick run without them the embedded one, and True."""
    try:
        return {name: load_data(settings, name) for name in names}, False
    except GeomAttError:
        if not settings.quick:
            raise
    return {embedded: read(embedded)}, True


def load_md17(settings: ExperimentSettings) -> tuple[dict[str, Dataset], bool]:
    """The molecules of the eight whose data are there, or for a quick run without any the embedded ethanol.

    The second value is True for the embedded data.
    """
    there = [m for m in MD17 if _is_there(settings, f"md17/{m}")] or list(MD17)
    found, stand_in = load_or_embedded(settings, [f"md17/{m}" for m in there], "embedded/ethanol")
    missing = [f"md17/{m}" for m in MD17 if m not in there]
    if missing and not settings.quick:
        warnings.warn(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} left out: there are no data. "
            f"Download them with: geomatt data get {missing[0]}",
            stacklevel=2,
        )
    return {name.rpartition("/")[2]: dataset for name, dataset in found.items()}, stand_in


def md17_model(settings: ExperimentSettings, molecule: str, kind: str = "paper") -> Potential | None:
    """The model of a molecule: from the user's folder of models, from an earlier experiment, or as shipped.

    None if the user's folder has none, or none ships.
    """
    file = f"{molecule}{'' if kind == 'paper' else f'-{kind}'}.safetensors"
    path = (settings.models or settings.out / "models") / "md17" / file
    if path.is_file():
        return load(path).members[0]
    try:
        shipped = f"md17/{molecule}{'' if kind == 'paper' else f':{kind}'}"
        return None if settings.models else load(shipped).members[0]
    except GeomAttError:
        return None


def unseen_frames(model: Potential, dataset: Dataset, count: int, seed: int) -> list[Structure]:
    """Frames at random that the model was neither trained nor validated on."""
    seen = model.trained_frames
    unseen = [i for i, h in enumerate(dataset.frame_hashes()) if h not in seen]
    return [dataset[int(i)] for i in np.random.default_rng(seed).choice(unseen, count, replace=False)]


def _is_there(settings: ExperimentSettings, name: str) -> bool:
    """True if the data set can be read without a download."""
    if settings.data is None:
        return locate(name) is not None
    try:
        find_file(settings.data, name)
    except GeomAttError:
        return False
    return True


def find_file(folder: Path, name: str) -> Path:
    """The file of data set `name` below `folder`: md17/md17_aspirin.npz, md17_aspirin.npz, gfn2/cg-cg.npz."""
    collection, _, molecule = name.rpartition("/")
    entry = find_entry(name)
    names = [f"{collection}_{molecule}.npz", f"{molecule}.npz"]
    if entry is not None:
        names += [entry.filename, *(f"{collection}_{alias}.npz" for alias in entry.aliases)]
    names = list(dict.fromkeys(names))
    for file in names:
        for place in (folder / collection, folder):
            if (place / file).is_file():
                return place / file
    get = f" Download it with: geomatt data get {entry.name}, and leave out `data`." if entry else ""
    missing = f"{folder} contains no {name}: looked for {', '.join(names)}."
    raise GeomAttError(missing + get + _how_to_make(name, folder))


def _how_to_make(name: str, folder: Path) -> str:
    return f" Make it with: {MADE[name].format(folder / f'{name}.npz')}." if name in MADE else ""


def described(dataset: Dataset) -> dict[str, Any]:
    """A description of data for result files: enough to recognise them, nothing about the user's folders."""
    path = Path(dataset.origin.get("path", ""))
    file = {"file": path.name, "sha256": sha256(path)} if path.is_file() else {}
    frames = {"frames": dataset.origin["frames"]} if "frames" in dataset.origin else {}
    return {
        "name": dataset.name,
        "structures": len(dataset),
        **frames,
        "fingerprint": dataset.fingerprint(),
        **file,
    }


def model_inputs(model: Potential) -> dict[str, str | None]:
    """What dynamics with a model depends on: its weights, and the ranges behind walls and warnings."""
    text = None if model.domain is None else json.dumps(model.domain.to_dict(), sort_keys=True)
    domain = None if text is None else hashlib.sha256(text.encode()).hexdigest()
    return {"model": fingerprint(model), "domain": domain}


def described_md17(data: Mapping[str, Dataset], stand_in: bool) -> dict[str, Any]:
    """A description of the data of `load_md17` for result files."""
    collection = "embedded" if stand_in else "md17"
    return {f"{collection}/{molecule}": described(dataset) for molecule, dataset in data.items()}
