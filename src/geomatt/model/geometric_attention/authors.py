"""Checkpoints of the authors' published code, turned into our potentials.

A checkpoint is a directory with `params.pt` and `hyperparameters.json`. Its names mislead: `Q_0` is the
paper's Q, q and `Q` the paper's K, k; the further overlap modules of a chain are R_0, R; S_0, S; T_0, T.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geomatt.elements import SYMBOLS, atomic_number, symbols
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention, OverlapFunctions
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import Potential

MODULES = "QRST"  # overlap modules of a chain, left to right; so orders 2 to 5
EMBEDDING = "_embeddings"


def import_authors(
    directory: str | os.PathLike[str], *, elements: Sequence[int | str], normalisation: Normalisation
) -> Potential:
    """The potential in a checkpoint of the authors' code.

    A checkpoint contains neither the trained elements (it always has an embedding of Li) nor the mean and
    standard deviation of the energies; pass `elements` (symbols or atomic numbers) and `normalisation` (eV).
    """
    source = Path(directory)
    hyper = _hyper_parameters(source)
    tensors = _Tensors(_parameters(source), source / "params.pt")
    trained = sorted({z if isinstance(z, int) else atomic_number(z) for z in elements})
    if not trained:
        raise GeomAttError("Name the elements the checkpoint was trained on, such as `elements` H,C,O.")
    config = _config(hyper, trained, tensors, source)
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are all replaced
        network = GeometricAttention(config).to(torch.float32)
    with torch.no_grad():
        _copy(network, tensors)
        # As in the authors' code: rounded to float32 in all precisions.
        network.mu.copy_(torch.arange(0.0, hyper["dmax"], hyper["interval"], dtype=torch.float32))
        network.softplus_shift.fill_(float(np.float32(math.log(2.0))))
    tensors.check_all_used()
    return Potential(network, normalisation, {"origin": "authors' checkpoint", "hyperparameters": hyper})


class _Tensors:
    """Tensors of a checkpoint; records which were used."""

    def __init__(self, values: dict[str, Tensor], path: Path) -> None:
        self.values, self.path, self.used = values, path, set[str]()

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self.values:
            raise GeomAttError(
                f"{self.path} has no {name}, which its hyperparameters.json calls for. "
                "The two files must come from the same training."
            )
        value = self.values[name]
        if tuple(value.shape) != shape:
            raise GeomAttError(
                f"{self.path}: {name} has shape {tuple(value.shape)}, but hyperparameters.json asks for "
                f"{shape}. The two files must come from the same training."
            )
        self.used.add(name)
        return value

    def check_all_used(self) -> None:
        unknown = [
            name for name in self.values if name not in self.used and not self._is_unused_embedding(name)
        ]
        if unknown:
            raise GeomAttError(
                f"{self.path} holds {len(unknown)} tensors that have no place in the model "
                f"(first: {unknown[0]}). It is no checkpoint of the authors' code with these settings."
            )

    def embedded_elements(self) -> list[str]:
        return [name.removesuffix(EMBEDDING) for name in self.values if name.endswith(EMBEDDING)]

    def _is_unused_embedding(self, name: str) -> bool:
        return name.endswith(EMBEDDING) and name.removesuffix(EMBEDDING) in SYMBOLS


def _hyper_parameters(source: Path) -> dict[str, Any]:
    path = source / "hyperparameters.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GeomAttError(_missing(source, path.name)) from error
    except (OSError, ValueError) as error:
        raise GeomAttError(f"Cannot read {path}: {error}.") from error
    if not isinstance(values, dict):
        raise GeomAttError(f"{path} must hold one JSON object.")
    needed = ("Nl", "Fi", "Fv", "orders", "dmax", "gamma", "interval")
    missing = [name for name in needed if name not in values]
    if missing:
        raise GeomAttError(f"{path} lacks {', '.join(missing)}.")
    try:
        numbers = [float(values[name]) for name in needed if name != "orders"]
        orders = [int(k) for k in values["orders"]]
    except (TypeError, ValueError) as error:
        raise GeomAttError(f"{path} holds values that are not numbers ({error}).") from error
    if min(numbers) <= 0:
        raise GeomAttError(f"{path} holds values that are not positive.")
    if not orders or not all(2 <= k <= len(MODULES) + 1 for k in orders):
        raise GeomAttError(f"{path} has orders {orders}; the authors' code knows orders 2 to 5.")
    if float(values.get("dmin", 0.0)) != 0.0:
        raise GeomAttError(f"{path} has dmin = {values['dmin']}; only grids that start at 0 are supported.")
    return values


def _parameters(source: Path) -> dict[str, Tensor]:
    path = source / "params.pt"
    if not path.is_file():
        raise GeomAttError(_missing(source, path.name))
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no common type for what may be wrong with a file
        raise GeomAttError(
            f"{path} is not a plain file of tensors ({type(error).__name__}). Files that would run code when "
            "loaded are refused; save it with torch.save(model.state_dict(), ...)."
        ) from error
    if not isinstance(values, dict) or not all(isinstance(v, Tensor) for v in values.values()):
        raise GeomAttError(f"{path} must hold a state dict: names and tensors.")
    return values


def _missing(source: Path, name: str) -> str:
    return (
        f"There is no {name} in {source}. Name the directory that holds params.pt and hyperparameters.json."
    )


def _config(
    hyper: dict[str, Any], elements: list[int], tensors: _Tensors, source: Path
) -> GeometricAttentionConfig:
    embedded = tensors.embedded_elements()
    absent = [symbol for symbol in symbols(elements) if symbol not in embedded]
    if absent:
        raise GeomAttError(
            f"The checkpoint in {source} has no embedding of {', '.join(absent)} "
            f"(it has {', '.join(sorted(embedded)) or 'none'}). Name the elements it was trained on."
        )
    spacing = float(hyper["interval"])
    # The grid ends before dmax, and dmax need not be a multiple of the spacing.
    grid = len(torch.arange(0.0, float(hyper["dmax"]), spacing, dtype=torch.float32))
    return GeometricAttentionConfig(
        elements=tuple(elements),
        orders=tuple(hyper["orders"]),
        layers=int(hyper["Nl"]),
        features=int(hyper["Fv"]),
        overlap_features=int(hyper["Fi"]),
        gamma=float(hyper["gamma"]),
        d_max=float(hyper["dmax"]) if round(hyper["dmax"] / spacing) == grid else grid * spacing,
        spacing=spacing,
    )


def _copy(network: GeometricAttention, tensors: _Tensors) -> None:
    """Every tensor of the checkpoint to its place in the network."""
    config = network.config
    width = config.features
    for row, symbol in enumerate(symbols(config.elements)):
        network.embedding[row] = tensors.take(f"{symbol}{EMBEDDING}", (1, 1, width)).reshape(width)
    for stream, order in enumerate(config.orders):
        overlap = network.overlaps[stream]
        assert isinstance(overlap, OverlapFunctions)
        assert overlap.q is not None
        assert overlap.k is not None
        shape = (config.width(order), config.basis_size)
        for layer in range(config.layers):
            prefix = f"geom_att.streams.{stream}.interactions.{layer}"
            for m, name in enumerate(MODULES[: order - 1]):
                module = f"{prefix}.correlator.{name}"
                overlap.Q[layer, m] = tensors.take(f"{module}_0.weight", shape)
                overlap.q[layer, m] = tensors.take(f"{module}_0.bias", shape[:1])
                overlap.K[layer, m] = tensors.take(f"{module}.weight", shape)
                overlap.k[layer, m] = tensors.take(f"{module}.bias", shape[:1])
            network.W[stream, layer] = tensors.take(f"{prefix}.W.weight", (width, width))
            network.b[stream, layer] = tensors.take(f"{prefix}.W.bias", (width,))
    for linear, name in ((network.hidden, "Q"), (network.output, "R")):
        linear.weight.copy_(
            tensors.take(f"energy_extractor.{name}.weight", (linear.out_features, linear.in_features))
        )
        linear.bias.copy_(tensors.take(f"energy_extractor.{name}.bias", (linear.out_features,)))
