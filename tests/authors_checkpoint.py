"""A checkpoint in the format of the authors' code, with random weights."""

import json
from pathlib import Path

import torch

from geomatt.model.geometric_attention.authors import MODULES


def write_checkpoint(
    directory: Path, orders=(2, 3), layers=2, fi=16, fv=8, elements=("H", "C", "Li"), grid=12
):
    """A checkpoint with random weights, named as the authors name them."""
    generator = torch.Generator().manual_seed(1)

    def linear(name, outputs, inputs):
        scale = inputs**-0.5
        return {
            f"{name}.weight": torch.randn(outputs, inputs, generator=generator) * scale,
            f"{name}.bias": torch.randn(outputs, generator=generator) * scale,
        }

    tensors = {f"{e}_embeddings": torch.randn(1, 1, fv, generator=generator) for e in elements}
    for s, order in enumerate(orders):
        for layer in range(layers):
            prefix = f"geom_att.streams.{s}.interactions.{layer}"
            for name in MODULES[: order - 1]:
                width = fi // 2 ** (order - 2)
                tensors |= linear(f"{prefix}.correlator.{name}_0", width, grid)
                tensors |= linear(f"{prefix}.correlator.{name}", width, grid)
            tensors |= linear(f"{prefix}.W", fv, fv)
    hidden = len(orders) * fv // 2
    tensors |= linear("energy_extractor.Q", hidden, len(orders) * fv)
    tensors |= linear("energy_extractor.R", 1, hidden)
    hyper = {"Nl": layers, "Fi": fi, "Fv": fv, "orders": list(orders), "dmin": 0.0}
    hyper |= {"dmax": grid * 0.25, "gamma": 8.0, "interval": 0.25, "rho": 0.01}
    directory.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, directory / "params.pt")
    (directory / "hyperparameters.json").write_text(json.dumps(hyper))
    return tensors, hyper
