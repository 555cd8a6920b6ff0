"""The readout of atoms E_i = MLP(R_i), R_i = [X_ii, s Σ_{j≠i} X_ij], with its derivatives, written out.

X is what the last round makes: X + W₂ U + b₂. Its sums over pairs are taken before W₂ acts, so that this is a
product for atoms and not for pairs. Names: Q₁ = V₁ R + c₁, Q₂ = V₂ silu(Q₁) + c₂, E = v₃ silu(Q₂) + c₃.
Everything is (M, B·N, features). `n`, `dot` and `hat` as in `program`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geomatt.model.interface import Parameters
from geomatt.model.pair_states.ceiling import of_readout
from geomatt.model.pair_states.dense.kernels import TorchKernels


class Readout:
    """The readout of one batch; what a sweep finds is kept for the next.

    A value with its tangent, and a hat with its n, are the two slots of one tensor (M, 2, B·N, features), so
    that a gradient of weights is one product over 2·B·N rows. Without a gradient there is one slot.
    """

    def __init__(self, p: Parameters, kernels: TorchKernels, like: Tensor, gradient: bool) -> None:
        self.kernels = kernels
        self.v3 = p["readout.4.weight"]
        self.c1, self.c2, self.c3 = (p[f"readout.{layer}.bias"] for layer in (0, 2, 4))
        self.b2 = p["b2"][:, -1]  # of the last round
        members, batch, atoms = kernels.size
        width, ceiling = p["V2"].shape[1], p.get("ceiling")
        self.ceilings = [None if ceiling is None else of_readout(ceiling, layer, width) for layer in (0, 1)]

        def new(features: int) -> Tensor:
            return like.new_empty(members, 1 + gradient, batch * atoms, features)

        width, hidden = p["V2"].shape[1:]
        self.r, self.sums = new(2 * width), new(4 * width)
        self.q1, self.a1, self.q2, self.a2 = new(hidden), new(hidden), new(width), new(width)
        self.adjoint_r, self.adjoint_u = new(2 * width), new(4 * width)
        self.adjoint_q1, self.adjoint_a1, self.adjoint_q2 = new(hidden), new(hidden), new(width)

    def energies(self, x: Tensor, u: Tensor) -> Tensor:
        """Atomic energies (M, B, N) from states before the last round and what it adds before W₂."""
        k = self.kernels
        self._gather(x, u, 0)
        k.weigh_atoms("V1", self.r[:, 0], self.q1[:, 0])
        k.hidden(self.q1[:, 0], self.c1, self.a1[:, 0], self.ceilings[0])
        k.weigh_atoms("V2", self.a1[:, 0], self.q2[:, 0])
        return k.output(
            self.q2[:, 0], self.c2, self.v3, self.c3, self.a2[:, 0], self.adjoint_q2[:, -1], self.ceilings[1]
        )

    def adjoints(self) -> tuple[Tensor, Tensor]:
        """n of X after the last round and of its U, as values of atoms (M, B·N, 2, rows)."""
        self.kernels.weigh_atoms("Q2 to A1", self.adjoint_q2[:, -1], self.adjoint_a1[:, -1])
        n_a, n_q = self.adjoint_a1[:, -1], self.adjoint_q1[:, -1]
        self.kernels.hidden_adjoint(n_a, self.q1[:, 0], n_q, self.ceilings[0])
        return self._back(-1)

    def tangents(self, x_dot: Tensor, u_dot: Tensor) -> None:
        self._gather(x_dot, u_dot, 1)
        self.kernels.weigh_atoms("V1", self.r[:, 1], self.q1[:, 1])
        self.kernels.hidden_dot(self.q1[:, 0], self.q1[:, 1], self.a1[:, 1])
        self.kernels.weigh_atoms("V2", self.a1[:, 1], self.q2[:, 1])

    def hats(self, by_energy: Tensor) -> tuple[Tensor, Tensor]:
        """Hats of what `adjoints` gives n of, from w (M, B)."""
        k, q1, q2 = self.kernels, self.q1, self.q2
        self.w = by_energy
        k.output_hat(by_energy, q2[:, 0], q2[:, 1], self.v3, self.a2[:, 1], self.adjoint_q2[:, 0])
        k.weigh_atoms("Q2 to A1", self.adjoint_q2[:, 0], self.adjoint_a1[:, 0])
        k.hidden_hat(self.adjoint_a1[:, 0], self.adjoint_a1[:, 1], q1[:, 0], q1[:, 1], self.adjoint_q1[:, 0])
        return self._back(0)

    def gradients(self) -> dict[str, Tensor]:
        """∂L/∂ of the readout's weights, and of W₂ and b₂ of the last round (M, 1, ...)."""
        by_v3, by_c3, by_c1, by_c2, by_b2 = self.kernels.readout_sums(
            self.w, self.a2[:, 0], self.a2[:, 1], self.adjoint_q1[:, 0], self.adjoint_q2[:, 0],
            self._by_kind(self.adjoint_r[:, 0]),
        )  # fmt: skip
        return {
            "readout.4.weight": by_v3,
            "readout.4.bias": by_c3,
            "readout.2.weight": torch.bmm(self.adjoint_q2.flatten(1, 2).mT, self.a1.flatten(1, 2)),
            "readout.2.bias": by_c2,
            "readout.0.weight": torch.bmm(self.adjoint_q1.flatten(1, 2).mT, self.r.flatten(1, 2)),
            "readout.0.bias": by_c1,
            "last.W2": torch.bmm(
                self._by_kind(self.adjoint_r).flatten(1, 3).mT, self._by_kind(self.sums).flatten(1, 3)
            )[:, None],
            "last.b2": self.kernels.last_bias(by_b2, self._by_kind(self.adjoint_r))[:, None],
        }

    def _gather(self, x: Tensor, u: Tensor, slot: int) -> None:
        """R from states of pairs, or Ṙ from their tangents."""
        r, sums = self._by_kind(self.r[:, slot]), self._by_kind(self.sums[:, slot])
        gather = self.kernels.gather_dot if slot else self.kernels.gather
        gather(x, u, self.b2, r, sums)
        self.kernels.weigh_atoms("last W2", sums.flatten(1, 2), r.flatten(1, 2), add=True)

    def _back(self, slot: int) -> tuple[Tensor, Tensor]:
        """Adjoints of X and of U from those of Q₁."""
        r, u = self.adjoint_r[:, slot], self._by_kind(self.adjoint_u[:, slot])
        self.kernels.weigh_atoms("Q1 to R", self.adjoint_q1[:, slot], r)
        self.kernels.weigh_atoms("last X to U", self._by_kind(r).flatten(1, 2), u.flatten(1, 2))
        return self._by_kind(r), u

    @staticmethod
    def _by_kind(r: Tensor) -> Tensor:
        """(..., 2·rows) as (..., 2, rows): own pair and others."""
        return r.unflatten(-1, (2, -1))
