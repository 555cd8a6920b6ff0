"""The paper's recursion F^(k)(i,j) = Σ_m F^(k−1)(i,m) ∘ F²(m,j), with its derivatives, written out.

A chain has J = k − 1 overlap modules X_1 … X_J, tensors (R, N, N, F) that are symmetric in the atoms, and
α = Σ_f X_1 X_2 … X_J (matrix products per channel f). Notation used below:

    prefix_j = X_1 … X_j         suffix_j = ᾱ X_J … X_{j+1}     (the adjoint of prefix_j)
    bar = ∂E/∂(...)              dot = derivative along a direction           hat = w · bar − dot of bar

Because every X is symmetric, its adjoint is needed only up to transposition, and the first and the last
product of a chain become plain matrix products between rows i and columns (m, f). The products in between,
which only orders from 4 on have, are made per channel on copies with the channels in front: (R · F, N, N).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Modules = list[Tensor]  # J tensors (R, N, N, F)


@dataclass
class Chain:
    """The modules of a chain (or their tangents) with the partial products that derivatives reuse."""

    modules: Modules
    inner: list[Tensor]  # X_1 … X_{J−1}, channels in front; empty for J < 3
    prefix: list[Tensor]  # prefix_1 … prefix_{J−1}, channels in front; empty for J < 3
    left: Tensor  # prefix_{J−1} as (R, N, N, F): all but the last module


def attention(x: Modules) -> tuple[Tensor, Chain]:
    """α (R, N, N), and the chain."""
    if len(x) == 1:
        return x[0].squeeze(-1), Chain(x, [], [], x[0])
    if len(x) == 2:
        return torch.bmm(_rows(x[0]), _rows(x[1]).mT), Chain(x, [], [], x[0])
    inner = [_channels_first(module) for module in x[:-1]]
    prefix = inner[:1]
    for module in inner[1:]:
        prefix.append(torch.bmm(prefix[-1], module))
    left = _channels_last(prefix[-1], x[0])
    return torch.bmm(_rows(left), _rows(x[-1]).mT), Chain(x, inner, prefix, left)


def attention_dot(chain: Chain, x_dot: Modules) -> tuple[Tensor, Chain]:
    """dα/dt (R, N, N), and the tangents of the chain."""
    if len(x_dot) == 1:
        return x_dot[0].squeeze(-1), Chain(x_dot, [], [], x_dot[0])
    inner: list[Tensor] = []
    prefix: list[Tensor] = []
    left = x_dot[0]
    if len(x_dot) > 2:
        inner = [_channels_first(module) for module in x_dot[:-1]]
        prefix = inner[:1]
        for j in range(1, len(inner)):
            moved = torch.bmm(prefix[-1], chain.inner[j])
            prefix.append(torch.baddbmm(moved, chain.prefix[j - 1], inner[j]))
        left = _channels_last(prefix[-1], x_dot[0])
    alpha_dot = torch.bmm(_rows(left), _rows(chain.modules[-1]).mT)
    alpha_dot = torch.baddbmm(alpha_dot, _rows(chain.left), _rows(x_dot[-1]).mT)
    return alpha_dot, Chain(x_dot, inner, prefix, left)


def adjoints(chain: Chain, alpha_bar: Tensor) -> tuple[Modules, list[Tensor]]:
    """∂E/∂X_j (up to transposition) from ᾱ (R, N, N), and suffix_1 … suffix_{J−1}, channels in front."""
    x = chain.modules
    if len(x) == 1:
        return [alpha_bar[..., None]], []
    bars = [_left(alpha_bar.mT, chain.left)]
    if len(x) == 2:
        return [_left(alpha_bar, x[-1]), *bars], []
    suffix = [_channels_first(_left(alpha_bar, x[-1]))]
    for j in range(len(x) - 2, 0, -1):
        bars.append(_channels_last(torch.bmm(suffix[-1].mT, chain.prefix[j - 1]), x[0]))
        suffix.append(torch.bmm(suffix[-1], chain.inner[j]))
    bars.append(_channels_last(suffix[-1], x[0]))
    return bars[::-1], suffix[::-1]


def hats(chain: Chain, dot: Chain, suffix: list[Tensor], alpha_bar: Tensor, alpha_hat: Tensor) -> Modules:
    """w ∂E/∂X_j − d/dt ∂E/∂X_j (up to transposition); the product rule applied to `adjoints`."""
    x, x_dot = chain.modules, dot.modules
    if len(x) == 1:
        return [alpha_hat[..., None]]
    result = [_left_difference(alpha_hat.mT, chain.left, alpha_bar.mT, dot.left)]
    last = _left_difference(alpha_hat, x[-1], alpha_bar, x_dot[-1])
    if len(x) == 2:
        return [last, *result]
    suffix_hat = _channels_first(last)
    for j in range(len(x) - 2, 0, -1):
        hat = torch.bmm(suffix_hat.mT, chain.prefix[j - 1])
        hat = torch.baddbmm(hat, suffix[j].mT, dot.prefix[j - 1], alpha=-1.0)
        result.append(_channels_last(hat, x[0]))
        suffix_hat = torch.bmm(suffix_hat, chain.inner[j])
        suffix_hat = torch.baddbmm(suffix_hat, suffix[j], dot.inner[j], alpha=-1.0)
    result.append(_channels_last(suffix_hat, x[0]))
    return result[::-1]


def _rows(a: Tensor) -> Tensor:
    """(R, N, N, F) as matrices with rows i and columns (m, f)."""
    return a.flatten(2)


def _channels_first(a: Tensor) -> Tensor:
    """From (R, N, N, F) to (R · F, N, N)."""
    return a.permute(0, 3, 1, 2).flatten(0, 1).contiguous()


def _channels_last(a: Tensor, like: Tensor) -> Tensor:
    """From (R · F, N, N) to (R, N, N, F)."""
    return a.unflatten(0, (like.shape[0], like.shape[3])).permute(0, 2, 3, 1).contiguous()


def _left(matrix: Tensor, a: Tensor) -> Tensor:
    """Σ_i matrix(j,i) a(i,m)_f: one matrix (R, N, N) applied to all channels."""
    return torch.bmm(matrix, _rows(a)).view(a.shape)


def _left_difference(m: Tensor, a: Tensor, n: Tensor, b: Tensor) -> Tensor:
    """m a − n b, as `_left`."""
    return torch.baddbmm(torch.bmm(m, _rows(a)), n, _rows(b), alpha=-1.0).view(a.shape)
