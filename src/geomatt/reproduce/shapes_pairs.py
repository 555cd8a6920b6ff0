"""Pairs of point clouds that share part of their geometry, as formulas.

Each pair is two clouds around atom 0 (or without a centre) with the same distances, angles or dihedrals. The
constructions are from Pozdnyakov et al., PRL 125, 166001 (2020), Pozdnyakov &
Ceriotti, Mach. Learn.: Sci. Technol. 3, 045020 (2022), Hordan et al., AAAI 38, 12511 (2024), Joshi et al.,
ICML (2023), and Uhrin, PRB 104, 144110 (2021); `global_EF6_exact` is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Cloud = np.ndarray  # (N, 3)
Point = tuple[float, float, float]
ORIGIN: Point = (0.0, 0.0, 0.0)
AXIS: tuple[Point, Point] = ((-2.0, 0.0, -2.0), (2.0, 0.0, 2.0))


@dataclass(frozen=True)
class ShapePair:
    """Two clouds and their known properties."""

    name: str
    plus: Cloud
    minus: Cloud
    kind: str  # what the two share
    expected: int | None  # lowest order of attention that separates them; None: no order does
    centred: bool = True  # compare the embedding of atom 0; else those of all atoms, sorted
    congruent: bool = False  # the same shape, rotated or mirrored

    def scaled(self, largest: float) -> tuple[Cloud, Cloud]:
        """Both clouds, scaled to the largest distance `largest`."""
        factor = largest / max(np.linalg.norm(c[:, None] - c, axis=-1).max() for c in (self.plus, self.minus))
        return factor * self.plus, factor * self.minus


def circle(degrees: Sequence[float]) -> Cloud:
    """The origin, and points on the unit circle around it."""
    angles = np.deg2rad(degrees)
    return np.vstack([ORIGIN, np.column_stack([np.cos(angles), np.sin(angles), 0.0 * angles])])


def mirrored_atom(a: tuple[float, float], b: Point, c: tuple[float, float]) -> tuple[Cloud, Cloud]:
    """The origin, a in the xz plane, b and b rotated about z, and c in the yz plane, or its mirror image.

    The reflection of c exchanges its angles with b and the rotated b and keeps that with a: distances and
    angles at the origin stay the same, dihedrals change.
    """
    fixed = [ORIGIN, (a[0], 0.0, a[1]), b, (-b[0], -b[1], b[2])]
    return np.array([*fixed, (0.0, c[0], c[1])]), np.array([*fixed, (0.0, -c[0], c[1])])


def flipped_apex(plane: Sequence[tuple[float, float]], apex: tuple[float, float]) -> tuple[Cloud, Cloud]:
    """±(2, 0, 2), points in the plane z = 0, and an apex above or below that plane (last).

    The flip exchanges the distances of the apex to ±(2, 0, 2) and keeps those to the plane: the set of all
    distances is the same. If the points in the plane have the same set of distances to both ends of the axis,
    so is the set of distances from each atom.
    """
    fixed = [*AXIS, *((x, y, 0.0) for x, y in plane)]
    return np.array([*fixed, (0.0, apex[0], apex[1])]), np.array([*fixed, (0.0, apex[0], -apex[1])])


def capped_triangles(
    degrees: Sequence[float], radius: float, height: float, twist: float | None, cap: float
) -> tuple[Cloud, Cloud]:
    """The origin, a triangle at `height`, a copy of it rotated by `twist` below, and an atom on top or below.

    With one triangle (twist None) the two clouds are mirror images. With two they are not, but any three
    neighbours with the origin occur in both.
    """
    theta = np.deg2rad(degrees)
    rings = [(theta, height)] + ([] if twist is None else [(theta + np.deg2rad(twist), -height)])
    atoms = [np.column_stack([radius * np.sin(t), np.full(len(t), y), radius * np.cos(t)]) for t, y in rings]
    fixed = np.vstack([ORIGIN, *atoms])
    return np.vstack([fixed, (0.0, cap, 0.0)]), np.vstack([fixed, (0.0, -cap, 0.0)])


def three_axes(unit: float = 1.1) -> tuple[Cloud, Cloud]:
    """Three antipodal pairs; the first is tilted in the opposite direction in the second cloud."""
    turn = np.deg2rad(72.0)
    others = [(6.0 * np.cos(turn), 6.0 * np.sin(turn), 0.0), (-3.0, 0.0, 4.0)]
    clouds = [
        unit * np.array([sign * np.array(p) for p in [first, *others] for sign in (1, -1)])
        for first in ((0.0, 1.0, 2.0), (0.0, 1.0, -2.0))
    ]
    return clouds[0], clouds[1]


def even_triangle() -> list[tuple[float, float]]:
    """Three points in the plane with the same set of distances to (2, 0, 2) and to (−2, 0, −2).

    With s = x² + y² the condition is s₁ − 4x₁ = s₂ + 4x₂ and cyclic, hence Σx = 0; x = 3/2, −3/4, −3/4 and
    s₁ = 11/2 solve it, close to the five-digit numbers in the literature.
    """
    x = (1.5, -0.75, -0.75)
    s = (5.5, 2.5, 8.5)
    return [(float(a), float(np.sqrt(b - a * a))) for a, b in zip(x, s, strict=True)]


def pairs() -> tuple[ShapePair, ...]:
    """All pairs: first those around a centre, then those without."""
    triangle = (0.0, -87.0, 176.0)  # scalene
    isosceles = np.rad2deg([np.arctan2(3.0, -4.0), 0.0, np.arctan2(-3.0, -4.0)]).tolist()
    bend = [5.0 * np.array([ORIGIN, (1.0, 0.0, 0.0), p]) for p in ((0.6, 0.0, 0.8), (-1.0, 0.0, 0.0))]
    wide, short = [(1.0, 1.0), (-1.0, -1.0)], [(1.0, 2.0), (-1.0, 2.0)]
    ab_plus, ab_minus = (cloud[[0, 1, 4, 2, 3]] for cloud in flipped_apex(wide, (1.0, 1.0)))
    rounded = [(1.47633, 1.84294), (-0.74309, 1.455), (-0.72972, 2.82605)]
    near, angles, seen = "distances", "distances, angles", "every atom's distances"
    same: dict[str, Any] = {"kind": "everything: congruent", "expected": None, "congruent": True}
    generic = mirrored_atom((1.1, -0.3), (0.7, 0.5, 0.35), (0.9, 0.25))
    hordan = [np.vstack([ORIGIN, cloud]) for cloud in (ab_plus, ab_minus)]
    milad = capped_triangles(triangle, 0.3, 0.4, 86, 0.8)
    return (
        ShapePair("2body_dojo", bend[0], bend[1], near, 3),
        ShapePair("3body_fig1a_circle", circle([0, 45, 135, 180]), circle([0, 45, 90, 225]), angles, 4),
        ShapePair("3body_fig1b_dojo", *mirrored_atom((5, 5), (5, 5, 5), (5, 5)), angles, 4),
        ShapePair("3body_fig1b_generic", *generic, angles, 4),
        ShapePair("3body_fig1b_bz0_hordan", hordan[0], hordan[1], f"{angles}; {seen}", 5),
        ShapePair("4body_nonchiral_milad", *milad, f"{angles}, dihedrals", 5),
        ShapePair("4body_nonchiral_dojo", *capped_triangles(isosceles, 5, 2, -36, 5), **same),
        ShapePair("4body_chiral_dojo", *capped_triangles(isosceles, 5, 0, None, 5), **same),
        ShapePair("4body_chiral_scalene", *capped_triangles(triangle, 1, 0, None, 1), **same),
        ShapePair(
            "global_hordan_EF6", *flipped_apex(rounded, (0, 1)), f"{near}, all atoms together", 2, False
        ),
        ShapePair("global_EF6_exact", *flipped_apex(even_triangle(), (0, 1)), seen, 3, False),
        ShapePair("global_hordan_CD7", *flipped_apex(wide + short, (0, 1)), seen, 3, False),
        ShapePair("global_hordan_AB5", ab_plus, ab_minus, seen, 3, False),
        ShapePair("global_PC2022_6", *three_axes(), "every distance-only message", None, False),
    )
