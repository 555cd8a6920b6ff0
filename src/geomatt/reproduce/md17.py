"""Models for the MD17 molecules: tables 1, 2 and 3, which share the members they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from geomatt.data import Split, fold_splits
from geomatt.errors import GeomAttError
from geomatt.model import Normalisation, Potential, load, new_network
from geomatt.reproduce.frame import ExperimentSettings, ProgressBar
from geomatt.reproduce.inputs import LISTED, MD17, described, load_md17
from geomatt.reproduce.study import UNIT, Study
from geomatt.training import Job, TrainConfig, TrainResult, resolve, with_zero, without_zero

FOLDS = 5
PAPER_ORDERS = (2, 3, 4)
# The loss of each recipe. The published errors match those of the authors' released code: with the formula
# printed in the paper the weight of energies is so small that they drift at a constant learning rate. The
# fast recipe ends at a learning rate of zero and does better with the formula.
WEIGHTING = {"paper": "authors", "fast": "paper"}
# SchNet's own schedule: a cosine from 1e-3 to zero, averaged weights, the loss printed in the paper. The
# cutoff is beyond every distance.
SCHNET: dict[str, Any] = {
    "model": "schnet",
    "network": {"features": 128, "filters": 128, "interactions": 3, "gaussians": 100, "cutoff": 10.0},
    "warmup": 0,
    "ema_decay": 0.999,
    "validate_every": 5,
}
# With 1000 epochs the validation loss of aspirin is lowest after 600, when steps are still large.
SCHNET_EPOCHS = {"aspirin": 500, "ethanol": 1000}
UNTRAINED = "untrained"  # a base with random weights: the control of a transfer


@dataclass(frozen=True)
class Md17Size:
    """The size of the study."""

    points: int  # training and validation together, divided into five folds
    folds: int  # how many of the five are computed
    epochs: Mapping[str, int]  # by recipe, and of the transfers
    test: int | None  # frames to test on; None: all others
    # Fixed cost of a step in units of pairs per structure: about 0.2 ms on a GPU, and compiling its kernels.
    # It decides how many sizes share a program at the price of padding.
    overhead: float = 1300.0
    network: Mapping[str, Any] = field(default_factory=dict)  # settings other than the paper's
    seeds: int = 3  # and draws of frames, where the tables ask for several


FULL = Md17Size(
    1000,
    FOLDS,
    {"paper": 2000, "fast": 1500, "schnet-all": 500, "transfer": 1000, "pair-transfer": 200},
    None,
)
QUICK = Md17Size(
    50,
    2,
    {"paper": 4, "fast": 4, "schnet": 2, "schnet-all": 2, "transfer": 3, "pair-transfer": 3},
    40,
    overhead=0.0,
    seeds=1,
)


@dataclass(frozen=True)
class Member:
    """One model to train."""

    molecule: str
    fold: int = 0
    orders: tuple[int, ...] = PAPER_ORDERS
    # paper, fast, schnet (own number of epochs), schnet-all (the same for all), pair (transfers)
    recipe: str = "paper"
    weighting: str | None = None  # of the loss, if not that of the recipe
    base: str | None = None  # the molecule of the model to start from, or UNTRAINED; trains the readout only
    seed: int = 0  # of weights and order of the data
    draw: int = 0  # of the frames to train and validate on

    @property
    def data(self) -> str:
        return self.molecule

    @property
    def name(self) -> str:
        again = f"-seed{self.seed}" * bool(self.seed) + f"-draw{self.draw}" * bool(self.draw)
        if self.base is not None:
            recipe = "" if self.recipe == "paper" else f"{self.recipe}-"
            return f"{recipe}transfer-{self.base}-{self.molecule}{again}"
        if self.is_schnet:
            return f"{self.recipe}-{self.molecule}{again}"
        weighting = "" if self.weighting is None else f"-{self.weighting}-loss"
        orders = "".join(map(str, self.orders))
        return f"{orders}-{self.recipe}{weighting}-fold{self.fold}-{self.molecule}{again}"

    @property
    def is_schnet(self) -> bool:
        return self.recipe.startswith("schnet")

    @property
    def model_file(self) -> str | None:
        """Path of its model below `models/`; None if the model is not kept."""
        if self.seed or self.draw or self.base == UNTRAINED or self.recipe == "schnet":
            return None
        if self.is_schnet:
            return f"md17/{self.molecule}-schnet.safetensors"
        if self.base is not None:
            return f"transfer/{self.base}-{self.molecule}.safetensors" if self.recipe == "paper" else None
        if (self.orders, self.fold, self.weighting) != (PAPER_ORDERS, 0, None):
            return None
        return f"md17/{self.molecule}{'' if self.recipe == 'paper' else f'-{self.recipe}'}.safetensors"

    @property
    def command(self) -> str:
        table = "table2" if self.base else "table1" if self.orders == PAPER_ORDERS else "table3"
        return f"geomatt reproduce {table}"

    @property
    def program(self) -> tuple[Any, ...]:
        """Members with the same value can be trained side by side."""
        alone = self.name if self.is_schnet else None  # a batch of SchNets is no faster than one by one
        return self.orders, self.recipe, self.weighting, bool(self.base), alone


class Md17Study(Study[Member]):
    """The data of the eight molecules, by their names, and the members trained on them."""

    name = "md17"

    def __init__(
        self, settings: ExperimentSettings, progress: ProgressBar, size: Md17Size | None = None
    ) -> None:
        super().__init__(settings, progress)
        self.size = size or (QUICK if settings.quick else FULL)
        self.data, self.stand_in = load_md17(settings)
        self.described = {molecule: described(dataset) for molecule, dataset in self.data.items()}

    @property
    def molecules(self) -> list[str]:
        return list(self.data)

    def config(self, member: Member) -> TrainConfig:
        given: dict[str, Any] = {
            "data": f"{'embedded' if self.stand_in else 'md17'}/{member.molecule}",
            "folds": FOLDS,
            "member": member.fold,
            "split_seed": self.settings.seed + member.draw,
            "seed": self.settings.seed + member.seed,
            "device": self.settings.device,
            "report_unit": UNIT,
        }
        if member.is_schnet:
            epochs = self.size.epochs.get(member.recipe) or SCHNET_EPOCHS[member.molecule]
            return TrainConfig(**given, epochs=epochs, **SCHNET)
        base = member.base if member.base in (None, UNTRAINED) else f"md17/{member.base}"
        given |= {
            "model": "geomatt",
            "recipe": member.recipe,
            "epochs": self.size.epochs["transfer" if member.base else member.recipe],
            "weighting": member.weighting or WEIGHTING[member.recipe],
            "base": base,
            "network": {"orders": member.orders, **self.size.network},
        }
        return resolve(given)

    def split(self, member: Member) -> Split:
        count = len(self.data[member.molecule])
        return self.thinned(
            fold_splits(count, self.size.points, FOLDS, self.settings.seed + member.draw)[member.fold]
        )

    def thinned(self, split: Split) -> Split:
        """The split with as many test frames as the study has."""
        if self.size.test is None:
            return split
        rows = np.linspace(0, len(split.test) - 1, self.size.test).astype(int)
        return replace(split, test=split.test[rows])

    def beside(self, member: Member) -> dict[str, Any]:
        base = self.inputs(Member(member.base)) if member.base not in (None, UNTRAINED) else member.base
        # The last: before, results had the zero of the energy fitted.
        size = {"points": self.size.points, "test": self.size.test}
        return {"base": base, **size, "energies": "as training leaves them"}

    def about(self) -> dict[str, Any]:
        """Settings, data and split for result files."""
        recipes = {r: self.config(Member(self.molecules[0], recipe=r)).to_dict() for r in ("paper", "fast")}
        return {
            "settings": {"recipes": recipes, "epochs": dict(self.size.epochs), "stand_in": self.stand_in},
            "data": self.described,
            "split": {
                "kind": "random",
                "seed": self.settings.seed,
                "points": self.size.points,
                "folds": FOLDS,
                "test": "all other frames" if self.size.test is None else self.size.test,
            },
            "pieces": self.pieces.made,
        }

    def train_plan(self, plan: Mapping[str, Sequence[Member]]) -> None:
        """Train what was asked for: `parts` names parts of the plan and molecules."""
        chooses, parts = self.settings.chooses, set(self.settings.parts) - set(MD17)
        self.train_all(
            [m for m in members if chooses({part, m.molecule}, parts, MD17)] for part, members in plan.items()
        )

    def model(self, molecule: str) -> Potential:
        """The model of a molecule, fold 0, paper recipe: from this study, or the one that ships."""
        path = self.model_path(Member(molecule).model_file or "")
        return load(path if path.is_file() or self.settings.quick else f"md17/{molecule}").members[0]

    def ships(self, molecule: str) -> bool:
        """True if a shipped model was trained on the frames that this study would train it on."""
        ours = self.described[molecule].get("frames") == LISTED
        return ours and not self.settings.quick and self.settings.seed == 0

    def scratch(self, molecule: str) -> dict[str, Any] | None:
        """Errors of the model of a molecule, fold 0, paper recipe: trained here, or the one that ships."""
        member = Member(molecule)
        found = self.find(member)
        if found is None and self.ships(molecule):
            found = self.pieces.get(
                f"shipped-{molecule}",
                {**self.inputs(member), "model": "shipped"},
                lambda: self.tested(without_zero(self.model(molecule)), member),
            )
        return found

    def can_train(self, member: Member) -> bool:
        """False without the base of a transfer, or without SchNet, which is an error if it was asked for."""
        if member.is_schnet and not has_schnet(self.settings):
            return False
        return member.base in (None, UNTRAINED) or self.scratch(member.base) is not None

    def base(self, member: Member) -> Potential | None:
        if member.base == UNTRAINED:
            config = self.config(member)
            elements = tuple(self.data[member.molecule].elements)
            network = new_network(config.model, dict(config.network), elements, seed=config.seed)
            return Potential(network, Normalisation())
        return None if member.base is None else self.model(member.base)

    def groups(self, members: Sequence[Member]) -> list[list[Member]]:
        programs: dict[tuple[Any, ...], list[Member]] = {}
        for member in members:
            programs.setdefault(member.program, []).append(member)
        found = []
        for alike in programs.values():
            atoms = [int(self.data[m.molecule].sizes.max()) for m in alike]
            found += [[alike[i] for i in group] for group in groups(atoms, self.size.overhead)]
        return found

    def tested(self, potential: Potential, member: Member) -> dict[str, Any]:
        """Errors of a model on the test frames of a member."""
        return self.errors(potential, self.data[member.molecule], self.split(member).test)

    def kept(self, member: Member) -> Potential | None:
        """The model of a member: from this study, or the one that ships; None if there is neither."""
        if member.model_file is None:
            return None
        path = self.model_path(member.model_file)
        if path.is_file():
            return load(path).members[0]
        kind = "" if member.recipe == "paper" else f":{member.recipe}"
        return load(f"md17/{member.molecule}{kind}").members[0] if self.ships(member.molecule) else None

    def fitted_zero(self, member: Member) -> dict[str, Any] | None:
        """Errors of a member's model once the mean error of its energies is removed; None without a model."""
        name, inputs = self.fitted_piece(member)
        found: dict[str, Any] | None = self.pieces.find(name, inputs)
        if found is None and not self.settings.out_of_time and (model := self.kept(member)) is not None:
            found = self.pieces.get(name, inputs, lambda: self.tested(self.refitted(model, member), member))
        return found

    def fitted_piece(self, member: Member) -> tuple[str, dict[str, Any]]:
        """Name and inputs of these errors."""
        return f"zero-{member.name}", {**self.inputs(member), "control": "fitted zero of the energy"}

    def refitted(self, potential: Potential, member: Member) -> Potential:
        """The potential, with no mean error of its energies on the frames of a member's training."""
        split = self.split(member)
        seen = self.data[member.molecule].select(np.concatenate([split.train, split.validation]))
        assert seen.energies is not None
        potential.to(self.settings.device)
        predicted = np.array([p.energy for p in potential.predict(list(seen), forces=False)])
        zero = {"shift": float((seen.energies - predicted).mean())}
        return Potential(potential.network, with_zero(potential.normalisation, zero), potential.record)

    def measure(self, member: Member, job: Job, result: TrainResult) -> dict[str, Any]:
        """Errors as the paper's training leaves the model, without the zero of the energy fitted after it."""
        if member.model_file is not None:
            fitted = self.tested(result.potential, member)
            self.keep_model(member.model_file, result.potential, fitted, member.command)
        return self.tested(without_zero(result.potential), member)


def has_schnet(settings: ExperimentSettings) -> bool:
    """True if SchNet can be trained here; an error if it cannot and parts were asked for."""
    if find_spec("torch_geometric") is not None:
        return True
    if settings.parts:
        raise GeomAttError("SchNet needs PyTorch Geometric. Install it with: pip install 'geomatt[bench]'")
    return False


def groups(atoms: Sequence[int], overhead: float) -> list[list[int]]:
    """Which members to train together so that the total cost is lowest.

    A group is padded to its largest size; its cost is `overhead` plus the number of members times the square
    of that size.
    """
    order = sorted(range(len(atoms)), key=lambda i: atoms[i])
    best: list[tuple[float, int]] = [(0.0, 0)]  # cost of the first n members, and start of their last group
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
