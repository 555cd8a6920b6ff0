"""All rounds over the states of a graph, with their adjoints written out: for evaluations without a gradient.

Automatic differentiation makes every intermediate array anew, and for large systems the memory they are in
costs more than what is done with them. Here arrays stay from one evaluation to the next, of each round only
A, B and H are kept, and what concerns a state alone is done for a part of the states at a time, while it is
in the cache. Initial states, envelope and readout are left to automatic differentiation. `n` is an adjoint
of the energy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from geomatt.model.pair_states.ceiling import of_round, saturated, saturation_slope
from geomatt.model.pair_states.sparse.products import sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geomatt.model.pair_states.network import PairStates
    from geomatt.model.pair_states.sparse.graph import PairGraph

PART_BYTES = {"cpu": 2**20, "cuda": 2**30}  # of the widest array of a part of the states, for each thread
MORE = 1.1  # room for a structure whose neighbours become more


class Space:
    """Arrays that are used again."""

    def __init__(self) -> None:
        self._arrays: dict[str, Tensor] = {}

    def array(self, name: str, like: Tensor, *shape: int) -> Tensor:
        size, known = math.prod(shape), self._arrays.get(name)
        if known is None or known.numel() < size or (known.dtype, known.device) != (like.dtype, like.device):
            known = self._arrays[name] = like.new_empty(int(MORE * size))
        return known[:size].view(shape)


class Rounds(torch.autograd.Function):
    """Own states and sums over all states of each atom after the last round, (A, C) each.

    From initial states (S, C), the envelope (S, 1) and s of each state (S, 1).
    """

    @staticmethod
    def forward(
        ctx: Any,
        initial: Tensor,
        u: Tensor,
        scale: Tensor,
        network: PairStates,
        graph: PairGraph,
        space: Space,
    ) -> tuple[Tensor, Tensor]:
        states, width = initial.shape
        rounds = network.config.rounds
        x = space.array("x", initial, states, width).copy_(initial)
        p = space.array("p", initial, states, width)
        a, b = (space.array(name, initial, rounds, states, width) for name in "ab")
        h = space.array("h", initial, rounds, states, 2 * width)
        for t in range(rounds):
            torch.mm(x, network.W_AB[t, :width].T, out=a[t])
            torch.mm(x, network.W_AB[t, width:].T, out=b[t])
            sums(a[t], b[t], graph.triangles, out=p)
            for part in _parts(states, width, x):
                product = p[part].mul_(scale[part])
                hidden = torch.addmm(network.b1[t], x[part], network.W1[t, :, :width].T, out=h[t, part])
                hidden.addmm_(product, network.W1[t, :, width:].T)
                if network.ceiling is not None:
                    hidden.copy_(saturated(hidden, of_round(network.ceiling, t, width)))
                active = functional.silu(hidden).mul_(u[part])
                x[part].addcmul_(u[part], network.b2[t]).addmm_(active, network.W2[t].T)
        ctx.save_for_backward(u, scale)
        # The weights of this call: later the network may have others.
        ctx.weights = network.W_AB, network.W1, network.W2, network.b2, network.ceiling
        ctx.graph, ctx.space, ctx.kept = graph, space, (a, b, h)
        atoms = len(graph.own)
        return x.index_select(0, graph.own), x.new_zeros(atoms, width).index_add_(0, graph.i, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, n_own: Tensor, n_total: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        (u, scale), (a, b, h) = ctx.saved_tensors, ctx.kept
        (w_ab, w1, w2, b2, ceiling), graph, space = ctx.weights, ctx.graph, ctx.space
        rounds, states, width = a.shape
        n_x = space.array("n_x", u, states, width)
        torch.index_select(n_total, 0, graph.i, out=n_x)
        n_x.index_add_(0, graph.own, n_own)
        n_p, n_a, n_b = (space.array(name, u, states, width) for name in ("p", "n_a", "n_b"))
        n_u = torch.zeros_like(u)
        for t in reversed(range(rounds)):
            for part in _parts(states, width, u):
                n, hidden = n_x[part], h[t, part]
                n_active = n @ w2[t]  # (part, 2C)
                n_u[part] += (n_active * functional.silu(hidden)).sum(1, keepdim=True)
                n_u[part] += (n @ b2[t])[:, None]
                n_h = torch.ops.aten.silu_backward(n_active.mul_(u[part]), hidden)
                if ceiling is not None:
                    n_h *= saturation_slope(hidden, of_round(ceiling, t, width))
                torch.mm(n_h, w1[t, :, width:], out=n_p[part]).mul_(scale[part])
                n.addmm_(n_h, w1[t, :, :width])
            sums(n_p, b[t], graph.triangles, right_reversed=True, out=n_a)
            sums(a[t], n_p, graph.triangles, left_reversed=True, out=n_b)
            n_x.addmm_(n_a, w_ab[t, :width]).addmm_(n_b, w_ab[t, width:])
        return n_x, n_u, None, None, None, None


def _parts(states: int, width: int, like: Tensor) -> Iterator[slice]:
    limit = PART_BYTES["cuda"] if like.is_cuda else torch.get_num_threads() * PART_BYTES["cpu"]
    step = max(64, limit // (2 * width * like.element_size()))
    return (slice(begin, begin + step) for begin in range(0, states, step))
