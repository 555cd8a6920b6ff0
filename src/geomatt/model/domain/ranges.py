"""The shortest and longest distances the training frames show, by pair of atoms or by elements and bonds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from geomatt.data.bonds import bonded
from geomatt.elements import SYMBOLS, formula
from geomatt.errors import GeomAttError
from geomatt.model.domain.graph import UNCONNECTED, match, pair_classes, separations

# "local": both ends up to three bonds apart; beyond that, and between molecules, only the lower end of pairs
# that come close. "all": both ends of all pairs, which also forbids conformers the frames do not show.
Pairs = Literal["local", "all"]
CONTACT = 3.5  # Å, a shortest distance below which atoms further apart than three bonds come close
DIGITS = 4  # distances in files, in decimals of an Å
DISTORTED = 0.5  # Å outside its range that a pair of a training molecule may be before it is another one


@dataclass(frozen=True)
class PairLimits:
    """The range of every pair of atoms of one structure, in Å; −inf and inf where there is no limit."""

    lower: np.ndarray  # (N, N)
    upper: np.ndarray  # (N, N)
    note: str = ""  # why there are no limits, or what they leave out

    @property
    def exist(self) -> bool:
        return bool(np.isfinite(self.lower).any())

    @classmethod
    def none(cls, atoms: int, note: str) -> PairLimits:
        return cls(np.full((atoms, atoms), -np.inf), np.full((atoms, atoms), np.inf), note)

    def local(self, linked: np.ndarray) -> PairLimits:
        """Without the limits of `Pairs` that are not "local", for atoms with these bonds (N, N)."""
        bonds = separations(linked)
        far = (bonds == UNCONNECTED) | (bonds > 3)
        lower = np.where(far & (self.lower >= CONTACT), -np.inf, self.lower)
        return PairLimits(lower, np.where(far, np.inf, self.upper), self.note)


@dataclass(frozen=True)
class Bonds:
    """Covalent bonds and their mean lengths in the training frames."""

    pairs: np.ndarray  # (b, 2)
    lengths: np.ndarray  # (b,) Å


class Ranges(ABC):
    """Ranges of distances in the training frames, which a model file carries as a plain dict."""

    kind: ClassVar[str]
    frames: int

    @abstractmethod
    def limits(self, numbers: np.ndarray, distance: np.ndarray, pairs: Pairs = "local") -> PairLimits:
        """The range of every pair of a structure, whose bonds are those of these distances (N, N)."""

    @abstractmethod
    def known_pairs(self) -> set[PairKey]:
        """Elements and separations of the pairs in the training frames."""

    @abstractmethod
    def bonds(self, numbers: np.ndarray, distance: np.ndarray) -> Bonds:
        """The bonds of a structure with their mean lengths in the training frames."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Ranges:
        """From `to_dict`."""
        kinds: dict[str, Any] = {kind.kind: kind for kind in (MoleculeRanges, ElementRanges)}
        try:
            return kinds[values["kind"]].read(values)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise GeomAttError(
                f"The ranges of distances cannot be read ({type(error).__name__}: {error}). "
                "Use a fresh copy of the file."
            ) from error


@dataclass(frozen=True)
class MoleculeRanges(Ranges):
    """Ranges of one molecule: one for every class of equivalent pairs of its bond graph."""

    kind = "molecule"

    numbers: np.ndarray  # (N,)
    bonded: np.ndarray  # (N, N) bool
    classes: np.ndarray  # (N, N) class of each pair, −1 on the diagonal
    shortest: np.ndarray  # (classes,) Å
    longest: np.ndarray  # (classes,) Å
    mean: np.ndarray  # (classes,) Å
    frames: int

    def order(self, numbers: np.ndarray, distance: np.ndarray) -> np.ndarray | None:
        """The atom of the training molecule (N,) that each atom is, by bonds; None for another molecule.

        Atoms in the order of the training frames may have bonds stretched or squeezed by up to `DISTORTED`.
        """
        if len(numbers) != len(self.numbers):
            return None
        found = match(numbers, bonded(numbers, distance), self.numbers, self.bonded)
        if found is None and np.array_equal(numbers, self.numbers):
            pair = np.triu_indices(len(numbers), 1)
            group, length = self.classes[pair], distance[pair]
            excess = np.maximum(self.shortest[group] - length, length - self.longest[group])
            if excess.max(initial=0.0) <= DISTORTED:
                return np.arange(len(numbers))
        return found

    def limits(self, numbers: np.ndarray, distance: np.ndarray, pairs: Pairs = "local") -> PairLimits:
        order = self.order(numbers, distance)
        if order is None:
            own, known = formula(numbers), formula(self.numbers)
            what = f"{own} is not the molecule of the training data, {known}"
            if own == known and not bonded(numbers, distance).any():
                what = f"This {own} has no bonds (is the unit of its positions, `length_unit`, right?)"
            elif own == known:
                what = f"This {own} has other bonds than the molecule of the training data"
            return PairLimits.none(len(numbers), f"{what}: ranges of its distances are not known.")
        pair = self.classes[np.ix_(order, order)]
        found = PairLimits.none(len(numbers), "")
        found.lower[pair >= 0] = self.shortest[pair[pair >= 0]]
        found.upper[pair >= 0] = self.longest[pair[pair >= 0]]
        return found if pairs == "all" else found.local(self.bonded[np.ix_(order, order)])

    def known_pairs(self) -> set[PairKey]:
        return pairs_of(self.numbers, self.bonded)

    def bonds(self, numbers: np.ndarray, distance: np.ndarray) -> Bonds:
        order = self.order(numbers, distance)
        if order is None:
            return Bonds(np.zeros((0, 2), dtype=np.int64), np.zeros(0))
        pairs = np.argwhere(np.triu(self.bonded[np.ix_(order, order)]))
        return Bonds(pairs, self.mean[self.classes[order[pairs[:, 0]], order[pairs[:, 1]]]])

    def to_dict(self) -> dict[str, Any]:
        # The classes follow from the bonds, but the meaning of a file must not depend on our algorithm.
        upper = np.triu_indices(len(self.numbers), 1)
        return {
            "kind": self.kind,
            "frames": self.frames,
            "numbers": self.numbers.tolist(),
            "bonds": np.argwhere(np.triu(self.bonded)).tolist(),
            "classes": self.classes[upper].tolist(),
            "shortest": _rounded(self.shortest, np.floor),
            "longest": _rounded(self.longest, np.ceil),
            "mean": _rounded(self.mean, np.rint),
        }

    @classmethod
    def read(cls, values: dict[str, Any]) -> MoleculeRanges:
        numbers = np.array(values["numbers"], dtype=np.int64)
        size = len(numbers)
        linked = np.zeros((size, size), dtype=bool)
        for i, j in values["bonds"]:
            linked[i, j] = linked[j, i] = True
        classes = np.full((size, size), -1, dtype=np.int64)
        upper = np.triu_indices(size, 1)
        classes[upper] = np.array(values["classes"], dtype=np.int64)
        least, most, mean = (np.array(values[k], dtype=np.float64) for k in ("shortest", "longest", "mean"))
        count = int(classes.max(initial=-1)) + 1
        if {len(least), len(most), len(mean)} != {count} or (classes[upper] < 0).any():
            raise ValueError("classes and distances do not fit")
        symmetric = np.maximum(classes, classes.T)
        return cls(numbers, linked, symmetric, least, most, mean, int(values["frames"]))

    @classmethod
    def of(
        cls, numbers: np.ndarray, least: np.ndarray, most: np.ndarray, mean: np.ndarray, frames: int
    ) -> MoleculeRanges:
        """From the least, largest and mean distances (N, N) of each pair, shared by equivalent pairs."""
        linked = bonded(numbers, mean)
        classes = pair_classes(numbers, linked)
        upper = np.triu_indices(len(numbers), 1)
        group, count = classes[upper], int(classes.max(initial=-1)) + 1
        shortest, longest = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(shortest, group, least[upper])
        np.maximum.at(longest, group, most[upper])
        average = np.bincount(group, mean[upper], count) / np.maximum(np.bincount(group, minlength=count), 1)
        return cls(numbers, linked, classes, shortest, longest, average, frames)


PairKey = tuple[int, int, int]  # two atomic numbers, ascending, and the separation as `separation_key` has it
OTHER_MOLECULE, MORE = 0, 4  # separations of atoms that no path connects, and of more than three bonds


def separation_key(separation: np.ndarray) -> np.ndarray:
    """1, 2 and 3 bonds as they are, `MORE` for longer paths, `OTHER_MOLECULE` for none."""
    return np.where(separation == UNCONNECTED, OTHER_MOLECULE, np.minimum(separation, MORE))


def pair_keys(numbers: np.ndarray, linked: np.ndarray) -> np.ndarray:
    """The key (N, N, 3) of every pair of atoms."""
    first, second = np.broadcast_arrays(numbers[:, None], numbers[None])
    keys = [np.minimum(first, second), np.maximum(first, second), separation_key(separations(linked))]
    return np.stack(keys, -1)


def pairs_of(numbers: np.ndarray, linked: np.ndarray) -> set[PairKey]:
    """The keys of all pairs of a structure."""
    upper = np.triu_indices(len(numbers), 1)
    return {(int(a), int(b), int(s)) for a, b, s in np.unique(pair_keys(numbers, linked)[upper], axis=0)}


@dataclass(frozen=True)
class ElementRanges(Ranges):
    """Ranges of several molecules, by the elements of a pair and the number of bonds between them.

    Up to three bonds apart, distances have a shortest and a longest value. Further apart, and between
    molecules, only the shortest is meaningful: the longest grows with the size of the molecules.
    """

    kind = "elements"

    shortest: dict[PairKey, float]  # Å
    longest: dict[PairKey, float]  # Å, for one, two and three bonds
    mean: dict[PairKey, float]  # Å, for one bond
    frames: int

    def limits(self, numbers: np.ndarray, distance: np.ndarray, pairs: Pairs = "local") -> PairLimits:
        found = PairLimits.none(len(numbers), "")
        linked = bonded(numbers, distance)
        keys = pair_keys(numbers, linked)
        unseen = set()
        for i, j in zip(*np.triu_indices(len(numbers), 1), strict=True):
            key: PairKey = tuple(keys[i, j].tolist())
            if key not in self.shortest:
                unseen.add(key)
                continue
            found.lower[i, j] = found.lower[j, i] = self.shortest[key]
            found.upper[i, j] = found.upper[j, i] = self.longest.get(key, np.inf)
        note = ""
        if unseen:
            names = ", ".join(describe(key) for key in sorted(unseen, key=lambda k: (k[2], k)))
            note = f"The training data has no pair such as {names}."
        found = PairLimits(found.lower, found.upper, note)
        return found if pairs == "all" else found.local(linked)

    def known_pairs(self) -> set[PairKey]:
        return set(self.shortest)

    def bonds(self, numbers: np.ndarray, distance: np.ndarray) -> Bonds:
        linked = bonded(numbers, distance)
        pairs = np.argwhere(np.triu(linked))
        keys = [(*sorted(int(z) for z in numbers[pair]), 1) for pair in pairs]
        known = np.array([key in self.mean for key in keys], dtype=bool)
        lengths = [self.mean[key] for key in keys if key in self.mean]
        return Bonds(pairs[known], np.array(lengths))

    def to_dict(self) -> dict[str, Any]:
        def rows(table: dict[PairKey, float], rounding: Any) -> list[list[float]]:
            return [[*key, _rounded(np.array([table[key]]), rounding)[0]] for key in sorted(table)]

        return {
            "kind": self.kind,
            "frames": self.frames,
            "shortest": rows(self.shortest, np.floor),
            "longest": rows(self.longest, np.ceil),
            "mean": rows(self.mean, np.rint),
        }

    @classmethod
    def read(cls, values: dict[str, Any]) -> ElementRanges:
        def table(name: str) -> dict[PairKey, float]:
            return {(int(a), int(b), int(s)): float(value) for a, b, s, value in values[name]}

        return cls(table("shortest"), table("longest"), table("mean"), int(values["frames"]))


def describe(key: PairKey) -> str:
    """A key in words: 'C–H one bond apart'."""
    where = {0: "in different molecules", 1: "one bond apart", MORE: "four or more bonds apart"}
    return f"{SYMBOLS[key[0]]}–{SYMBOLS[key[1]]} {where.get(key[2], f'{key[2]} bonds apart')}"


def _rounded(values: np.ndarray, rounding: Any) -> list[float]:
    """Rounded so that a range never becomes narrower than the data."""
    scale = 10.0**DIGITS
    return [round(float(rounding(v * scale) / scale), DIGITS) for v in values]
