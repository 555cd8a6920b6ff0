"""Experiments, which are run in pieces, each computed once.

The `run` method of an experiment asks `Pieces` for each part of its work. A piece is a JSON file with its
value and the inputs it was computed from; as long as the inputs stay the same it is read instead of computed,
so an interrupted run continues. The result of an experiment is one JSON file that records the origin of every
number; tables, figures and text are functions of that file alone.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from geomatt.data import atomic_output, make_folder
from geomatt.errors import GeomAttError
from geomatt.progress import ProgressBar as ProgressBar
from geomatt.reproduce.table import ResultTable

if TYPE_CHECKING:
    from geomatt.data.make import Workers

DEFAULT_OUT = Path("runs/reproduce")


@dataclass(frozen=True)
class ExperimentSettings:
    """The user's choices. Everything else is fixed by the experiment."""

    device: str = "cpu"
    quick: bool = False  # a smaller setting that takes minutes on two cores, labelled as such
    data: Path | None = None  # a folder with md17/, gfn2/ ...; None: the download cache
    out: Path = DEFAULT_OUT
    seed: int = 0
    models: Path | None = None  # a folder of trained models, for experiments that analyse them
    deadline: float | None = None  # time.monotonic() after which no new work is started
    parts: tuple[str, ...] = ()  # only these parts of the experiment; empty: all
    workers: Workers | None = None  # who trains; None: this process

    @property
    def out_of_time(self) -> bool:
        """True if the deadline has passed: finished work is reported, the rest is left to the next run."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def wants(self, part: str) -> bool:
        """True if a part of the experiment is to be run."""
        return not self.parts or part in self.parts

    def chooses(self, own: Collection[str], *sorts: Collection[str]) -> bool:
        """True unless parts of some sort were given and none of them is among `own`."""
        asked = set(self.parts)
        return all(asked.isdisjoint(sort) or asked & set(sort) & set(own) for sort in sorts)

    def label(self, name: str) -> str:
        """The experiment's name in files: quick results never replace full ones."""
        return f"{name}-quick" if self.quick else name

    def result_file(self, name: str) -> Path:
        return self.out / f"{self.label(name)}.json"

    def work(self, name: str) -> Path:
        """The folder of the experiment's intermediate files, such as checkpoints; created if missing."""
        return self._folder("work", name)

    def figures(self, name: str) -> Path:
        """The folder of the experiment's figures; created if missing."""
        return self._folder("figures", name)

    def _folder(self, kind: str, name: str) -> Path:
        folder = self.out / kind / self.label(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn: its name, its caption, and the function that makes the matplotlib figure."""

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclass(frozen=True)
class Figure:
    """A figure in a file, and its caption."""

    path: Path
    caption: str


class Experiment(ABC):
    """One experiment of the paper. `run` computes; the other methods only read its result."""

    name: ClassVar[str]  # as in: geomatt reproduce NAME
    title: ClassVar[str]
    description: ClassVar[str]  # one or two sentences: what the paper claims, what is measured
    parts: ClassVar[tuple[str, ...]] = ()  # names `--part` accepts, where the work is long

    @abstractmethod
    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        """The numbers, ready for JSON: at least `settings` (hyper-parameters), `data`, `split` and `pieces`.

        `data` maps names to what `inputs.described` returns; `pieces` is `Pieces.made`.
        """

    @abstractmethod
    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        """The result as tables, with the published numbers where there are any."""

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        """The figures of the result."""
        return []

    def summary(self, result: Mapping[str, Any]) -> str:
        """The findings, in sentences with the numbers of this result (Markdown)."""
        return ""


@dataclass
class Pieces:
    """Parts of an experiment's work, each computed once and kept in a file."""

    settings: ExperimentSettings
    experiment: str
    made: dict[str, dict[str, Any]] = field(default_factory=dict)  # provenance of each piece used

    def get(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """The piece `name`: read if it was computed from the same `inputs`, else computed and written.

        `inputs` must contain everything the numbers depend on (settings, hash of the data) and nothing else;
        `seed` and `quick` are added here. `compute` returns something that can be written as JSON.
        """
        found = self.find(name, inputs)
        if found is None:
            started = time.monotonic()
            value = compute()
            found = self.put(name, inputs, value, provenance(self.settings, time.monotonic() - started))
        return found

    def find(self, name: str, inputs: Mapping[str, Any]) -> Any:
        """The piece `name` if it was computed from the same `inputs`, else None."""
        path = self._path(name)
        stored = read_json(path) if path.exists() else {}
        if not same_inputs(stored.get("inputs"), self._key(inputs)):
            return None
        self.made[name] = stored["made"]
        return stored["value"]

    def put(self, name: str, inputs: Mapping[str, Any], value: Any, made: dict[str, Any]) -> Any:
        """Write a piece with its `provenance`; returns its value as JSON holds it."""
        value = plain(value)
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"inputs": self._key(inputs), "made": made, "value": value})
        self.made[name] = made
        return value

    def _key(self, inputs: Mapping[str, Any]) -> Any:
        return plain({**inputs, "seed": self.settings.seed, "quick": self.settings.quick})

    def _path(self, name: str) -> Path:
        label = self.settings.label(self.experiment)
        return self.settings.out / "pieces" / label / f"{name.replace('/', '-')}.json"


def same_inputs(stored: Any, asked: Any) -> bool:
    """True if a piece has the inputs asked for; settings added later count only where they are set."""
    if not isinstance(stored, dict) or not isinstance(asked, dict):
        return bool(stored == asked)
    added = set(asked) - set(stored)
    return not set(stored) - set(asked) and all(
        not value if name in added else same_inputs(stored[name], value) for name, value in asked.items()
    )


def run_experiment(
    experiment: Experiment, settings: ExperimentSettings, progress: ProgressBar
) -> dict[str, Any]:
    """Run (or complete) an experiment and write its result file, which is also returned."""
    make_folder(settings.out)
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
        **plain(result),
    }
    write_json(settings.result_file(experiment.name), whole)
    return whole


def draw_figures(
    experiment: Experiment, result: Mapping[str, Any], folder: Path, kinds: Sequence[str] = ("png",)
) -> list[Figure]:
    """Draw the figures of a result into `folder`, in each of the formats `kinds` (png, pdf, svg)."""
    from geomatt.drawing import save_figure, style

    figures = []
    for drawing in experiment.drawings(result):
        with style():
            drawn = drawing.draw()
            paths = [save_figure(drawn, folder / f"{drawing.name}.{kind}") for kind in kinds]
        figures += [Figure(path, drawing.caption) for path in paths]
    return figures


def provenance(settings: ExperimentSettings, seconds: float) -> dict[str, Any]:
    """Where a piece was computed, and how long that took."""
    import torch

    import geomatt
    from geomatt.training import commit, hardware

    return {
        "seconds": round(seconds, 3),
        "commit": commit(),
        "hardware": hardware(settings.device),
        "geomatt": geomatt.__version__,
        "torch": str(torch.__version__),
    }


def read_json(path: Path) -> dict[str, Any]:
    """A result file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GeomAttError(
            f"{path} cannot be read ({error}). Delete it and run the command again."
        ) from error
    if not isinstance(content, dict):
        raise GeomAttError(f"{path} is not a result file. Delete it and run the command again.")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result file, complete or not at all. NaN is an error."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    # Lists of numbers on one line: matrices stay readable and differences between versions small.
    text = re.sub(r"\[\s+([-+.\deE,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    with atomic_output(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def plain(value: Any) -> Any:
    """A value as JSON would return it: lists for tuples and arrays, strings for paths."""

    def convert(other: Any) -> Any:
        if hasattr(other, "tolist"):  # arrays, tensors and numpy's numbers
            return other.tolist()
        if isinstance(other, Mapping):
            return dict(other)
        if isinstance(other, Path):
            return str(other)
        raise TypeError(f"A result cannot hold {type(other).__name__}.")

    return json.loads(json.dumps(value, default=convert))
