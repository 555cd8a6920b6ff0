"""What the sweeps of `program` do to a batch, in plain torch.

Channels come first, so that neither products with weights nor products over atoms need transposes:

    states     (M, rows, P)         P pairs (b, i, j) in this order
    of atoms   (M, B·N, 2, rows)    on the axis of two an atom's own pair i = j, and s Σ_{j≠i} of the others

As in `program`, n_x = −∂E/∂x, ẋ (`dot`) is the derivative along ṙ, and x̂ (`hat`) = ∂L/∂x.
Functions write to their last argument unless they return something.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomatt.model.interface import Parameters
from geomatt.model.pair_states.ceiling import saturated, saturation_slope
from geomatt.model.pair_states.config import DECAY, PairStatesConfig

EXPONENT_LIMIT = 40.0  # as in `PairStates.basis`


class TorchKernels:
    """One batch of M networks: numbers (M, B, N) and positions (M, B, N, 3)."""

    def __init__(self, config: PairStatesConfig, p: Parameters, numbers: Tensor, positions: Tensor) -> None:
        self.config, self.p = config, p
        self.size = members, batch, atoms = tuple(numbers.shape)
        self.shape = (batch, atoms, atoms)
        self.columns = batch * atoms * atoms  # of states; P
        dtype = positions.dtype
        real = numbers > 0
        self.real = real.to(dtype)  # (M, B, N)
        self.mask = (self.real[..., :, None] * self.real[..., None, :]).view(members, 1, -1)  # (M, 1, P)
        self.scale = self._scale()[:, None, :, None]  # s, (M, 1, B, 1)
        self.one_hot = (numbers.flatten(1)[:, None] == p["elements"][..., None]).to(dtype)  # (M, E, B·N)
        self.g, self.h, self.e = (
            torch.bmm(p[name].mT, self.one_hot).unflatten(-1, (batch, atoms)) for name in "ghe"
        )  # (M, C, B, N)
        self._geometry(positions)

    def _scale(self) -> Tensor:
        if self.config.normalisation == "constant":
            return torch.full_like(self.real[..., 0], self.config.typical_atoms**-0.5)
        return self.real.sum(-1).clamp(min=1.0).rsqrt()

    def _geometry(self, positions: Tensor) -> None:
        difference = positions[..., :, None, :] - positions[..., None, :, :]  # (M, B, N, N, 3)
        squared = difference.square().sum(-1)
        apart = squared > 0
        inverse = torch.where(apart, torch.rsqrt(torch.where(apart, squared, 1.0)), 0.0)
        self.direction = difference * inverse[..., None]  # from j to i; zero where atoms coincide
        x = torch.exp((squared * inverse) * (-1.0 / DECAY)).flatten(1)[:, None]  # (M, 1, P)
        offset = x - self.p["mu"][..., None]  # (M, L, P)
        exponent = self.config.sharpness * offset.square()
        self.between = self.mask.clone()  # where i ≠ j
        self._matrices(self.between).diagonal(dim1=-2, dim2=-1).zero_()
        self.phi = torch.where(exponent < EXPONENT_LIMIT, torch.exp(-exponent), 0.0) * self.between
        self.slope = (2.0 * self.config.sharpness / DECAY) * offset * x * self.phi  # dφ/dd

    # ---- initial states -----------------------------------------------------------------------------

    def initial(self, x: Tensor) -> None:
        """(K φ) ∘ g ∘ h, and e where i = j."""
        self._embedded(torch.bmm(self.p["K"], self.phi), x)
        self._matrices(x).diagonal(dim1=-2, dim2=-1).copy_(self.e)

    def initial_dot(self, r_dot: Tensor, x_dot: Tensor) -> None:
        """Along ṙ (M, B, N, 3), which `initial_gradient` uses, too."""
        d_dot = ((r_dot[..., :, None, :] - r_dot[..., None, :, :]) * self.direction).sum(-1)
        self.phi_dot = self.slope * d_dot.flatten(1)[:, None]
        self._embedded(torch.bmm(self.p["K"], self.phi_dot), x_dot)

    def _embedded(self, functions: Tensor, out: Tensor) -> None:
        """Functions of pairs (M, C, P) times g ∘ h."""
        torch.mul(self._matrices(functions), self.g[..., None], out=self._matrices(out))
        self._matrices(out).mul_(self.h[..., None, :])

    def forces(self, n_x: Tensor) -> Tensor:
        """F = −∂E/∂r (M, B, N, 3) from n of the initial states."""
        n_d = self._by_distance(n_x).unflatten(-1, self.shape)
        return ((n_d + n_d.mT)[..., None] * self.direction).sum(3)

    def _by_distance(self, n_x: Tensor) -> Tensor:
        """−∂E/∂d (M, P)."""
        weighted = torch.empty_like(n_x)
        self._embedded(n_x, weighted)
        return (torch.bmm(self.p["K"].mT, weighted) * self.slope).sum(1)

    def initial_gradient(self, x_hat: Tensor, n_x: Tensor) -> dict[str, Tensor]:
        """∂L/∂ of g, h, e and K."""
        embedded = torch.empty_like(x_hat)
        self._embedded(x_hat, embedded)
        by_k = torch.bmm(embedded, self.phi.mT)
        self._embedded(n_x, embedded)
        by_k.baddbmm_(embedded, self.phi_dot.mT)
        y = self._matrices(
            x_hat * torch.bmm(self.p["K"], self.phi) + n_x * torch.bmm(self.p["K"], self.phi_dot)
        )
        by_atom = {
            "g": (y @ self.h[..., None]).squeeze(-1),
            "h": (self.g[..., None, :] @ y).squeeze(-2),
            "e": self._matrices(x_hat).diagonal(dim1=-2, dim2=-1),
        }  # (M, C, B, N)
        return {n: torch.bmm(self.one_hot, v.flatten(2).mT) for n, v in by_atom.items()} | {"K": by_k}

    # ---- products with weights, one of `program.matrices` -----------------------------------------------

    def weigh(self, name: str, t: int, x: Tensor, out: Tensor, add: bool = False) -> None:
        """out = W x, or out + W x, of states (M, rows, P) with a matrix of round t."""
        multiply(self.p[name][:, t], x, out, add)

    def weigh_atoms(self, name: str, x: Tensor, out: Tensor, add: bool = False) -> None:
        """The same for values of atoms (M, B·N, features)."""
        multiply(x, self.p[name].mT, out, add)

    # ---- P = s A B, a product of matrices over atoms for each channel; `ab` is A above B --------------

    def product(self, ab: Tensor, p: Tensor) -> None:
        a, b = self._factors(ab)
        self._times(a, b, p)
        self._scaled(p)

    def product_dot(self, ab: Tensor, ab_dot: Tensor, p_dot: Tensor) -> None:
        (a, b), (a_dot, b_dot) = self._factors(ab), self._factors(ab_dot)
        self._times(a_dot, b, p_dot)
        self._times(a, b_dot, p_dot, add=True)
        self._scaled(p_dot)

    def product_adjoint(self, n_p: Tensor, ab: Tensor, n_ab: Tensor) -> None:
        """n_P is multiplied by s, once for all that is done with it."""
        a, b = self._factors(ab)
        n_a, n_b = n_ab.chunk(2, 1)
        n = self._matrices(self._scaled(n_p))
        self._times(n, b.mT, n_a)
        self._times(a.mT, n, n_b)

    def product_hat(self, p_hat: Tensor, n_p: Tensor, ab: Tensor, ab_dot: Tensor, ab_hat: Tensor) -> None:
        (a, b), (a_dot, b_dot) = self._factors(ab), self._factors(ab_dot)
        a_hat, b_hat = ab_hat.chunk(2, 1)
        hat, n = self._matrices(self._scaled(p_hat)), self._matrices(n_p)
        self._times(hat, b.mT, a_hat)
        self._times(n, b_dot.mT, a_hat, add=True)
        self._times(a.mT, hat, b_hat)
        self._times(a_dot.mT, n, b_hat, add=True)

    def _times(self, a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
        """Products of matrices (M, C, B, N, N)."""
        if out.is_contiguous():
            target, a, b = out.view(-1, *self.shape[1:]), a.flatten(0, 2), b.flatten(0, 2)
            torch.baddbmm(target, a, b, out=target) if add else torch.bmm(a, b, out=target)
        else:  # a part of the rows of several members
            product, target = torch.matmul(a, b), self._matrices(out)
            target.add_(product) if add else target.copy_(product)

    def _scaled(self, p: Tensor) -> Tensor:
        self._matrices(p).mul_(self.scale[..., None])
        return p

    # ---- U = silu(c(H + b₁)), and what a round adds to: X + b₂ ----------------------------------------
    # In the last round adjoints come from the readout and are given for atoms. `ceiling` (M, 2, rows) is that
    # of these units (`pair_states.ceiling`); None for c(h) = h, as in training.

    def activate(
        self, h: Tensor, b1: Tensor, u: Tensor, x: Tensor, b2: Tensor, x_next: Tensor | None,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        """H becomes c(H + b₁). The last round has no next."""
        h.addcmul_(b1[..., None], self.mask)
        if ceiling is not None:
            h.copy_(saturated(h, ceiling[..., None], 1)).mul_(self.mask)
        torch.ops.aten.silu.out(h, out=u)
        if x_next is not None:
            torch.addcmul(x, b2[..., None], self.mask, out=x_next)

    def activate_dot(
        self, h: Tensor, h_dot: Tensor, u_dot: Tensor, x_dot: Tensor, b2: Tensor, x_dot_next: Tensor | None
    ) -> None:
        silu_slope(h_dot, h, u_dot)
        if x_dot_next is not None:
            x_dot_next.copy_(x_dot)

    def activate_adjoint(
        self, n_u: Tensor, h: Tensor, n_next: Tensor, b2: Tensor, n_h: Tensor, n_x: Tensor,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        silu_slope(self._of_pairs(n_u), h, n_h)
        if ceiling is not None:
            n_h *= saturation_slope(h, ceiling[..., None], 1)
        if n_x.data_ptr() != n_next.data_ptr():
            n_x.copy_(self._of_pairs(n_next))

    def activate_hat(
        self, u_hat: Tensor, n_u: Tensor, h: Tensor, h_dot: Tensor, hat_next: Tensor, h_hat: Tensor,
        x_hat: Tensor,
    ) -> None:  # fmt: skip
        silu_hat(self._of_pairs(u_hat), self._of_pairs(n_u), h, h_dot, h_hat)
        x_hat.copy_(self._of_pairs(hat_next))

    # ---- from pairs to atoms and back ---------------------------------------------------------------

    def gather(self, x: Tensor, u: Tensor, b2: Tensor | None, x_sums: Tensor, u_sums: Tensor) -> None:
        """Own pair and scaled sum over the others of each atom, of X + b₂ and of U: (M, B·N, 2, rows)."""
        x_sums.copy_(self._sums(x))
        u_sums.copy_(self._sums(u))
        if b2 is not None:
            x_sums.addcmul_(self.counts(), b2[:, None, None])

    def gather_dot(self, x: Tensor, u: Tensor, b2: Tensor, x_sums: Tensor, u_sums: Tensor) -> None:
        """Of Ẋ and U̇; b₂ moves only with an envelope."""
        self.gather(x, u, None, x_sums, u_sums)

    def counts(self) -> Tensor:
        """Own pair and scaled sum over the others of ones, (M, B·N, 2, 1)."""
        return self._sums(self.mask)

    def _sums(self, x: Tensor) -> Tensor:
        matrices = self._matrices(x)
        own = matrices.diagonal(dim1=-2, dim2=-1)  # (M, rows, B, N)
        others = (matrices.sum(-1) - own) * self.scale
        return torch.stack([own, others], 2).flatten(3).permute(0, 3, 2, 1)

    def _of_pairs(self, n: Tensor) -> Tensor:
        """States (M, rows, P) from values of atoms: the adjoint of `gather`, zero for padding."""
        if n.dim() == 3:
            return n
        own, others = n.permute(2, 0, 3, 1).unflatten(-1, self.shape[:2])  # (M, rows, B, N)
        result = (others * self.scale)[..., None] * self._matrices(self.mask)
        result.diagonal(dim1=-2, dim2=-1).copy_(own)
        return result.flatten(2)

    # ---- gradients of weights and biases, from adjoints (T, M, R, 2, P) and states (T, M, Q, 2, P) -----

    def weights(self, adjoint: Tensor, state: Tensor) -> Tensor:
        """Σ_pairs x̂ yᵀ + n ẏᵀ of every round, (M, T, R, Q)."""
        found = [torch.bmm(a.flatten(2), x.flatten(2).mT) for a, x in zip(adjoint, state, strict=True)]
        return torch.stack(found, 1)

    def biases(self, adjoint: Tensor) -> Tensor:
        """Σ_pairs x̂ of every round, (M, T, R)."""
        return adjoint[:, :, :, 0].sum(-1).transpose(0, 1)

    def update_biases(self, adjoint: Tensor) -> Tensor:
        """As `biases`, for b₂ of all rounds but the last, from adjoints of X."""
        return self.biases(adjoint)

    def last_bias(self, by_b2: Tensor, adjoint: Tensor) -> Tensor:
        """∂L/∂b₂ of the last round (M, C) from that of `readout_sums` and adjoints of R (M, 2, B·N, 2, C)."""
        return by_b2

    # ---- readout of atoms, (M, B·N, features) ----------------------------------------------------------

    def hidden(self, q: Tensor, c: Tensor, a: Tensor, ceiling: Tensor | None) -> None:
        """A = silu(Q + c); Q becomes Q + c, or what the ceiling makes of it."""
        q += c[:, None]
        if ceiling is not None:
            q.copy_(saturated(q, ceiling[:, :, None], 1))
        torch.ops.aten.silu.out(q, out=a)

    def hidden_dot(self, q: Tensor, q_dot: Tensor, a_dot: Tensor) -> None:
        silu_slope(q_dot, q, a_dot)

    def hidden_adjoint(self, n_a: Tensor, q: Tensor, n_q: Tensor, ceiling: Tensor | None) -> None:
        silu_slope(n_a, q, n_q)
        if ceiling is not None:
            n_q *= saturation_slope(q, ceiling[:, :, None], 1)

    def hidden_hat(self, a_hat: Tensor, n_a: Tensor, q: Tensor, q_dot: Tensor, q_hat: Tensor) -> None:
        silu_hat(a_hat, n_a, q, q_dot, q_hat)

    def output(
        self, q: Tensor, c: Tensor, v: Tensor, bias: Tensor, a: Tensor, n_q: Tensor, ceiling: Tensor | None
    ) -> Tensor:
        """Atomic energies (M, B, N) = v A + bias with A and Q of `hidden`, and n_Q."""
        self.hidden(q, c, a, ceiling)
        real = self.real.flatten(1)[..., None]
        self.hidden_adjoint(-v * real, q, n_q, ceiling)
        return (torch.baddbmm(bias[:, None], a, v.mT) * real).view(self.size)

    def output_hat(
        self, by_energy: Tensor, q: Tensor, q_dot: Tensor, v: Tensor, a_dot: Tensor, q_hat: Tensor
    ) -> None:
        """Ȧ and Q̂ from w (M, B)."""
        real = self.real.flatten(1)[..., None]
        silu_slope(q_dot, q, a_dot)
        silu_hat(self._by_atom(by_energy) * v, -v * real, q, q_dot, q_hat)

    def readout_sums(
        self, by_energy: Tensor, a: Tensor, a_dot: Tensor, q1_hat: Tensor, q2_hat: Tensor, r_hat: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """∂L/∂ of v₃, c₃, c₁, c₂ and of b₂ of the last round."""
        w, real = self._by_atom(by_energy), self.real.flatten(1)[..., None]
        v = (w * a - real * a_dot).sum(1, keepdim=True)
        return v, w.sum(1), q1_hat.sum(1), q2_hat.sum(1), (r_hat * self.counts()).sum((1, 2))

    def _by_atom(self, by_energy: Tensor) -> Tensor:
        """(M, B) as (M, B·N, 1), zero for padding."""
        return (by_energy[..., None] * self.real).flatten(1)[..., None]

    # ---- views ------------------------------------------------------------------------------------------

    def _matrices(self, x: Tensor) -> Tensor:
        """(M, rows, P) as (M, rows, B, N, N)."""
        return x.unflatten(-1, self.shape)

    def _factors(self, ab: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self._matrices(ab).chunk(2, 1)
        return a, b


def silu_slope(by_output: Tensor, x: Tensor, out: Tensor) -> None:
    """by_output · silu'(x)."""
    torch.ops.aten.silu_backward.grad_input(by_output, x, grad_input=out)


def silu_hat(hat: Tensor, n: Tensor, x: Tensor, x_dot: Tensor, out: Tensor) -> None:
    """hat · silu'(x) + n · silu''(x) · ẋ; `out` may be `hat`."""
    sigmoid = torch.sigmoid(x)
    curvature = sigmoid * (1.0 - sigmoid) * (2.0 + x * (1.0 - 2.0 * sigmoid))
    silu_slope(hat, x, out)
    out.addcmul_(n, curvature.mul_(x_dot))


def multiply(a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
    """out = a b, or out + a b, for each member."""
    if len(out) == 1:
        torch.addmm(out[0], a[0], b[0], out=out[0]) if add else torch.mm(a[0], b[0], out=out[0])
    else:
        torch.baddbmm(out, a, b, out=out) if add else torch.bmm(a, b, out=out)
