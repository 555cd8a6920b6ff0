"""The networks the package knows, by kind. Adding one is a folder and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from geomatt.errors import GeomAttError
from geomatt.model.settings import NetworkConfig

if TYPE_CHECKING:
    import torch

    from geomatt.model.interface import Network


@dataclass(frozen=True)
class NetworkEntry:
    """A kind of network: its short name, and where its config and class are, imported on first use."""

    name: str  # of the `model` setting
    config: str | type[NetworkConfig]
    network: str | type[Network]
    listed: bool = True  # False: known by its kind, and not offered to users


# By kind, as it stands in model files.
NETWORKS: dict[str, NetworkEntry] = {
    "geometric-attention": NetworkEntry(
        "geomatt",
        "geomatt.model.geometric_attention.config:GeometricAttentionConfig",
        "geomatt.model.geometric_attention.network:GeometricAttention",
    ),
    "pair-states": NetworkEntry(
        "pair",
        "geomatt.model.pair_states.config:PairStatesConfig",
        "geomatt.model.pair_states.network:PairStates",
    ),
    "schnet": NetworkEntry(
        "schnet", "geomatt.model.schnet.config:SchNetConfig", "geomatt.model.schnet.network:SchNet"
    ),
}

DEFAULT = "pair"  # what is trained unless another `model` is asked for
OLDEST = "geomatt"  # the only one of version 0.1, whose settings files do not name it


def network_class(kind: str) -> type[Network]:
    """The network of a kind or short name."""
    found: type[Network] = _imported(_entry(kind).network)
    return found


def network_config(kind: str) -> type[NetworkConfig]:
    """The config of a kind or short name; needs no torch."""
    found: type[NetworkConfig] = _imported(_entry(kind).config)
    return found


def known_kinds() -> list[str]:
    """Kinds as they stand in model files."""
    return list(NETWORKS)


def network_names() -> list[str]:
    """Short names of all kinds that are offered to users."""
    return [entry.name for entry in NETWORKS.values() if entry.listed]


def register(network: type[Network], *, listed: bool = True) -> type[Network]:
    """Make a network defined elsewhere known; usable as a decorator. Not `listed`: for an experiment only."""
    NETWORKS[network.kind] = NetworkEntry(network.kind, network.Config, network, listed)
    return network


def new_config(kind: str, settings: Mapping[str, Any], elements: tuple[int, ...]) -> NetworkConfig:
    """The config of a network; needs no torch."""
    config = network_config(kind)
    known = config.settings()
    if unknown := [name for name in settings if name not in known]:
        raise GeomAttError(
            f"A {kind} network has no setting {', '.join(unknown)}. It has: {', '.join(known)}."
        )
    # Files have lists for tuples.
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}
    return config(elements=elements, **values)


def new_network(
    kind: str,
    settings: Mapping[str, Any],
    elements: tuple[int, ...],
    *,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> Network:
    """A network with weights drawn from the seed; the caller's random state is left alone."""
    import torch

    from geomatt.model.memory import require_memory

    found, config = network_class(kind), new_config(kind, settings, elements)
    require_memory(found, config, dtype or torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return found(config, dtype or torch.float32)


def _entry(kind: str) -> NetworkEntry:
    for key, entry in NETWORKS.items():
        if kind in (key, entry.name):
            return entry
    known = ", ".join(network_names())
    raise GeomAttError(f"Unknown `model` {kind!r}. This version knows: {known}.")


def _imported(place: Any) -> Any:
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
