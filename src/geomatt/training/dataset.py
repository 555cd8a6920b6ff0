"""The data of a run: reading, sizes, splits, and what must hold before training starts."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from geomatt.data.dataset import Dataset
from geomatt.data.mapped import MappedDataset, excerpt
from geomatt.elements import symbols
from geomatt.errors import GeomAttError
from geomatt.model.registry import network_config
from geomatt.training.config import TrainConfig
from geomatt.training.recipes import validation_share
from geomatt.training.start import fresh_network, refuse_unknown
from geomatt.units import energy_unit

if TYPE_CHECKING:
    from geomatt.data.splits import Split
    from geomatt.model import Potential

NAMED = 5  # outliers that are named in a warning


class Parts(NamedTuple):
    """Numbers of structures in `data`, `val_data` and `test_data`, which are joined in this order."""

    data: int
    validation: int = 0
    test: int = 0


def load_dataset(config: TrainConfig) -> tuple[Dataset, Parts]:
    """The data a configuration names, without its outliers if these are to be dropped.

    Index files count all structures, so outliers stay in the data then: see `unwanted`.
    """
    from geomatt.data.joining import concatenate
    from geomatt.data.outliers import drop_outliers

    if not config.data:
        raise GeomAttError("Which data? Give a file, or a name such as md17/ethanol.")
    files = ((config.data, *config.more_data), config.val_data, config.test_data)
    several = sum(map(len, files)) > 1
    parts = [[_read(name, config, several) for name in names] for names in files]
    every = [dataset for part in parts for dataset in part]
    theories = dict.fromkeys(d.origin["theory"] for d in every if d.origin.get("theory"))
    if len(theories) > 1:
        warnings.warn(
            f"The files state different theories ({'; '.join(theories)}): their energies may have "
            "different zeros, which no model can learn.",
            stacklevel=2,
        )
    dataset, sizes = concatenate(every), [sum(map(len, part)) for part in parts]
    if config.drop_outliers and isinstance(dataset, MappedDataset):
        raise GeomAttError(
            "Outliers of memory-mapped data cannot be dropped while training: leave `drop_outliers` out."
        )
    if several:
        _warn_of_repeats(parts)
    if config.drop_outliers and not config.train_indices:
        ends = np.cumsum(sizes)
        dataset, dropped = drop_outliers(dataset)
        _say_dropped(dropped)
        for index in dropped:
            sizes[int(np.searchsorted(ends, index, side="right"))] -= 1
    return dataset, Parts(*sizes)


def _read(name: str, config: TrainConfig, several: bool) -> Dataset:
    from geomatt.data.io.readers import read

    found = read(
        name,
        energy_unit=config.energy_unit,
        length_unit=config.length_unit,
        force_unit=config.force_unit,
        keys=config.keys or None,
    )
    if several and "in place of" in found.origin.get("units_known", ""):
        raise GeomAttError(
            f"{name}: units {found.origin['units_known']}. A unit that is given holds for all files: "
            "leave it out, or convert the files that do not state theirs with geomatt data convert."
        )
    if config.energies_per_atom and found.energies is not None:
        found.energies = found.energies * found.sizes
    return found


def _warn_of_repeats(parts: Sequence[Sequence[Dataset]]) -> None:
    """Warn of structures of the validation or test files that are in files before them."""
    known: set[str] = set()
    for name, part in zip(("", "validation", "test"), parts, strict=True):
        hashes = [h for dataset in part for h in dataset.frame_hashes()]
        again = sum(h in known for h in hashes)
        if again:
            warnings.warn(
                f"{again} of {len(hashes)} {name} structures are in the other files too, so they say little "
                "about the error on new structures.",
                stacklevel=3,
            )
        known.update(hashes)


def resolve_sizes(config: TrainConfig, count: int) -> TrainConfig:
    """Fill in sizes that were not given: 1000 in all where there is enough data, and up to 1000 to test on.

    `count` structures are in `data`; all of them train if there are files to validate on.
    """
    if config.train_indices:
        return config
    train, val = config.train, config.val
    if config.val_data:
        train, val = count if train is None else train, 0
    elif train is None and val is None:
        points = min(1000, count * 9 // 10)
        val = max(1, points // (config.folds or validation_share(config.recipe)))
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
    test = config.test
    if test is None:
        test = 0 if config.test_data else min(1000, count - train - val)
    if train + val + test > count:
        raise GeomAttError(
            f"`train` {train}, `val` {val} and `test` {test} are {train + val + test} structures, "
            f"but the data has only {count}. Choose smaller sizes."
        )
    return config.replace(train=train, val=val or None, test=test)


def resolve_inputs(
    config: TrainConfig, dataset: Dataset, tell: Callable[[str], object] = lambda note: None
) -> TrainConfig:
    """The settings, with those of the network that the data asks for; `tell` gets a sentence about each.

    Charges and unpaired electrons become inputs, and periodic data gets a radius, if the network has them.
    """
    periodic = dataset.pbc is not None and bool(dataset.pbc.any())
    kind = network_config(config.model)
    found = kind.for_data(config.network, periodic=periodic, electrons=has_electrons(dataset))
    if not found:
        return config
    for item in found.values():
        tell(item.note)
    return config.replace(network={**config.network, **{name: item.value for name, item in found.items()}})


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


def make_splits(config: TrainConfig, parts: Parts | int, leave_out: Sequence[int] = ()) -> list[Split]:
    """The split of every member, for a configuration with resolved sizes.

    `leave_out`: structures that index files may name, from `unwanted`.
    """
    from geomatt.data import splits

    parts = Parts(parts) if isinstance(parts, int) else parts
    if config.train_indices and config.val_indices:
        split = splits.split_from_files(
            config.train_indices, config.val_indices, config.test_indices, n=parts.data
        )
        return [split.without(leave_out)] * config.member_count
    assert config.train is not None
    if config.val_data and config.train == parts.data:
        return [splits.split_in_order(*parts)] * config.member_count
    validation = config.val or 0
    if config.folds:
        folds = splits.fold_splits(
            parts.data, config.train + validation, config.folds, seed=config.split_seed, kind=config.split
        )
        made = [dataclasses.replace(fold, test=_spread_out(fold.test, config.test)) for fold in folds]
    else:
        maker = splits.random_split if config.split == "random" else splits.blocked_split
        split = maker(parts.data, config.train, validation, config.test, seed=config.split_seed)
        made = [split] * config.member_count
    own = parts.data + np.arange(parts.validation + parts.test)  # of the files that validate and test
    return [
        dataclasses.replace(
            split,
            validation=np.concatenate([split.validation, own[: parts.validation]]),
            test=np.concatenate([split.test, own[parts.validation :]]),
        )
        for split in made
    ]


def elements_of(dataset: Dataset, split: Split) -> list[int]:
    """Elements of the structures that train and validate; those of all structures if the data is mapped."""
    if isinstance(dataset, MappedDataset):
        return dataset.elements
    return dataset.select(np.concatenate([split.train, split.validation])).elements


def check_tests(dataset: Dataset, splits: Sequence[Split], base: Potential | None = None) -> None:
    """Raise an error if structures to test on have elements that the model will not know."""
    for split in splits:
        known = set(base.elements if base else elements_of(dataset, split))
        unknown = set(dataset.select(split.test).elements) - known if len(split.test) else set()
        if base is not None:
            refuse_unknown(base, elements_of(dataset, split))
        if unknown:
            raise GeomAttError(
                f"Structures to test on contain {', '.join(symbols(sorted(unknown)))}, which no training "
                "structure has. Leave them out, or add such structures to the training data."
            )


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
        if dataset.weights is not None and not dataset.weights[part].any():
            raise GeomAttError(f"All structures of the {name} set have weight 0. Give some of them another.")
    shared = np.intersect1d(split.train, split.validation)
    if len(shared):
        raise GeomAttError(
            f"{len(shared)} structures are in the training and in the validation set (first: {shared[0]})."
        )
    looked_at = excerpt(dataset, np.concatenate([split.train, split.validation]))
    seen = dataset.select(looked_at)
    periodic, electrons = seen.pbc is not None and bool(np.any(seen.pbc)), has_electrons(seen)
    if periodic or electrons:
        network = fresh_network(config, tuple(seen.elements), seed=0)
        if periodic and network.radius is None:
            raise GeomAttError(
                "The data is periodic, but in this model all pairs of atoms interact, at any distance. "
                f"{network.periodic_hint}If the cell is only a box around a molecule, set pbc to False."
            )
        if electrons and not network.uses_electrons:
            warnings.warn(
                "The data has total charges or unpaired electrons, which this network does not use: "
                "structures that differ by them alone look the same to it.",
                stacklevel=4,
            )
    owner, every = np.repeat(np.arange(len(seen)), seen.sizes), np.arange(len(seen))
    unlabelled = seen.lacks_forces[owner]  # forces of a whole structure may be missing
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
            number = looked_at[rows[bad][0]]
            raise GeomAttError(
                f"The data has {label} that are not finite numbers (first in structure {number}). "
                "Drop those structures."
            )
