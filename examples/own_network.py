"""A network of your own, trained and used like those of the package.

python examples/own_network.py --epochs 20
"""

import argparse
from dataclasses import dataclass

import torch
from torch import nn

import geomatt
from geomatt.data import ethanol, random_split
from geomatt.model import Network, NetworkConfig, register
from geomatt.model.settings import setting
from geomatt.training import resolve


@dataclass(frozen=True)
class PairPotentialConfig(NetworkConfig):
    width: int = setting(16, "Gaussians of the distance")


@register
class PairPotential(Network):
    """A sum over pairs: Gaussians of the distance, weighted by both elements."""

    kind, Config, per_element = "pair-potential", PairPotentialConfig, ("weight",)
    parts = {"readout": ("readout",), "elements": ("weight",)}  # noqa: RUF012

    def __init__(self, config, dtype=torch.float32):
        super().__init__(config, dtype)
        self.weight = nn.Parameter(torch.randn(len(config.elements), config.width))
        self.readout = nn.Parameter(torch.randn(config.width) / config.width)
        self.to(dtype)

    def atomic_energies(self, batch):
        squared = (batch.positions[:, :, None] - batch.positions[:, None]).square().sum(-1)  # (B, N, N)
        reach = torch.linspace(0.3, 4.0, self.config.width).to(squared)
        phi = torch.exp(-squared[..., None] / reach**2)  # (B, N, N, width)
        w = (batch.numbers[..., None] == self.elements).to(phi.dtype) @ self.weight  # (B, N, width)
        return (phi * w[:, :, None] * w[:, None]).sum(2) @ self.readout  # (B, N)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", default="runs/own")
    options = parser.parse_args()
    data = ethanol()
    split = random_split(len(data), train=200, validation=50, test=50, seed=0)
    config = resolve({"model": "pair-potential", "epochs": options.epochs})
    result = geomatt.train(data, split, config, options.out)
    print(f"force error (validation): {result.best_errors['force_mae']:.3f} eV/Å")
