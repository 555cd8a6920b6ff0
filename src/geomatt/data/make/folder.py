"""The folder next to an output file that holds finished work until all of it is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.io.readers import write
from geomatt.data.make.workers import KEPT
from geomatt.errors import GeomAttError
from geomatt.files import WriteError, atomic_write, locked_folder, require_writable

_SETTINGS, _LOCK = "settings.json", ".lock"
SUFFIXES = (".npz", ".xyz", ".extxyz")


class WorkFolder:
    """`OUT.parts`, which belongs to one set of settings."""

    def __init__(self, path: Path, out: Path) -> None:
        self.path, self.out = path, out

    def finish(self, dataset: Dataset, summary: Mapping[str, Any]) -> None:
        """Write the data set and its summary, and remove the folder."""
        write_data(dataset, summary, self.out)
        shutil.rmtree(self.path, ignore_errors=True)

    def rescue(self, dataset: Dataset | None, summary: Mapping[str, Any]) -> str:
        """Write what there is to another file; a sentence about it."""
        if dataset is None:
            return ""
        partial = self.out.with_name(f"{self.out.stem}.partial{self.out.suffix}")
        try:
            write_data(dataset, summary, partial)
        except WriteError:  # a full disk
            return f" {KEPT}"
        return f" The {len(dataset)} frames labelled so far are in {partial}."


@contextmanager
def work_folder(
    out: Path, settings: Mapping[str, Any], optional: tuple[str, ...] = ()
) -> Iterator[WorkFolder]:
    """Make or reopen the folder, and keep other processes out of it.

    `settings` must be those it was made with; those named in `optional` may differ.
    """
    out = require_writable(out)
    if out.suffix.lower() not in SUFFIXES:
        raise GeomAttError(f"Cannot write {out}: the name must end in {', '.join(SUFFIXES)}.")
    if out.exists():
        raise GeomAttError(f"{out} exists already. Move it, or choose another `out`.")
    folder = out.with_name(f"{out.name}.parts")
    with locked_folder(folder):
        _compare(folder, json.loads(json.dumps(settings)), optional)
        try:
            yield WorkFolder(folder, out)
        except WriteError as error:  # a full disk
            raise WriteError(f"{error} {KEPT}") from error


def _compare(folder: Path, settings: dict[str, Any], optional: tuple[str, ...]) -> None:
    path = folder / _SETTINGS
    if not path.is_file() or without_work(folder):
        atomic_write(path, (json.dumps(settings, indent=2) + "\n").encode())
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise GeomAttError(f"{path} is damaged. Remove {folder} to start anew.") from None
    for name, value in settings.items():
        if name not in optional and stored.get(name) != value:
            raise GeomAttError(
                f"{folder} holds unfinished work with `{name}` {_short(stored.get(name))}, now it is "
                f"{_short(value)}. Use the same to continue, choose another `out`, or remove the folder to "
                "start anew."
            )


def without_work(folder: Path, *descriptions: str) -> bool:
    """True if nothing was finished in a folder: it has only locks, settings and files of these names."""
    names = {_SETTINGS, _LOCK, *descriptions}
    return not any(p.is_file() and p.name not in names and p.stat().st_size for p in folder.rglob("*"))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def write_data(dataset: Dataset, summary: Mapping[str, Any], path: Path) -> None:
    """Write a data set, after its summary as JSON beside it."""
    atomic_write(path.with_suffix(".json"), (json.dumps(summary, indent=2, default=plain) + "\n").encode())
    write(dataset, path, energy_unit="eV")


def plain(value: Any) -> Any:
    """Numpy numbers and arrays for JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not for JSON")


Progress = Callable[[int], None]
