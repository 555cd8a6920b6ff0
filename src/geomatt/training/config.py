"""Every setting of a training run, flat and typed; what `RUN/config.toml` holds."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import torch

from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import ModelConfig
from geomatt.model.precision import DTYPES
from geomatt.training.recipes import recipe_settings


def _group(title: str, default: Any) -> Any:
    """A field that begins a new group in the configuration file."""
    return field(default=default, metadata={"group": title})


@dataclass(frozen=True)
class TrainConfig:
    """All settings of a run. Sizes are resolved against the data by `resolve_sizes`."""

    data: str = _group("data", "")  # a file, or a name such as md17/ethanol
    energy_unit: str | None = None  # None: as the file says
    length_unit: str | None = None
    force_unit: str | None = None  # None: the two above
    keys: dict[str, str] = field(default_factory=dict)  # label -> key in the file
    reference: dict[str, float] = field(default_factory=dict)  # atomic number -> energy in eV; empty: fitted
    report_unit: str | None = None  # None: the data's own
    energy_only: bool = False

    train: int | None = _group("split", None)
    val: int | None = None
    test: int | None = None
    split: str = "random"  # random | blocked
    split_seed: int = 0
    train_indices: str | None = None  # files of frame numbers, instead of sizes
    val_indices: str | None = None
    test_indices: str | None = None

    folds: int = _group("members", 0)  # k models, each leaving out another fold for validation
    members: int = 0  # models that differ by seed only
    member: int | None = None  # only this one of them, from 0

    recipe: str = _group("optimisation", "fast")
    epochs: int = 1000
    batch: int = 10
    learning_rate: float = 1e-3
    schedule: str = "cosine"  # step | cosine
    decay: float = 0.96  # step: factor on the learning rate ...
    decay_every: int = 1000  # ... after each so many epochs
    warmup: int = 10  # cosine: epochs of linear rise
    final: float = 0.0  # cosine: what is left of the learning rate at the end
    ema_decay: float = 0.0  # of the moving average of the weights, per step; 0: none
    patience: int = 0  # epochs without a better validation loss before stopping; 0: never
    validate_every: int = 1  # epochs
    weighting: str = "paper"  # paper | authors
    rho: float = 0.01

    orders: tuple[int, ...] = _group("model", (2, 3, 4))
    layers: int = 3
    features: int = 128
    overlap_features: int = 128
    gamma: float = 20.0
    d_max: float = 5.0
    spacing: float = 0.05
    bias: bool = True

    base: str | None = _group("transfer", None)  # the model file whose weights are the start
    unfreeze: tuple[str, ...] = ()  # what is trained besides the readout

    seed: int = _group("machine", 0)  # initial weights and data order
    device: str = "cpu"
    dtype: str = "float32"
    engine: str = "auto"  # auto: fused kernels on a GPU, compiled code on a CPU | dense: plain torch

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", tuple(self.orders))
        object.__setattr__(self, "unfreeze", tuple(self.unfreeze))
        for name in ("epochs", "batch", "decay_every", "validate_every"):
            _at_least(name, getattr(self, name), 1)
        for name in ("train", "val", "test", "folds", "members", "warmup", "patience", "seed", "split_seed"):
            _at_least(name, getattr(self, name), 0)
        for name in ("train", "val"):
            if getattr(self, name) == 0:
                raise GeomAttError(f"{_flag(name)} must be at least 1: training needs both parts.")
        if not 0 < self.learning_rate < float("inf"):
            raise GeomAttError(f"--learning-rate must be a positive number, not {self.learning_rate}.")
        if not 0 <= self.ema_decay < 1:
            raise GeomAttError(f"--ema-decay must be from 0 (off) to below 1, not {self.ema_decay}.")
        if not 0 < self.decay <= 1 or not 0 <= self.final <= 1 or not self.rho >= 0:
            raise GeomAttError("decay must lie in (0, 1], final in [0, 1], and rho must not be negative.")
        _one_of("schedule", self.schedule, ("step", "cosine"))
        _one_of("split", self.split, ("random", "blocked"))
        _one_of("loss weighting", self.weighting, ("paper", "authors"))
        _one_of("dtype", self.dtype, tuple(DTYPES))
        _one_of("engine", self.engine, ("auto", "dense"))
        if self.folds == 1:
            raise GeomAttError("--folds must be 2 or more (one fold leaves nothing to train on).")
        if self.folds and self.members:
            raise GeomAttError("--folds and --members exclude each other: choose one.")
        if (self.train_indices is None) != (self.val_indices is None):
            raise GeomAttError("--train-indices and --val-indices go together: give both or none.")
        if self.train_indices and self.folds:
            raise GeomAttError("--folds makes its own splits; it cannot be used with index files.")
        if self.member is not None and not 0 <= self.member < self.member_count:
            raise GeomAttError(
                f"--member {self.member} is not one of the {self.member_count} members (they count from 0)."
            )
        self.model_config((1,))  # its own checks

    @property
    def member_count(self) -> int:
        """How many models the run trains when `member` does not single one out."""
        return self.folds or self.members or 1

    @property
    def has_members(self) -> bool:
        """Whether the run has a folder for each member."""
        return (self.folds > 0 or self.members > 0) and self.member is None

    @property
    def own_seed(self) -> int:
        """The seed of this run's weights and data order: members differ by it."""
        return self.seed + (self.member or 0)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def model_config(self, elements: tuple[int, ...]) -> ModelConfig:
        """The network's own configuration."""
        return ModelConfig(
            elements=elements,
            orders=self.orders,
            layers=self.layers,
            features=self.features,
            overlap_features=self.overlap_features,
            gamma=self.gamma,
            d_max=self.d_max,
            spacing=self.spacing,
            bias=self.bias,
        )

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values (lists for tuples), JSON- and TOML-ready."""
        values = dataclasses.asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def to_toml(self) -> str:
        """The configuration file; settings that are not set appear as comments."""
        lines = [
            "# Settings of a geomatt training run.",
            "# Run it again: geomatt train --config THIS --out NEW",
        ]
        values = self.to_dict()
        for item in dataclasses.fields(self):
            if "group" in item.metadata:
                lines += ["", f"# {item.metadata['group']}"]
            value = values[item.name]
            lines.append(f"# {item.name} is not set" if value is None else f"{item.name} = {_toml(value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "the settings") -> TrainConfig:
        """Settings by name; an unknown name or a value of the wrong type is an error."""
        return cls(**check_settings(values, source))

    def replace(self, **changes: Any) -> TrainConfig:
        return dataclasses.replace(self, **changes)


def resolve(given: dict[str, Any], stored: dict[str, Any] | None = None) -> TrainConfig:
    """Settings from what was asked for: given values, over those of a recipe, over a stored configuration.

    A stored configuration already holds its recipe's values, so the recipe acts only when newly chosen.
    """
    given = {name: value for name, value in given.items() if value is not None}
    values = dict(stored or {})
    if stored is None or "recipe" in given:
        values.update(recipe_settings(given.get("recipe", "fast")))
    values.update(given)
    return TrainConfig.from_dict(values)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a configuration file, checked."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GeomAttError(f"There is no configuration file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise GeomAttError(f"The configuration file {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise GeomAttError(f"{path} is not valid TOML: {error}") from None
    return check_settings(values, str(path))


def check_settings(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same values with types as `TrainConfig` wants them; names what is unknown or mistyped."""
    known = {item.name for item in dataclasses.fields(TrainConfig)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise GeomAttError(
            f"{source} has unknown settings: {', '.join(unknown)}. Known are: {', '.join(sorted(known))}."
        )
    hints = get_type_hints(TrainConfig)
    return {name: _typed(name, value, str(hints[name]), source) for name, value in values.items()}


def _typed(name: str, value: Any, hint: str, source: str) -> Any:
    """`value` as the annotation says, or an error. Whole numbers do for floats, never the reverse."""
    if value is None and "None" in hint:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    sequence = list(value) if isinstance(value, list | tuple) else None
    if hint == str(bool) and isinstance(value, bool):
        return value
    if hint in (str(int), "int | None") and whole:
        return value
    if hint == str(float) and number:
        return float(value)
    if hint in (str(str), "str | None") and isinstance(value, str):
        return value
    if hint == "tuple[int, ...]" and sequence is not None and all(type(v) is int for v in sequence):
        return tuple(sequence)
    if hint == "tuple[str, ...]" and sequence is not None and all(type(v) is str for v in sequence):
        return tuple(sequence)
    if hint == "dict[str, str]" and isinstance(value, dict):
        return {str(k): str(v) for k, v in value.items()}
    if hint == "dict[str, float]" and isinstance(value, dict):
        return {str(k): float(v) for k, v in value.items()}
    raise GeomAttError(f"{source}: {name} = {value!r} is not of the right type ({hint}).")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_string(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    raise TypeError(f"no TOML for {type(value)}")


def _toml_string(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    body = "".join(escapes.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in value)
    return f'"{body}"'


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise GeomAttError(f"{_flag(name)} must be at least {least}, not {value}.")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise GeomAttError(f"Unknown {name} {value!r}. Use one of: {', '.join(known)}.")
