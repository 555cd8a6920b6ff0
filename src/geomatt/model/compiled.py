"""Files of compiled molecules: machine code for one list of atoms, beside the model it was made from.

Such a file is torch's package of compiled code (.pt2, a zip archive) with two more entries: the model file,
byte for byte, and a JSON description. Everything that can be checked is checked before the code runs: the
file, the version of torch, the processor. Then the code has to agree with the weights in the same file.
Nothing is unpickled, but running the code is running a program: only open files you trust.
"""

from __future__ import annotations

import copy
import json
import os
import platform
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.data.structures import Structure
from geomatt.elements import formula
from geomatt.errors import GeomAttError
from geomatt.model.files import load_bytes
from geomatt.model.inference import Evaluator, Inferred
from geomatt.model.inference import Path as EvaluationPath
from geomatt.model.potential import Potential

SUFFIX = ".pt2"
FORMAT = 1
ABOUT, MODEL = "geomatt/molecule.json", "geomatt/model.safetensors"  # entries, below the archive's own folder
TOLERANCE = 1e-4  # of the force scale: what compiled code may differ by
# Beginnings of what Linux calls sets of instructions; its other flags are nothing to a compiler.
INSTRUCTIONS = (
    "avx", "sse", "ssse", "pni", "fma", "f16c", "bmi", "abm", "adx", "aes", "vaes", "sha", "gfni", "amx",
    "movbe", "popcnt", "pclmul", "vpclmul", "asimd", "sve", "fp", "atomics", "bf16", "i8mm", "crc32",
)  # fmt: skip
AGAIN = "Make it again here with: geomatt export MODEL STRUCTURE -o OUT.pt2"


@dataclass(frozen=True)
class Description:
    """What a file says of itself; reading it runs nothing."""

    potential: Potential
    numbers: np.ndarray  # (N,) the atoms it is for, in this order
    positions: np.ndarray  # (N, 3) Å, a geometry to try the code on
    torch_version: str
    processor: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """What the code is for; the rest is the model's own description."""
        return {"numbers": self.numbers.tolist(), "torch": self.torch_version, "processor": self.processor}


class CompiledMolecule:
    """Energies and forces of one list of atoms by compiled code; answers batches as an `Evaluator` does."""

    def __init__(self, description: Description, path: Path) -> None:
        """Loads and runs the code in the file at `path`, and refuses it if its answers are wrong."""
        self.potential, self.path = description.potential, path
        self.numbers, self.positions = description.numbers, description.positions
        try:
            # Torch's own function for this also reads pickles that an archive may hold.
            self._code = torch._C._aoti.AOTIModelPackageLoader(os.fspath(path), "model", False, 1, -1)
            self.deviation = self._deviation()
        except RuntimeError as error:
            raise GeomAttError(f"The code in {path} does not run here ({_first(error)}). {AGAIN}") from error
        if not self.deviation <= TOLERANCE:
            raise GeomAttError(
                f"The code in {path} differs from the weights in the same file by {self.deviation:.1e} of "
                f"the forces, more than {TOLERANCE:g}: do not use it. {AGAIN}"
            )

    def __call__(
        self, batch: Batch, *, forces: bool = True, attention: bool = False, path: EvaluationPath = "auto"
    ) -> Inferred:
        """Energies and forces of one structure; whoever calls has seen to `check`."""
        if attention:
            raise GeomAttError("Compiled code has no attention. Use the model it was made from.")
        atomic, found = self.run(batch.positions[0])
        return Inferred(atomic[None], found[None] if forces else None, None, None)

    def run(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised atomic energies (N,) and forces (N, 3) at positions (N, 3)."""
        atomic, forces = self._code.boxed_run([positions.contiguous()])
        return atomic, forces

    def check(self, structure: Structure, name: str = "the structure") -> None:
        """Refuse what the code was not made for, and say why."""
        self.potential.check(structure, name)
        if structure.periodic:
            raise GeomAttError(
                f"{name} is periodic, which {self.path} is not for. Use the model file for it."
            )
        if not np.array_equal(structure.numbers, self.numbers):
            same = sorted(structure.numbers) == sorted(self.numbers)
            what = "has its atoms in another order" if same else f"is {formula(structure.numbers)}"
            raise GeomAttError(
                f"{name} {what}, but {self.path} was compiled for {formula(self.numbers)} in the order of "
                "its structure. Use the model file, or compile for this one: geomatt export MODEL STRUCTURE "
                "-o OUT.pt2"
            )

    def _deviation(self) -> float:
        """The largest difference to the weights in float64, over the scale of forces and energies.

        At the geometry of the file, where forces may be small, and at two with displaced atoms.
        """
        exact = copy.deepcopy(self.potential).to(dtype=torch.float64)
        rng, positions = np.random.default_rng(0), self.positions
        tried = [positions, *(positions + 0.05 * rng.standard_normal(positions.shape) for _ in range(2))]
        centred = torch.from_numpy(np.stack([p - p.mean(0) for p in tried]))
        numbers = torch.from_numpy(self.numbers).expand(len(tried), -1)
        expected = Evaluator(exact.network, table=False)(
            Batch(numbers, centred), forces=True, attention=False, path="dense"
        )
        found = [self.run(p.to(self.potential.dtype)) for p in centred]
        if expected.forces is None:
            raise TypeError("forces were asked for")
        forces = torch.stack([f.double() for _, f in found]) - expected.forces
        atomic = torch.stack([a.double() for a, _ in found]) - expected.atomic
        return max(_relative(forces, expected.forces), _relative(atomic, expected.atomic))


def load_compiled(path: str | os.PathLike[str]) -> CompiledMolecule:
    """The compiled molecule in a file. It runs the machine code in it: only open files you trust."""
    found = read_description(path)
    here = torch.__version__.split("+")[0]
    if found.torch_version != here:
        raise GeomAttError(f"{path} was made with torch {found.torch_version}; here is {here}. {AGAIN}")
    other = processor()
    lacking = sorted(set(found.processor["flags"]) - set(other["flags"]))
    if found.processor["machine"] != other["machine"] or lacking:
        what = f" (here is no {', '.join(lacking[:4])})" if lacking else f" ({found.processor['machine']})"
        raise GeomAttError(f"{path} was made for another processor{what}. {AGAIN}")
    return CompiledMolecule(found, Path(path))


def read_description(path: str | os.PathLike[str]) -> Description:
    """What a file of compiled code says about itself. Runs none of it."""
    path = Path(path)
    damaged = f"{path} is damaged or was cut short. Copy it again, or make it again with: geomatt export"
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            if ABOUT not in names or MODEL not in names:
                raise GeomAttError(f"{path} was not written by geomatt. Give a file from: geomatt export")
            about = json.loads(archive.read(names[ABOUT]))
            model = archive.read(names[MODEL])
            if archive.testzip() is not None:
                raise GeomAttError(damaged)
        if about["format"] > FORMAT:
            raise GeomAttError(
                f"{path} has format {about['format']}, written by geomatt {about.get('version', '?')}; this "
                f"version reads formats up to {FORMAT}. Upgrade with: pip install --upgrade geomatt"
            )
        numbers = np.array(about["numbers"], dtype=np.int64)
        positions = np.array(about["positions"], dtype=np.float64).reshape(len(numbers), 3)
        potential = load_bytes(model, path)
        made_for = {"machine": str(about["processor"]["machine"]), "flags": list(about["processor"]["flags"])}
        return Description(potential, numbers, positions, str(about["torch"]), made_for)
    except FileNotFoundError as error:
        raise GeomAttError(f"There is no file {path}. Make one with: geomatt export") from error
    except OSError as error:
        raise GeomAttError(f"Cannot read {path}: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, EOFError) as error:
        raise GeomAttError(damaged) from error


def processor() -> dict[str, Any]:
    """What machine code may rely on here: the kind of machine, and the instructions it has."""
    flags: list[str] = []
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.lower().startswith(("flags", "features")):
                flags = sorted(f for f in set(line.partition(":")[2].split()) if f.startswith(INSTRUCTIONS))
                break
    except OSError:  # not Linux
        flags = [platform.processor()]
    return {"machine": platform.machine(), "flags": flags}


def _relative(difference: Tensor, reference: Tensor) -> float:
    """The largest difference over the root mean square of the reference."""
    return float(difference.abs().max() / reference.square().mean().sqrt().clamp(min=1e-6))


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
