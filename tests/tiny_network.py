"""A minimal network in thirty lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from geomatt.model import NetworkConfig
from geomatt.model.interface import AttentionRecord, Network
from geomatt.model.settings import setting


@dataclass(frozen=True)
class TinyConfig(NetworkConfig):
    width: int = setting(8, "hidden units")


class Tiny(Network):
    """A pair potential: Gaussians of the distance, weighted by both elements."""

    kind, Config, per_element = "tiny", TinyConfig, ("charge",)
    parts: ClassVar = {"readout": ("readout",), "elements": ("charge",)}

    def __init__(self, config, dtype=torch.float32):
        super().__init__(config, dtype)
        self.charge = nn.Parameter(torch.randn(len(config.elements), config.width))
        self.readout = nn.Parameter(torch.randn(config.width))
        self.to(dtype)

    def pairs(self, batch):
        r = batch.positions[:, :, None] - batch.positions[:, None]
        phi = torch.exp(-r.square().sum(-1)[..., None] / torch.arange(1, self.config.width + 1).to(r))
        q = (batch.numbers[..., None] == self.elements).to(r.dtype) @ self.charge  # (B, N, width)
        return phi * q[:, :, None] * q[:, None]

    def atomic_energies(self, batch):
        return self.pairs(batch).sum(2) @ self.readout

    def attention(self, batch):
        return [AttentionRecord(2, 0, 0, self.pairs(batch).sum(-1), name="pairs")]
