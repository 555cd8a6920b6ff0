"""Compiling a model for one molecule: faster single points and dynamics on a processor."""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from geomatt.data.files import atomic_write, require_writable
from geomatt.data.structures import Structure, as_structure
from geomatt.errors import GeomAttError
from geomatt.model.compiled import ABOUT, FORMAT, MODEL, SUFFIX, CompiledMolecule, load_compiled, processor
from geomatt.model.files import to_bytes
from geomatt.model.inference import DENSE_ATOMS
from geomatt.model.molecule import FixedMolecule
from geomatt.model.potential import Potential

# Indices come from `FixedMolecule` alone, so they need no test; threads are those of the running program.
OPTIONS = {"assert_indirect_indexing": False, "cpp.dynamic_threads": True}


def export_molecule(
    potential: Potential, structure: Structure, path: str | os.PathLike[str]
) -> CompiledMolecule:
    """Compile a potential for the atoms of a structure, in its precision, into a .pt2 file.

    The structure's geometry is only tried on the result; any other of the same atoms in the same order will
    do. It needs a C++ compiler and takes tens of seconds. The file is for this processor and this version of
    torch. Open it with `GeomAttCalculator`.
    """
    from geomatt import __version__

    if not isinstance(potential, Potential):
        raise GeomAttError("Only a single potential can be compiled: export each member of a committee.")
    structure = as_structure(structure)
    target = require_writable(Path(path))
    _check(potential, structure, target)
    for message in potential.doubts(structure):
        warnings.warn(message, stacklevel=2)
    positions = torch.from_numpy(structure.positions - structure.positions.mean(0)).to(dtype=potential.dtype)
    potential = copy.deepcopy(potential).to("cpu")
    about = {
        "format": FORMAT,
        "version": __version__,
        "numbers": structure.numbers.tolist(),
        "positions": structure.positions.tolist(),
        "torch": torch.__version__.split("+")[0],
        "processor": processor(),
    }
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / f"molecule{SUFFIX}"
        with torch.no_grad(), _quiet():
            module = FixedMolecule(potential.network, torch.from_numpy(structure.numbers))
            _compile(torch.export.export(module, (positions,)), package)
        content = _with_entries(
            package.read_bytes(), {ABOUT: json.dumps(about).encode(), MODEL: to_bytes(potential)}
        )
    atomic_write(target, content)
    return load_compiled(target)


def find_compiler() -> str | None:
    """The C++ compiler torch would use, or None."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return str(get_cpp_compiler())
    except InvalidCxxCompiler:
        return None


def _check(potential: Potential, structure: Structure, target: Path) -> None:
    """Refuse before the long part what cannot be compiled."""
    if target.suffix != SUFFIX:
        raise GeomAttError(f"Cannot write {target}: the name must end in {SUFFIX}.")
    potential.check(structure)
    if structure.periodic:
        raise GeomAttError("Periodic structures cannot be compiled. Use the model file for them.")
    if len(structure) < 2:
        raise GeomAttError("A single atom has no forces: there is nothing to compile.")
    if len(structure) > DENSE_ATOMS["cpu"]:
        raise GeomAttError(
            f"{len(structure)} atoms are too many: compiled code looks at all pairs. From "
            f"{DENSE_ATOMS['cpu']} atoms on neighbour lists are faster; use the model file, which has them."
        )
    if find_compiler() is None:
        raise GeomAttError(
            "Compiling needs a C++ compiler, and there is none. Install g++ (on Debian or Ubuntu: "
            "apt install g++), or name one in the variable CXX. The model file works without."
        )


def _compile(program: torch.export.ExportedProgram, package: Path) -> None:
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.exc import CppCompileError

    try:
        aoti_compile_and_package(program, package_path=os.fspath(package), inductor_configs=OPTIONS)
    except CppCompileError as error:
        reason = next((line for line in str(error).splitlines() if "error" in line), "no reason given")
        raise GeomAttError(
            f"The C++ compiler {find_compiler()} failed ({reason.strip()}). Try another one, named in the "
            "variable CXX; the model file works without."
        ) from error


def _with_entries(package: bytes, entries: dict[str, bytes]) -> bytes:
    """A package with further entries, in the folder the archive has."""
    buffer = io.BytesIO(package)
    with zipfile.ZipFile(buffer, "a") as archive:
        folder = archive.namelist()[0].partition("/")[0]
        for name, content in entries.items():
            archive.writestr(f"{folder}/{name}", content)
    return buffer.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch's own warnings while it compiles say nothing a user could act on."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
