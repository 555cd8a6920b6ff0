"""The data of a run: reading, sizes, splits, and what must hold before training starts."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.training.config import TrainConfig
from geomatt.training.recipes import VALIDATION_SHARE
from geomatt.training.start import fresh_network
from geomatt.units import energy_unit

if TYPE_CHECKING:
    from geomatt.data.splits import Split

NAMED = 5  # outliers that are named in a warning


def load_dataset(config: TrainConfig) -> Dataset:
    """The data a configuration names, without its outliers if these are to be dropped.

    Index files count all structures, so outliers stay in the data then: see `unwanted`.
    """
    from geomatt.data.io.readers import read
    from geomatt.data.outliers import drop_outliers

    if not config.data:
        raise GeomAttError("Which data? Give a file, or a name such as md17/ethanol.")
    dataset = read(
        config.data,
        energy_unit=config.energy_unit,
        length_unit=config.length_unit,
        force_unit=config.force_unit,
        keys=config.keys or None,
    )
    if config.energies_per_atom and dataset.energies is not None:
        dataset.energies = dataset.energies * dataset.sizes
    if config.drop_outliers and not config.train_indices:
        dataset, dropped = drop_outliers(dataset)
        _say_dropped(dropped)
    return dataset


def resolve_sizes(config: TrainConfig, count: int) -> TrainConfig:
    """Fill in sizes that were not given: 800 + 200 where there is enough data, and up to 1000 to test on."""
    if config.train_indices:
        return config
    train, val = config.train, config.val
    if train is None and val is None:
        points = min(1000, count * 9 // 10)
        val = max(1, points // (config.folds or VALIDATION_SHARE.get(config.recipe, 5)))
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
            f"`train` {train} and `val` {val} are {train + val} structures, but the data has only {count}. "
            "Choose smaller sizes."
        )
    test = min(1000, count - train - val) if config.test is None else config.test
    if train + val + test > count:
        raise GeomAttError(
            f"`train` {train}, `val` {val} and `test` {test} are {train + val + test} structures, "
            f"but the data has only {count}. Choose smaller sizes."
        )
    return config.replace(train=train, val=val, test=test)


def resolve_inputs(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """With charges and unpaired electrons as inputs if the data has them and the network can use them."""
    if has_electrons(dataset) and config.network.get("electrons") is False:
        return config.replace(network={**config.network, "electrons": True})
    return config


def has_electrons(dataset: Dataset) -> bool:
    """True if a structure is charged or has unpaired electrons."""
    charged = dataset.charges is not None and bool(np.any(dataset.charges != 0))
    return charged or (dataset.multiplicities is not None and bool(np.any(dataset.multiplicities > 1)))


def unwanted(config: TrainConfig, dataset: Dataset) -> list[int]:
    """Structures that index files may name and that are to be left out."""
    from geomatt.data.outliers import find_outliers

    if not (config.drop_outliers and config.train_indices):
        return []
    outliers = find_outliers(dataset)
    _say_dropped(outliers)
    return list(outliers)


def make_splits(config: TrainConfig, count: int, leave_out: Sequence[int] = ()) -> list[Split]:
    """The split of every member, for a configuration with resolved sizes.

    `leave_out`: structures that index files may name, from `unwanted`.
    """
    from geomatt.data import splits

    if config.train_indices and config.val_indices:
        split = splits.split_from_files(
            config.train_indices, config.val_indices, config.test_indices, n=count
        )
        return [split.without(leave_out)] * config.member_count
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


def _say_dropped(outliers: Mapping[int, str]) -> None:
    """A warning that names what is left out."""
    if not outliers:
        return
    named = "; ".join(f"{index}: {reason}" for index, reason in list(outliers.items())[:NAMED])
    more = f"; and {len(outliers) - NAMED} more" if len(outliers) > NAMED else ""
    warnings.warn(f"{len(outliers)} outliers are left out ({named}{more}).", stacklevel=3)


def _spread_out(indices: np.ndarray, count: int | None) -> np.ndarray:
    """`count` of the indices, evenly spread; all of them without a count."""
    if count is None or count >= len(indices):
        return indices
    return indices[np.arange(count) * len(indices) // max(1, count)]


def report_unit_of(dataset: Dataset, config: TrainConfig) -> str:
    """Energy unit of reports: the `report_unit` setting, else the unit of the data."""
    from geomatt.data.io.readers import report_unit

    return energy_unit(config.report_unit or report_unit(dataset))


def check_data(dataset: Dataset, split: Split, config: TrainConfig) -> None:
    """Raise an error for data that cannot be trained on; nothing is dropped silently."""
    if dataset.energies is None:
        raise GeomAttError(
            "The data has no energies, so there is nothing to train on. Was a key mapped wrongly?"
        )
    if not dataset.has_forces.any() and not config.energy_only:
        raise GeomAttError(
            "The data has no forces. If they are in the file under another name, map it with "
            "`keys` forces=NAME; to train on energies alone, set `energy_only`."
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
        network = fresh_network(config, tuple(seen.elements), seed=0)
        if network.radius is None:
            raise GeomAttError(
                "The data is periodic, but in this model all pairs of atoms interact, at any distance. "
                f"{network.periodic_hint}If the cell is only a box around a molecule, set pbc to False."
            )
    if has_electrons(seen) and not config.network.get("electrons"):
        warnings.warn(
            "The data has total charges or unpaired electrons, which this network does not use: structures "
            "that differ by them alone look the same to it.",
            stacklevel=4,
        )
    owner, every = np.repeat(np.arange(len(seen)), seen.sizes), np.arange(len(seen))
    unlabelled = _without_forces(seen)[owner]  # forces of a whole structure may be missing
    for label, values, rows in (
        ("positions", seen.positions, owner),
        ("energies", seen.energies, every),
        ("forces", None if config.energy_only else seen.forces, owner),
        ("weights", seen.weights, every),
    ):
        if values is None:
            continue
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(1)
        if label == "forces":
            bad &= ~unlabelled
        if bad.any():
            number = np.concatenate([split.train, split.validation])[rows[bad][0]]
            raise GeomAttError(
                f"The data has {label} that are not finite numbers (first in structure {number}). "
                "Drop those structures."
            )


def _without_forces(data: Dataset) -> np.ndarray:
    """True for structures none of whose forces are known, (n,)."""
    if data.forces is None:
        return np.ones(len(data), dtype=bool)
    unknown: np.ndarray = np.add.reduceat((~np.isnan(data.forces)).sum(1), data.offsets[:-1]) == 0
    return unknown
