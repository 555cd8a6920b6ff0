"""The paper's recursion F^(k)(i,j) = Σ_m F^(k−1)(i,m) ∘ F²(m,j), with its adjoints, written out.

A chain has J = k − 1 overlap modules X_1 … X_J, tensors (R, N, N, F) that are symmetric in the atoms, and
α = Σ_f X_1 X_2 … X_J (matrix products per channel f). Notation used below:

    prefix_j = X_1 … X_j         suffix_j = ᾱ X_J … X_{j+1}     (the adjoint of prefix_j)

Because every X is symmetric, its adjoint is needed only up to transposition, and the first and the last
product of a chain become plain matrix products between rows i and columns (m, f). The products in between,
which only orders from 4 on have, are made per channel on copies with the channels in front: (R · F, N, N).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Chain:
    """The modules of a chain with the partial products that its adjoints reuse."""

    modules: Sequence[Tensor]  # X_1 … X_J, (R, N, N, F)
    inner: list[Tensor]  # X_1 … X_{J−1}, channels in front; empty for J < 3
    prefix: list[Tensor]  # prefix_1 … prefix_{J−1}, channels in front; empty for J < 3
    left: Tensor  # prefix_{J−1} as (R, N, N, F): all but the last module


def attention(x: Sequence[Tensor]) -> tuple[Tensor, Chain]:
    """α (R, N, N) from the modules, and the chain."""
    if len(x) == 1:
        return x[0].squeeze(-1), Chain(x, [], [], x[0])
    inner, prefix, left = list[Tensor](), list[Tensor](), x[0]
    if len(x) > 2:
        inner = [_channels_first(module) for module in x[:-1]]
        prefix = inner[:1]
        for module in inner[1:]:
            prefix.append(torch.bmm(prefix[-1], module))
        left = _channels_last(prefix[-1], x[0]).contiguous()
    return torch.bmm(_rows(left), _rows(x[-1]).mT), Chain(x, inner, prefix, left)


def adjoints(chain: Chain, alpha_bar: Tensor) -> list[Tensor]:
    """∂E/∂X_j (up to transposition), (R, N, N, F), from ᾱ (R, N, N)."""
    x = chain.modules
    if len(x) == 1:
        return [alpha_bar[..., None]]
    first = torch.bmm(alpha_bar, _rows(x[-1])).view(x[0].shape)
    last = torch.bmm(alpha_bar.mT, _rows(chain.left)).view(x[0].shape)
    if len(x) == 2:
        return [first, last]
    suffix, found = _channels_first(first), list[Tensor]()
    for j in range(len(x) - 2, 0, -1):
        found.append(torch.bmm(suffix.mT, chain.prefix[j - 1]))
        suffix = torch.bmm(suffix, chain.inner[j])
    inner = (suffix, *reversed(found))
    return [*(_channels_last(bar, x[0]).contiguous() for bar in inner), last]


def _rows(a: Tensor) -> Tensor:
    """(R, N, N, F) as matrices with rows i and columns (m, f)."""
    return a.flatten(2)


def _channels_first(a: Tensor) -> Tensor:
    """From (R, N, N, F) to (R · F, N, N)."""
    return a.movedim(-1, 1).flatten(0, 1).contiguous()


def _channels_last(a: Tensor, like: Tensor) -> Tensor:
    """From (R · F, N, N) to (R, N, N, F), a view."""
    return a.unflatten(0, (len(like), -1)).movedim(1, -1)
