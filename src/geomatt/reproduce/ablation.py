"""Which choices of pair states matter: one is changed at a time, and everything else stays."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from geomatt.data import Split, random_split
from geomatt.reproduce.ablation_networks import NETWORKS
from geomatt.reproduce.ablation_tables import BASELINE, compared, errors_table
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar, provenance
from geomatt.reproduce.inputs import STAND_IN
from geomatt.reproduce.pair import LEARNING_RATES, SIZES, TRAIN, VALIDATION
from geomatt.reproduce.published import left_table
from geomatt.reproduce.study import UNIT, MoleculeStudy
from geomatt.reproduce.table import ResultTable
from geomatt.training import Diverged, Job, TrainConfig, TrainResult, resolve

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


@dataclass(frozen=True, eq=False)
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

    def asked(self, settings: ExperimentSettings) -> bool:
        """True if the parts include the molecule, and the variation or its group."""
        own = {self.molecule, self.variation.name, self.variation.group}
        return settings.chooses(own, EPOCHS, [part for part in settings.parts if part not in EPOCHS])


class AblationStudy(MoleculeStudy[AblationMember]):
    """Models that differ in one choice."""

    name = "ablation"

    def config(self, member: AblationMember) -> TrainConfig:
        quick, variation = self.settings.quick, member.variation
        network = {**(QUICK["network"] if quick else SIZE), **variation.network}
        if "radius" in network:  # divides by a constant: that of the baseline
            network["typical_atoms"] = float(self.data[self.data_of(member)].sizes.max())
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
        count, seed = len(self.data[self.data_of(member)]), self.settings.seed
        if self.settings.quick:
            sizes = QUICK["training"]
            return random_split(count, sizes["train"], sizes["val"], QUICK["test"], seed=seed)
        return random_split(count, TRAIN, VALIDATION, None, seed=seed)

    def train_group(self, group: Sequence[AblationMember]) -> None:
        """To diverge is a result."""
        started = time.monotonic()
        try:
            super().train_group(group)
        except Diverged as error:
            made = provenance(self.settings, time.monotonic() - started)
            for member in group:  # one
                self.pieces.put(member.name, self.inputs(member), {"diverged": error.reason}, made)

    def measure(self, member: AblationMember, job: Job, result: TrainResult) -> dict[str, Any]:
        test, train = (
            self.errors(result.potential, job.dataset, rows, exclude_trained=False)
            for rows in (job.split.test, job.split.train[:TRAINED])
        )
        return {**test, "training_force_mae": train["force_mae"], "training_frames": train["frames"]}


def same_steps(config: TrainConfig, batch: int) -> TrainConfig:
    """Another batch size and as many steps: what is counted in epochs changes in proportion."""
    count = config.train or TRAIN
    ratio = math.ceil(count / config.batch) / math.ceil(count / batch)
    counted = ("epochs", "warmup", "validate_every")
    return config.replace(batch=batch, **{n: max(1, round(ratio * getattr(config, n))) for n in counted})


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
        asked = [member for member in members if member.asked(settings)]
        study.train(asked)
        # Other processes may work on other parts of the same molecules.
        molecules = {member.molecule for member in asked}
        plan: dict[str, list[AblationMember]] = {}
        rows: dict[str, dict[str, Any]] = {molecule: {} for molecule in EPOCHS}
        for member in (m for m in members if m.molecule in molecules):
            group = member.variation.group
            plan.setdefault(group, []).append(member)
            if (found := study.find(member)) is not None:
                rows[member.molecule][member.variation.name] = {"group": group, **found}
        return {
            "settings": {
                "config": study.config(members[0]).to_dict(),
                "epochs": EPOCHS,
                "stand_in": study.stand_in,
            },
            "data": study.described,
            "split": f"{TRAIN} + {VALIDATION} frames at random, the same for all, tested on all others",
            "rows": rows,
            "missing": study.missing(plan),
            "pieces": study.pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        command = "geomatt reproduce ablation --part {} --device cuda --data DIR"
        run = [molecule for molecule, rows in result["rows"].items() if rows]
        return [*(errors_table(result, m) for m in run), left_table(result["missing"], command)]

    def summary(self, result: Mapping[str, Any]) -> str:
        return STAND_IN if result["settings"]["stand_in"] else compared(result)


EXPERIMENT = Ablation()
