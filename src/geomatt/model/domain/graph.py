"""Bond graphs: how many bonds lie between atoms, which pairs of atoms are equivalent, and matching graphs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse.csgraph import shortest_path

UNCONNECTED = -1
_TRIES = 100_000  # assignments tried before two graphs are called different


def separations(bonded: np.ndarray) -> np.ndarray:
    """Number of bonds (N, N) on the shortest path between atoms; `UNCONNECTED` where there is none."""
    if not len(bonded):
        return np.zeros((0, 0), dtype=np.int64)
    length = shortest_path(bonded.astype(np.float64), unweighted=True, directed=False)
    return np.where(np.isfinite(length), length, UNCONNECTED).astype(np.int64)


def pair_classes(numbers: np.ndarray, bonded: np.ndarray) -> np.ndarray:
    """Class (N, N) of every unordered pair of atoms, from 0 along the upper triangle; −1 on the diagonal.

    Pairs that a symmetry of the bond graph exchanges have the same class.
    """
    colour = _refined(numbers, bonded)
    size = int(colour.max(initial=0)) + 1
    mirrored = np.zeros(size, dtype=np.int64)
    mirrored[colour] = colour.T  # the colour of (j, i) is a function of that of (i, j)
    colour = np.minimum(colour, mirrored[colour])
    upper = np.triu_indices(len(numbers), 1)
    _, first, group = np.unique(colour[upper], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    classes = np.full(colour.shape, -1, dtype=np.int64)
    classes[upper] = order[group.reshape(-1)]
    return np.maximum(classes, classes.T)


def match(
    numbers: np.ndarray, bonded: np.ndarray, other_numbers: np.ndarray, other_bonded: np.ndarray
) -> np.ndarray | None:
    """For each atom the atom of the other graph it corresponds to (N,), or None if the graphs differ.

    Where symmetry leaves a choice, any correspondence that keeps all bonds may be returned.
    """
    size = len(numbers)
    if sorted(numbers) != sorted(other_numbers):
        return None
    if np.array_equal(numbers, other_numbers) and np.array_equal(bonded, other_bonded):
        return np.arange(size)
    both = np.zeros((2 * size, 2 * size), dtype=bool)
    both[:size, :size], both[size:, size:] = bonded, other_bonded
    colour = _refined(np.concatenate([numbers, other_numbers]), both)
    return _assignment(colour[:size, :size], colour[size:, size:])


def _refined(numbers: np.ndarray, bonded: np.ndarray) -> np.ndarray:
    """Stable colours (N, N) of ordered pairs: two-dimensional Weisfeiler–Leman refinement.

    The colour of (i, j) becomes its old one with the multiset over m of the colours of (i, m) and (m, j).
    The multiset is identified by Σ_m a(i, m) b(m, j) modulo 2⁶⁴ with random numbers a, b for the colours.
    """
    size = len(numbers)
    same = np.eye(size, dtype=np.int64)
    first, second = np.broadcast_arrays(numbers[:, None], numbers[None])
    colour = _relabelled(np.stack([first, second, bonded.astype(np.int64), same], -1))
    random = np.random.default_rng(0)
    while True:
        count = int(colour.max(initial=-1)) + 1
        a, b = random.integers(0, 2**64, size=(2, max(count, 1)), dtype=np.uint64)
        product = (a[colour] @ b[colour]).view(np.int64)
        refined = _relabelled(np.stack([colour, product], -1))
        if int(refined.max(initial=-1)) + 1 == count:
            return colour
        colour = refined


def _relabelled(keys: np.ndarray) -> np.ndarray:
    """Numbers from 0 for the distinct rows along the last axis."""
    flat = keys.reshape(-1, keys.shape[-1])
    _, label = np.unique(flat, axis=0, return_inverse=True)
    return label.reshape(keys.shape[:-1]).astype(np.int64)


def _assignment(colour: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """A permutation p with colour[i, k] = other[p(i), p(k)] for all pairs, by depth-first search."""
    size = len(colour)
    if not np.array_equal(np.sort(np.diagonal(colour)), np.sort(np.diagonal(other))):
        return None
    chosen = np.full(size, -1, dtype=np.int64)
    taken = np.zeros(size, dtype=bool)

    def candidates(i: int) -> Iterator[int]:
        fits = ~taken & (np.diagonal(other) == colour[i, i])
        fits &= (other[:, chosen[:i]] == colour[i, :i]).all(1)
        return iter(np.flatnonzero(fits).tolist())

    stack: list[Iterator[int]] = [candidates(0)] if size else []
    for _ in range(_TRIES):
        depth = len(stack) - 1
        if depth < 0:
            return chosen if not size else None
        if chosen[depth] >= 0:
            taken[chosen[depth]] = False
        chosen[depth] = next(stack[-1], -1)
        if chosen[depth] < 0:
            stack.pop()
            continue
        taken[chosen[depth]] = True
        if depth + 1 == size:
            return chosen
        stack.append(candidates(depth + 1))
    return None
