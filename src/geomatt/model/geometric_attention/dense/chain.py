"""The paper's recursion F^(k)(i,j) = Σ_m F^(k−1)(i,m) ∘ F²(m,j), with its derivatives, written out.

A chain has J = k − 1 overlap modules X_1 … X_J, tensors (R, N, N, F) that are symmetric in the atoms, and
α = Σ_f X_1 X_2 … X_J (matrix products per channel f). Notation used below:

    prefix_j = X_1 … X_j         suffix_j = ᾱ X_J … X_{j+1}     (the adjoint of prefix_j)
    bar = ∂E/∂(...)              dot = derivative along a direction           hat = w · bar − dot of bar

Because every X is symmetric, its adjoint is needed only up to transposition, and the first and the last
product of a chain become plain matrix products between rows i and columns (m, f). The products in between,
which only orders from 4 on have, are made per channel on copies with the channels in front: (R · F, N, N).
Results are written where they belong: moving such arrays takes as long as multiplying them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Chain:
    """The modules of a chain (or their tangents) with the partial products that derivatives reuse."""

    modules: Tensor  # (J, R, N, N, F)
    inner: Tensor  # X_1 … X_{J−1}, channels in front, (J − 1, R · F, N, N); unused for J < 3
    prefix: list[Tensor]  # prefix_1 … prefix_{J−1}, channels in front; empty for J < 3
    left: Tensor  # prefix_{J−1} as (R, N, N, F): all but the last module


def attention(x: Tensor) -> tuple[Tensor, Chain]:
    """α (R, N, N) from the modules (J, R, N, N, F), and the chain."""
    if len(x) == 1:
        return x[0].squeeze(-1), Chain(x, x, [], x[0])
    if len(x) == 2:
        return torch.bmm(_rows(x[0]), _rows(x[1]).mT), Chain(x, x, [], x[0])
    inner = _channels_first(x[:-1])
    prefix = [inner[0]]
    for module in inner[1:]:
        prefix.append(torch.bmm(prefix[-1], module))
    left = _channels_last(prefix[-1], x[0]).contiguous()
    return torch.bmm(_rows(left), _rows(x[-1]).mT), Chain(x, inner, prefix, left)


def attention_dot(chain: Chain, x_dot: Tensor) -> tuple[Tensor, Chain]:
    """dα/dt (R, N, N), and the tangents of the chain."""
    if len(x_dot) == 1:
        return x_dot[0].squeeze(-1), Chain(x_dot, x_dot, [], x_dot[0])
    inner, prefix, left = x_dot, list[Tensor](), x_dot[0]
    if len(x_dot) > 2:
        inner = _channels_first(x_dot[:-1])
        prefix = [inner[0]]
        for j in range(1, len(inner)):
            moved = torch.bmm(prefix[-1], chain.inner[j])
            prefix.append(moved.baddbmm_(chain.prefix[j - 1], inner[j]))
        left = _channels_last(prefix[-1], x_dot[0]).contiguous()
    alpha_dot = torch.bmm(_rows(left), _rows(chain.modules[-1]).mT)
    alpha_dot.baddbmm_(_rows(chain.left), _rows(x_dot[-1]).mT)
    return alpha_dot, Chain(x_dot, inner, prefix, left)


def adjoints(chain: Chain, alpha_bar: Tensor) -> tuple[Tensor, list[Tensor]]:
    """∂E/∂X_j (up to transposition) from ᾱ (R, N, N), and suffix_1 … suffix_{J−1}, channels in front."""
    x = chain.modules
    if len(x) == 1:
        return alpha_bar[None, ..., None], []
    bars = x.new_empty(x.shape)
    torch.bmm(alpha_bar.mT, _rows(chain.left), out=_rows(bars[-1]))
    torch.bmm(alpha_bar, _rows(x[-1]), out=_rows(bars[0]))
    if len(x) == 2:
        return bars, []
    found = torch.empty_like(chain.inner)
    suffix = [_channels_first(bars[0])]
    for j in range(len(x) - 2, 0, -1):
        torch.bmm(suffix[-1].mT, chain.prefix[j - 1], out=found[j])
        suffix.append(torch.bmm(suffix[-1], chain.inner[j], out=found[0] if j == 1 else None))
    bars[:-1] = _channels_last(found, x[:-1])
    return bars, suffix[::-1]


def hats(chain: Chain, dot: Chain, suffix: list[Tensor], alpha_bar: Tensor, alpha_hat: Tensor) -> Tensor:
    """w ∂E/∂X_j − d/dt ∂E/∂X_j (up to transposition); the product rule applied to `adjoints`."""
    x, x_dot = chain.modules, dot.modules
    if len(x) == 1:
        return alpha_hat[None, ..., None]
    result = x.new_empty(x.shape)
    _difference(alpha_hat.mT, _rows(chain.left), alpha_bar.mT, _rows(dot.left), _rows(result[-1]))
    _difference(alpha_hat, _rows(x[-1]), alpha_bar, _rows(x_dot[-1]), _rows(result[0]))
    if len(x) == 2:
        return result
    found = torch.empty_like(chain.inner)
    suffix_hat = _channels_first(result[0])
    for j in range(len(x) - 2, 0, -1):
        _difference(suffix_hat.mT, chain.prefix[j - 1], suffix[j].mT, dot.prefix[j - 1], found[j])
        out = found[0] if j == 1 else None
        suffix_hat = _difference(suffix_hat, chain.inner[j], suffix[j], dot.inner[j], out)
    result[:-1] = _channels_last(found, x[:-1])
    return result


def _rows(a: Tensor) -> Tensor:
    """(R, N, N, F) as matrices with rows i and columns (m, f)."""
    return a.flatten(2)


def _channels_first(a: Tensor) -> Tensor:
    """From (..., R, N, N, F) to (..., R · F, N, N)."""
    return a.movedim(-1, -3).flatten(-4, -3).contiguous()


def _channels_last(a: Tensor, like: Tensor) -> Tensor:
    """From (..., R · F, N, N) to (..., R, N, N, F), a view."""
    return a.unflatten(-3, (like.shape[-4], like.shape[-1])).movedim(-3, -1)


def _difference(m: Tensor, a: Tensor, n: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    """m a − n b, batches of matrices, written to `out` if it is given."""
    return torch.bmm(m, a, out=out).baddbmm_(n, b, alpha=-1.0)
