"""The streams of interactions v_i ← v_i + Σ_j α_ij (W v_j + b), with their derivatives, written out.

Until the readout the features are linear in the elements' embeddings. So they are carried as v = c T, with
few coefficients c (N, R) per atom over R vectors T (R, V) that all atoms share. A layer appends α c to the
coefficients and W T + b to the vectors: α works on R columns instead of V, and W on R rows instead of one
row per atom. The first column of c is one for every atom; its vector carries the biases. R doubles with every
layer, and once it would pass `WIDEST` the features are formed and the next layers start afresh from them.

Shapes: Z = S · M networks of one stream each (streams outermost), Z · B structures.
`bar`, `dot` and `hat` as in `dense`; T does not depend on positions, so it has no `dot`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

WIDEST = 256


@dataclass
class Plan:
    """The vectors T, by segment."""

    vectors: list[list[Tensor]]  # [segment][layer] (Z, R, V), before the layer
    weight: list[Tensor]  # [layer] (Z, V, V)
    ends: list[Tensor]  # [segment], after its last layer


@dataclass
class Layer:
    """Inputs and weights of a layer."""

    alpha: Tensor  # (Z·B, N, N)
    weight: Tensor  # (Z, V, V), W with the factor Δd / N_S
    c: Tensor  # (Z·B, N, R)
    vectors: Tensor  # (Z, R, V)


@dataclass
class Segment:
    """Consecutive layers that share coefficients; features are formed after the last."""

    layers: list[Layer] = field(default_factory=list)
    c: Tensor = field(default_factory=lambda: torch.empty(0))  # after the last layer
    vectors: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass
class Gradients:
    """Gradient of the loss with respect to weights, embeddings and α of the streams."""

    weight: list[Tensor]  # [layer] (Z, V, V), with respect to W with its factor
    bias: list[Tensor]  # [layer] (Z, V), with respect to b with its factor
    embedding: Tensor  # (Z, elements, V)
    alpha_hat: list[Tensor]  # [layer] (Z·B, N, N)


def plan(
    embedding: Tensor,  # (Z, elements, V)
    weight: list[Tensor],  # [layer] (Z, V, V), with the factor Δd / N_S
    bias: list[Tensor],  # [layer] (Z, V), with that factor
) -> Plan:
    """The vectors T before every layer and at the end of every segment, from the weights alone."""
    found = Plan([[]], weight, [])
    vectors = functional.pad(embedding, (0, 0, 1, 0))
    for w, b in zip(weight, bias, strict=True):
        if found.vectors[-1] and 2 * vectors.shape[1] > WIDEST:
            found.ends.append(vectors)
            found.vectors.append([])
            same = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
            vectors = functional.pad(same, (0, 0, 1, 0)).expand(len(w), -1, -1)
        found.vectors[-1].append(vectors)
        image = torch.baddbmm(functional.pad(b[:, None], (0, 0, 0, vectors.shape[1] - 1)), vectors, w.mT)
        vectors = torch.cat([vectors, image], 1)
    found.ends.append(vectors)
    return found


def forward(one_hot: Tensor, alpha: list[Tensor], plan: Plan) -> tuple[Tensor, list[Segment]]:
    """Features (Z, B·N, V) after all layers, and the segments that led there.

    `one_hot` (Z·B, N, elements) has zero rows for padding; `alpha` is [layer] (Z·B, N, N).
    """
    c = functional.pad(one_hot, (1, 0), value=1.0)
    matrices, weights = iter(alpha), iter(plan.weight)
    segments: list[Segment] = []
    for vectors, end in zip(plan.vectors, plan.ends, strict=True):
        if segments:
            v = _features(segments[-1].c, segments[-1].vectors)
            c = functional.pad(v.view(len(c), -1, v.shape[-1]), (1, 0), value=1.0)
        segment = Segment(vectors=end)
        for t in vectors:
            a = next(matrices)
            segment.layers.append(Layer(a, next(weights), c, t))
            c = torch.cat([c, torch.bmm(a, c)], -1)
        segment.c = c
        segments.append(segment)
    return _features(segments[-1].c, segments[-1].vectors), segments


def adjoints(segments: list[Segment], g: Tensor) -> tuple[list[Tensor], list[list[Tensor]], list[Tensor]]:
    """From g = ∂E/∂v (Z, B·N, V): ᾱ by layer; by segment ∂E/∂(α c) of its layers, and g at its end."""
    alpha_bar: list[Tensor] = []
    moved_bar: list[list[Tensor]] = []
    ends = [g]
    for segment in reversed(segments):
        c_bar = _by_coefficients(segment, ends[-1])
        moved_bar.append([])
        for layer in reversed(segment.layers):
            kept, moved = c_bar.chunk(2, -1)
            alpha_bar.append(torch.bmm(moved, layer.c.mT))
            moved_bar[-1].append(moved)
            if layer is not segments[0].layers[0]:  # the input of the first layer is constant
                c_bar = torch.baddbmm(kept, layer.alpha.mT, moved)
        if segment is not segments[0]:
            ends.append(c_bar[..., 1:].reshape_as(g))
    return alpha_bar[::-1], [m[::-1] for m in moved_bar[::-1]], ends[::-1]


def tangents(segments: list[Segment], alpha_dot: list[Tensor]) -> tuple[Tensor, list[list[Tensor]]]:
    """dv/dt (Z, B·N, V), and dc/dt before each layer and after the last, by segment."""
    dots = iter(alpha_dot)
    result: list[list[Tensor]] = []
    v_dot = torch.empty(0)
    for segment in segments:
        c_dot = torch.zeros_like(segment.layers[0].c)
        if result:
            c_dot[..., 1:] = v_dot.view(*c_dot.shape[:2], -1)
        result.append([c_dot])
        for layer in segment.layers:
            moved = torch.bmm(next(dots), layer.c)
            if layer is not segments[0].layers[0]:
                moved = torch.baddbmm(moved, layer.alpha, c_dot)
            c_dot = torch.cat([c_dot, moved], -1)
            result[-1].append(c_dot)
        v_dot = _features(c_dot, segment.vectors)
    return v_dot, result


def gradients(
    segments: list[Segment],
    g_hat: Tensor,  # (Z, B·N, V)
    ends: list[Tensor],  # g at the end of each segment
    moved_bar: list[list[Tensor]],
    alpha_dot: list[Tensor],
    c_dot: list[list[Tensor]],
) -> Gradients:
    """Hats back through all layers, with the gradients of weights, biases and embeddings on the way."""
    found = Gradients([], [], torch.empty(0), [])
    dots = iter(alpha_dot[::-1])
    for number in reversed(range(len(segments))):
        segment, g = segments[number], ends[number]
        c_hat = _by_coefficients(segment, g_hat)
        t_hat = torch.bmm(_over_atoms(segment.c, g).mT, g_hat)
        t_hat = torch.baddbmm(t_hat, _over_atoms(c_dot[number][-1], g).mT, g, alpha=-1.0)
        for position in reversed(range(len(segment.layers))):
            layer, moved = segment.layers[position], moved_bar[number][position]
            dot = next(dots)
            kept_hat, moved_hat = c_hat.chunk(2, -1)
            alpha_hat = torch.bmm(moved_hat, layer.c.mT)
            if number or position:
                alpha_hat = torch.baddbmm(alpha_hat, moved, c_dot[number][position].mT, alpha=-1.0)
                c_hat = torch.baddbmm(kept_hat, layer.alpha.mT, moved_hat)
                c_hat = torch.baddbmm(c_hat, dot.mT, moved, alpha=-1.0)
            found.alpha_hat.append(alpha_hat)
            t_hat, weight, bias = vectors_back(t_hat, layer.vectors, layer.weight)
            found.weight.append(weight)
            found.bias.append(bias)
        g_hat = c_hat[..., 1:].reshape_as(g) if number else g_hat
        found.embedding = t_hat[
            :, 1:
        ]  # finally those of the first segment: the others start from unit vectors
    for parts in (found.weight, found.bias, found.alpha_hat):
        parts.reverse()
    return found


def vectors_back(t_hat: Tensor, vectors: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient by the vectors after a layer to that by those before it, by W and by b."""
    kept, image = t_hat.chunk(2, 1)
    return torch.baddbmm(kept, image, weight), torch.bmm(image.mT, vectors), image[:, 0]


def _features(c: Tensor, vectors: Tensor) -> Tensor:
    """v = c T, (Z, B·N, V)."""
    return torch.bmm(c.view(len(vectors), -1, c.shape[-1]), vectors)


def _by_coefficients(segment: Segment, g: Tensor) -> Tensor:
    """∂/∂c (Z·B, N, R) from ∂/∂v (Z, B·N, V)."""
    return torch.bmm(g, segment.vectors.mT).view(segment.c.shape)


def _over_atoms(c: Tensor, g: Tensor) -> Tensor:
    """(Z·B, N, R) as (Z, B·N, R)."""
    return c.view(len(g), -1, c.shape[-1])
