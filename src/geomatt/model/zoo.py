"""The trained models that ship with the package, by name: `geomatt.load("md17/aspirin")`.

All metadata is read from their files, so adding a model needs no other change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from geomatt.errors import GeomAttError

HOW_TO_MAKE = "geomatt reproduce table1 --device cuda"
NEAREST = 4  # names in the message about an unknown one
LIST = "`geomatt models` lists those that do"
STABILITY = "stability.json"  # results of long dynamics, by name


@dataclass(frozen=True)
class Shipped:
    """A model that ships: its name, its file and the file's metadata."""

    name: str  # md17/aspirin, or md17/aspirin:fast
    path: Path
    header: Mapping[str, Any]

    @property
    def record(self) -> Mapping[str, Any]:
        record: Mapping[str, Any] = self.header.get("record", {})
        return record


def shipped_folder() -> Path:
    """Where the package keeps its models."""
    return Path(str(files("geomatt.model.shipped")))


def shipped_models() -> list[Shipped]:
    """Every model that ships, in the order of their names."""
    root = shipped_folder()
    found = [
        Shipped(_model_name(path.relative_to(root)), path, _header(path))
        for path in sorted(root.glob("*/*.safetensors"))
    ]
    return sorted(found, key=lambda model: model.name)


def find_shipped(name: str) -> Path | None:
    """The file of the model called `name` (case-insensitive; `:paper` is optional), or None."""
    collection, _, model = name.strip().lower().partition("/")
    molecule, _, recipe = model.partition(":")
    if not molecule or any(part in ("..", ".") or "/" in part for part in (collection, molecule, recipe)):
        return None
    suffix = "" if recipe in ("", "paper") else f"-{recipe}"
    path = shipped_folder() / collection / f"{molecule}{suffix}.safetensors"
    return path if path.is_file() else None


def stability_of(path: Path) -> dict[str, Any]:
    """Results of long dynamics with the model of a file in the package's folder; empty if there are none.

    By condition, see `geomatt.model.stability`.
    """
    folder = path.parents[1]
    if not (folder / STABILITY).is_file():
        return {}
    tried = json.loads((folder / STABILITY).read_text(encoding="utf-8"))
    found: dict[str, Any] = tried.get(_model_name(path.relative_to(folder)), {})
    return found


def unknown_name_hint(name: str) -> str:
    """Advice for the error message about an unknown name: those nearest to it."""
    names = [model.name for model in shipped_models()]
    if not names:
        return f"None do: make them with {HOW_TO_MAKE}, or give the path of a model file."
    near = get_close_matches(name.lower(), names, n=NEAREST, cutoff=0.75)
    which = f"The nearest are {', '.join(near)}; `geomatt models` lists all" if near else LIST
    if len(names) <= NEAREST:
        which = f"These do: {', '.join(names)}"
    return f"{which}. Or give the path of a model file."


def _model_name(path: Path) -> str:
    """md17/aspirin-fast.safetensors is md17/aspirin:fast."""
    molecule, _, recipe = path.stem.partition("-")
    return f"{path.parent.as_posix()}/{molecule}" + (f":{recipe}" if recipe else "")


def _header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="numpy") as file:
            header: dict[str, Any] = json.loads((file.metadata() or {})["geomatt"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise GeomAttError(f"{path} is not a model file ({error}). Reinstall geomatt.") from error
    return header
