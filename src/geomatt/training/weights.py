"""The weights of M networks under training, in one matrix. Nothing else holds them during a run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geomatt.model import Network
from geomatt.model.interface import Parameters


class Weights:
    """θ (M, n): one row per member, parameters side by side in the order of the network's."""

    def __init__(self, networks: Sequence[Network]) -> None:
        """Takes copies: the networks do not change with θ."""
        first = networks[0]
        self.shapes = {name: p.shape for name, p in first.named_parameters()}
        with torch.no_grad():
            self.theta = torch.stack([torch.cat([p.flatten() for p in n.parameters()]) for n in networks])
        self.buffers = {
            name: torch.stack([n.get_buffer(name) for n in networks]) for name, _ in first.named_buffers()
        }
        self.trainable = _trainable(first, self.theta)
        self.parameters = self.views(self.theta)

    def views(self, theta: Tensor) -> Parameters:
        """A matrix like θ as the engine's parameters: weights as views of it, and the buffers."""
        views: dict[str, Tensor] = {}
        offset = 0
        for name, shape in self.shapes.items():
            views[name] = theta[:, offset : offset + shape.numel()].view(len(theta), *shape)
            offset += shape.numel()
        return {**views, **self.buffers}


def _trainable(network: Network, theta: Tensor) -> Tensor | None:
    """1 for weights that are trained and 0 for frozen ones (n,); None if all are trained."""
    parameters = list(network.parameters())
    if all(p.requires_grad for p in parameters):
        return None
    return torch.cat([torch.full((p.numel(),), float(p.requires_grad)) for p in parameters]).to(theta)
