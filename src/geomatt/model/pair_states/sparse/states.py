"""The network over the states of a graph: the equations of `network`, with sums over neighbours.

Shapes: A atoms, S states, L functions, C channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from geomatt.data.batch import Batch
from geomatt.model.interface import AttentionRecord, ImagePairs
from geomatt.model.pair_states.ceiling import of_round, saturated
from geomatt.model.pair_states.envelope import envelope
from geomatt.model.pair_states.sparse.graph import PairGraph
from geomatt.model.pair_states.sparse.products import product
from geomatt.model.pair_states.sparse.rounds import Rounds, Space
from geomatt.model.pairs import lengths, pair_switch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geomatt.model.pair_states.network import PairStates


def sparse_atomic_energies(
    network: PairStates,
    batch: Batch,
    graph: PairGraph,
    switch: Tensor | None = None,
    space: Space | None = None,
) -> Tensor:
    """Atomic energies (B, N); zero for padding.

    With a space to work in, they can be differentiated once, and not with respect to weights.
    """
    scale = scales(network, batch, graph)  # (A, 1)
    if space is not None and switch is None:
        x, u = initial_states(network, batch, graph)
        own, total = Rounds.apply(x, u, scale.index_select(0, graph.i), network, graph, space)
    else:
        for _, _, _, x in sparse_rounds(network, batch, graph, switch):
            states = x
        own, total = _own_and_total(graph, states)
    energies = network.readout_layers(torch.cat([own, scale * (total - own)], -1))[-1].squeeze(-1)
    return energies.new_zeros(batch.numbers.numel()).index_add(0, graph.atom, energies).view_as(batch.numbers)


def sparse_features(network: PairStates, batch: Batch, graph: PairGraph, states: Tensor) -> Tensor:
    """What the readout of an atom sees of the states, (A, 2C)."""
    own, total = _own_and_total(graph, states)
    return torch.cat([own, scales(network, batch, graph) * (total - own)], -1)


def _own_and_total(graph: PairGraph, states: Tensor) -> tuple[Tensor, Tensor]:
    own = states.index_select(0, graph.own)  # (A, C)
    return own, own.new_zeros(own.shape).index_add(0, graph.i, states)


def sparse_rounds(
    network: PairStates, batch: Batch, graph: PairGraph, switch: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """A, B (S, C), H (S, 2C) and the states after each round (S, C)."""
    width, scale = network.config.channels, scales(network, batch, graph).index_select(0, graph.i)
    weights = switches(network, batch, graph, switch)
    x, u = initial_states(network, batch, graph)
    x = x if weights is None else x * weights[0]
    for t in range(network.config.rounds):
        a, b = x @ network.W_AB[t, :width].T, x @ network.W_AB[t, width:].T  # (S, C)
        p = scale * product(a, b, graph.triangles)
        h = torch.addmm(network.b1[t], x, network.W1[t, :, :width].T)  # (S, 2C)
        h = torch.addmm(h, p, network.W1[t, :, width:].T)
        if network.ceiling is not None:
            h = saturated(h, of_round(network.ceiling, t, width))
        x = torch.addcmul(x, u, torch.addmm(network.b2[t], functional.silu(h), network.W2[t].T))
        x = x if weights is None else x * weights[t + 1]
        yield a, b, h, x


def sparse_attention(network: PairStates, batch: Batch, graph: PairGraph) -> list[AttentionRecord[Tensor]]:
    """As `PairStates.attention`, summed over images and for each image."""
    reverse, atoms = graph.triangles.reverse.long(), batch.numbers.shape[-1]
    place = graph.atom[graph.i] * atoms + graph.atom[graph.j] % atoms  # (b, i, j)
    records = []
    for t, (a, b, _, _) in enumerate(sparse_rounds(network, batch, graph), start=1):
        path = (a * b[reverse]).sum(-1).abs()  # (S,)
        value = 0.5 * (path + path[reverse])
        matrix = value.new_zeros(batch.numbers.numel() * atoms).index_add(0, place, value)
        records.append(
            AttentionRecord(
                2,
                t - 1,
                0,
                matrix.view(*batch.numbers.shape, atoms),
                name=f"round {t}",
                images=_image_pairs(graph, value, len(batch), atoms),
            )
        )
    return records


def _image_pairs(
    graph: PairGraph, value: Tensor, structures: int, atoms: int
) -> list[ImagePairs[np.ndarray]]:
    """Values of states (S,) by structure, without those of atoms with themselves."""
    i, j = graph.atom[graph.i], graph.atom[graph.j]
    shift = i.new_zeros(len(i), 3) if graph.shift is None else graph.shift
    other = torch.ones_like(value, dtype=torch.bool)
    other[graph.own] = False
    arrays = [x[other].detach().cpu().numpy() for x in (i // atoms, i % atoms, j % atoms, shift, value)]
    return [ImagePairs(*(x[arrays[0] == b] for x in arrays[1:])) for b in range(structures)]


def initial_states(network: PairStates, batch: Batch, graph: PairGraph) -> tuple[Tensor, Tensor]:
    """X before the first round (S, C), and the envelope (S, 1)."""
    distance = lengths(graph.vectors(batch.positions, batch.cell))
    radius = network.config.radius
    u = (envelope(distance, radius) if radius else torch.ones_like(distance))[:, None]
    one_hot = (batch.numbers[..., None] == network.elements).to(network.g.dtype)  # (B, N, elements)
    tables = (one_hot @ network.g, one_hot @ network.h, network.self_states(one_hot, batch))
    g, h, e = (table.flatten(0, 1).index_select(0, graph.atom) for table in tables)  # (A, C)
    pairs = u * (network.basis(distance) @ network.K.T)
    pairs = pairs * g.index_select(0, graph.i) * h.index_select(0, graph.j)
    return pairs.index_copy(0, graph.own, e), u


def scales(network: PairStates, batch: Batch, graph: PairGraph) -> Tensor:
    """s of the structure of each atom, (A, 1)."""
    return network.scale(batch).flatten().index_select(0, graph.structure)[:, None]


def switches(network: PairStates, batch: Batch, graph: PairGraph, switch: Tensor | None) -> Tensor | None:
    """The factors of the states in each layer, (T + 1, S, 1); all images of a pair are switched alike."""
    if switch is None:
        return None
    atoms = batch.numbers.shape[-1]
    place = graph.atom.index_select(0, graph.i) * atoms + graph.atom.index_select(0, graph.j) % atoms
    every = pair_switch(switch, network.switch_layers, batch)  # (T + 1, B, N, N)
    return every.flatten(1).index_select(1, place)[..., None].to(network.g.dtype)
