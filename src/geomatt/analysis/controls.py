"""Controls for what attention shows: networks that were never trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from geomatt.analysis.coefficients import attention
from geomatt.data.structures import Structure
from geomatt.model import AnyPotential, AttentionRecord, Network, Normalisation, Potential, new_network

UNTRAINED = 10  # networks, where attention is scored


def untrained_networks(network: Network, count: int) -> Iterator[Network]:
    """Networks with the configuration of `network` and random weights of the seeds 0, 1, ..."""
    settings = network.config.to_dict()
    elements = settings.pop("elements")
    for seed in range(count):
        yield new_network(network.kind, settings, elements, seed=seed).to(network.device)


def untrained_attention(
    potential: AnyPotential,
    structure: Structure,
    count: int = UNTRAINED,
    progress: Callable[[int], None] = lambda done: None,
) -> list[list[AttentionRecord[np.ndarray]]]:
    """Attention in a structure of networks like the potential's with random weights, for `bond_scores`."""
    found = []
    for network in untrained_networks(potential.members[0].network, count):
        found.append(attention(Potential(network, Normalisation()), structure))
        progress(1)
    return found
