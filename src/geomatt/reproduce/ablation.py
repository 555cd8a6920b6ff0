"""Which choices of pair states matter: one is changed at a time, and everything else stays."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from geomatt.data import Dataset, Split, random_split
from geomatt.evaluation import evaluate
from geomatt.progress import silent
from geomatt.reproduce.ablation_networks import NETWORKS
from geomatt.reproduce.ablation_tables import BASELINE, UNIT, compared, errors_table
from geomatt.reproduce.budget import CHECKPOINT, train_jobs
from geomatt.reproduce.frame import Experiment, ExperimentSettings, Pieces, ProgressBar, provenance
from geomatt.reproduce.inputs import STAND_IN, described, load_or_embedded
from geomatt.reproduce.pair import LEARNING_RATES, SIZES, TRAIN, VALIDATION
from geomatt.reproduce.published import left_table
from geomatt.reproduce.spreading import spread
from geomatt.reproduce.table import ResultTable
from geomatt.training import Diverged, Job, TrainConfig, TrainResult, resolve
from geomatt.units import from_ev

EPOCHS = {"malonaldehyde": 220, "aspirin": 150}
SIZE, RATE = SIZES["s"], LEARNING_RATES["s"]
SEEDS = 3  # of the baseline
TRAINED = 500  # frames of the training error
SETTINGS, CHANGES = "settings", "networks"  # groups of variations, beside the baseline
QUICK: dict[str, Any] = {
    "network": {"channels": 8, "rounds": 2},
    "training": {"epochs": 2, "train": 20, "val": 5},
    "test": 20,
    "variations": ("seed-0", "seed-1", "functions-8", "gated"),
}


@dataclass(frozen=True)
class Variation:
    """What differs from the baseline: settings of training or of the network, or the network itself."""

    name: str  # also of the part
    group: str = SETTINGS
    training: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    model: str = "pair"
    seed: int = 0


VARIATIONS = (
    *(Variation(f"seed-{seed}", BASELINE, seed=seed) for seed in range(SEEDS)),
    *(Variation(f"channels-{n}", network={"channels": n}) for n in (32, 128)),
    *(Variation(f"rounds-{n}", network={"rounds": n}) for n in (2, 4, 5)),
    *(Variation(f"functions-{n}", network={"functions": n}) for n in (8, 24, 32)),
    *(Variation(f"radius-{n}", network={"radius": float(n)}) for n in (5, 4)),
    Variation("squared", training={"weighting": "paper"}),
    *(Variation(f"rho-{rho:g}", training={"rho": rho}) for rho in (0.1, 0.001)),
    Variation("no-clip", training={"clip": 0.0}),
    Variation("no-average", training={"ema_decay": 0.0}),
    *(Variation(f"batch-{n}", training={"batch": n}) for n in (5, 20)),
    Variation("half-rate", training={"learning_rate": RATE / 2}),
    Variation("double-rate", training={"learning_rate": RATE * 2}),
    # The baseline with the engine of the changed networks, which trains in full float32.
    Variation("autograd", CHANGES, training={"engine": "autograd"}),
    *(Variation(name, CHANGES, model=network.kind) for name, network in NETWORKS.items()),
    Variation("symmetric", CHANGES, network={"symmetric": True}),
)


@dataclass(frozen=True)
class AblationMember:
    """One model."""

    variation: Variation
    molecule: str

    @property
    def data(self) -> str:
        return f"md17/{self.molecule}"

    @property
    def name(self) -> str:
        return f"{self.molecule}-{self.variation.name}"

    def asked(self, parts: Sequence[str]) -> bool:
        """True if the parts include the molecule, and the variation or its group."""
        molecules = [part for part in parts if part in EPOCHS]
        others = [part for part in parts if part not in EPOCHS]
        named = self.variation.name in others or self.variation.group in others
        return (not molecules or self.molecule in molecules) and (not others or named)


class AblationStudy:
    """Models that differ in one choice, each trained once and kept as a piece."""

    def __init__(self, settings: ExperimentSettings, progress: ProgressBar) -> None:
        self.settings, self.progress = settings, progress
        self.pieces = Pieces(settings, "ablation")
        self.about: dict[str, Any] = {}
        self.stand_in = False  # True if MD17 was not there
        self._data: dict[str, Dataset] = {}

    def data(self, name: str) -> Dataset:
        if name not in self._data:
            found, self.stand_in = load_or_embedded(self.settings, [name], "embedded/ethanol")
            (self._data[name],) = found.values()
            self.about[name] = described(self._data[name])
        return self._data[name]

    def config(self, member: AblationMember) -> TrainConfig:
        quick, variation = self.settings.quick, member.variation
        network = {**(QUICK["network"] if quick else SIZE), **variation.network}
        if "radius" in network:  # divides by a constant: that of the baseline
            network["typical_atoms"] = float(self.data(member.data).sizes.max())
        changed = dict(variation.training)
        batch = changed.pop("batch", None)
        given = {
            "model": variation.model,
            "data": member.data,
            "network": network,
            "epochs": EPOCHS[member.molecule],
            "learning_rate": RATE,
            "train": TRAIN,
            "val": VALIDATION,
            "seed": self.settings.seed + variation.seed,
            "split_seed": self.settings.seed,
            "device": self.settings.device,
            "report_unit": UNIT,
            **(QUICK["training"] if quick else {}),
            **changed,
        }
        config = resolve(given)
        return config if batch is None else same_steps(config, batch)

    def split(self, member: AblationMember) -> Split:
        count, seed = len(self.data(member.data)), self.settings.seed
        if self.settings.quick:
            sizes = QUICK["training"]
            return random_split(count, sizes["train"], sizes["val"], QUICK["test"], seed=seed)
        return random_split(count, TRAIN, VALIDATION, None, seed=seed)

    def inputs(self, member: AblationMember) -> dict[str, Any]:
        settings = self.config(member).to_dict()
        settings.pop("device")
        self.data(member.data)
        return {"settings": settings, "data": self.about[member.data]["fingerprint"]}

    def find(self, member: AblationMember) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.pieces.find(member.name, self.inputs(member))
        return found

    def train(self, member: AblationMember) -> None:
        """Train and test one model; it continues where an earlier call stopped. To diverge is a result."""
        folder, started = self.settings.work("ablation") / member.name, time.monotonic()
        job = Job(self.data(member.data), self.split(member), self.config(member), folder)
        try:
            results = train_jobs(self.settings, self.progress, member.name, [job])
        except Diverged as error:
            value, seconds = {"diverged": error.reason}, time.monotonic() - started
        else:
            if not results:
                return
            value, seconds = self.tested(results[0], job), results[0].seconds
        self.pieces.put(member.name, self.inputs(member), value, provenance(self.settings, seconds))
        (folder / CHECKPOINT).unlink(missing_ok=True)

    def tested(self, result: TrainResult, job: Job) -> dict[str, Any]:
        """Errors of a trained model on test and training frames."""
        potential = result.potential.to(self.settings.device)
        common: dict[str, Any] = {"exclude_trained": False, "unit": "eV", "batch_size": 256}
        test = evaluate(potential, job.dataset, indices=job.split.test, **common)
        train = evaluate(potential, job.dataset, indices=job.split.train[:TRAINED], **common)
        factor = from_ev(UNIT)
        return {
            "energy_mae": factor * (test.overall.energy_mae or 0.0),
            "force_mae": factor * (test.overall.forces_mae or 0.0),
            "training_force_mae": factor * (train.overall.forces_mae or 0.0),
            "frames": len(test.data),
            "training_frames": len(train.data),
            "parameters": sum(p.numel() for p in potential.network.parameters()),
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "returns": potential.record.get("slowdowns", 0),
            "seconds": result.seconds,
        }


def same_steps(config: TrainConfig, batch: int) -> TrainConfig:
    """Another batch size and as many steps: what is counted in epochs changes in proportion."""
    count = config.train or TRAIN
    ratio = math.ceil(count / config.batch) / math.ceil(count / batch)
    counted = ("epochs", "warmup", "validate_every")
    return config.replace(batch=batch, **{n: max(1, round(ratio * getattr(config, n))) for n in counted})


def train_in_worker(settings: ExperimentSettings, names: tuple[str, str]) -> None:
    """Train a model of the study; its numbers are a piece in the folder of the settings."""
    (variation,) = (v for v in VARIATIONS if v.name == names[0])
    AblationStudy(settings, silent).train(AblationMember(variation, names[1]))


class Ablation(Experiment):
    name = "ablation"
    title = "Pair states: which choices matter"
    description = (
        "Pair states of size S on two molecules of MD17, with one setting or one part of the network changed "
        "at a time; the force error is compared with that of three seeds of the unchanged model."
    )
    parts: ClassVar[tuple[str, ...]] = (BASELINE, SETTINGS, CHANGES, *(v.name for v in VARIATIONS), *EPOCHS)

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = AblationStudy(settings, progress)
        members = [AblationMember(variation, m) for m in EPOCHS for variation in VARIATIONS]
        if settings.quick and not settings.parts:
            members = [m for m in members[: len(VARIATIONS)] if m.variation.name in QUICK["variations"]]
        asked = [m for m in members if m.asked(settings.parts)]
        if settings.workers is not None:
            left = [(m.variation.name, m.molecule) for m in asked if study.find(m) is None]
            spread(settings, progress, "training", train_in_worker, left)
        else:
            for member in asked:
                if not settings.out_of_time and study.find(member) is None:
                    study.train(member)
        # Other processes may work on other parts of the same molecules.
        molecules = {m.molecule for m in asked}
        rows: dict[str, dict[str, Any]] = {molecule: {} for molecule in EPOCHS}
        missing: dict[str, int] = {}
        for member in (m for m in members if m.molecule in molecules):
            group = member.variation.group
            if (found := study.find(member)) is None:
                missing[group] = missing.get(group, 0) + 1
            else:
                rows[member.molecule][member.variation.name] = {"group": group, **found}
        return {
            "settings": {
                "config": study.config(members[0]).to_dict(),
                "epochs": EPOCHS,
                "stand_in": study.stand_in,
            },
            "data": study.about,
            "split": f"{TRAIN} + {VALIDATION} frames at random, the same for all, tested on all others",
            "rows": rows,
            "missing": missing,
            "pieces": study.pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        command = "geomatt reproduce ablation --device cuda --data DIR --part {}"
        run = [molecule for molecule, rows in result["rows"].items() if rows]
        return [*(errors_table(result, m) for m in run), left_table(result["missing"], command)]

    def summary(self, result: Mapping[str, Any]) -> str:
        return STAND_IN if result["settings"]["stand_in"] else compared(result)


EXPERIMENT = Ablation()
