"""What happens before the first step: data, sizes, splits, the starting network, and what may be resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from geomatt.data.files import write_error
from geomatt.data.structures import Dataset
from geomatt.elements import symbols
from geomatt.errors import GeomAttError
from geomatt.model.files import fingerprint, load
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.potential import Potential
from geomatt.training.checkpoint import Checkpoint
from geomatt.training.config import TrainConfig
from geomatt.training.record import split_hash
from geomatt.units import energy_unit

if TYPE_CHECKING:
    from geomatt.data.splits import Split

# What `unfreeze` may name, as prefixes of parameter names. The readout is always trained.
PARTS = {
    "readout": ("hidden.", "output."),
    "embedding": ("embedding",),
    "overlaps": ("overlaps.",),
    "interactions": ("W", "b"),
}

# Settings a resumed run may find changed: where things are (their content is checked by hash) and what
# only tells how results are shown. `epochs` has a rule of its own.
_FREE_ON_RESUME = {
    "data", "energy_unit", "length_unit", "force_unit", "keys", "train_indices", "val_indices",
    "test_indices", "base", "report_unit", "device", "epochs",
}  # fmt: skip


def load_dataset(config: TrainConfig) -> Dataset:
    """The data a configuration names."""
    from geomatt.data.io.readers import read

    if not config.data:
        raise GeomAttError("Which data? Give a file, or a name such as md17/ethanol.")
    return read(
        config.data,
        energy_unit=config.energy_unit,
        length_unit=config.length_unit,
        force_unit=config.force_unit,
        keys=config.keys or None,
    )


def resolve_sizes(config: TrainConfig, count: int) -> TrainConfig:
    """Fill in sizes left open: the paper's 800 + 200 where there is enough, and up to 1000 to test on."""
    if config.train_indices:
        return config
    train, val = config.train, config.val
    if train is None and val is None:
        points = min(1000, count * 9 // 10)
        val = max(1, points // (config.folds or 5))
        train = points - val
    elif val is None:
        val = max(1, min((train or 0) // 4, count - (train or 0)))
    elif train is None:
        train = min(4 * val, count - val)
    assert train is not None
    if train < 1:
        raise GeomAttError(f"The data has {count} structures, too few for a training and a validation set.")
    if train + val > count:
        raise GeomAttError(
            f"--train {train} and --val {val} are {train + val} structures, but the data has only {count}. "
            "Choose smaller sizes."
        )
    test = min(1000, count - train - val) if config.test is None else config.test
    if train + val + test > count:
        raise GeomAttError(
            f"--train {train}, --val {val} and --test {test} are {train + val + test} structures, "
            f"but the data has only {count}. Choose smaller sizes."
        )
    return config.replace(train=train, val=val, test=test)


def make_splits(config: TrainConfig, count: int) -> list[Split]:
    """The split of every member, for a configuration with resolved sizes."""
    from geomatt.data import splits

    if config.train_indices and config.val_indices:
        split = splits.split_from_files(
            config.train_indices, config.val_indices, config.test_indices, n=count
        )
        return [split] * config.member_count
    assert config.train is not None
    assert config.val is not None
    if config.folds:
        folds = splits.fold_splits(
            count, config.train + config.val, config.folds, seed=config.split_seed, kind=config.split
        )
        return [dataclasses.replace(fold, test=_spread_out(fold.test, config.test)) for fold in folds]
    maker = splits.random_split if config.split == "random" else splits.blocked_split
    split = maker(count, config.train, config.val, config.test, seed=config.split_seed)
    return [split] * config.member_count


def _spread_out(indices: np.ndarray, count: int | None) -> np.ndarray:
    """`count` of the indices, evenly spread; all of them without a count."""
    if count is None or count >= len(indices):
        return indices
    return indices[np.arange(count) * len(indices) // max(1, count)]


def report_unit_of(dataset: Dataset, config: TrainConfig) -> str:
    """The unit errors are shown in: the one asked for, else the data's."""
    from geomatt.data.io.readers import report_unit

    return energy_unit(config.report_unit or report_unit(dataset))


def check_data(dataset: Dataset, split: Split, config: TrainConfig) -> None:
    """Refuse data that cannot be trained on, and say why; nothing is dropped silently."""
    if dataset.energies is None:
        raise GeomAttError(
            "The data has no energies, so there is nothing to train on. Was a key mapped wrongly?"
        )
    if dataset.forces is None and not config.energy_only:
        raise GeomAttError(
            "The data has no forces. If they are in the file under another name, map it with "
            "--key forces=NAME; to train on energies alone, say so with --energy-only."
        )
    for name, part in (("training", split.train), ("validation", split.validation)):
        if not len(part):
            raise GeomAttError(f"The {name} set is empty.")
        if np.min(part) < 0 or np.max(part) >= len(dataset):
            raise GeomAttError(
                f"The {name} set names structures the data does not have (0 to {len(dataset) - 1})."
            )
    shared = np.intersect1d(split.train, split.validation)
    if len(shared):
        raise GeomAttError(
            f"{len(shared)} structures are in the training and in the validation set (first: {shared[0]})."
        )
    seen = dataset.select(np.concatenate([split.train, split.validation]))
    if seen.pbc is not None and np.any(seen.pbc):
        raise GeomAttError(
            "Training takes molecules and clusters, not periodic data. If the cell is only a box around a "
            "molecule, set pbc to False; a model trained with --no-bias can be used on periodic structures."
        )
    owner = np.repeat(np.arange(len(seen)), seen.sizes)
    for label, values, rows in (
        ("positions", seen.positions, owner),
        ("energies", seen.energies, np.arange(len(seen))),
        ("forces", None if config.energy_only else seen.forces, owner),
    ):
        if values is None:
            continue
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(1)
        if bad.any():
            number = np.concatenate([split.train, split.validation])[rows[bad][0]]
            raise GeomAttError(
                f"The data has {label} that are not finite numbers (first in structure {number}). "
                "Drop those structures."
            )


def starting_network(
    config: TrainConfig, seen: Dataset, base: Potential | None, seed: int
) -> GeometricAttention:
    """The network before the first step: fresh from the seed, or a base model's, most of it frozen."""
    if base is None:
        return new_network(config, tuple(seen.elements), seed)
    unknown = sorted(set(seen.elements) - set(base.elements))
    if unknown:
        raise GeomAttError(
            f"The data holds {', '.join(symbols(unknown))}, which the base model never saw "
            f"(it knows {', '.join(symbols(base.elements))}), so there is nothing to transfer for it. "
            "Choose a base trained on these elements, or train from scratch with geomatt train."
        )
    network = new_network(config, base.elements, seed)
    if network.config != base.network.config:
        raise GeomAttError(
            "The model settings are not those of the base model. Leave them out for a transfer."
        )
    network.load_state_dict(base.network.state_dict())
    trained = _trained_prefixes(config.unfreeze)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    return network


def new_network(config: TrainConfig, elements: tuple[int, ...], seed: int) -> GeometricAttention:
    """A network with weights drawn from the seed; the caller's random numbers are left alone."""
    with torch.random.fork_rng(devices=[]), _default_dtype(config.torch_dtype):
        torch.manual_seed(seed)
        return GeometricAttention(config.model_config(elements))


def widened(network: GeometricAttention, elements: Sequence[int]) -> GeometricAttention:
    """The same network with embeddings for exactly these elements; those it never had are zero."""
    config = dataclasses.replace(network.config, elements=tuple(elements))
    if config.elements == network.config.elements:
        return network
    state = network.state_dict()
    embedding = state["embedding"].new_zeros(len(config.elements), config.features)
    for row, z in enumerate(config.elements):
        if z in network.config.elements:
            embedding[row] = state["embedding"][network.config.elements.index(z)]
    with torch.random.fork_rng(devices=[]), _default_dtype(network.mu.dtype):
        other = GeometricAttention(config)
    other.load_state_dict({**state, "embedding": embedding, "elements": other.elements})
    for name, parameter in network.named_parameters():
        other.get_parameter(name).requires_grad_(parameter.requires_grad)
    return other


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Constants of the network are rounded to the default precision when it is made."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _trained_prefixes(unfreeze: tuple[str, ...]) -> tuple[str, ...]:
    for part in unfreeze:
        if part not in (*PARTS, "all"):
            raise GeomAttError(f"Unknown part {part!r} to unfreeze. Use: {', '.join([*PARTS, 'all'])}.")
    parts = list(PARTS) if "all" in unfreeze else ["readout", *unfreeze]
    return tuple(prefix for part in parts for prefix in PARTS[part])


def base_settings(base: Potential) -> dict[str, Any]:
    """The model settings a transfer inherits."""
    settings = base.network.config.to_dict()
    settings.pop("elements")
    return settings


def run_identity(data: str, split: Split, base: Potential | None) -> dict[str, str]:
    """Hashes of what must be unchanged for a run to be continued."""
    return {
        "data": data,
        "split": split_hash(split),
        "base": "" if base is None else fingerprint(base),
    }


def check_resume(found: Checkpoint, config: TrainConfig, identity: dict[str, str], folder: Path) -> None:
    """Only the same run may be continued; say what differs."""
    for name, meaning in (
        ("data", "The data has changed"),
        ("split", "The split has changed"),
        ("base", "The base model has changed"),
    ):
        if found.identity[name] != identity[name]:
            raise GeomAttError(f"{meaning} since {folder} was started, so it cannot be resumed.")
    new = config.to_dict()
    changed = [n for n, v in new.items() if n not in _FREE_ON_RESUME and found.config.get(n) != v]
    if changed:
        listing = ", ".join(f"{n} was {found.config.get(n)!r} and is now {new[n]!r}" for n in changed)
        raise GeomAttError(
            f"Settings differ from those {folder} was started with: {listing}. "
            "Resume with the old ones, or train into a new folder."
        )
    before = found.config["epochs"]
    if config.epochs == before:
        return
    if config.schedule != "step":
        raise GeomAttError(
            f"{folder} was started for {before} epochs, and the {config.schedule} schedule lays out the "
            "learning rate over exactly these. Resume without --epochs, or train into a new folder."
        )
    if config.epochs < found.counters.epoch:
        raise GeomAttError(
            f"{folder} has done {found.counters.epoch} epochs already; --epochs must not be less."
        )


def refuse_used(folder: Path, resume: bool) -> None:
    """A folder that is in use is not touched unless it is to be resumed."""
    if resume:
        return
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise write_error(folder, error) from None
    if used:
        raise GeomAttError(
            f"{folder} exists already. Continue the run in it with --resume, or choose another --out."
        )


def open_folder(folder: Path, resume: bool) -> None:
    """Make a run's folder."""
    refuse_used(folder, resume)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None


def load_base(path: str | Path) -> Potential:
    """The base model of a transfer; of a run with members one must be chosen."""
    base = load(path)
    if not isinstance(base, Potential):
        raise GeomAttError(f"{path} holds several members. Name one of them: {Path(path) / 'member_0'}.")
    return base
