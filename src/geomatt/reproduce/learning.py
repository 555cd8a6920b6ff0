"""Learning curves: errors of three networks against the number of training frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from geomatt.data import Split, random_split
from geomatt.reproduce.frame import Drawing, Experiment, ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import STAND_IN, captioned, frames_note, noted
from geomatt.reproduce.md17 import SCHNET, WEIGHTING, has_schnet
from geomatt.reproduce.pair import LEARNING_RATES, SIZES, TRAIN, VALIDATION
from geomatt.reproduce.published import Models, error_table, left_table, tested_on, title
from geomatt.reproduce.study import UNIT, TolerantStudy, epoch_steps, same_steps
from geomatt.reproduce.table import ResultTable
from geomatt.training import Job, TrainConfig, TrainResult, resolve

MOLECULES = ("ethanol", "aspirin")
VALIDATIONS = 40  # in a run, about, whatever the number of frames
OWN = "pair"  # the network the summary compares with the others


@dataclass(frozen=True)
class LearningNetwork:
    """A network and how it is trained."""

    label: str
    epochs: int  # with all frames; with fewer there are more, so that the number of steps stays
    settings: Mapping[str, Any]


# A step of SchNet takes ten times as long on a GPU as one of the others, so it takes fewer.
NETWORKS = {
    "pair": LearningNetwork(
        "pair states S",
        200,
        {"model": "pair", "network": SIZES["s"], "learning_rate": LEARNING_RATES["s"]},
    ),
    "geomatt": LearningNetwork(
        "geometric attention",
        200,
        {"model": "geomatt", "recipe": "fast", "weighting": WEIGHTING["fast"], "patience": 0},
    ),
    "schnet": LearningNetwork("SchNet", 80, {**SCHNET, "learning_rate": 1e-3, "patience": 0}),
}


@dataclass(frozen=True)
class LearningSize:
    """The size of the experiment."""

    frames: tuple[int, ...]  # subsets of the last, which are the frames drawn for training
    validation: int = VALIDATION
    test: int | None = None  # frames to test on; None: all others
    epochs: Mapping[str, int] = field(default_factory=dict)  # other than those of the networks
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings other than theirs


FULL = LearningSize((50, 100, 200, 400, TRAIN))
QUICK = LearningSize(
    (50, 100),
    10,
    40,
    dict.fromkeys(NETWORKS, 4),
    {
        "pair": {"channels": 8, "rounds": 2},
        "geomatt": {"features": 8, "overlap_features": 16, "spacing": 0.5, "layers": 1},
        "schnet": {"features": 8, "filters": 8, "interactions": 1, "gaussians": 10},
    },
)
# The sorts of parts.
FRAME_PARTS = tuple(f"frames-{count}" for count in FULL.frames)


@dataclass(frozen=True)
class LearningMember:
    """One model."""

    network: str
    molecule: str
    frames: int

    @property
    def data(self) -> str:
        return f"md17/{self.molecule}"

    @property
    def name(self) -> str:
        return f"{self.network}-{self.molecule}-{self.frames}"

    def asked(self, settings: ExperimentSettings) -> bool:
        """True if the member is in the chosen parts."""
        own = {self.network, self.molecule, f"frames-{self.frames}"}
        return settings.chooses(own, NETWORKS, MOLECULES, FRAME_PARTS)


class LearningStudy(TolerantStudy[LearningMember]):
    """Models that differ in network and number of training frames."""

    name = "learning"

    def __init__(self, settings: ExperimentSettings, progress: ProgressBar) -> None:
        super().__init__(settings, progress)
        self.size = QUICK if settings.quick else FULL

    def members(self) -> list[LearningMember]:
        frames = self.size.frames
        return [LearningMember(n, m, count) for n in NETWORKS for m in MOLECULES for count in frames]

    def config(self, member: LearningMember) -> TrainConfig:
        """As many steps as with all frames, and as many validations."""
        network = NETWORKS[member.network]
        own = {**network.settings.get("network", {}), **self.size.networks.get(member.network, {})}
        whole = resolve(
            {
                **network.settings,
                "network": own,
                "data": member.data,
                "epochs": self.size.epochs.get(member.network, network.epochs),
                "train": self.size.frames[-1],
                "val": self.size.validation,
                "seed": self.settings.seed,
                "split_seed": self.settings.seed,
                "device": self.settings.device,
                "report_unit": UNIT,
            }
        )
        config = same_steps(whole, train=member.frames)
        return config.replace(validate_every=math.ceil(config.epochs / VALIDATIONS))

    def split(self, member: LearningMember) -> Split:
        """The first of one sequence of frames train; validation and test frames are the same for all."""
        count, seed, size = len(self.dataset(member)), self.settings.seed, self.size
        whole = random_split(count, size.frames[-1], size.validation, size.test, seed=seed)
        return replace(whole, train=random_split(count, member.frames, 0, 0, seed=seed).train)

    def can_train(self, member: LearningMember) -> bool:
        return NETWORKS[member.network].settings["model"] != "schnet" or has_schnet(self.settings)

    def measure(self, member: LearningMember, job: Job, result: TrainResult) -> dict[str, Any]:
        errors = self.errors(result.potential, job.dataset, job.split.test)
        return {**errors, "steps": result.epochs * epoch_steps(job.config)}


class Learning(Experiment):
    name = "learning"
    title = "Learning curves"
    description = (
        "Errors on two molecules of MD17 against the number of training frames, for pair states, the paper's "
        "network and SchNet, each with the same number of steps for every number of frames."
    )
    parts: ClassVar[tuple[str, ...]] = (*NETWORKS, *MOLECULES, *FRAME_PARTS)

    def run(self, settings: ExperimentSettings, progress: ProgressBar) -> dict[str, Any]:
        study = LearningStudy(settings, progress)
        members = study.members()
        asked = [member for member in members if member.asked(settings)]
        study.train(asked)
        # Other processes may work on other parts of the same molecules.
        molecules = {member.molecule for member in asked}
        rows: dict[str, dict[str, Any]] = {m: {n: {} for n in NETWORKS} for m in MOLECULES}
        plan: dict[str, list[LearningMember]] = {}
        for member in (m for m in members if m.molecule in molecules):
            plan.setdefault(f"{member.network} {member.molecule}", []).append(member)
            if (found := study.find(member)) is not None:
                rows[member.molecule][member.network][str(member.frames)] = found
        configs = {
            network: study.config(LearningMember(network, MOLECULES[0], study.size.frames[-1]))
            for network in NETWORKS
        }
        return {
            "settings": {
                "configs": {network: config.to_dict() for network, config in configs.items()},
                "steps": {n: config.epochs * epoch_steps(config) for n, config in configs.items()},
                "frames": study.size.frames,
                "stand_in": study.stand_in,
            },
            "data": study.described,
            "split": (
                f"the first frames of one random sequence of {study.size.frames[-1]} train, "
                f"{study.size.validation} others validate, tested on all others; the same for all networks"
            ),
            "rows": rows,
            "missing": study.missing(plan),
            "pieces": study.pieces.made,
        }

    def tables(self, result: Mapping[str, Any]) -> list[ResultTable]:
        shown = (errors_table(result, molecule) for molecule in result["rows"])
        return [*noted(result, shown), left_table(result)]

    def drawings(self, result: Mapping[str, Any]) -> list[Drawing]:
        from geomatt.reproduce.learning_figures import learning_figure

        found = {molecule: _labelled(result, molecule) for molecule in result["rows"]}
        drawn = {molecule: curves for molecule, curves in found.items() if any(curves.values())}
        if not drawn:
            return []
        caption = (
            f"Force error on test frames (MAE, {UNIT}/Å) against the number of training frames, both on "
            "logarithmic scales. Lines: power laws fitted to the points."
        )
        return captioned(result, [Drawing("learning", caption, lambda: learning_figure(drawn))])

    def summary(self, result: Mapping[str, Any]) -> str:
        if result["settings"]["stand_in"]:
            return STAND_IN
        found = (sentences(molecule, trained(result, molecule)) for molecule in result["rows"])
        return " ".join(filter(None, found)) or "Not run yet."


def trained(result: Mapping[str, Any], molecule: str) -> dict[str, dict[int, dict[str, Any]]]:
    """By network and number of frames: the models of a molecule whose training did not diverge."""
    networks = result["rows"][molecule]
    return {
        name: {int(count): model for count, model in models.items() if "diverged" not in model}
        for name, models in networks.items()
    }


def slope(errors: Mapping[int, float]) -> float | None:
    """Of the logarithm of the error over that of the frames, by least squares; None with one point."""
    if len(errors) < 2:
        return None
    return float(np.polyfit(np.log(list(errors)), np.log(list(errors.values())), 1)[0])


def forces(models: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    """Force errors by frames."""
    return {count: model["force_mae"] for count, model in models.items()}


def errors_table(result: Mapping[str, Any], molecule: str) -> ResultTable:
    """Errors of one molecule: frames down, networks across."""
    found, settings = trained(result, molecule), result["settings"]
    columns: dict[str, dict[str, Models]] = {
        NETWORKS[name].label: {str(count): [model] for count, model in models.items()}
        for name, models in found.items()
    }
    models = [model for by_frames in found.values() for model in by_frames.values()]
    steps = ", ".join(f"{NETWORKS[name].label} {count:,}" for name, count in settings["steps"].items())
    slopes = {NETWORKS[name].label: slope(forces(by_frames)) for name, by_frames in found.items()}
    fitted = ", ".join(f"{label} {value:.2f}" for label, value in slopes.items() if value is not None)
    lost = [
        f"{NETWORKS[name].label} with {count} frames"
        for name, by_frames in result["rows"][molecule].items()
        for count, model in by_frames.items()
        if "diverged" in model
    ]
    note = [
        f"MAE of energies ({UNIT}) / forces ({UNIT}/Å) {tested_on(models)}. Steps: {steps}.",
        f"Slope of log force error against log frames: {fitted}." if fitted else "",
        f"Diverged: {', '.join(lost)}." if lost else "",
        frames_note(result),
    ]
    return error_table(
        f"learning-{molecule}",
        f"Errors of {title(molecule)} by training frames",
        columns,
        [str(count) for count in settings["frames"]],
        " ".join(filter(None, note)),
        digits=3,
        with_mean=False,
        first="frames",
    )


def sentences(molecule: str, found: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """Slopes of a molecule, and how many frames pair states need for the best errors of the others."""
    curves = {name: forces(models) for name, models in found.items() if models}
    slopes = {NETWORKS[name].label: slope(curve) for name, curve in curves.items()}
    known = [f"{value:.2f} ({label})" for label, value in slopes.items() if value is not None]
    if not known:
        return ""
    text = [f"{title(molecule).capitalize()}: slope of log force error against log frames {_and(known)}."]
    own = curves.pop(OWN, {})
    for name, curve in curves.items():
        most = max(curve)
        enough = [count for count, error in sorted(own.items()) if error <= curve[most]]
        if enough:
            text.append(
                f"With {enough[0]} frames {NETWORKS[OWN].label} has no larger force error than "
                f"{NETWORKS[name].label} with {most}."
            )
    return " ".join(text)


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _labelled(result: Mapping[str, Any], molecule: str) -> dict[str, dict[int, float]]:
    """Force errors of a molecule by the labels of the networks and frames."""
    return {NETWORKS[name].label: forces(models) for name, models in trained(result, molecule).items()}


EXPERIMENT = Learning()
