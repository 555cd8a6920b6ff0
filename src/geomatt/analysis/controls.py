"""Controls for what attention shows: networks that were never trained."""

from __future__ import annotations

from collections.abc import Iterator

from geomatt.model import Network, new_network


def untrained_networks(network: Network, count: int) -> Iterator[Network]:
    """Networks with the configuration of `network` and random weights of the seeds 0, 1, ..."""
    settings = network.config.to_dict()
    elements = settings.pop("elements")
    for seed in range(count):
        yield new_network(network.kind, settings, elements, seed=seed).to(network.device)
