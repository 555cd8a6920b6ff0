"""Energies and forces of one list of atoms, laid out for a compiler: constants folded, loops to be fused.

The numbers are those of `dense` with nodes that are kept. What differs is how they are come by, because here
a compiler turns sums of products into loops without storing what is in between, and the atoms are known:

* Forces ask for the slopes of half of the pairs only: both directions have the same distance.
* Products per channel keep the channels last, the direction in which a processor works on many at once.
* The features are linear in their coefficients c (see `streams`), so the vectors of the last segment and
  the hidden layer of the readout are one matrix.

N atoms, S streams, L layers; a module of overlaps is (L, N, N, F).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from geomatt.model.dense import DenseProgram
from geomatt.model.geometric_attention import GeometricAttention
from geomatt.model.hermite import QUINTIC


class FixedMolecule(nn.Module):
    """From positions (N, 3) to normalised atomic energies (N,) and forces (N, 3)."""

    def __init__(self, network: GeometricAttention, numbers: Tensor) -> None:
        super().__init__()
        parameters = {name: value.detach()[None] for name, value in network.state_dict().items()}
        prepared = DenseProgram(network.config).prepare(parameters, keep=True)
        if prepared.nodes is None:
            raise TypeError("nodes were asked for")
        nodes, plan = prepared.nodes, prepared.plan
        self.step, self.last = nodes.step, nodes.last
        self.orders = network.config.orders
        self.segments = [len(vectors) for vectors in plan.vectors]  # layers of each
        self.tables: list[list[Tensor]] = []  # [stream][module] (L, rows, F)
        for table, (_, modules, width) in zip(nodes.tables, nodes.channels.streams, strict=True):
            self.tables.append([part.clone() for part in table.view(modules, -1, nodes.rows, width)])

        count, streams = len(numbers), len(self.orders)
        one_hot = (numbers[:, None] == parameters["elements"][0]).to(network.mu.dtype)
        self.start = functional.pad(one_hot, (1, 0), value=1.0).expand(streams, -1, -1).contiguous()
        self.ends = plan.ends[:-1]
        hidden = parameters["hidden.weight"][0].unflatten(1, (streams, -1))  # (H, S, V)
        self.into_hidden = torch.einsum("srv,hsv->srh", plan.ends[-1], hidden).flatten(0, 1).contiguous()
        self.hidden_bias = parameters["hidden.bias"][0]
        self.output = parameters["output.weight"][0, 0]
        self.output_bias = parameters["output.bias"][0]
        self.shift = parameters["softplus_shift"][0]

        self.upper, self.lower, self.place = _half(count)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Atomic energies and forces."""
        atoms = len(positions)
        difference = positions[:, None] - positions[None]
        squared = difference.square().sum(-1)
        apart = squared > 0
        inverse = torch.where(apart, torch.rsqrt(torch.where(apart, squared, 1.0)), 0.0)
        first, value, slope = self._weights((squared * inverse).flatten())
        overlaps = [
            [_interpolate(t, first, value).view(-1, atoms, atoms, t.shape[-1]) for t in stream]
            for stream in self.tables
        ]
        upper_first, upper_slope = first[self.upper], slope[:, self.upper]

        lefts = [_prefixes(x) for x in overlaps]
        alpha = torch.stack([_attention(x, left) for x, left in zip(overlaps, lefts, strict=True)], 1)
        energy, alpha_bar = self._streams(alpha)  # (L, S, N, N) both
        both = torch.zeros_like(upper_slope[0])
        for s, x in enumerate(overlaps):
            bars = _adjoints(x, lefts[s], alpha_bar[:, s])
            for bar, table in zip(bars, self.tables[s], strict=True):
                flat = bar.reshape(len(bar), -1, bar.shape[-1])
                slopes = _interpolate(table, upper_first, upper_slope)
                both = both + ((flat[:, self.upper] + flat[:, self.lower]) * slopes).sum(2).sum(0)
        pull = both[self.place].view(atoms, atoms) * inverse
        return energy, -(pull[..., None] * difference).sum(1)

    def _weights(self, distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """First of six rows of the table for every pair (P,), their weights (6, P), and those of slopes."""
        u = (distance / self.step).clamp(max=self.last)
        node = u.floor()
        t = u - node
        powers = [torch.ones_like(t), t, t**2, t**3, t**4, t**5]
        value = [_total([QUINTIC[n][k] * powers[n] for n in range(6)]) for k in range(6)]
        slope = [
            _total([n * QUINTIC[n][k] / self.step * powers[n - 1] for n in range(1, 6)]) for k in range(6)
        ]
        # Stacked, so that the compiler keeps them rather than working them out anew for every channel.
        found = torch.stack([3.0 * node, *value, *slope])
        return found[0].to(torch.int64), found[1:7], found[7:]

    def _streams(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Atomic energies, and ∂E/∂α."""
        layers = iter(alpha)
        seen: list[list[tuple[Tensor, Tensor]]] = []
        c = self.start
        for number, count in enumerate(self.segments):
            if number:
                c = functional.pad(torch.bmm(c, self.ends[number - 1]), (1, 0), value=1.0)
            seen.append([])
            for _ in range(count):
                a = next(layers)
                seen[-1].append((a, c))
                c = torch.cat([c, torch.bmm(a, c)], -1)
        streams, atoms, width = c.shape
        side_by_side = c.transpose(0, 1).reshape(atoms, -1)
        hidden = torch.addmm(self.hidden_bias, side_by_side, self.into_hidden)
        energy = (functional.softplus(hidden) - self.shift) @ self.output + self.output_bias

        c_bar = (torch.sigmoid(hidden) * self.output) @ self.into_hidden.mT
        c_bar = c_bar.view(atoms, streams, width).transpose(0, 1)
        bars: list[Tensor] = []
        for number in reversed(range(len(seen))):
            for a, c in reversed(seen[number]):
                kept, moved = c_bar.chunk(2, -1)
                bars.append(torch.bmm(moved, c.mT))
                c_bar = torch.baddbmm(kept, a.mT, moved)
            if number:
                c_bar = torch.bmm(c_bar[..., 1:], self.ends[number - 1].mT)
        return energy, torch.stack(bars[::-1])


def _half(atoms: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places of the pairs i < j among all N · N, those of j > i, and for every pair its place in the half.

    Pairs i = i point at the first: they have no direction, so whatever they get does not count.
    """
    i, j = torch.triu_indices(atoms, atoms, 1)
    half = torch.zeros(atoms, atoms, dtype=torch.int64)
    half[i, j] = half[j, i] = torch.arange(len(i))
    return i * atoms + j, j * atoms + i, half.flatten()


def _interpolate(table: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """Six consecutive rows of the table (L, rows, F) for every pair, with weights (6, P): (L, P, F)."""
    return _total([weights[k][None, :, None] * table[:, first + k] for k in range(6)])


def _total(parts: list[Tensor]) -> Tensor:
    """Their sum."""
    return sum(parts[1:], parts[0])


def _prefixes(x: list[Tensor]) -> list[Tensor]:
    """X_1, X_1 X_2, … up to all but the last module of a chain."""
    found = [x[0]]
    for module in x[1:-1]:
        found.append((found[-1][:, :, :, None] * module[:, None]).sum(2))
    return found


def _attention(x: list[Tensor], prefixes: list[Tensor]) -> Tensor:
    """α (L, N, N)."""
    if len(x) == 1:
        return x[0].squeeze(-1)
    return torch.bmm(prefixes[-1].flatten(2), x[-1].flatten(2).mT)


def _adjoints(x: list[Tensor], prefixes: list[Tensor], alpha_bar: Tensor) -> list[Tensor]:
    """∂E/∂X_j, up to transposition, from ᾱ (L, N, N); as `chain.adjoints`."""
    if len(x) == 1:
        return [alpha_bar[..., None]]
    shape = x[0].shape
    bars = [torch.bmm(alpha_bar.mT, prefixes[-1].flatten(2)).view(shape)]
    suffix = torch.bmm(alpha_bar, x[-1].flatten(2)).view(shape)
    for j in range(len(x) - 2, 0, -1):
        bars.append((suffix[:, :, :, None] * prefixes[j - 1][:, :, None]).sum(1))
        suffix = (suffix[:, :, :, None] * x[j][:, None]).sum(2)
    bars.append(suffix)
    return bars[::-1]
