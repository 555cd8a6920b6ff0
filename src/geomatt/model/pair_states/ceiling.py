"""Ceilings of hidden units: outside the training data they do not rise far above what the data show.

Products of states grow with the square of the states, in every round again, and the readout adds up what all
pairs have gained. A little outside the data a unit may reach many times the values it was trained with, and
the energy falls without limit. So what enters silu, in rounds and readout, is

    c(h) = h                             up to t
    c(h) = t + w tanh((h − t) / w)       above

where t is above the largest value of the unit in the training and validation frames by a part `MARGIN` of its
range there, and w is half of that part. c has two continuous derivatives. Then all units after silu, and with
them all states and the energy, are bounded; for those frames nothing changes.

A network with a radius may be used on structures larger than those it was trained on. Their atoms have more
neighbours, and their units leave the range that smaller structures show, so the part is larger there. So it
is with few frames, which do not show the whole range.

A ceiling is a tensor (..., 2, U): t and w of all U units, 2C of each round, then 2C and C of the readout.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from geomatt.errors import GeomAttError

MARGIN, MARGIN_WITH_RADIUS = 0.1, 0.5
FEW = 10.0  # the part is at least this over the number of frames
LEAST = 1e-3  # of w


def refuse_ceiling(weights: Mapping[str, Tensor]) -> None:
    """Raise an error: fast engines do not train networks with a ceiling."""
    if "ceiling" in weights:
        raise GeomAttError(
            "The network has bounds, with which fast engines cannot train it. Train without them "
            "(`Potential.without_bounds`), or set `engine` to autograd."
        )


def units(rounds: int, channels: int) -> int:
    """U."""
    return (2 * rounds + 3) * channels


def margin_of(radius: float | None, frames: int) -> float:
    """The part of a unit's range that a ceiling is above it."""
    return max(MARGIN_WITH_RADIUS if radius else MARGIN, FEW / max(frames, 1))


def ceiling_of(lowest: Tensor, highest: Tensor, margin: float = MARGIN) -> Tensor:
    """From the ranges (U,) of all units in the training frames."""
    extra = margin * (highest - lowest)
    return torch.stack([highest + extra, (extra / 2).clamp(min=LEAST)])


def room_of(ceiling: Tensor) -> float:
    """How far ceilings (..., 2, U) are above the largest values that the training frames show, as a part of
    these, in the mean over units; of several members that with most room.

    A few tenths to one where 100 frames or more were seen; below, inversely proportional to their number.
    """
    top, room = ceiling.unbind(-2)
    above = 2.0 * room
    shown = (top - above).clamp(min=0.0).sum(-1)
    return float((above.sum(-1) / shown.clamp(min=LEAST)).max())


def of_round(ceiling: Tensor, t: int, channels: int) -> Tensor:
    """The part (..., 2, 2C) of the units of round t."""
    return ceiling[..., 2 * channels * t : 2 * channels * (t + 1)]


def of_readout(ceiling: Tensor, layer: int, channels: int) -> Tensor:
    """The part of the first (..., 2, 2C) or second (..., 2, C) hidden layer of the readout."""
    return ceiling[..., -3 * channels : -channels] if layer == 0 else ceiling[..., -channels:]


def saturated(h: Tensor, part: Tensor, axis: int = -2) -> Tensor:
    """c(h); without its `axis` of two a part has the shape of h or broadcasts to it."""
    top, room = part.unbind(axis)
    return torch.where(h > top, top + room * torch.tanh((h - top) / room), h)


def saturation_slope(h: Tensor, part: Tensor, axis: int = -2) -> Tensor:
    """c' where c has the value h."""
    top, room = part.unbind(axis)
    return 1.0 - ((h - top) / room).clamp(min=0.0).square()
