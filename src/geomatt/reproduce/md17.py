"""Models for the MD17 molecules, trained side by side: what tables 1, 2 and 3 are made of.

A `Member` is one model: a molecule, a fold, orders of the streams, a recipe. Tables ask for members; those
that are not there yet are trained in groups of similar size, each group as one program. Every member has its
own checkpoint and, when done, its own result file, so a broken-off run goes on where it was, in whatever
grouping, and tables share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.data.public.embedded import ethanol
from geomatt.data.splits import Split, fold_splits
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate
from geomatt.model.files import load_file, save
from geomatt.model.potential import Potential
from geomatt.reproduce.budget import STEPS, stop_at_deadline
from geomatt.reproduce.frame import Pieces, Progress, Settings
from geomatt.reproduce.inputs import MD17, described, load_data
from geomatt.training import Interrupted, Job, TrainConfig, TrainResult, resolve, train_together
from geomatt.training.checkpoint import FILE as CHECKPOINT

UNIT = "kcal/mol"
LICENCE = "CC0 (MD17 labels as carried by the rMD17 files)"
FOLDS = 5
PAPER_ORDERS = (2, 3, 4)
# The loss of each recipe. The published errors are those of the authors' released code: with the formula
# printed in the paper energies weigh so little that the constant learning rate leaves them adrift. Ours ends
# at a learning rate of zero and does better with the formula.
WEIGHTING = {"paper": "authors", "fast": "paper"}


@dataclass(frozen=True)
class Scale:
    """How large an experiment is."""

    points: int  # training and validation together, divided into five folds
    folds: int  # how many of the five are computed
    epochs: Mapping[str, int]  # by recipe, and for the transfer
    test: int | None  # frames to test on; None: all that are left
    # What a step costs before any pair of atoms is looked at, in pairs per structure of the batch: about
    # 0.2 ms on a GPU, and the compiling of its kernels. It decides how many sizes share a program at the
    # price of padding.
    overhead: float = 1300.0
    model: Mapping[str, Any] = field(default_factory=dict)  # of the network, where not the paper's


FULL = Scale(1000, FOLDS, {"paper": 2000, "fast": 1500, "transfer": 1000}, None)
QUICK = Scale(50, 2, {"paper": 4, "fast": 4, "transfer": 3}, 40, overhead=0.0)


@dataclass(frozen=True)
class Member:
    """One model to train."""

    molecule: str
    fold: int = 0
    orders: tuple[int, ...] = PAPER_ORDERS
    recipe: str = "paper"
    weighting: str | None = None  # of the loss, where not its recipe's
    base: str | None = None  # the molecule whose model this one starts from, readout alone retrained

    @property
    def name(self) -> str:
        if self.base is not None:
            return f"transfer-{self.base}-{self.molecule}"
        weighting = "" if self.weighting is None else f"-{self.weighting}-loss"
        orders = "".join(map(str, self.orders))
        return f"{orders}-{self.recipe}{weighting}-fold{self.fold}-{self.molecule}"

    @property
    def model_file(self) -> str | None:
        """Where its model is kept below `models/`; None for those nobody will ask for again."""
        if self.base is not None:
            return f"transfer/{self.base}-{self.molecule}.safetensors"
        if (self.orders, self.fold, self.weighting) != (PAPER_ORDERS, 0, None):
            return None
        return f"md17/{self.molecule}{'' if self.recipe == 'paper' else f'-{self.recipe}'}.safetensors"

    @property
    def command(self) -> str:
        table = "table2" if self.base else "table1" if self.orders == PAPER_ORDERS else "table3"
        return f"geomatt reproduce {table}"


class Bench:
    """The data, and the members trained on them so far."""

    def __init__(self, settings: Settings, progress: Progress, scale: Scale | None = None) -> None:
        self.settings, self.progress = settings, progress
        self.scale = scale or (QUICK if settings.quick else FULL)
        self.pieces = Pieces(settings, "md17")
        self.stand_in = False  # whether embedded data take the place of MD17
        self.data: dict[str, Dataset] = {}
        self.described: dict[str, dict[str, Any]] = {}
        self._load()

    def _load(self) -> None:
        try:
            found = {molecule: load_data(self.settings, f"md17/{molecule}") for molecule in MD17}
        except GeomAttError:
            if not self.settings.quick:
                raise
            found, self.stand_in = {"ethanol": ethanol()}, True
        for molecule, dataset in found.items():
            self.described[molecule] = described(dataset)
            self.data[molecule] = dataset

    @property
    def molecules(self) -> list[str]:
        return list(self.data)

    # ---- what a member is -----------------------------------------------------------------------

    def config(self, member: Member) -> TrainConfig:
        """The member's settings, all of them."""
        given = {
            "data": f"{'embedded' if self.stand_in else 'md17'}/{member.molecule}",
            "recipe": member.recipe,
            "epochs": self.scale.epochs["transfer" if member.base else member.recipe],
            "orders": member.orders,
            "weighting": member.weighting or WEIGHTING[member.recipe],
            "folds": FOLDS,
            "member": member.fold,
            "split_seed": self.settings.seed,
            "seed": self.settings.seed,
            "device": self.settings.device,
            "base": f"md17/{member.base}" if member.base else None,
            "report_unit": UNIT,
            **self.scale.model,
        }
        return resolve(given)

    def split(self, member: Member) -> Split:
        count = len(self.data[member.molecule])
        split = fold_splits(count, self.scale.points, FOLDS, self.settings.seed)[member.fold]
        if self.scale.test is None:
            return split
        rows = np.linspace(0, len(split.test) - 1, self.scale.test).astype(int)
        return replace(split, test=split.test[rows])

    def inputs(self, member: Member) -> dict[str, Any]:
        """All that a member's numbers depend on."""
        settings = self.config(member).to_dict()
        settings.pop("device")
        base = self.inputs(Member(member.base)) if member.base else None
        fingerprint = self.described[member.molecule]["fingerprint"]
        scale = {"points": self.scale.points, "test": self.scale.test}
        return {"settings": settings, "data": fingerprint, "base": base, **scale}

    def about(self) -> dict[str, Any]:
        """What a result says about settings, data and split."""
        return {
            "settings": {
                "recipes": {
                    recipe: self.config(Member(self.molecules[0], recipe=recipe)).to_dict()
                    for recipe in ("paper", "fast")
                },
                "epochs": dict(self.scale.epochs),
                "stand_in": self.stand_in,
            },
            "data": self.described,
            "split": {
                "kind": "random",
                "seed": self.settings.seed,
                "points": self.scale.points,
                "folds": FOLDS,
                "test": "all other frames" if self.scale.test is None else self.scale.test,
            },
            "pieces": self.pieces.made,
        }

    # ---- results --------------------------------------------------------------------------------

    def results(self, members: Iterable[Member]) -> dict[Member, dict[str, Any]]:
        """The numbers of those members that are done."""
        return {m: self._stored(m) for m in members if self.pieces.has(m.name, self.inputs(m))}

    def _stored(self, member: Member) -> dict[str, Any]:
        value: dict[str, Any] = self.pieces.get(member.name, self.inputs(member), _never)
        # What counts is the training, shared by those that trained together, not the reading of a file.
        seconds = round(value["seconds"] / value["together"], 3)
        self.pieces.made[member.name] = {**self.pieces.made[member.name], "seconds": seconds}
        return value

    def model_path(self, member: Member) -> Path | None:
        if member.model_file is None:
            return None
        quick = self.settings.quick
        return (self.settings.work("md17") / "models" if quick else self.models) / member.model_file

    @property
    def models(self) -> Path:
        return self.settings.out / "models"

    def model(self, member: Member) -> Potential:
        """A kept model."""
        path = self.model_path(member)
        assert path is not None
        return load_file(path)

    # ---- training -------------------------------------------------------------------------------

    def train(self, members: Sequence[Member]) -> None:
        """Train those that are not done, until the budget is spent."""
        todo = [m for m in members if not self.pieces.has(m.name, self.inputs(m))]
        settled: dict[tuple[Any, ...], list[Member]] = {}
        for member in todo:  # only models with the same settings make one program
            kind = (member.orders, member.recipe, member.weighting, bool(member.base))
            settled.setdefault(kind, []).append(member)
        for alike in settled.values():
            atoms = [int(self.data[m.molecule].sizes.max()) for m in alike]
            for group in groups(atoms, self.scale.overhead):
                if self.settings.out_of_time:
                    return
                self._train_group([alike[i] for i in group])

    def _train_group(self, group: list[Member]) -> None:
        jobs = [
            Job(
                self.data[m.molecule],
                self.split(m),
                self.config(m),
                self.settings.work("md17") / m.name,
                self.model(Member(m.base)) if m.base else None,
            )
            for m in group
        ]
        title = f"{group[0].name}, {len(group)} models" if len(group) > 1 else group[0].name
        try:
            with self.progress(title, STEPS) as advance:
                tell = stop_at_deadline(self.settings, advance)
                results = train_together(jobs, resume=True, callback=tell, checkpoint_every=60.0)
        except Interrupted:
            if self.settings.out_of_time:
                return
            raise
        for member, job, result in zip(group, jobs, results, strict=True):
            self._finish(member, job, result, len(group))

    def _finish(self, member: Member, job: Job, result: TrainResult, together: int) -> None:
        """Test a trained model, write its numbers into its file and into its piece."""
        potential = result.potential
        value = {
            **self.errors(potential, member.molecule, job.split),
            "validation": result.best_errors,
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "finished": result.finished,
            "seconds": result.seconds,
            "together": together,
            "parameters": sum(p.numel() for p in potential.network.parameters()),
        }
        path = self.model_path(member)
        if path is not None:
            test = {k: value[k] for k in ("energy_mae", "force_mae", "frames")}
            potential.record["test"] = {**test, "unit": UNIT}
            potential.record["licence"] = LICENCE
            potential.record["made_by"] = member.command
            path.parent.mkdir(parents=True, exist_ok=True)
            save(potential, path)
        self.pieces.get(member.name, self.inputs(member), lambda: value)
        (job.folder / CHECKPOINT).unlink(missing_ok=True)  # what has one is unfinished

    def errors(self, potential: Potential, molecule: str, split: Split) -> dict[str, Any]:
        """Errors on the test frames, kcal/mol and kcal/mol/Å."""
        batch = 256 if self.settings.device.startswith("cuda") else 32
        potential.to(self.settings.device)
        found = evaluate(potential, self.data[molecule], indices=split.test, unit=UNIT, batch_size=batch)
        potential.to("cpu")
        overall = found.to_dict()["overall"]
        return {
            "energy_mae": overall["energy_mae"],
            "energy_rmse": overall["energy_rmse"],
            "force_mae": overall["forces_mae"],
            "force_rmse": overall["forces_rmse"],
            "frames": len(found.data),
            "left_out": found.trained,
        }


def groups(atoms: Sequence[int], overhead: float) -> list[list[int]]:
    """Which members train together: sizes side by side, padded to the largest, at the least total cost.

    The cost of a group is `overhead` plus members times the square of its largest size.
    """
    order = sorted(range(len(atoms)), key=lambda i: atoms[i])
    best: list[tuple[float, int]] = [(0.0, 0)]  # cost of the first n, and where the last group begins
    for end in range(1, len(order) + 1):
        square = atoms[order[end - 1]] ** 2
        best.append(min((best[start][0] + overhead + (end - start) * square, start) for start in range(end)))
    result: list[list[int]] = []
    end = len(order)
    while end:
        start = best[end][1]
        result.insert(0, order[start:end])
        end = start
    return result


def _never() -> None:
    raise AssertionError("a piece was to be read, not computed")
