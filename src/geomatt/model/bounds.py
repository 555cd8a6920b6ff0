"""Bounds that keep a trained network, outside its training data, near what the data show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from geomatt.data.batch import Batch, collate
from geomatt.data.dataset import Dataset
from geomatt.model.interface import Network

MOST_PAIRS = 20_000  # of atoms, looked at together


def bounds_of(network: Network, data: Dataset) -> dict[str, Tensor]:
    """`Network.bounds` from the structures a network was trained on."""
    return network.bounds(_batches(network, data))


def with_bounds(network: Network, data: Dataset) -> Network:
    """The network, in place, with the bounds of the structures it was trained on."""
    return network.load_tensors({**without_bounds(network), **bounds_of(network, data)})


def without_bounds(network: Network) -> dict[str, Tensor]:
    """The tensors of a network but its bounds."""
    return {name: value for name, value in network.tensors().items() if name not in network.optional}


def _batches(network: Network, data: Dataset) -> Iterator[Batch]:
    order, sizes = np.argsort(data.sizes, kind="stable"), np.sort(data.sizes)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * int(sizes[stop]) ** 2 <= MOST_PAIRS:
            stop += 1
        yield collate([data[int(i)] for i in order[start:stop]], network.dtype, network.device)
        start = stop
