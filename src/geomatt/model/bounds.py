"""Bounds of a trained network outside its training data, see `Network.bounds`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from geomatt.data.batch import Batch, collate
from geomatt.data.dataset import Dataset
from geomatt.model.interface import Network

MOST_PAIRS, MOST = 20_000, 32  # pairs of atoms and molecules looked at together; cells one by one


def bounds_of(network: Network, data: Dataset, base: Network | None = None) -> dict[str, Tensor]:
    """`Network.bounds` from the structures a network was trained on, after those of its `base`."""
    return network.bounds(_batches(network, data), {} if base is None else _bounds(base))


def with_bounds(network: Network, data: Dataset) -> Network:
    """The network, in place, with the bounds of the structures it was trained on."""
    return network.load_tensors({**without_bounds(network), **bounds_of(network, data)})


def without_bounds(network: Network) -> dict[str, Tensor]:
    """The tensors of a network but its bounds."""
    return {name: value for name, value in network.tensors().items() if name not in network.optional}


def _bounds(network: Network) -> dict[str, Tensor]:
    return {name: value for name, value in network.tensors().items() if name in network.optional}


def _batches(network: Network, data: Dataset) -> Iterator[Batch]:
    order = np.argsort(data.sizes, kind="stable")
    periodic = data.pbc is not None and bool(data.pbc.any())
    start = 0
    while start < len(order):
        largest = data.sizes[order[start : start + (1 if periodic else MOST)]].astype(int)
        fitting = (np.arange(1, len(largest) + 1) * largest**2 <= MOST_PAIRS).sum()
        stop = start + max(1, int(fitting))
        yield collate([data[int(i)] for i in order[start:stop]], network.dtype, network.device)
        start = stop
