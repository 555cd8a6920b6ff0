"""Every setting of a training run, typed, as stored in `RUN/config.toml`."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomatt.elements import atomic_number
from geomatt.errors import GeomAttError
from geomatt.model.devices import check_device_name
from geomatt.model.registry import DEFAULT, OLDEST, network_class, network_config, network_names, new_config
from geomatt.settings import check_types, field_types, setting, typed
from geomatt.training.recipes import recipe_settings, recipes
from geomatt.training.toml import to_toml
from geomatt.units import energy_unit

if TYPE_CHECKING:
    import torch

LARGEST_SEED, MOST_MEMBERS = 2**62, 1000
DATA, SPLIT, OPTIM, MODEL, RUN = "Data", "Split and members", "Optimisation", "Model", "Run"


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run. Sizes are resolved against the data by `resolve_sizes`."""

    data: str = setting("", "a file, or a name such as md17/ethanol", group=DATA, option=False)
    more_data: tuple[str, ...] = setting((), "further files, joined to the first", group=DATA, option=False)
    energy_unit: str | None = setting(
        None, "energy unit, if the file does not say: kcal/mol, eV, Hartree, kJ/mol", group=DATA
    )
    length_unit: str | None = setting(None, "length unit, if the file does not say: Ang, Bohr", group=DATA)
    force_unit: str | None = setting(
        None, "unit of the forces, if not energy/length unit: Hartree/Bohr", group=DATA
    )
    energies_per_atom: bool = setting(
        False, "the file has energies per atom, not of whole structures", group=DATA
    )
    keys: dict[str, str] = setting(
        None,
        "where the file keeps energy, forces, weight, …: forces=my_forces; none leaves out",
        group=DATA,
        flag="--key",
        example="forces=my_forces",
    )
    reference: dict[str, float] = setting(
        None, "energy of an isolated atom in eV: H=-13.6; fitted if not given", group=DATA, example="H=-13.6"
    )
    report_unit: str | None = setting(
        None, "energy unit of reports; the data's by default", group=DATA, flag="--unit"
    )
    energy_only: bool = setting(False, "train on energies alone, whether or not there are forces", group=DATA)

    drop_outliers: bool = setting(
        False, "leave out structures whose labels are far from all others", group=DATA
    )

    train: int | None = setting(
        None, "structures to train on (950 where there are enough; model geomatt: 800)", group=SPLIT, least=1
    )
    val: int | None = setting(
        None, "structures to choose the best epoch by (50; model geomatt: 200)", group=SPLIT, least=1
    )
    test: int | None = setting(None, "structures to test on at the end (up to 1000)", group=SPLIT, least=0)
    split: str = setting(
        "random",
        "kind of split: random, or blocked (stretches of consecutive frames)",
        group=SPLIT,
        choices=("random", "blocked"),
    )
    split_seed: int = setting(0, "which random split", group=SPLIT, least=0, most=LARGEST_SEED)
    train_indices: str | None = setting(None, "file of frame numbers to train on", group=SPLIT, path=True)
    val_indices: str | None = setting(None, "file of frame numbers to validate on", group=SPLIT, path=True)
    test_indices: str | None = setting(None, "file of frame numbers to test on", group=SPLIT, path=True)
    val_data: tuple[str, ...] = setting(
        (), "file to validate on, all of it (repeatable); the data then train", group=SPLIT
    )
    test_data: tuple[str, ...] = setting(
        (), "file to test on at the end, all of it (repeatable)", group=SPLIT
    )
    folds: int = setting(
        0, "train one model for each of so many folds of the data", group=SPLIT, least=0, most=MOST_MEMBERS
    )
    members: int = setting(
        0, "train so many models that differ by seed", group=SPLIT, least=0, most=MOST_MEMBERS
    )
    member: int | None = setting(None, "train only this one of them, from 0", group=SPLIT)

    recipe: str = setting(
        "", f"named optimisation settings: {', '.join(recipes())}; the network's own by default", group=OPTIM
    )
    epochs: int = setting(1000, "passes over the training data", group=OPTIM, least=1)
    batch: int = setting(10, "structures in a step", group=OPTIM, least=1)
    optimiser: str = setting(
        "adam", "adam, or muon: for the hidden matrices of pair states", group=OPTIM, choices=("adam", "muon")
    )
    learning_rate: float = setting(1e-3, "the learning rate at its highest", group=OPTIM)
    schedule: str = setting(
        "cosine", "course of the learning rate: step or cosine", group=OPTIM, choices=("step", "cosine")
    )
    decay: float = setting(0.96, "step schedule: factor on the learning rate", group=OPTIM)
    decay_every: int = setting(1000, "step schedule: epochs between such factors", group=OPTIM, least=1)
    warmup: int = setting(10, "cosine schedule: epochs of linear rise", group=OPTIM, least=0)
    final: float = setting(0.0, "cosine schedule: share of the learning rate left at the end", group=OPTIM)
    ema_decay: float = setting(
        0.0, "decay of the moving average of the weights per step; 0: none", group=OPTIM
    )
    clip: float = setting(0.0, "largest norm of the gradient in a step; 0: no limit", group=OPTIM)
    patience: int = setting(
        0, "stop after so many epochs without improvement; 0: never", group=OPTIM, least=0
    )
    validate_every: int = setting(1, "epochs between validations", group=OPTIM, least=1)
    weighting: str = setting(
        "paper",
        "loss: as in the paper, as in the authors' code, or unsquared",
        group=OPTIM,
        choices=("paper", "authors", "unsquared"),
    )
    rho: float = setting(0.01, "weight of energies in the loss", group=OPTIM)
    loss_per_atom: bool = setting(
        False, "energy errors per atom in the loss, for structures of different sizes", group=OPTIM
    )
    stress_weight: float = setting(0.1, "weight of stress in the loss, as virial per atom", group=OPTIM)
    scale: str = setting(
        "energy",
        "unit of the network: the standard deviation of the energies, or the RMS of the forces",
        group=OPTIM,
        choices=("energy", "forces"),
    )

    model: str = setting(DEFAULT, f"kind of network: {', '.join(network_names())}", group=MODEL)
    network: dict[str, Any] = setting(None, "settings of the network", group=MODEL, option=False)

    base: str | None = setting(None, "the model file whose weights are the start", group=RUN, option=False)
    unfreeze: tuple[str, ...] = setting(
        (), "parts trained besides the readout, or all", group=OPTIM, option=False
    )

    seed: int = setting(0, "seed of initial weights and data order", group=RUN, least=0, most=LARGEST_SEED)
    device: str = setting("cpu", "where to compute (cuda where there is one, else cpu)", group=RUN)
    dtype: str = setting(
        "float32", "precision: float32 or float64", group=RUN, choices=("float32", "float64")
    )
    engine: str = setting(
        "auto",
        "how to compute (auto); float32: never in TF32; dense or autograd: plain torch, no compiled code",
        group=RUN,
    )

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("keys", "reference", "network"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        by_number = {str(atomic_number(element)): energy for element, energy in self.reference.items()}
        object.__setattr__(self, "reference", by_number)
        if self.report_unit is not None:
            energy_unit(self.report_unit)
        if not all(math.isfinite(energy) for energy in self.reference.values()):
            raise GeomAttError("`reference` energies must be finite numbers.")
        if not 0 < self.learning_rate < float("inf"):
            raise GeomAttError(f"`learning_rate` must be a positive number, not {self.learning_rate}.")
        if not 0 <= self.ema_decay < 1:
            raise GeomAttError(f"`ema_decay` must be from 0 (off) to below 1, not {self.ema_decay}.")
        if not 0 < self.decay <= 1 or not 0 <= self.final <= 1:
            raise GeomAttError("`decay` must lie in (0, 1] and `final` in [0, 1].")
        for name in ("rho", "clip", "stress_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise GeomAttError(f"`{name}` must be a number that is not negative.")
        if self.folds == 1:
            raise GeomAttError("`folds` must be 2 or more (one fold leaves nothing to train on).")
        if self.folds and self.members:
            raise GeomAttError("`folds` and `members` exclude each other: choose one.")
        if (self.train_indices is None) != (self.val_indices is None):
            raise GeomAttError("`train_indices` and `val_indices` go together: give both or none.")
        if self.train_indices and self.folds:
            raise GeomAttError("`folds` makes its own splits; it cannot be used with index files.")
        if (self.val_data or self.test_data) and self.train_indices:
            raise GeomAttError("Index files count structures of the data: give them or `val_data`, not both.")
        if self.val_data and (self.val or self.folds):
            raise GeomAttError("All of `val_data` is for validation: leave out `val` and `folds`.")
        if self.test_data and self.test:
            raise GeomAttError("All of `test_data` is for testing: leave out `test`.")
        if self.member is not None and not 0 <= self.member < self.member_count:
            raise GeomAttError(
                f"`member` {self.member} is not one of the {self.member_count} members (they count from 0)."
            )
        check_device_name(self.device)
        engines = network_class(self.model).engines()
        if self.engine not in engines:
            raise GeomAttError(f"Unknown `engine` {self.engine!r}. Use one of: {', '.join(engines)}.")
        if self.optimiser == "muon" and not network_class(self.model).matrices:
            raise GeomAttError(
                f"Networks of kind {self.model} name no matrices that muon could train. "
                "Leave `optimiser` at adam."
            )
        network = new_config(self.model, self.network, elements=(1,)).to_dict()
        del network["elements"]
        # All of them, so that a stored configuration does not depend on defaults.
        object.__setattr__(self, "network", _plain(network))

    @property
    def member_count(self) -> int:
        """The number of models the run trains when `member` does not single one out."""
        return self.folds or self.members or 1

    @property
    def has_members(self) -> bool:
        """True if the run has a folder for each member."""
        return (self.folds > 0 or self.members > 0) and self.member is None

    @property
    def own_seed(self) -> int:
        """The seed of this run's weights and data order: members differ by it."""
        return self.seed + (self.member or 0)

    @property
    def torch_dtype(self) -> torch.dtype:
        from geomatt.model.precision import DTYPES

        return DTYPES[self.dtype]

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values (lists for tuples), ready for JSON and TOML."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}

    def to_toml(self) -> str:
        """The configuration file; settings that are not set appear as comments."""
        lines = [
            "# Settings of a geomatt training run.",
            "# Run it again: geomatt train --config THIS --out NEW",
        ]
        values, group = self.to_dict(), ""
        for item in dataclasses.fields(self):
            if item.name == "network":
                continue
            if item.metadata["group"] != group:
                group = item.metadata["group"]
                lines += ["", f"# {group}"]
            value = values[item.name]
            lines.append(f"# {item.name} is not set" if value is None else f"{item.name} = {to_toml(value)}")
        lines += ["", "[network]", *(f"{name} = {to_toml(v)}" for name, v in values["network"].items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the settings") -> TrainConfig:
        """Settings by name; an unknown name or a value of the wrong type is an error."""
        return cls(**check_settings(values, source))

    def replace(self, **changes: Any) -> TrainConfig:
        return dataclasses.replace(self, **changes)


def resolve(given: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> TrainConfig:
    """Settings in order of precedence: given values, those of the recipe, a stored configuration.

    A stored configuration already holds its recipe's values, so the recipe acts only when newly chosen.
    """
    for values in (given, stored or {}):
        if not isinstance(values, Mapping):
            raise GeomAttError(
                f'Give settings by name, such as geomatt.resolve({{"epochs": 100}}), not {values!r:.80}.'
            )
    asked = check_settings({n: v for n, v in given.items() if v is not None}, "the settings")
    values = dict(check_settings(stored or {}, "the stored settings"))
    if asked.get("model", values.get("model")) != values.get("model"):
        values.pop("network", None)  # settings of another kind of network
    if stored is None or "recipe" in asked:
        kind = network_class(asked.get("model") or values.get("model") or DEFAULT)
        values.update(recipe_settings(asked.get("recipe") or kind.recipe))
    network = {**values.get("network", {}), **asked.get("network", {})}
    return TrainConfig(**{**values, **asked, "network": network})


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a configuration file, checked."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GeomAttError(f"There is no configuration file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise GeomAttError(f"The configuration file {path} cannot be read: {error}") from None
    except ValueError as error:  # tomllib's own, and that of integers of thousands of digits
        raise GeomAttError(f"{path} is not valid TOML: {error}") from None
    return check_settings(values, str(path))


def check_settings(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The same values in the types of `TrainConfig`; names what is unknown or has the wrong type.

    Settings of the network may stand among the others, as in files of version 0.1.
    """
    known = {item.name for item in dataclasses.fields(TrainConfig)}
    if "model" not in values and set(network_config(OLDEST).settings()) <= set(values):
        values = {**values, "model": OLDEST}  # a complete file of version 0.1
    kind = network_config(str(values.get("model") or DEFAULT))
    own = field_types(kind)  # type: ignore[arg-type]
    network = values.get("network") or {}
    if not isinstance(network, Mapping):
        raise GeomAttError(f"{source}: network = {network!r:.80} is not a table of settings.")
    network = kind.current(network)
    network |= {name: value for name, value in values.items() if name not in known and name in own}
    rest = {name: value for name, value in values.items() if name in known and name != "network"}
    unknown = sorted((set(values) - known - set(own)) | (set(network) - set(own)))
    others = [name for name in unknown if any(name in network_config(k).settings() for k in network_names())]
    if others:
        raise GeomAttError(
            f"{', '.join(others)}: not a setting of this kind of network (`model` "
            f"{values.get('model') or DEFAULT}), which has {', '.join(kind.settings())}."
        )
    if unknown:
        listing = ", ".join(sorted({*known, *kind.settings()}))
        raise GeomAttError(f"{source} has unknown settings: {', '.join(unknown)}. Known are: {listing}.")
    hints = field_types(TrainConfig)
    checked = {name: typed(name, value, hints[name], source) for name, value in rest.items()}
    if network:
        checked["network"] = {n: typed(n, value, own[n], source) for n, value in network.items()}
    return checked


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
