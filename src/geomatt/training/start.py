"""The network a run starts from: fresh, or a base model with most of its weights frozen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geomatt.data.dataset import Dataset
from geomatt.elements import symbols
from geomatt.errors import GeomAttError
from geomatt.model import Network, Potential, load, new_network
from geomatt.model.bounds import without_bounds
from geomatt.training.config import TrainConfig


def starting_network(
    config: TrainConfig, elements: Sequence[int], base: Potential | None, seed: int
) -> Network:
    """The network before the first step, for data with these elements: drawn from the seed, or the base's."""
    if base is None:
        return fresh_network(config, tuple(elements), seed)
    refuse_unknown(base, elements)
    network = fresh_network(config, base.elements, seed)
    if type(network) is not type(base.network) or network.config != base.network.config:
        raise GeomAttError(
            "The model settings are not those of the base model. Leave them out for a transfer."
        )
    network.load_tensors(without_bounds(base.network))
    trained = _trained_prefixes(type(network), config.unfreeze)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    return network


def check_base(base: Potential, dataset: Dataset) -> None:
    """Raise an error for periodic data if the base has no radius, which a transfer cannot change."""
    periodic = dataset.pbc is not None and bool(dataset.pbc.any())
    if periodic and base.network.radius is None:
        raise GeomAttError(
            "The data is periodic, but in the base model all pairs of atoms interact, at any distance: it "
            "cannot be transferred to cells. Choose a base trained on periodic data, or train from scratch "
            "with geomatt train. If the cell is only a box around a molecule, set pbc to False."
        )


def refuse_unknown(base: Potential, elements: Sequence[int]) -> None:
    """Raise an error for elements of the data that the base model does not have."""
    unknown = sorted(set(elements) - set(base.elements))
    if unknown:
        raise GeomAttError(
            f"The data holds {', '.join(symbols(unknown))}, which the base model never saw "
            f"(it knows {', '.join(symbols(base.elements))}), so there is nothing to transfer for it. "
            "Choose a base trained on these elements, or train from scratch with geomatt train."
        )


def fresh_network(config: TrainConfig, elements: tuple[int, ...], seed: int) -> Network:
    """A network with weights drawn from the seed."""
    return new_network(config.model, config.network, elements, seed=seed, dtype=config.torch_dtype)


def base_settings(base: Potential) -> dict[str, Any]:
    """The model settings a transfer inherits."""
    settings = base.network.config.to_dict()
    settings.pop("elements")
    return {"model": base.network.kind, "network": settings}


def load_base(path: str | Path) -> Potential:
    """The base model of a transfer; of a run with members one must be chosen."""
    members = load(path).members
    if len(members) > 1:
        raise GeomAttError(f"{path} holds several members. Name one of them: {Path(path) / 'member_0'}.")
    return members[0]


def _trained_prefixes(network: type[Network], unfreeze: tuple[str, ...]) -> tuple[str, ...]:
    parts = network.parts
    for part in unfreeze:
        if part not in (*parts, "all"):
            raise GeomAttError(f"Unknown part {part!r} to `unfreeze`. Use: {', '.join([*parts, 'all'])}.")
    chosen = list(parts) if "all" in unfreeze else ["readout", *unfreeze]
    return tuple(prefix for part in chosen for prefix in parts[part])
