"""What a run of the benchmark leaves, and its file."""

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
from geomatt.bench.floor import Ceilings, Work
from geomatt.bench.timing import Ratio, Timing
from geomatt.data.files import atomic_output
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.cpu.library import library
from geomatt.training.record import commit, hardware

FORMAT = 1
PACKAGES = ("torch", "numpy", "scipy", "triton", "torch_geometric", "mace-torch", "ase", "vesin")


@dataclass(frozen=True)
class Check:
    """A measured value against a target."""

    what: str
    value: float
    goal: float
    at_most: bool  # else at least
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal


@dataclass(frozen=True)
class Floor:
    """How far a time is from what the machine could do."""

    work: Work
    seconds: float
    times: float  # measured over floor


@dataclass(frozen=True)
class Row:
    """One measurement beside its baseline."""

    suite: str
    what: str
    ours: Timing
    baseline: Timing
    checks: tuple[Check, ...] = ()
    floor: Floor | None = None
    note: str = ""

    @property
    def ratio(self) -> Ratio:
        return Ratio.of(self.baseline, self.ours)


@dataclass(frozen=True)
class Exactness:
    """Errors of a fast path against the literal equations in float64 (or what was held against them)."""

    path: str
    system: str
    dtype: str
    reference: str
    energy: float  # largest relative error of an energy, or of the loss
    forces: float  # largest error of a force over their root mean square, or of the gradient in norm
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class ScalingPoint:
    """Energy and forces of random matter: one path, one size."""

    path: str  # "dense" or "sparse"
    atoms: int
    pairs: float  # neighbours of an atom, itself included
    seconds: tuple[float, ...]  # one value for each round
    memory: float | None  # peak bytes beyond what was there before
    setup_seconds: float  # neighbour search and layout
    floor_times: float  # measured over floor


@dataclass(frozen=True)
class Curve:
    """Validation errors after every epoch of a training."""

    name: str
    unit: str
    energy: tuple[float, ...]  # mean absolute errors, in the unit
    forces: tuple[float, ...]  # and in the unit per Å


@dataclass
class Bench:
    """All measurements of a run. Filled as it goes, so that an interrupted run keeps what it has."""

    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    ceilings: Ceilings | None = None
    rows: list[Row] = field(default_factory=list)
    exactness: list[Exactness] = field(default_factory=list)
    scaling: list[ScalingPoint] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    curve_check: Check | None = None
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_dict(self) -> dict[str, Any]:
        """Everything, raw timings included, ready for JSON."""
        return {
            "format": FORMAT,
            "date": self.date,
            "complete": self.complete,
            "machine": self.machine,
            "settings": self.settings,
            "ceilings": None if self.ceilings is None else asdict(self.ceilings),
            "rows": [_row(row) for row in self.rows],
            "exactness": [asdict(e) | {"checks": [_check(c) for c in e.checks]} for e in self.exactness],
            "scaling": [asdict(point) for point in self.scaling],
            "curves": [asdict(curve) for curve in self.curves],
            "curve_check": None if self.curve_check is None else _check(self.curve_check),
            "notes": self.notes,
        }

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


def machine(device: str) -> dict[str, Any]:
    """Hardware, versions and commit."""
    cuda = torch.device(device).type == "cuda"
    description: dict[str, Any] = {
        "device": device,
        "hardware": hardware(device),
        "processor": hardware("cpu"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_GiB": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "geomatt": geomatt.__version__,
        # A copy of the sources without its history can still be told which commit it is.
        "commit": commit(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "native": not cuda and library() is not None,  # whether our C++ could be compiled
    }
    if cuda:
        properties = torch.cuda.get_device_properties(device)
        description["gpu_memory_GiB"] = round(properties.total_memory / 2**30, 1)
        description["cuda"] = torch.version.cuda
    return description


def importable(module: str) -> bool:
    """Whether an optional package is installed."""
    return importlib.util.find_spec(module) is not None


def _row(row: Row) -> dict[str, Any]:
    """A row with its derived numbers."""

    def timing(t: Timing) -> dict[str, Any]:
        return asdict(t) | {"median": t.median, "quartiles": list(t.quartiles)}

    return {
        **asdict(row),
        "ours": timing(row.ours),
        "baseline": timing(row.baseline),
        "ratio": asdict(row.ratio),
        "checks": [_check(c) for c in row.checks],
    }


def _check(check: Check) -> dict[str, Any]:
    return asdict(check) | {"met": check.met}


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
