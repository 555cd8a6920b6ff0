"""The measurements of a run of the benchmark, and their file."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import geomatt
from geomatt.bench.floor import Ceilings
from geomatt.bench.timing import Ratio, Timing
from geomatt.data import atomic_output
from geomatt.errors import GeomAttError
from geomatt.model import Work
from geomatt.model.native.library import compiler
from geomatt.training import commit, hardware

FORMAT = 1
PACKAGES = (
    "torch", "numpy", "scipy", "triton", "torch_geometric", "mace-torch", "nequip", "ase", "vesin",
    "torch-sim-atomistic",
)  # fmt: skip


@dataclass
class Check:
    """A measured value and its target."""

    what: str
    value: float
    goal: float
    at_most: bool  # else at least
    unit: str = ""
    met: bool = field(init=False)

    def __post_init__(self) -> None:
        self.met = bool(self.value <= self.goal if self.at_most else self.value >= self.goal)


@dataclass
class Floor:
    """A time in relation to the least the machine could need."""

    work: Work
    seconds: float
    times: float  # measured over floor


@dataclass
class BenchRow:
    """One measurement beside its baseline."""

    suite: str
    what: str
    ours: Timing
    baseline: Timing
    checks: list[Check] = field(default_factory=list)
    floor: Floor | None = None
    note: str = ""
    ratio: Ratio = field(init=False)

    def __post_init__(self) -> None:
        self.ratio = Ratio.of(self.baseline, self.ours)


@dataclass
class Exactness:
    """Errors of an engine against automatic differentiation in float64, or another float64 engine."""

    path: str  # the engine
    system: str
    dtype: str
    reference: str
    energy: float  # largest relative error of an energy, or of the loss
    forces: float  # largest error of a force over their root mean square, or of the gradient in norm
    model: str = ""
    checks: list[Check] = field(default_factory=list)


@dataclass
class ScalingPoint:
    """Energy and forces of random matter: one engine, one size."""

    path: str  # "dense": all pairs; "sparse": neighbour lists
    atoms: int
    pairs: float  # neighbours of an atom, itself included
    seconds: tuple[float, ...]  # one value for each round
    memory: float | None  # peak bytes beyond what was allocated before
    setup_seconds: float  # neighbour search and layout
    floor_times: float | None  # measured over floor
    model: str = ""


@dataclass
class Curve:
    """Validation errors after every epoch of a training."""

    name: str
    unit: str
    energy: tuple[float, ...]  # mean absolute errors, in the unit
    forces: tuple[float, ...]  # and in the unit per Å


@dataclass
class BenchReport:
    """All measurements of a run. Filled while it runs, so that an interrupted run keeps what it has."""

    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    ceilings: Ceilings | None = None
    rows: list[BenchRow] = field(default_factory=list)
    exactness: list[Exactness] = field(default_factory=list)
    scaling: list[ScalingPoint] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    curve_check: Check | None = None
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_dict(self) -> dict[str, Any]:
        """Everything, raw timings included, ready for JSON."""
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: str | Path) -> None:
        """Write the result file."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        with atomic_output(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


def read_result(path: str | Path) -> dict[str, Any]:
    """The dictionary of a result file."""
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GeomAttError(f"Cannot read the result file {path}: {error}") from error
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise GeomAttError(
            f"{path} is not a result file of this version. Make one: geomatt bench --json {path}"
        )
    return result


def describe_machine(device: str) -> dict[str, Any]:
    """Hardware, versions and commit."""
    cuda = torch.device(device).type == "cuda"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "device": device,
        "hardware": hardware(device),
        "processor": hardware("cpu"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_GiB": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "geomatt": geomatt.__version__,
        "commit": commit(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "cuda": torch.version.cuda if cuda else None,
        "native": not cuda and compiler() is not None,  # True if there is a C++ compiler
    }


def importable(module: str) -> bool:
    """True if an optional package is installed."""
    return importlib.util.find_spec(module) is not None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
