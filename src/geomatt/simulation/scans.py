"""The energy along a torsion or distance, rigid or relaxed, with a reference beside it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geomatt.arguments import require
from geomatt.data.dataset import Dataset
from geomatt.data.structures import AtomsLike, Structure
from geomatt.errors import GeomAttError
from geomatt.model import AnyPotential
from geomatt.simulation.coordinates import Coordinate
from geomatt.simulation.inputs import Model, given
from geomatt.simulation.settings import RelaxSettings, ScanSettings

KEPT = {"torsion": 0.5, "distance": 0.005}  # degrees and Å a relaxed point may be off its value


@dataclass(frozen=True)
class ReferenceCurve:
    """Energies of another method, at values of the coordinate of its own."""

    name: str
    values: np.ndarray  # (K,) degrees or Å, ascending
    energies: np.ndarray  # (K,) eV


@dataclass(frozen=True)
class Scan:
    """Energies along a coordinate."""

    coordinate: Coordinate
    relaxed: bool
    values: np.ndarray  # (P,) ascending
    structures: list[Structure]  # with energy and forces
    converged: np.ndarray  # (P,) bool; True for rigid scans
    spread: np.ndarray | None = None  # (P,) eV, of a committee
    outside: np.ndarray | None = None  # (P,) bool, structures outside the training data; None: not looked at
    failures: tuple[str, ...] = ()  # (P,) of relaxed scans: why a point is no result, mostly empty

    @property
    def energies(self) -> np.ndarray:
        """In eV (P,)."""
        return np.array([s.energy for s in self.structures])

    def extrema(self) -> list[tuple[int, str]]:
        """Points that are lower or higher than both neighbours, and "minimum" or "maximum"."""
        energy, last, found = self.energies, len(self.values) - 1, []
        # The ends of a whole turn are the same point; other ends have one neighbour only.
        whole_turn = self.coordinate.kind == "torsion" and self.values[-1] - self.values[0] > 359.9
        for p in range(0 if whole_turn else 1, last):
            left, right = energy[p - 1 if p else last - 1], energy[p + 1]
            if energy[p] <= min(left, right):
                found.append((p, "minimum"))
            elif energy[p] >= max(left, right):
                found.append((p, "maximum"))
        return found

    def against(self, reference: ReferenceCurve) -> dict[str, float]:
        """Differences in eV between the curves, each relative to its lowest point where both are known."""
        mine = self.energies
        inside = (self.values >= reference.values[0] - 1e-6) & (self.values <= reference.values[-1] + 1e-6)
        if inside.sum() < 2:
            raise GeomAttError(
                f"The reference {reference.name} has the coordinate from {reference.values[0]:g} to "
                f"{reference.values[-1]:g} {self.coordinate.unit} only, outside of the scan."
            )
        theirs = np.interp(self.values[inside], reference.values, reference.energies)
        own = mine[inside] - mine[inside].min()
        theirs = theirs - theirs.min()
        return {
            "rms_eV": float(np.sqrt(((own - theirs) ** 2).mean())),
            "largest_eV": float(np.abs(own - theirs).max()),
            "barrier_model_eV": float(own.max()),
            "barrier_reference_eV": float(theirs.max()),
        }


def scan(
    potential: Model,
    structure: Structure | AtomsLike,
    coordinate: Coordinate,
    settings: ScanSettings,
    *,
    progress: Callable[[int], Any] | None = None,
) -> Scan:
    """Energies along a coordinate.

    A rigid scan moves the part of the molecule beyond the coordinate's bond as one body. A relaxed scan
    starts at the value nearest to the present one and walks from there to both ends; it ends early, with
    the points it has, if `progress` returns True.
    """
    potential, structure = given(potential, structure)
    require("coordinate", coordinate, Coordinate, 'Coordinate("torsion", (0, 1, 2, 3))')
    require("settings", settings, ScanSettings, "ScanSettings(points=37)")
    coordinate.check(structure)
    values = settings.values(coordinate.kind, coordinate.value(structure.positions))
    side = coordinate.moving(structure)
    if settings.relaxed:
        return _relaxed(potential, structure, coordinate, settings, values, side, progress)
    if side is None:
        raise GeomAttError(
            f"{coordinate.name(structure)} is part of a ring, so no part of the molecule can be moved as one "
            "body. Set `relaxed`."
        )
    moved = [replace(structure, positions=coordinate.moved(structure.positions, side, v)) for v in values]
    found = potential.predict(moved, progress=progress)
    labelled = [
        replace(s, energy=p.energy, forces=p.forces, info={}) for s, p in zip(moved, found, strict=True)
    ]
    spreads = [p.energy_spread for p in found]
    spread = None if spreads[0] is None else np.array(spreads)
    all_converged = np.ones(len(values), dtype=bool)
    return Scan(coordinate, False, values, labelled, all_converged, spread, _outside(potential, labelled))


def _outside(potential: AnyPotential, structures: Sequence[Structure]) -> np.ndarray | None:
    if not potential.watches(structures[0]):
        return None
    return np.array([bool(potential.extrapolations([one])) for one in structures])


def _relaxed(
    potential: AnyPotential,
    structure: Structure,
    coordinate: Coordinate,
    settings: ScanSettings,
    values: np.ndarray,
    side: np.ndarray | None,
    progress: Callable[[int], Any] | None,
) -> Scan:
    from geomatt.simulation.relaxation import relax

    # In a ring only the last atom is moved; the relaxation brings the others after it.
    body = np.arange(len(structure)) == coordinate.atoms[-1] if side is None else side
    how = RelaxSettings(fmax=settings.fmax, steps=settings.steps, walls=settings.walls)
    middle = int(np.argmin([coordinate.distance(structure.positions, float(v)) for v in values]))
    found: dict[int, tuple[Structure, bool, str]] = {}
    for order in (range(middle, len(values)), range(middle - 1, -1, -1)):
        before = found[middle][0] if found and not found[middle][2] else structure
        for p in order:
            value = float(values[p])
            start = replace(before, positions=coordinate.moved(before.positions, body, value))
            result = relax(potential, start, how, constraint=coordinate.constraint(value))
            kept = coordinate.distance(result.end.positions, value) < KEPT[coordinate.kind]
            found[p] = result.end, result.converged and kept, result.failure
            if not result.failure:
                before = result.end
            if progress is not None and progress(1):
                break
        else:
            continue
        break
    points = sorted(found)
    structures, converged, failures = zip(*(found[p] for p in points), strict=True)
    spread = None
    if len(potential.members) > 1:
        spread = np.array([p.energy_spread for p in potential.predict(structures, check_domain=False)])
    outside = _outside(potential, structures)
    ended = np.array(converged)
    return Scan(coordinate, True, values[points], list(structures), ended, spread, outside, failures)


def calculator_reference(
    calculator: Any, name: str, found: Scan, *, progress: Callable[[int], None] | None = None
) -> ReferenceCurve:
    """Energies of an ASE calculator at the geometries of a scan."""
    from geomatt.simulation.atoms import to_atoms

    energies = []
    for structure in found.structures:
        atoms = to_atoms(structure)
        atoms.calc = calculator
        try:
            energies.append(float(atoms.get_potential_energy()))
        except Exception as error:
            raise GeomAttError(f"The reference {name} failed: {type(error).__name__}: {error}") from error
        if progress is not None:
            progress(1)
    return ReferenceCurve(name, found.values, np.array(energies))


def data_reference(data: Dataset, name: str, coordinate: Coordinate, structure: Structure) -> ReferenceCurve:
    """Energies of labelled frames of the same molecule, by their own value of the coordinate."""
    if data.energies is None:
        raise GeomAttError(f"The reference {name} has no energies.")
    frames = [s for s in data if np.array_equal(s.numbers, structure.numbers)]
    if not frames:
        raise GeomAttError(f"The reference {name} has no frame with the atoms of the structure in its order.")
    values = np.array([coordinate.value(s.positions) for s in frames])
    energies = np.array([s.energy for s in frames], dtype=np.float64)
    order = np.argsort(values)
    return ReferenceCurve(name, values[order], energies[order])


def make_calculator(path: str, options: Mapping[str, Any]) -> Any:
    """An ASE calculator from `module:Class` and its arguments."""
    module, _, name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module), name)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise GeomAttError(
            f"The reference {path} cannot be imported ({error}). Install it: pip install {missing}"
        ) from error
    except AttributeError as error:
        raise GeomAttError(
            f"The module {module} has no {name}. Give a calculator as module:Class."
        ) from error
    try:
        return kind(**options)
    except Exception as error:
        raise GeomAttError(
            f"The reference {path} cannot be made with {dict(options)}: {type(error).__name__}: {error}"
        ) from error
