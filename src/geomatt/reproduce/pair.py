"""The second generation, pair states, on MD17 and rMD17 beside the errors published for other networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, ClassVar

import numpy as np

from geomatt.data import Dataset, Split, random_split
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate
from geomatt.model import save
from geomatt.progress import silent
from geomatt.reproduce.budget import CHECKPOINT, train_jobs
from geomatt.reproduce.frame import Experiment, ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.inputs import MD17, STAND_IN, described, load_data, load_or_embedded
from geomatt.reproduce.md17 import LICENCE
from geomatt.reproduce.peers import MD17_PEERS, RMD17_PEERS
from geomatt.reproduce.published import NOT_RUN, left_table, title
from geomatt.reproduce.spreading import spread
from geomatt.reproduce.table import ResultTable
from geomatt.training import Job, TrainConfig, resolve
from geomatt.units import from_ev

SIZES = {
    "s": {"channels": 64, "rounds": 3},
    "m": {"channels": 128, "rounds": 3},
    "l": {"channels": 128, "rounds": 5},
}
EPOCHS = {"s": 400, "m": 500, "l": 500}
LEARNING_RATES = {"s": 3e-3, "m": 2e-3, "l": 2e-3}  # twice as much ended in a constant energy for some
SHIPPED = {"s": "pair-s", "l": "pair"}  # names of the models of each size, as in md17/aspirin:pair-s
DRAWN = ("aspirin", "ethanol")  # molecules with three draws of frames
DRAWS = 3
TRAIN, VALIDATION = 950, 50
UNITS = {"md17": "kcal/mol", "rmd17": "meV"}
QUICK: dict[str, Any] = {"channels": 8, "epochs": 2, "train": 40, "val": 10, "test": 40}


@dataclass(frozen=True)
class PairMember:
    """One model: a molecule of a collection, a size, and a draw of frames (rMD17: an official split)."""

    collection: str
    molecule: str
    size: str
    draw: int = 0

    @property
    def data(self) -> str:
        return f"{self.collection}/{self.molecule}"

    @property
    def name(self) -> str:
        return f"{self.collection}-{self.molecule}-{self.size}-{self.draw}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Everything `--part` may say to choose this member."""
        return self.collection, f"size-{self.size}", self.molecule, f"draw-{self.draw}"


def _plan(molecules: Sequence[str]) -> list[PairMember]:
    first = [PairMember("md17", m, size) for size in SHIPPED for m in molecules]
    draws = [PairMember("md17", m, "l", d) for d in range(1, DRAWS) for m in DRAWN if m in molecules]
    revised = [PairMember("rmd17", m, "l", d) for d in range(1, DRAWS + 1) for m in molecules]
    return first + draws + revised


class PairStudy:
    """Models of the second generation, each trained once and kept as a piece."""

    def __init__(self, settings: ExperimentSettings, progress: ProgressBar) -> None:
        self.settings, self.progress = settings, progress
        self.pieces = Pieces(settings, "pair")
        self.about: dict[str, Any] = {}
        self._data: dict[str, Dataset] = {}

    def data(self, name: str) -> Dataset:
        if name not in self._data:
            if self.settings.quick:
                found, _ = load_or_embedded(self.settings, [name], "embedded/ethanol")
                (self._data[name],) = found.values()
            else:
                self._data[name] = load_data(self.settings, name)
            self.about[name] = described(self._data[name])
        return self._data[name]

    def config(self, member: PairMember) -> TrainConfig:
        given: dict[str, Any] = {
            "model": "pair",
            "data": member.data,
            "network": SIZES[member.size],
            "epochs": EPOCHS[member.size],
            "learning_rate": LEARNING_RATES[member.size],
            "train": TRAIN,
            "val": VALIDATION,
            "seed": self.settings.seed,
            "split_seed": self.settings.seed + member.draw,
            "device": self.settings.device,
            "report_unit": "kcal/mol" if member.collection == "md17" else "eV",
        }
        if self.settings.quick:
            given |= {n: QUICK[n] for n in ("epochs", "train", "val")}
            given["network"] = {"channels": QUICK["channels"]}
        return resolve(given)

    def split(self, member: PairMember) -> Split:
        count = len(self.data(member.data))
        if self.settings.quick:
            return random_split(count, QUICK["train"], QUICK["val"], QUICK["test"], seed=member.draw)
        if member.collection == "md17":
            return random_split(count, TRAIN, VALIDATION, None, seed=self.settings.seed + member.draw)
        seen, test = (self._official(member, kind) for kind in ("train", "test"))
        seen = np.random.default_rng(self.settings.seed).permutation(seen)
        return Split(seen[:TRAIN], seen[TRAIN:], test, "official", member.draw)

    def _official(self, member: PairMember, kind: str) -> np.ndarray:
        folder = (self.settings.data or Path()) / "rmd17" / "splits"
        path = folder / f"{member.molecule}_index_{kind}_{member.draw:02d}.csv"
        if not path.is_file():
            raise GeomAttError(f"There is no file {path} with the official split of rMD17. Give `data`.")
        return np.loadtxt(path, dtype=np.int64)

    def inputs(self, member: PairMember) -> dict[str, Any]:
        settings = self.config(member).to_dict()
        settings.pop("device")
        self.data(member.data)
        return {"settings": settings, "data": self.about[member.data]["fingerprint"], "draw": member.draw}

    def find(self, member: PairMember) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.pieces.find(member.name, self.inputs(member))
        return found

    def train(self, member: PairMember) -> None:
        """Train and test one model; it continues where an earlier call stopped."""
        data, split = self.data(member.data), self.split(member)
        folder = self.settings.work("pair") / member.name
        job = Job(data, split, self.config(member), folder)
        results = train_jobs(self.settings, self.progress, member.name, [job])
        if not results:
            return
        (result,) = results
        potential = result.potential.to(self.settings.device)
        tested = evaluate(potential, data, indices=split.test, unit="eV", batch_size=256)
        potential.to("cpu")
        unit = UNITS[member.collection]
        factor = 1000.0 if unit == "meV" else from_ev(unit)
        overall = tested.overall
        value = {
            "energy_mae": factor * (overall.energy_mae or 0.0),
            "force_mae": factor * (overall.forces_mae or 0.0),
            "unit": unit,
            "frames": len(tested.data),
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "seconds": result.seconds,
            "parameters": sum(p.numel() for p in potential.network.parameters()),
        }
        if member.collection == "md17" and member.draw == 0 and member.size in SHIPPED:
            potential.record |= {
                "test": {n: value[n] for n in ("energy_mae", "force_mae", "frames", "unit")},
                "licence": LICENCE,
                "made_by": "geomatt reproduce pair",
            }
            folder = self.settings.work("pair") if self.settings.quick else self.settings.out
            save(
                potential,
                folder / "models" / "md17" / f"{member.molecule}-{SHIPPED[member.size]}.safetensors",
            )
        self.pieces.put(member.name, self.inputs(member), value, provenance(self.settings, result.seconds))
        (job.folder / CHECKPOINT).unlink(missing_ok=True)


def train_in_worker(settings: ExperimentSettings, member: PairMember) -> None:
    """Train a model of the study; its numbers are a piece in the folder of the settings."""
    PairStudy(settings, silent).train(member)


class Pair(Experiment):
    name = "pair"
    title = "Pair states: MD17 and rMD17"
    description = (
        "The second generation, trained on 950 + 50 frames per molecule and tested on all others, beside the "
        "errors published for other networks with 1000 frames."
    )
    parts: ClassVar[tuple[str, ...]] = (
        "md17", "rmd17", *(f"size-{size}" for size in SIZES), *MD17, *(f"draw-{d}" for d in range(DRAWS + 1)),
    )  # fmt: skip

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = PairStudy(settings, progress)
        members = [PairMember("md17", "ethanol", "s")] if settings.quick else _plan(MD17)
        asked = [m for m in members if _asked(m, settings.parts)]
        if settings.workers is not None:
            missing = [member for member in asked if study.find(member) is None]
            spread(settings, progress, "training", train_in_worker, missing)
        else:
            for member in asked:
                if not settings.out_of_time and study.find(member) is None:
                    study.train(member)
        known = asked if settings.parts else members
        rows: dict[str, list[dict[str, Any]]] = {}
        left: dict[str, int] = {}
        for member in known:
            found = study.find(member)
            key = f"{member.collection}/{member.size}"
            if found is None:
                left[key] = left.get(key, 0) + 1
                continue
            rows.setdefault(f"{key}/{member.molecule}", []).append({"draw": member.draw, **found})
        first = members[0]
        return {
            "settings": {
                "config": study.config(first).to_dict(),
                "sizes": SIZES,
                "epochs": EPOCHS,
                "stand_in": settings.quick and study.data(first.data).name != first.data,
            },
            "data": study.about,
            "split": f"{TRAIN} + {VALIDATION} frames at random, tested on all others; rMD17: official splits",
            "rows": rows,
            "missing": left,
            "pieces": study.pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        return [
            *(_table(result, "md17", kind, MD17_PEERS) for kind in (0, 1)),
            *(_table(result, "rmd17", kind, RMD17_PEERS) for kind in (0, 1)),
            left_table(result["missing"], "geomatt reproduce pair --device cuda --data DIR"),
        ]

    def summary(self, result: Mapping[str, Any]) -> str:
        if result["settings"]["stand_in"]:
            return STAND_IN
        sentences = []
        for collection, peers in (("md17", MD17_PEERS), ("rmd17", RMD17_PEERS)):
            found = _best(result, collection)
            for name, published in peers.items():
                cells = [
                    (ours[kind], theirs[kind])
                    for molecule, theirs in published.items()
                    if (ours := found.get(molecule)) is not None
                    for kind in (0, 1)
                    if theirs[kind] is not None
                ]
                if cells:
                    digits = 3 if collection == "md17" else 1
                    good = sum(round(a, digits) <= b for a, b in cells if b is not None)
                    sentences.append(f"{collection}: no worse than {name} in {good} of {len(cells)} cells.")
        return " ".join(sentences) or "Not run yet."


def _asked(member: PairMember, parts: Sequence[str]) -> bool:
    """True if every kind of part that was given includes the member."""
    kinds = (("md17", "rmd17"), tuple(f"size-{s}" for s in SIZES), MD17, tuple(f"draw-{d}" for d in range(9)))
    for kind, own in zip(kinds, member.parts, strict=True):
        given = [part for part in parts if part in kind]
        if given and own not in given:
            return False
    return True


def _best(result: Mapping[str, Any], collection: str) -> dict[str, tuple[float, float]]:
    """Mean errors over draws by molecule, of the largest size."""
    found = {}
    for molecule in MD17:
        rows = result["rows"].get(f"{collection}/l/{molecule}")
        if rows:
            found[molecule] = (mean(r["energy_mae"] for r in rows), mean(r["force_mae"] for r in rows))
    return found


def _table(result: Mapping[str, Any], collection: str, kind: int, peers: Mapping[str, Any]) -> ResultTable:
    error, digits = ("energy_mae", "force_mae")[kind], 3 if collection == "md17" else 1
    sizes = [s for s in SIZES if any(key.startswith(f"{collection}/{s}/") for key in result["rows"])]

    def ours(size: str, molecule: str) -> str:
        rows = result["rows"].get(f"{collection}/{size}/{molecule}")
        if not rows:
            return NOT_RUN
        values = [row[error] for row in rows]
        spread = f" ± {pstdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{mean(values):.{digits}f}{spread}"

    def theirs(published: Mapping[str, Any], molecule: str) -> str:
        value = published.get(molecule, (None, None))[kind]
        return NOT_RUN if value is None else f"{value:g}"

    lines = [[title(m), *(ours(s, m) for s in sizes), *(theirs(p, m) for p in peers.values())] for m in MD17]
    unit = UNITS[collection] + ("/Å" if kind else "")
    name = {"md17": "MD17", "rmd17": "rMD17"}[collection]
    return ResultTable(
        f"pair-{collection}-{('energy', 'forces')[kind]}",
        f"{('Energies', 'Forces')[kind]} of {name}",
        ["molecule", *(f"pair {s.upper()}" for s in sizes), *peers],
        lines,
        f"MAE, {unit}. Ours: mean ± standard deviation where there are several draws of frames. Others: "
        "published, 1000 training frames.",
    )


EXPERIMENT = Pair()
