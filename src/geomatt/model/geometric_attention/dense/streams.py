"""The streams of interactions v_i ← v_i + Σ_j α_ij (W v_j + b) on coefficients c, with their adjoints.

`folding` says how v = c T is carried. Shapes: Z = S · M networks of one stream each, Z · B structures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.folding import Plan


@dataclass
class Segment:
    """Consecutive layers that share vectors T; features are formed after the last."""

    vectors: Tensor  # (Z, R, V), after the last layer
    # α (Z·B, N, N) of each layer, and c (Z·B, N, R) before it.
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    c: Tensor = field(default_factory=lambda: torch.empty(0))  # after the last layer

    def features(self) -> Tensor:
        """v = c T, (Z, B·N, V)."""
        return torch.bmm(self.c.view(len(self.vectors), -1, self.c.shape[-1]), self.vectors)


def forward(one_hot: Tensor, alpha: list[Tensor], plan: Plan) -> list[Segment]:
    """The segments from the first layer to the last, whose features are the result.

    `one_hot` (Z·B, N, elements) has zero rows for padding; `alpha` is [layer] (Z·B, N, N).
    """
    c = functional.pad(one_hot, (1, 0), value=1.0)
    matrices = iter(alpha)
    segments: list[Segment] = []
    for vectors, end in zip(plan.vectors, plan.ends, strict=True):
        if segments:
            v = segments[-1].features()
            c = functional.pad(v.view(len(c), -1, v.shape[-1]), (1, 0), value=1.0)
        segment = Segment(end)
        for _ in vectors:
            a = next(matrices)
            segment.layers.append((a, c))
            c = torch.cat([c, torch.bmm(a, c)], -1)
        segment.c = c
        segments.append(segment)
    return segments


def adjoints(segments: list[Segment], g: Tensor) -> list[Tensor]:
    """∂E/∂α of every layer from g = ∂E/∂v (Z, B·N, V)."""
    found: list[Tensor] = []
    for segment in reversed(segments):
        c_bar = torch.bmm(g, segment.vectors.mT).view(segment.c.shape)
        for alpha, c in reversed(segment.layers):
            kept, moved = c_bar.chunk(2, -1)
            found.append(torch.bmm(moved, c.mT))
            if len(found) < sum(len(s.layers) for s in segments):  # the input of the first layer is constant
                c_bar = torch.baddbmm(kept, alpha.mT, moved)
        g = c_bar[..., 1:].reshape_as(g) if segment is not segments[0] else g
    return found[::-1]
