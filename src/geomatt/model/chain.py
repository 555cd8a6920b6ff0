"""The paper's recursion F^(k)(i,j) = Σ_m F^(k−1)(i,m) ∘ F²(m,j), with its derivatives, written out.

A chain has J = k − 1 overlap modules X_1 … X_J, tensors (B, N, N, F) that are symmetric in the atoms, and
α = Σ_f X_1 X_2 … X_J (matrix products per channel f). Notation used below:

    prefix_j = X_1 … X_j         suffix_j = ᾱ X_J … X_{j+1}     (the adjoint of prefix_j)
    bar = ∂E/∂(...)              dot = derivative along a direction           hat = w · bar − dot of bar

Because every X is symmetric, its adjoint is needed only up to transposition, and the first and the last
product of a chain become plain matrix products between rows i and columns (m, f).
"""

from __future__ import annotations

import torch
from torch import Tensor

Modules = list[Tensor]  # J tensors (B, N, N, F)


def attention(x: Modules) -> tuple[Tensor, Modules]:
    """α (B, N, N), and the prefixes up to J − 1."""
    prefix = x[:1]
    for step in x[1:-1]:
        prefix.append(_product(prefix[-1], step))
    return (x[0].squeeze(-1) if len(x) == 1 else _last(prefix[-1], x[-1])), prefix


def attention_dot(x: Modules, x_dot: Modules, prefix: Modules) -> tuple[Tensor, Modules]:
    """dα/dt (B, N, N), and the tangents of the prefixes."""
    if len(x) == 1:
        return x_dot[0].squeeze(-1), x_dot
    prefix_dot = x_dot[:1]
    for j in range(1, len(x) - 1):
        prefix_dot.append(_product(prefix_dot[-1], x[j]) + _product(prefix[j - 1], x_dot[j]))
    left, right = _rows(prefix[-1]), _rows(x_dot[-1])
    return torch.baddbmm(_last(prefix_dot[-1], x[-1]), left, right.mT), prefix_dot


def adjoints(x: Modules, prefix: Modules, alpha_bar: Tensor) -> tuple[Modules, Modules]:
    """∂E/∂X_j (up to transposition) from ᾱ (B, N, N), and the suffixes 1 … J − 1."""
    if len(x) == 1:
        return [alpha_bar[..., None]], []
    bars = [_left(alpha_bar.mT, prefix[-1])]
    suffix = [_left(alpha_bar, x[-1])]
    for j in range(len(x) - 2, 0, -1):
        bars.append(_transposed_product(suffix[-1], prefix[j - 1]))
        suffix.append(_product(suffix[-1], x[j]))
    bars.append(suffix[-1])
    return bars[::-1], suffix[::-1]


def hats(
    x: Modules,
    x_dot: Modules,
    prefix: Modules,
    prefix_dot: Modules,
    suffix: Modules,
    alpha_bar: Tensor,
    alpha_hat: Tensor,
) -> Modules:
    """w ∂E/∂X_j − d/dt ∂E/∂X_j (up to transposition); the product rule applied to `adjoints`."""
    if len(x) == 1:
        return [alpha_hat[..., None]]
    result = [_left_difference(alpha_hat.mT, prefix[-1], alpha_bar.mT, prefix_dot[-1])]
    suffix_hat = _left_difference(alpha_hat, x[-1], alpha_bar, x_dot[-1])
    for j in range(len(x) - 2, 0, -1):
        result.append(
            _transposed_product(suffix_hat, prefix[j - 1]) - _transposed_product(suffix[j], prefix_dot[j - 1])
        )
        suffix_hat = _product(suffix_hat, x[j]) - _product(suffix[j], x_dot[j])
    result.append(suffix_hat)
    return result[::-1]


def _rows(a: Tensor) -> Tensor:
    """(B, N, N, F) as matrices with rows i and columns (m, f)."""
    return a.flatten(2)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Σ_m a(i,m) ∘ b(m,j)."""
    return torch.einsum("bimf,bmjf->bijf", a, b).contiguous()


def _transposed_product(a: Tensor, b: Tensor) -> Tensor:
    """Σ_i a(i,m) ∘ b(i,j)."""
    return torch.einsum("bimf,bijf->bmjf", a, b).contiguous()


def _last(a: Tensor, b: Tensor) -> Tensor:
    """Σ_f Σ_m a(i,m)_f b(m,j)_f for symmetric b."""
    return torch.bmm(_rows(a), _rows(b).mT)


def _left(matrix: Tensor, a: Tensor) -> Tensor:
    """Σ_i matrix(j,i) a(i,m)_f: one matrix (B, N, N) applied to all channels."""
    return torch.bmm(matrix, _rows(a)).view(a.shape)


def _left_difference(m: Tensor, a: Tensor, n: Tensor, b: Tensor) -> Tensor:
    """m a − n b, as `_left`."""
    return torch.baddbmm(torch.bmm(m, _rows(a)), n, _rows(b), alpha=-1.0).view(a.shape)
