"""The reference method: an ASE calculator by name, and energy and forces from it with retries."""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.make.config import MethodConfig
from geomatt.data.structures import Structure
from geomatt.elements import formula, symbols
from geomatt.errors import GeomAttError
from geomatt.files import sha256

XTB = ("GFN2-xTB", "GFN1-xTB")
_XTB_NAMES = {
    name: full for full in XTB for name in (full.lower(), full.lower()[:4], full.lower()[:4] + "xtb")
}
_XTB_HEAVIEST = 86  # radon
# At this accuracy forces are exact to 1e-6 eV/Å; it is not slower than tblite's default, which is 1e-4.
_XTB_ARGUMENTS = {"verbosity": 0, "accuracy": 0.01}
# The converged result is the same. The time grows with nearly the fourth power of the iterations: water takes
# 1.3 s at 400 and over a minute at 1000.
_XTB_PATIENT = {"max_iterations": 400, "mixer_damping": 0.1}


class NotConverged(Exception):
    """The method gave no energy and forces for a structure; the message says why."""


class Unsupported(NotConverged):
    """The method is not made for such a structure: it lacks an element, for instance."""


@dataclass(frozen=True)
class Method:
    """An ASE calculator: GFN2-xTB or GFN1-xTB by tblite, or an import path with keyword arguments."""

    calculator: str = "GFN2-xTB"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = _XTB_NAMES.get(self.calculator.lower(), self.calculator)
        object.__setattr__(self, "calculator", name)
        if not self.is_xtb and not _parts(name):
            raise GeomAttError(
                f"Unknown `calculator` {name!r}. Use {' or '.join(XTB)}, or the import path of an ASE "
                "calculator such as ase.calculators.emt:EMT."
            )

    @property
    def is_xtb(self) -> bool:
        return self.calculator in XTB

    @property
    def theory(self) -> str:
        """The method with its version and arguments, for data files."""
        package, release = self._package()
        known = f" ({package} {release})" if release else ""
        return self.calculator + known + "".join(f" {k}={v}" for k, v in self.arguments.items())

    def describe(self) -> dict[str, Any]:
        """Everything that identifies the labels."""
        package, release = self._package()
        arguments = {**(_XTB_ARGUMENTS if self.is_xtb else {}), **self.arguments}
        return {"calculator": self.calculator, "arguments": arguments, "package": package, "version": release}

    def made_by(self, config: MethodConfig) -> dict[str, Any]:
        """Versions and settings with which labels were made."""
        from geomatt import __version__

        return {"geomatt": __version__, "method": self.describe(), "settings": config.to_dict()}

    def origin(self, config: MethodConfig) -> dict[str, str]:
        """The description of labels in a data file."""
        return {"theory": self.theory, "made_by": json.dumps(self.made_by(config)), "energy_unit": "eV"}

    def _package(self) -> tuple[str, str]:
        """The distribution and its version; of a file of the user's own, the start of its hash."""
        name = "tblite" if self.is_xtb else self.calculator.partition(":")[0].partition(".")[0]
        try:
            return name, version(name)
        except PackageNotFoundError:  # a package of another name, such as mace of mace-torch
            owners = packages_distributions().get(name)
        if owners:
            return owners[0], version(owners[0])
        _look_here()
        found = find_spec(name)
        file = Path(found.origin) if found and found.origin else None
        return name, f"sha256 {sha256(file)[:12]}" if file and file.is_file() else ""

    def build(self, structure: Structure, *, patient: bool = False) -> Any:
        """The calculator for a structure; `patient` for a hard case."""
        if not self.is_xtb:
            return _imported(self.calculator, json.dumps(dict(self.arguments), sort_keys=True))
        try:
            from tblite.ase import TBLite
        except ImportError:
            raise GeomAttError(
                f"{self.calculator} needs tblite. Install it with: pip install 'geomatt[xtb]'"
            ) from None
        heavy = symbols(sorted({int(z) for z in structure.numbers if z > _XTB_HEAVIEST}))
        if heavy:
            raise Unsupported(f"no parameters for {', '.join(heavy)}: it covers H to Rn")
        state: dict[str, Any] = {"charge": round(structure.charge)} if structure.charge else {}
        if structure.multiplicity is not None:
            state["multiplicity"] = structure.multiplicity
        chosen = {**_XTB_ARGUMENTS, **state, **(_XTB_PATIENT if patient else {}), **self.arguments}
        unknown = sorted(set(self.arguments) - set(TBLite.default_parameters))
        if unknown:  # tblite would ignore them
            raise _refused(self, TypeError(f"{', '.join(unknown)} is not an argument of tblite"))
        try:
            return TBLite(method=self.calculator, **chosen)
        except Exception as error:
            raise _refused(self, error) from error


class Reference:
    """The method at work on structures like `structure`: same atoms, charge and spin.

    xTB starts its iterations from the last result. `fresh` forgets it, so that what follows does not depend
    on what came before.
    """

    def __init__(self, method: Method, structure: Structure) -> None:
        self.method, self.structure = method, structure
        self.failures = 0  # calculations that had to be repeated
        self._calculator: Any = None

    def fresh(self, patient: bool = False) -> None:
        self._calculator = self.method.build(self.structure, patient=patient)
        if hasattr(self._calculator, "reset"):
            self._calculator.reset()

    def __call__(self, positions: np.ndarray) -> tuple[float, np.ndarray]:
        """Energy (eV) and forces (eV/Å); a failure is repeated from scratch, then with more patience."""
        if not np.isfinite(positions).all():
            raise NotConverged("positions are not finite")
        for attempt in range(3):
            try:
                if attempt or self._calculator is None:
                    self.fresh(patient=attempt == 2)
                return self._calculate(positions)
            except (GeomAttError, Unsupported):
                raise
            except ModuleNotFoundError as error:
                raise GeomAttError(
                    f"{self.method.calculator} needs the module {error.name}. Install it."
                ) from None
            except Exception as error:  # calculators raise any kind of error
                self.failures += 1
                self._calculator, reason = None, _reason(error)
        raise NotConverged(reason)

    def _calculate(self, positions: np.ndarray) -> tuple[float, np.ndarray]:
        from ase.calculators.calculator import PropertyNotImplementedError

        atoms = as_atoms(self.structure, positions)
        atoms.calc = self._calculator
        try:
            energy = float(atoms.get_potential_energy())
            forces = np.asarray(atoms.get_forces(), dtype=np.float64)
        except NotImplementedError as error:  # EMT raises it for elements it lacks
            if isinstance(error, PropertyNotImplementedError) or not str(error):
                raise _unlabelling(self.method.calculator) from None
            raise Unsupported(_reason(error)) from None
        if forces.shape != positions.shape:
            raise GeomAttError(f"{self.method.calculator} gives forces of shape {forces.shape}.")
        if not (np.isfinite(energy) and np.isfinite(forces).all()):
            raise ValueError("energy or forces are not finite")
        return energy, forces.copy()

    def stress(self) -> np.ndarray | None:
        """Stress (3, 3) of the last calculation, for methods that have it and periodic cells."""
        results = getattr(self._calculator, "results", {})
        if not all(self.structure.pbc) or results.get("stress") is None:
            return None
        xx, yy, zz, yz, xz, xy = np.asarray(results["stress"], dtype=np.float64).reshape(-1)[:6]
        return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def probe(method: Method, structure: Structure) -> float:
    """The energy of a structure; an error that says what is wrong if the method does not work for it."""
    reference = Reference(method, structure)
    try:
        return reference(structure.positions)[0]
    except Unsupported as error:
        raise GeomAttError(f"{cannot(method, structure, error)}. Choose another `calculator`.") from None
    except NotConverged as error:
        raise GeomAttError(
            f"{cannot(method, structure, error)}. Check the structure, its `charge` and `multiplicity`, and "
            "the method."
        ) from None


def cannot(method: Method, structure: Structure, why: object) -> str:
    """The beginning of a message about a structure that the method fails for."""
    return f"{method.calculator} cannot compute {formula(structure.numbers)}: {why}"


def as_atoms(structure: Structure, positions: np.ndarray | None = None) -> Any:
    """ASE Atoms with charge and multiplicity where calculators look for them."""
    from ase import Atoms

    where = structure.positions if positions is None else positions
    atoms = Atoms(structure.numbers, where, cell=structure.cell, pbc=structure.pbc)
    if structure.charge:
        atoms.info["charge"] = structure.charge
    if structure.multiplicity is not None:
        atoms.info["multiplicity"] = structure.multiplicity
    return atoms


def parse_arguments(values: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments from text: numbers, true, false, null and JSON are understood, the rest is text."""

    def value(text: str) -> Any:
        try:
            return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
        except json.JSONDecodeError:
            return text

    return {name: value(text) for name, text in values.items()}


def _parts(path: str) -> tuple[str, str] | None:
    """Module and name of an import path, with a colon or a dot between them; None if it is none."""
    module, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    return (module, name) if module and name else None


@functools.lru_cache(maxsize=1)  # a machine-learned calculator takes seconds to load
def _imported(path: str, arguments: str) -> Any:
    parts = _parts(path)
    assert parts is not None
    module_name, name = parts
    _look_here()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise GeomAttError(
            f"`calculator` {path} cannot be imported: {_reason(error)}. Install it, or correct the path."
        ) from error
    try:
        maker = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        raise GeomAttError(f"`calculator` {path}: {module_name} has no {name}. Correct the path.") from None
    if hasattr(maker, "get_potential_energy") and not isinstance(maker, type):
        built = maker
    else:
        try:
            built = maker(**json.loads(arguments))  # type: ignore[operator]
        except Exception as error:
            raise _refused(Method(path, json.loads(arguments)), error) from error
    if not hasattr(built, "get_potential_energy"):
        raise GeomAttError(f"`calculator` {path} gives a {type(built).__name__}, not an ASE calculator.")
    given = getattr(built, "implemented_properties", ())
    if given and not {"energy", "forces"} <= set(given):
        raise _unlabelling(path)
    return built


def _unlabelling(calculator: str) -> GeomAttError:
    return GeomAttError(
        f"{calculator} gives no energy or no forces, which a force field is trained on. Choose another "
        "`calculator`."
    )


def _look_here() -> None:
    """Import from the current folder, too, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _refused(method: Method, error: Exception) -> GeomAttError:
    given = ", ".join(f"{name}={value!r}" for name, value in method.arguments.items()) or "none"
    return GeomAttError(
        f"{method.calculator} cannot be made with `arguments` {given}: {_reason(error)}. Correct them."
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
