"""Energies, forces and the gradient of a loss of the pair-states network, written out by hand.

Four sweeps, no automatic differentiation:

    forward    values x
    adjoints   n_x = −∂E/∂x, which end in the forces
    tangents   ẋ, derivatives along ṙ = ∂loss/∂F ("dot")
    hats       x̂ = ∂L/∂x with L = Σ_b w_b E_b − Ė_b, w = ∂loss/∂E

L has the loss's gradient with respect to every weight, because F = −∂E/∂r. It is a function of values and
tangents, and ∂L/∂ẋ = n_x is known from the adjoints. So for y = W x, from ẏ = W ẋ:

    ∂L/∂W = ŷ xᵀ + n_y ẋᵀ        x̂ = Wᵀ ŷ

The readout sees only X_ii and Σ_j X_ij, so W₂ of the last round acts after the sums, on atoms (`readout`).
The rest is in `kernels`, which says how tensors are laid out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from geomatt.model.interface import Parameters
from geomatt.model.pair_states.ceiling import of_round
from geomatt.model.pair_states.config import PairStatesConfig
from geomatt.model.pair_states.dense.kernels import TorchKernels
from geomatt.model.pair_states.dense.readout import Readout


@dataclass
class Tape:
    """Arrays that the sweeps share: (T, M, rows, S, P).

    With a gradient S is two: [x, ẋ] for states and [x̂, n_x] for adjoints, side by side, so that a gradient of
    weights is one product over 2P columns. Without, S is one: x and n_x, and adjoints of a single round.
    """

    xp: Tensor  # X above P, 2C rows
    ab: Tensor  # A above B, 2C
    h: Tensor  # 2C
    u: Tensor  # 2C
    adjoint_x: Tensor  # C
    adjoint_h_ab: Tensor  # adjoints of H above those of A and B, 4C
    adjoint_u: Tensor  # 2C
    adjoint_p: Tensor  # C

    @classmethod
    def empty(
        cls, config: PairStatesConfig, members: int, columns: int, gradient: bool, like: Tensor
    ) -> Tape:
        rounds, width, slots = config.rounds, config.channels, 1 + gradient
        kept = rounds if gradient else 1

        def new(count: int, rows: int) -> Tensor:
            return like.new_empty(count, members, rows * width, slots, columns)

        return cls(
            xp=new(rounds, 2),
            ab=new(rounds, 2),
            h=new(rounds, 2),
            u=new(rounds, 2),
            adjoint_x=new(kept, 1),
            adjoint_h_ab=new(kept, 4),
            adjoint_u=new(kept, 2),
            adjoint_p=new(kept, 1),
        )

    def states(self, t: int, slot: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Slot 0 or 1 of X above P, of A above B, of H and of U in round t, (M, rows, P)."""
        return tuple(x[t, :, :, slot] for x in (self.xp, self.ab, self.h, self.u))  # type: ignore[return-value]

    def adjoints(self, t: int, slot: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Slot 0 or −1 of the adjoints of X, of H above A and B, of U and of P in round t, (M, rows, P)."""
        t = min(t, len(self.adjoint_x) - 1)
        tensors = (self.adjoint_x, self.adjoint_h_ab, self.adjoint_u, self.adjoint_p)
        return tuple(x[t, :, :, slot] for x in tensors)  # type: ignore[return-value]


class Program:
    """The sweeps over one batch."""

    def __init__(
        self, config: PairStatesConfig, p: Parameters, kernels: TorchKernels, like: Tensor, gradient: bool
    ) -> None:
        """`like` has the device and the precision to use."""
        self.p, self.kernels, self.width, self.rounds = p, kernels, config.channels, config.rounds
        self.tape = Tape.empty(config, kernels.size[0], kernels.columns, gradient, like)
        self.readout = Readout(p, kernels, like, gradient)

    # ---- values ---------------------------------------------------------------------------------------

    def forward(self) -> Tensor:
        """Atomic energies (M, B, N)."""
        p, k, tape = self.p, self.kernels, self.tape
        k.initial(tape.xp[0, :, : self.width, 0])
        for t in range(self.rounds):
            xp, ab, h, u = tape.states(t, 0)
            x, product = xp.split(self.width, 1)
            k.weigh("W_AB", t, x, ab)
            k.product(ab, product)
            k.weigh("W1", t, xp, h)
            x_next = self._next_x(t, 0)
            k.activate(h, p["b1"][:, t], u, x, p["b2"][:, t], x_next, self._ceiling(t))
            if x_next is not None:
                k.weigh("W2", t, u, x_next, add=True)
        return self.readout.energies(x, u)

    def adjoints(self) -> Tensor:
        """Forces (M, B, N, 3)."""
        p, k, tape, width = self.p, self.kernels, self.tape, self.width
        n_next, n_u = self.n_last = self.readout.adjoints()
        for t in reversed(range(self.rounds)):
            _, ab, h, _ = tape.states(t, 0)
            n_x, n_h_ab, n_u_here, n_p = tape.adjoints(t, -1)
            n_h, n_ab = n_h_ab.split(2 * width, 1)
            if t < self.rounds - 1:
                k.weigh("X to U", t, n_next, n_u_here)
                n_u = n_u_here
            k.activate_adjoint(n_u, h, n_next, p["b2"][:, t], n_h, n_x, self._ceiling(t))
            k.weigh("H to P", t, n_h, n_p)
            k.product_adjoint(n_p, ab, n_ab)
            k.weigh("H, A, B to X", t, n_h_ab, n_x, add=True)
            n_next = n_x
        return k.forces(n_next)

    # ---- gradient of a loss -----------------------------------------------------------------------------

    def tangents(self, r_dot: Tensor) -> None:
        """Along ṙ (M, B, N, 3)."""
        p, k, tape = self.p, self.kernels, self.tape
        k.initial_dot(r_dot, tape.xp[0, :, : self.width, 1])
        for t in range(self.rounds):
            (_, ab, h, _), (xp_dot, ab_dot, h_dot, u_dot) = tape.states(t, 0), tape.states(t, 1)
            x_dot, product_dot = xp_dot.split(self.width, 1)
            k.weigh("W_AB", t, x_dot, ab_dot)
            k.product_dot(ab, ab_dot, product_dot)
            k.weigh("W1", t, xp_dot, h_dot)
            x_dot_next = self._next_x(t, 1)
            k.activate_dot(h, h_dot, u_dot, x_dot, p["b2"][:, t], x_dot_next)
            if x_dot_next is not None:
                k.weigh("W2", t, u_dot, x_dot_next, add=True)
        self.readout.tangents(x_dot, u_dot)

    def hats(self, by_energy: Tensor) -> None:
        """From w = ∂loss/∂E (M, B)."""
        k, tape, width = self.kernels, self.tape, self.width
        hat_next, u_hat = self.readout.hats(by_energy)
        n_u = self.n_last[1]
        for t in reversed(range(self.rounds)):
            (_, ab, h, _), (_, ab_dot, h_dot, _) = tape.states(t, 0), tape.states(t, 1)
            x_hat, h_ab_hat, u_hat_here, p_hat = tape.adjoints(t, 0)
            _, _, n_u_here, n_p = tape.adjoints(t, 1)
            h_hat, ab_hat = h_ab_hat.split(2 * width, 1)
            if t < self.rounds - 1:
                k.weigh("X to U", t, hat_next, u_hat_here)
                u_hat, n_u = u_hat_here, n_u_here
            k.activate_hat(u_hat, n_u, h, h_dot, hat_next, h_hat, x_hat)
            k.weigh("H to P", t, h_hat, p_hat)
            k.product_hat(p_hat, n_p, ab, ab_dot, ab_hat)
            k.weigh("H, A, B to X", t, h_ab_hat, x_hat, add=True)
            hat_next = x_hat

    def gradients(self) -> dict[str, Tensor]:
        """∂L/∂ of all weights, (M, ...)."""
        tape, width, last = self.tape, self.width, self.rounds - 1
        found = self.readout.gradients()
        h, ab = tape.adjoint_h_ab.split(2 * width, 2)
        found["W_AB"] = self.kernels.weights(ab, tape.xp[:, :, :width])
        found["W1"] = self.kernels.weights(h, tape.xp)
        found["b1"] = self.kernels.biases(h)
        w2, b2 = found.pop("last.W2"), found.pop("last.b2")
        if last:
            w2 = torch.cat([self.kernels.weights(tape.adjoint_x[1:], tape.u[:last]), w2], 1)
            b2 = torch.cat([self.kernels.update_biases(tape.adjoint_x[1:]), b2], 1)
        found["W2"], found["b2"] = w2, b2
        x_hat, n_x = tape.adjoint_x[0].unbind(2)
        return found | self.kernels.initial_gradient(x_hat, n_x)

    def _ceiling(self, t: int) -> Tensor | None:
        """The part (M, 2, 2C) of the ceiling for the units of round t, of a network that has one."""
        return of_round(self.p["ceiling"], t, self.width) if "ceiling" in self.p else None

    def _next_x(self, t: int, slot: int) -> Tensor | None:
        """X or Ẋ after round t; None after the last, where it is never formed."""
        return self.tape.xp[t + 1, :, : self.width, slot] if t + 1 < self.rounds else None


def prepare(p: Parameters) -> Parameters:
    return {**p, **matrices(p)}


def matrices(p: Parameters) -> Parameters:
    """All matrices by which states and values of atoms are multiplied, under the names used for it here.

    W (M, T, ...) act on states, V on values of atoms (M, ...). Those of the adjoints are transposes.
    """
    width = p["W_AB"].shape[-1]
    w2, v1, v2 = p["W2"], p["readout.0.weight"], p["readout.2.weight"]
    back = torch.cat([p["W1"][..., :width], p["W_AB"]], 2)  # (M, T, 4C, C)
    return {
        "W_AB": p["W_AB"],
        "W1": p["W1"],
        "W2": w2,
        "X to U": w2.mT,
        "H to P": p["W1"][..., width:].mT,
        "H, A, B to X": back.mT,
        "last W2": w2[:, -1],
        "last X to U": w2[:, -1].mT,
        "V1": v1,
        "V2": v2,
        "Q1 to R": v1.mT,
        "Q2 to A1": v2.mT,
    }
