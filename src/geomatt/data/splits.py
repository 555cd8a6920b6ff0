"""Division of a data set into training, validation and test structures."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geomatt.errors import GeomAttError
from geomatt.settings import typed

KINDS = ("random", "blocked")
_LARGEST = 10**7  # structures in a stored split
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Split:
    """Indices of the training, validation and test structures, each ascending and unique."""

    train: np.ndarray  # int64
    validation: np.ndarray
    test: np.ndarray
    kind: str = "given"  # random, blocked, files, given (indices of the caller)
    seed: int | None = None

    def __post_init__(self) -> None:
        for role in ("train", "validation", "test"):
            indices = np.asarray(getattr(self, role))
            if indices.size and indices.dtype.kind not in "iu":
                raise GeomAttError(f"The {role} indices are not integers.")
            ordered = np.sort(indices.astype(np.int64).reshape(-1))
            if len(ordered) and ordered[0] < 0:
                raise GeomAttError(f"The {role} indices contain {ordered[0]}; indices count from 0.")
            if (repeats := ordered[1:][np.diff(ordered) == 0]).size:
                raise GeomAttError(f"The {role} indices contain {repeats[0]} more than once.")
            object.__setattr__(self, role, ordered)
        for a, b in (("train", "validation"), ("train", "test"), ("validation", "test")):
            shared = np.intersect1d(getattr(self, a), getattr(self, b), assume_unique=True)
            if shared.size:
                raise GeomAttError(
                    f"{len(shared)} structure(s) are in both {a} and {b} (first: {shared[0]}). "
                    "A structure may be in one set only."
                )

    def check(self, n: int) -> Split:
        """Return self if every index exists in a data set of n structures, otherwise raise an error."""
        for role in ("train", "validation", "test"):
            indices = getattr(self, role)
            if len(indices) and indices[-1] >= n:
                raise GeomAttError(
                    f"The {role} indices contain {indices[-1]}, but the data has {n} structures "
                    f"(0 to {n - 1}). Check that the indices belong to this file."
                )
        return self

    def without(self, indices: Sequence[int]) -> Split:
        """The same split without some structures."""
        train, validation, test = (np.setdiff1d(a, indices) for a in (self.train, self.validation, self.test))
        return dataclasses.replace(self, train=train, validation=validation, test=test)

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for JSON, with indices as text such as ``0-7,9,12-20``."""
        roles = {role: _to_text(getattr(self, role)) for role in ("train", "validation", "test")}
        return {"kind": self.kind, "seed": self.seed, **roles}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Split:
        """The inverse of `to_dict`."""
        try:
            roles = {role: _from_text(stored[role]) for role in ("train", "validation", "test")}
            return cls(**roles, kind=str(stored["kind"]), seed=stored["seed"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GeomAttError(f"This is not a stored split: {error}.") from error


def random_split(n: int, train: int, validation: int, test: int | None = None, seed: int = 0) -> Split:
    """Draw the sets at random; if ``test`` is None, all remaining structures are the test set.

    Consecutive frames of a trajectory are correlated, so a random split of a densely sampled trajectory
    measures interpolation. `blocked_split` is the stricter test.
    """
    _check_sizes(n, train, validation, test, seed)
    order = np.random.default_rng(seed).permutation(n)
    rest = order[train + validation :]
    return Split(order[:train], order[train : train + validation], rest[:test], "random", seed)


def blocked_split(
    n: int, train: int, validation: int, test: int | None = None, seed: int = 0, blocks: int = 10
) -> Split:
    """Assign runs of consecutive frames to each set, so that correlated frames mostly share a set.

    The trajectory is cut into ``blocks`` periods, and each period into a training, a validation and a test
    run; the seed shifts the whole pattern in time. If ``test`` is None, all remaining frames are the test
    set, otherwise ``test`` of them, evenly spaced.
    """
    _check_sizes(n, train, validation, test, seed)
    if typed("blocks", blocks, int) < 1:
        raise GeomAttError(f"A blocked split needs at least one block, not {blocks}.")
    # Every non-empty set needs at least one frame in each period.
    blocks = max(1, min([blocks, *(size for size in (train, validation) if size)]))
    lengths = [_parts(size, blocks) for size in (train, validation, n - train - validation)]
    roles = np.concatenate(
        [np.repeat([0, 1, 2], [lengths[role][block] for role in range(3)]) for block in range(blocks)]
    )
    roles = np.roll(roles, np.random.default_rng(seed).integers(max(n, 1)))
    rest = np.flatnonzero(roles == 2)
    if test is not None:
        rest = rest[np.arange(test) * len(rest) // test] if test else _NONE
    return Split(np.flatnonzero(roles == 0), np.flatnonzero(roles == 1), rest, "blocked", seed)


def fold_splits(n: int, points: int, folds: int, seed: int = 0, kind: str = "random") -> list[Split]:
    """Splits for cross-validation on ``points`` of n structures; all other structures are the test set.

    1000 points in 5 folds give five splits with 800 structures for training and 200 for validation.
    """
    if kind not in KINDS:
        raise GeomAttError(f"Unknown kind of split {kind!r}. Use one of: {', '.join(KINDS)}.")
    if typed("folds", folds, int) < 2:
        raise GeomAttError(f"The number of folds must be at least 2, not {folds}.")
    if typed("points", points, int) < folds:
        raise GeomAttError(f"{points} structures cannot be divided into {folds} folds.")
    if kind == "random":
        _check_sizes(n, points, 0, None, seed)
        order = np.random.default_rng(seed).permutation(n)
        chosen, test = order[:points], order[points:]
    else:
        whole = blocked_split(n, points, 0, None, seed)
        chosen, test = whole.train, whole.test  # in time order, so that a fold is a contiguous run
    parts = np.array_split(chosen, folds)
    return [
        Split(np.concatenate(parts[:k] + parts[k + 1 :]), parts[k], test, kind, seed) for k in range(folds)
    ]


def split_from_files(
    train: str | Path, validation: str | Path | None = None, test: str | Path | None = None, *, n: int
) -> Split:
    """A split from text files of row numbers (from 0), such as the official splits of rMD17.

    ``n`` is the number of structures in the data set.
    """
    roles = [_NONE if file is None else _read_indices(Path(file)) for file in (train, validation, test)]
    return Split(roles[0], roles[1], roles[2], "files").check(n)


def split_in_order(train: int, validation: int, test: int = 0) -> Split:
    """The first structures train, the next validate, the last test: for separate files, concatenated."""
    index = np.arange(train + validation + test)
    return Split(index[:train], index[train : train + validation], index[train + validation :], "files")


def _check_sizes(n: int, train: int, validation: int, test: int | None, seed: int) -> None:
    if not isinstance(n, int | np.integer):
        raise GeomAttError(f"The number of structures comes first, such as len(data), not {n!r:.80}.")
    if typed("seed", seed, int) < 0:
        raise GeomAttError(f"`seed` must not be negative, but is {seed}.")
    for name, size in (("train", train), ("validation", validation), ("test", test or 0)):
        if not isinstance(size, int | np.integer):
            raise GeomAttError(f"The {name} size is {size!r}; sizes are whole numbers.")
        if size < 0:
            raise GeomAttError(f"The {name} size is {size}; sizes cannot be negative.")
    if train == 0:
        raise GeomAttError("The train size is 0; at least one training structure is needed.")
    wanted = train + validation + (test or 0)
    if wanted > n:
        raise GeomAttError(
            f"The data has {n} structures, but train + validation{' + test' if test else ''} ask for "
            f"{wanted}. Ask for fewer."
        )


def _parts(size: int, parts: int) -> list[int]:
    """Divide ``size`` into nearly equal integer parts."""
    return [size * (k + 1) // parts - size * k // parts for k in range(parts)]


def _read_indices(path: Path) -> np.ndarray:
    try:
        words = re.split(r"[\s,;]+", path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise GeomAttError(f"Cannot read the indices in {path}: {error}.") from error
    if words == [""]:
        raise GeomAttError(f"{path} is empty; it should contain row numbers, one per line.")
    try:
        return np.array([int(word) for word in words], dtype=np.int64)
    except (ValueError, OverflowError):
        wrong = next(word for word in words if not re.fullmatch(r"[+-]?\d{1,18}", word))
        raise GeomAttError(
            f"{path} should contain row numbers, one per line, but contains {wrong!r}."
        ) from None


def _to_text(indices: np.ndarray) -> str:
    runs = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1) if len(indices) else []
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _from_text(text: str) -> np.ndarray:
    if not text:
        return _NONE
    ends = [[int(word) for word in run.split("-")] for run in text.split(",")]
    if sum(end[-1] + 1 - end[0] for end in ends) > _LARGEST or max(end[-1] for end in ends) >= 2**62:
        raise ValueError(f"it claims more than {_LARGEST:,} structures")
    return np.concatenate([np.arange(end[0], end[-1] + 1, dtype=np.int64) for end in ends])
