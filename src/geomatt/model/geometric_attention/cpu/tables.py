"""Tables of the overlap functions over a grid of distances, for quintic Hermite interpolation.

The overlap functions depend on the distance alone, so the product of a hundred Gaussians with every channel
is computed at the nodes of a grid only, for values and two derivatives: once for fixed weights, in every step
of a training. A pair is then a weighted sum of six rows, three for each of its two nodes, with an error of
order h⁶. For the gradient, pairs are summed into nodes, and one small product leads from
the nodes to the weights. Forces are the exact derivatives of the interpolated energy, and loss
gradients those of the interpolated loss.

G nodes; groups g are the modules and layers of a stream, each with F channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.folding import Channels
from geomatt.model.geometric_attention.network import EXPONENT_LIMIT

# h √γ. In training a Gaussian is off by 1e-7 of its height, the resolution of float32, and its slope by 2e-6.
# Tables that are kept can have more nodes, as long as they fit a processor's cache.
TRAINING_STEP = 0.18
KEPT_STEP = 0.135


class Nodes:
    """The overlap functions of one network at the nodes."""

    def __init__(
        self,
        config: GeometricAttentionConfig,
        channels: Channels,
        mu: Tensor,
        a: Tensor,
        keep: bool = False,
        array: Callable[[str, tuple[int, ...]], Tensor] | None = None,
    ) -> None:
        """`mu` (1, L), `a` (1, C, L'); `keep` for many uses: a finer grid, computed in float64.

        `array` gives memory for the tables by name and shape.
        """
        self.channels = channels
        self.step = (KEPT_STEP if keep else TRAINING_STEP) / math.sqrt(config.gamma)
        basis = basis_at_nodes(config.gamma, self.step, tuple(mu[0].tolist()), channels.columns)
        self.basis = basis if keep else basis.to(a.dtype)
        self.rows = len(basis)  # three a node
        self.last = self.rows // 3 - 2  # the left node of the last interval
        self.groups = [modules * channels.layers for _, modules, _ in channels.streams]
        # Values, h · slopes and h² · curvatures of all nodes: (g · G · 3, F) for every stream.
        self.tables = []
        for (start, _, width), groups in zip(channels.streams, self.groups, strict=True):
            part = a[0, start : start + groups * width].view(groups, width, -1).to(self.basis.dtype)
            out = None if array is None else array(f"table.{start}", (groups, self.rows, width))
            table = torch.bmm(self.basis.expand(groups, -1, -1), part.mT, out=out)
            self.tables.append(table.flatten(0, 1).to(a.dtype))

    def by_functions(self, by_tables: Iterable[Tensor]) -> Tensor:
        """Gradient with respect to A (1, C, L') from that with respect to the tables."""
        parts = []
        for by_table, groups in zip(by_tables, self.groups, strict=True):
            by_rows = by_table.view(groups, self.rows, -1)
            parts.append(torch.bmm(by_rows.mT, self.basis.expand(groups, -1, -1)).flatten(0, 1))
        return torch.cat(parts)[None]


def grid_pays(config: GeometricAttentionConfig, mu: Tensor, positions: Tensor) -> bool:
    """True if tables take less work than the basis functions of all pairs at positions (..., N, 3)."""
    if len(mu) > 1 or positions.device.type != "cpu" or positions.dtype != torch.float32:
        return False
    pairs = positions.numel() // 3 * positions.shape[-2]
    return pairs > 3 * (config.d_max + 1.0) * math.sqrt(config.gamma) / TRAINING_STEP


@lru_cache(maxsize=8)
def basis_at_nodes(gamma: float, step: float, mu: tuple[float, ...], columns: int) -> Tensor:
    """Φ̂, h Φ̂′ and h² Φ̂″ at every node, (G · 3, L') in float64; column L is one, for the biases.

    Nodes go as far as the last basis function reaches, and one further.
    """
    count = math.ceil((mu[-1] + math.sqrt(EXPONENT_LIMIT / gamma)) / step) + 2
    offset = torch.arange(count, dtype=torch.float64)[:, None] * step - torch.tensor(mu, dtype=torch.float64)
    exponent = gamma * offset.square()
    value = torch.where(exponent < EXPONENT_LIMIT, torch.exp(-exponent), 0.0)
    slope = -2.0 * gamma * offset * value
    bend = 2.0 * gamma * (2.0 * exponent - 1.0) * value
    basis = functional.pad(torch.stack([value, step * slope, step**2 * bend], 1), (0, columns - len(mu)))
    basis[:, 0, len(mu)] = 1.0
    return basis.flatten(0, 1)
