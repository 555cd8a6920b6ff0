"""The networks the package knows, by kind. Adding one is a folder and a line here."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from geomatt.errors import GeomAttError
from geomatt.model.interface import Network

# Kind, as it stands in model files, and where the class is: imported when first asked for.
NETWORKS: dict[str, str | type[Network]] = {
    "geometric-attention": "geomatt.model.geometric_attention.network:GeometricAttention",
    "pair-states": "geomatt.model.pair_states.network:PairStates",
    "schnet": "geomatt.model.schnet.network:SchNet",
}
# Short names for the `model` setting.
ALIASES = {"geomatt": "geometric-attention", "pair": "pair-states"}


def network_class(kind: str) -> type[Network]:
    """The network of a kind, or an alias of it."""
    entry = NETWORKS.get(ALIASES.get(kind, kind))
    if entry is None:
        raise GeomAttError(
            f"Unknown kind of network {kind!r}. This version knows: {', '.join(network_names())}."
        )
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        found: type[Network] = getattr(importlib.import_module(module), name)
        return found
    return entry


def network_names() -> list[str]:
    """What `model` may be called, short names first."""
    short = {kind: alias for alias, kind in ALIASES.items()}
    return [short.get(kind, kind) for kind in NETWORKS]


def register(network: type[Network]) -> type[Network]:
    """Make a network of another package known; usable as a decorator."""
    NETWORKS[network.kind] = network
    return network


def new_network(
    kind: str,
    settings: dict[str, Any],
    elements: tuple[int, ...],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Network:
    """A network with weights drawn from the seed; the caller's random state is left alone."""
    found = network_class(kind)
    config = found.Config(elements=elements, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return found(config, dtype)
