"""A projection of a molecule in which few atoms cover others."""

from __future__ import annotations

import numpy as np

VIEWS = 200


def flat_view(positions: np.ndarray) -> np.ndarray:
    """Positions (N, 3) rotated so that atoms are well apart in the first two coordinates."""
    return (positions - positions.mean(0)) @ flat_rotation(positions)


def flat_rotation(positions: np.ndarray) -> np.ndarray:
    """The rotation (3, 3) of `flat_view`, which row vectors are multiplied with.

    Tries a fixed set of rotations of the principal axes, so that the result is reproducible.
    """
    centred = positions - positions.mean(0)
    axes = np.linalg.svd(centred, full_matrices=True)[2]
    if np.linalg.det(axes) < 0:
        axes[2] *= -1.0  # a rotation, not a reflection, which would change the handedness
    turns = axes.T @ _turns()  # (views, 3, 3)
    flat = (centred @ turns)[..., :2]
    between = np.square(flat[:, :, None] - flat[:, None]).sum(-1)  # (views, N, N)
    pairs = np.triu_indices(len(positions), 1)
    crowding = (1.0 / (between[:, pairs[0], pairs[1]] + 0.05) ** 2).sum(-1)
    chosen = int(np.argmin(crowding))
    best: np.ndarray = turns[chosen]
    # The longer side is horizontal.
    if len(positions) > 1:
        plane = np.linalg.svd(flat[chosen] - flat[chosen].mean(0), full_matrices=True)[2]
        if np.linalg.det(plane) < 0:
            plane[1] *= -1.0
        best = np.column_stack([best[:, :2] @ plane.T, best[:, 2]])
    return best


def _turns() -> np.ndarray:
    """The identity and rotations by up to 60 degrees about random axes, (VIEWS, 3, 3)."""
    rng = np.random.default_rng(0)
    axis = rng.normal(size=(VIEWS, 3))
    axis /= np.linalg.norm(axis, axis=-1, keepdims=True)
    angle = rng.uniform(0.0, np.pi / 3, VIEWS)
    angle[0] = 0.0
    zero = np.zeros(VIEWS)
    x, y, z = axis.T
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(VIEWS, 3, 3)
    sine, cosine = np.sin(angle)[:, None, None], np.cos(angle)[:, None, None]
    return np.eye(3) + sine * cross + (1.0 - cosine) * (cross @ cross)
