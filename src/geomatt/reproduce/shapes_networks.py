"""One aggregation step with a linear classifier: message passing, or attention of any order."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from geomatt.model.geometric_attention import GeometricAttention, GeometricAttentionConfig

# The authors' setting for Fig. 3: d in [0, 2], Δd = 0.1, γ = 10, F_I = 16 for every order, F_v = 1.
D_MAX, SPACING, GAMMA, OVERLAP_FEATURES = 2.0, 0.1, 10.0, 16
ELEMENT = 6  # of all atoms
MESSAGE_PASSING = "message passing"


def one_layer(order: int) -> GeometricAttention:
    """A network of one stream with one layer. F_I is set at order 2 and halves with every further order."""
    width = OVERLAP_FEATURES * 2 ** (order - 2)
    config = GeometricAttentionConfig(
        (ELEMENT,), (order,), 1, 1, overlap_features=width, gamma=GAMMA, d_max=D_MAX, spacing=SPACING
    )
    return GeometricAttention(config)


class AttentionStep(nn.Module):
    """m_i = Σ_j α^(k)_ij (W v_j + b): the message of one step of geometric attention."""

    def __init__(self, order: int) -> None:
        super().__init__()
        self.network = one_layer(order)

    def forward(self, distances: Tensor, mask: Tensor) -> Tensor:
        """Messages (B, N) from distances (B, N, N); zero for padding."""
        network = self.network
        v = network.embed(mask * ELEMENT)  # (B, N, 1)
        alpha = network.coefficients(distances, mask)[0][0]
        return (alpha @ (v @ network.W[0, 0].T + network.b[0, 0])).squeeze(-1) * mask


class FilterStep(nn.Module):
    """m_i = Σ_j f(d_ij) (W v_j + b): SchNet's continuous filter, two layers on the same basis functions."""

    def __init__(self) -> None:
        super().__init__()
        self.basis = one_layer(2).requires_grad_(False)  # for Φ̂ only
        self.embedding = nn.Parameter(torch.randn(1))
        self.hidden = nn.Linear(self.basis.config.basis_size, OVERLAP_FEATURES)
        self.filter = nn.Linear(OVERLAP_FEATURES, 1)
        self.message = nn.Linear(1, 1)

    def forward(self, distances: Tensor, mask: Tensor) -> Tensor:
        """Messages (B, N) from distances (B, N, N); zero for padding."""
        hidden = functional.softplus(self.hidden(self.basis.basis(distances))) - self.basis.softplus_shift
        pairs = self.filter(hidden).squeeze(-1) * (mask[:, :, None] & mask[:, None])  # (B, N, N)
        return (pairs * self.message(self.embedding)).sum(-1)


class Classifier(nn.Module):
    """Tells two shapes apart by a linear function of the central atom's embedding, or of all, sorted.

    The embedding is standardised first, and the linear function starts from zero. With `raw` it is used as it
    is, and the linear function starts from random weights, as PyTorch's linear layer of one input does.
    """

    def __init__(self, step: AttentionStep | FilterStep, atoms: int, raw: bool = False) -> None:
        super().__init__()
        self.step, self.raw = step, raw
        self.scale = nn.Parameter(torch.zeros(atoms))
        self.offset = nn.Parameter(torch.zeros(()))
        if raw:
            nn.init.uniform_(self.scale, -1.0, 1.0)
            nn.init.uniform_(self.offset, -1.0, 1.0)

    def forward(self, distances: Tensor, mask: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (B, N) of a batch with equal numbers of both shapes, and logits (B,)."""
        embedding = readout(self.step(distances, mask), centred)
        if not self.raw:
            embedding = standardised(embedding)
        return embedding, embedding @ self.scale + self.offset


def standardised(embedding: Tensor) -> Tensor:
    """Mean zero and standard deviation one over the batch; relative differences below 1e-9 stay small."""
    centred = embedding - embedding.mean(0)
    spread = centred.square().mean(0)
    floor = (1e-9 * embedding.detach().abs().mean(0)).square() + 1e-60  # for padding, which is zero
    return centred / (spread + floor).sqrt()


def readout(messages: Tensor, centred: Tensor) -> Tensor:
    """The message of atom 0, or those of all atoms, sorted: both are invariant to the order of neighbours."""
    central = functional.pad(messages[:, :1], (0, messages.shape[1] - 1))
    return torch.where(centred, central, messages.sort(-1).values)


def make_step(model: str) -> AttentionStep | FilterStep:
    """The aggregation step called `model`: message passing, or k = 2, k = 3 ..."""
    return FilterStep() if model == MESSAGE_PASSING else AttentionStep(int(model.removeprefix("k = ")))
