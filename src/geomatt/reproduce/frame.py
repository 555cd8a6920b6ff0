"""What an experiment is, and how one is run: in pieces that are never computed twice.

An experiment's `run` asks `Pieces` for each part of its work. A piece lies in its own JSON file with the
inputs it came from; while those stay the same it is read instead of computed, so a run that was broken off
continues. The result of an experiment is one JSON file that says where every number came from, and tables,
figures and text are functions of that file alone.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from geomatt.data.files import atomic_output
from geomatt.errors import GeomAttError
from geomatt.reproduce.table import ResultTable

# Opens a bar of so many steps and yields what advances it; the command line's `progress_bar` is one.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

DEFAULT_OUT = Path("runs/reproduce")


@dataclass(frozen=True)
class Settings:
    """What the user chose. Everything else about an experiment is part of the experiment."""

    device: str = "cpu"
    quick: bool = False  # a smaller setting that takes minutes on two cores, labelled as such
    data_dir: Path | None = None  # a folder with md17/, gfn2/ ...; None: the download cache
    out: Path = DEFAULT_OUT
    seed: int = 0
    models: Path | None = None  # a folder of trained models, for experiments that look at them
    deadline: float | None = None  # time.monotonic() after which nothing new is computed
    parts: tuple[str, ...] = ()  # only these of the experiment's parts; empty: all

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is spent: what is done is reported, the rest waits for the next call."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def label(self, name: str) -> str:
        """The experiment's name in files: quick results never take the place of full ones."""
        return f"{name}-quick" if self.quick else name

    def result_file(self, name: str) -> Path:
        return self.out / f"{self.label(name)}.json"

    def work(self, name: str) -> Path:
        """A folder for the experiment's intermediate files, such as checkpoints; made if need be."""
        folder = self.out / "work" / self.label(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def figures(self, name: str) -> Path:
        """The folder of the experiment's figures; made if need be."""
        folder = self.out / "figures" / self.label(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class Figure:
    """A drawn figure and the sentence below it."""

    path: Path
    caption: str


class Experiment(ABC):
    """One experiment of the paper. `run` computes; the other methods only look at its result."""

    name: ClassVar[str]  # as typed: geomatt reproduce NAME
    title: ClassVar[str]  # a headline
    description: ClassVar[str]  # one or two sentences: what the paper claims, what is measured
    parts: ClassVar[tuple[str, ...]] = ()  # what `--part` may name, where the work is long

    @abstractmethod
    def run(self, settings: Settings, progress: Progress) -> dict[str, Any]:
        """The numbers, JSON-able: at least `settings` (hyper-parameters), `data`, `split` and `pieces`.

        `data` maps names to what `inputs.described` says; `pieces` is `Pieces.made`.
        """

    @abstractmethod
    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        """The result as tables, the published numbers beside ours."""

    def figures(self, result: Mapping[str, Any], folder: Path) -> list[Figure]:
        """Draw the result into `folder`."""
        return []

    def summary(self, result: Mapping[str, Any]) -> str:
        """What was found, in sentences with the numbers of this result (Markdown)."""
        return ""


@dataclass
class Pieces:
    """Parts of an experiment's work, computed once and kept."""

    settings: Settings
    experiment: str
    made: dict[str, dict[str, Any]] = field(default_factory=dict)  # provenance of each piece asked for

    def get(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """The piece `name`, read if it was made from the same `inputs`, else computed and written.

        `inputs` must say all that the numbers depend on (settings, hash of the data), and no more: seed and
        quick are added here. `compute` returns something JSON-able.
        """
        key = _plain({**inputs, "seed": self.settings.seed, "quick": self.settings.quick})
        path = self._path(name)
        stored = read_json(path) if path.exists() else None
        if stored is None or stored.get("inputs") != key:
            started = time.monotonic()
            value = _plain(compute())
            stored = {"inputs": key, "made": provenance(self.settings, started), "value": value}
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, stored)
        self.made[name] = stored["made"]
        return stored["value"]

    def has(self, name: str, inputs: Mapping[str, Any]) -> bool:
        """Whether `get` would only read."""
        path = self._path(name)
        key = _plain({**inputs, "seed": self.settings.seed, "quick": self.settings.quick})
        return path.exists() and read_json(path).get("inputs") == key

    def _path(self, name: str) -> Path:
        label = self.settings.label(self.experiment)
        return self.settings.out / "pieces" / label / f"{name.replace('/', '-')}.json"


def run_experiment(experiment: Experiment, settings: Settings, progress: Progress) -> dict[str, Any]:
    """Run (or complete) an experiment and write its result file, which is also returned."""
    try:
        settings.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GeomAttError(f"Cannot write into {settings.out}: {error.strerror}.") from error
    result = experiment.run(settings, progress)
    pieces = result.get("pieces", {})
    whole = {
        "experiment": experiment.name,
        "quick": settings.quick,
        "seed": settings.seed,
        "device": settings.device,
        "seconds": round(sum(piece["seconds"] for piece in pieces.values()), 3),
        "commits": sorted({str(piece["commit"]) for piece in pieces.values()}),
        "hardware": sorted({piece["hardware"] for piece in pieces.values()}),
        **_plain(result),
    }
    write_json(settings.result_file(experiment.name), whole)
    return whole


def provenance(settings: Settings, started: float) -> dict[str, Any]:
    """Where a piece was computed and how long it took since `started` (time.monotonic)."""
    import torch

    import geomatt
    from geomatt.training.record import commit, hardware

    return {
        "seconds": round(time.monotonic() - started, 3),
        "commit": commit(),
        "hardware": hardware(settings.device),
        "geomatt": geomatt.__version__,
        "torch": str(torch.__version__),
    }


@contextmanager
def silent(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A `Progress` that shows nothing."""
    yield lambda done: None


def read_json(path: Path) -> dict[str, Any]:
    """A result file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GeomAttError(f"{path} cannot be read ({error}). Delete it; it will be made again.") from error
    if not isinstance(content, dict):
        raise GeomAttError(f"{path} is not a result file. Delete it; it will be made again.")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result file, whole or not at all; not-a-number is refused rather than written."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    # A list of plain numbers goes on one line, so that matrices stay readable and differences small.
    text = re.sub(r"\[\s+([-+.\deE,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    with atomic_output(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """`value` as JSON would give it back: lists for tuples and arrays, strings for keys and paths."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # arrays, tensors and numpy's numbers
        return _plain(value.tolist())
    if isinstance(value, Sequence):
        return [_plain(v) for v in value]
    return value
