"""The layout of the package: direction of imports, public names, no paths of users in committed results."""

from __future__ import annotations

import ast
import importlib
import json
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import geomatt

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "geomatt"
# A room may import from those before it.
ROOMS = [
    "data",
    "model",
    "training",
    "evaluation",
    "simulation",
    "analysis",
    "pages",
    "workflow",
    "reproduce",
    "bench",
    "cli",
]


def imported(path: Path) -> set[str]:
    """The modules of geomatt that a file imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return {name for name in names if name.startswith("geomatt.")}


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_imports_from_a_later_one(room):
    later = {f"geomatt.{name}" for name in ROOMS[ROOMS.index(room) + 1 :]}
    files = sorted((SOURCE / room).rglob("*.py"))
    assert files
    for file in files:
        wrong = {name for name in imported(file) if any(name == x or name.startswith(x + ".") for x in later)}
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


def test_every_folder_is_a_room():
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(ROOMS)


def test_files_above_the_rooms_import_from_none():
    rooms = {f"geomatt.{name}" for name in ROOMS}
    entrances = {"__init__.py", "__main__.py"}  # of users and of `python -m geomatt`
    for file in sorted(SOURCE.glob("*.py")):
        wrong = {name for name in imported(file) if ".".join(name.split(".")[:2]) in rooms}
        assert not wrong or file.name in entrances, f"{file.name} imports {sorted(wrong)}"


NETWORKS = sorted(path.parent.name for path in (SOURCE / "model").glob("*/network.py"))
# Where a network of the package may be named: the registry, a reader of one network's files, and experiments.
NAMING = {"model/registry.py", "cli/import_authors.py", "reproduce"}


def test_networks_are_named_in_their_own_folders_only():
    classes = [
        node.name
        for network in NETWORKS
        for node in ast.parse((SOURCE / "model" / network / "network.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Network" for base in node.bases)
    ]
    assert {"GeometricAttention", "PairStates"} <= set(classes)
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE).as_posix()
        if place in NAMING or place.partition("/")[0] in NAMING:
            continue
        folders = {f"geomatt.model.{name}" for name in NETWORKS if not place.startswith(f"model/{name}/")}
        wrong = {name for name in imported(file) if ".".join(name.split(".")[:3]) in folders}
        assert not wrong, f"{place} imports {sorted(wrong)}"
        if not place.startswith(tuple(f"model/{name}/" for name in NETWORKS)):
            text = file.read_text(encoding="utf-8")
            named = [name for name in classes if name != "SchNet" and name in text]  # also another package's
            assert not named, f"{place} names {named}"


PUBLIC = [
    "data",
    "data.make",
    "model",
    "training",
    "evaluation",
    "simulation",
    "simulation.engines",
    "analysis",
    "pages",
]
# Rooms that use the package as its users do; experiments on networks may import these too.
CLIENTS = {"reproduce": ["geomatt.model.geometric_attention", "geomatt.model.pair_states"], "bench": []}
# What is not public and used all the same: the neighbour search, timed apart, and the compiler, recorded.
INTERNAL = {
    "bench": {
        "geomatt.model.neighbours": {"NeighbourList", "neighbour_list"},
        "geomatt.model.native.library": {"compiler"},
    }
}


@pytest.mark.parametrize("room", CLIENTS)
def test_clients_import_public_names_only(room):
    packages = [*(f"geomatt.{name}" for name in PUBLIC), *CLIENTS[room]]
    exported = {name: set(importlib.import_module(name).__all__) for name in packages}
    exported |= INTERNAL.get(room, {})
    plain = {
        "geomatt",
        "geomatt.errors",
        "geomatt.units",
        "geomatt.elements",
        "geomatt.drawing",
        "geomatt.progress",
        "geomatt.locks",
    }
    for file in sorted((SOURCE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used = {alias.name: set() for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used = {node.module or "": {alias.name for alias in node.names}}
            else:
                continue
            for module, names in used.items():
                own = module == f"geomatt.{room}" or module.startswith(f"geomatt.{room}.")
                if module.partition(".")[0] != "geomatt" or own or module in plain:
                    continue
                where = f"{file.relative_to(ROOT)}:{node.lineno}"
                assert module in exported, f"{where} imports from {module}, which is not public"
                assert names <= exported[module], f"{where}: {module} does not export {names}"


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*.json")), ids=lambda p: p.name)
def test_results_name_no_folders(file):
    def strings(value):
        if isinstance(value, dict):
            for item in value.values():
                yield from strings(item)
        elif isinstance(value, list):
            for item in value:
                yield from strings(item)
        elif isinstance(value, str):
            yield value

    assert not [s for s in strings(json.loads(file.read_text(encoding="utf-8"))) if s.startswith("/")]


def test_version_of_a_source_tree_that_is_not_installed(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(geomatt, "version", missing)
    assert geomatt._version() == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
