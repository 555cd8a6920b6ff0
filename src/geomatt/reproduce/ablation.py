"""Which choices of pair states matter: one is changed at a time, and everything else stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, ClassVar

from geomatt.data import Split, random_split
from geomatt.reproduce.ablation_networks import NETWORKS
from geomatt.reproduce.frame import Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import STAND_IN, noted
from geomatt.reproduce.pair import LEARNING_RATES, SIZES, TRAIN, VALIDATION
from geomatt.reproduce.published import left_table, tested_on, title
from geomatt.reproduce.study import UNIT, TolerantStudy, same_steps
from geomatt.reproduce.table import NOT_RUN, ResultTable
from geomatt.training import Job, TrainConfig, TrainResult, resolve

BASELINE = "baseline"
CLEAR = 2.0  # standard deviations of the baseline that count as a difference
ERRORS = ("energy_mae", "force_mae", "training_force_mae")
COLUMNS = ("changed", "weights", "energies", "forces", "training forces", "forces / baseline", "returns")
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
    """Differences from the baseline: settings of training or of the network, or the network itself."""

    name: str  # also of the part
    group: str = SETTINGS
    training: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    model: str = "pair"
    seed: int = 0
    same_steps: bool = True  # with another batch size: as many steps, not as many epochs


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
    Variation("batch-5-epochs", training={"batch": 5}, same_steps=False),
    Variation("half-rate", training={"learning_rate": RATE / 2}),
    Variation("double-rate", training={"learning_rate": RATE * 2}),
    Variation("muon", training={"optimiser": "muon"}),
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


class AblationStudy(TolerantStudy[AblationMember]):
    """Models that differ in one choice."""

    name = "ablation"

    def config(self, member: AblationMember) -> TrainConfig:
        quick, variation = self.settings.quick, member.variation
        network = {**(QUICK["network"] if quick else SIZE), **variation.network}
        if "radius" in network:  # divides by a constant: that of the baseline
            network["typical_atoms"] = float(self.dataset(member).sizes.max())
        changed = dict(variation.training)
        batch = changed.pop("batch", None) if variation.same_steps else None
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
        return config if batch is None else same_steps(config, batch=batch)

    def split(self, member: AblationMember) -> Split:
        count, seed = len(self.dataset(member)), self.settings.seed
        if self.settings.quick:
            sizes = QUICK["training"]
            return random_split(count, sizes["train"], sizes["val"], QUICK["test"], seed=seed)
        return random_split(count, TRAIN, VALIDATION, None, seed=seed)

    def measure(self, member: AblationMember, job: Job, result: TrainResult) -> dict[str, Any]:
        test, train = (
            self.errors(result.potential, job.dataset, rows, exclude_trained=False)
            for rows in (job.split.test, job.split.train[:TRAINED])
        )
        return {**test, "training_force_mae": train["force_mae"], "training_frames": train["frames"]}


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
        run = [molecule for molecule, rows in result["rows"].items() if rows]
        return [*noted(result, (errors_table(result, m) for m in run)), left_table(result)]

    def summary(self, result: Mapping[str, Any]) -> str:
        return STAND_IN if result["settings"]["stand_in"] else compared(result)


def seeds(result: Mapping[str, Any], molecule: str) -> list[dict[str, Any]]:
    """The models of the baseline; without those that diverged, as everywhere here."""
    return [row for row in _trained(result, molecule).values() if row["group"] == BASELINE]


def ratios(result: Mapping[str, Any], molecule: str) -> dict[str, float]:
    """Force errors of the variations over the baseline's mean; empty without a baseline."""
    own = [row["force_mae"] for row in seeds(result, molecule)]
    rows = _trained(result, molecule).items()
    return {n: row["force_mae"] / mean(own) for n, row in rows if own and row["group"] != BASELINE}


def spread(result: Mapping[str, Any], molecule: str) -> float | None:
    """Standard deviation of the baseline's force errors over their mean; None with fewer than two seeds."""
    own = [row["force_mae"] for row in seeds(result, molecule)]
    return stdev(own) / mean(own) if len(own) > 1 else None


def errors_table(result: Mapping[str, Any], molecule: str) -> ResultTable:
    """Errors of all variations on one molecule, below those of the baseline."""
    own, found, lines = seeds(result, molecule), ratios(result, molecule), []
    if own:
        errors = [_with_spread([row[error] for row in own], 3) for error in ERRORS]
        ratio = _with_spread([row["force_mae"] / mean(r["force_mae"] for r in own) for row in own], 2)
        returns = str(sum(row["returns"] for row in own))
        lines.append([BASELINE, f"{own[0]['parameters']:,}", *errors, ratio, returns])
    for name, row in result["rows"].get(molecule, {}).items():
        if "diverged" in row:
            lines.append([name, NOT_RUN, NOT_RUN, "diverged", NOT_RUN, NOT_RUN, NOT_RUN])
        elif row["group"] != BASELINE:
            errors = [f"{row[error]:.3f}" for error in ERRORS]
            ratio = f"{found[name]:.2f}" if found else NOT_RUN
            lines.append([name, f"{row['parameters']:,}", *errors, ratio, str(row["returns"])])
    return ResultTable(
        f"ablation-{molecule}",
        f"Errors of {title(molecule)} with one choice changed",
        COLUMNS,
        lines,
        f"MAE, {UNIT} and {UNIT}/Å, {tested_on(_trained(result, molecule).values())}. Baseline: mean ± "
        f"standard deviation over {len(own)} seeds; others: one seed. Returns: how often training went "
        "astray and went back to its best weights with half the learning rate.",
    )


def compared(result: Mapping[str, Any]) -> str:
    """Which variations differ from the baseline by more than its seeds do, in every molecule that was run."""
    spreads = {m: s for m in result["rows"] if (s := spread(result, m)) is not None}
    if not spreads:
        return "Not run yet."
    by_molecule = {m: ratios(result, m) for m in spreads}
    kinds: dict[str, list[str]] = {"Worse": [], "Better": [], "Not clearly different": []}
    for name in next(iter(by_molecule.values())):
        found = [by_molecule[m].get(name) for m in spreads]
        known = [value for value in found if value is not None]
        if len(known) < len(found):
            continue
        limits = [CLEAR * s for s in spreads.values()]
        worse = all(value > 1.0 + limit for value, limit in zip(known, limits, strict=True))
        better = all(value < 1.0 - limit for value, limit in zip(known, limits, strict=True))
        kind = "Worse" if worse else "Better" if better else "Not clearly different"
        kinds[kind].append(f"{name} ({', '.join(f'{value:.2f}' for value in known)})")
    every = [(m, name, row) for m, rows in result["rows"].items() for name, row in rows.items()]
    kinds["Diverged"] = [f"{name} ({title(m)})" for m, name, row in every if "diverged" in row]
    first = (
        f"Force errors over those of the baseline, for {' and '.join(map(title, spreads))}. Seeds of the "
        f"baseline differ by {' and '.join(f'{s:.1%}' for s in spreads.values())} (standard deviation); "
        f"{CLEAR:g} times as much in every molecule counts as a difference."
    )
    return " ".join([first, *(f"**{kind}:** {', '.join(found)}." for kind, found in kinds.items() if found)])


def _trained(result: Mapping[str, Any], molecule: str) -> dict[str, dict[str, Any]]:
    """The models of a molecule whose training did not diverge, by variation."""
    return {n: row for n, row in result["rows"].get(molecule, {}).items() if "diverged" not in row}


def _with_spread(values: Sequence[float], digits: int) -> str:
    behind = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{behind}"


EXPERIMENT = Ablation()
