"""`TorchKernels` with Triton kernels: the same functions of a batch, in float32."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Parameters
from geomatt.model.pair_states.config import DECAY, PairStatesConfig
from geomatt.model.pair_states.dense.kernels import TorchKernels
from geomatt.model.pair_states.gpu import activations, halves, initial, products, readout

ALIGNMENT = 64  # columns of states are a multiple of it, for products with weights; as `initial.TAIL`
LARGEST = 64  # atoms; a matrix over atoms is one tile
PARTS = " in parts"  # ends the names of weights in the form of `halves.split`
PROGRAMS = 132  # processors of an H100 or H200
WEIGHTS_TILE = 128  # rows and columns of a gradient of weights that one program of a product makes

# Rows and columns of a program's tile.
SILU_PAIRS = 1024
GATHER_ROWS = 32
INITIAL_CHANNELS, INITIAL_PAIRS = 32, 64
DISTANCE_PAIRS = 32
GRADIENT_ATOMS, GRADIENT_CHANNELS = 4, 16
ELEMENT_ATOMS, ELEMENT_CHANNELS = 256, 16
SUMS_ATOMS, SUMS_FEATURES = 128, 32


class TritonKernels(TorchKernels):
    """One batch of M networks on a GPU: the structures `index` (M, B) if it is given, else all.

    `slots` as S in `program.Tape`, whose tensors this works on.
    """

    has_envelope: ClassVar[bool] = False

    def __init__(
        self,
        config: PairStatesConfig,
        p: Parameters,
        batch: Batch,
        index: Tensor | None = None,
        *,
        slots: int = 1,
    ) -> None:
        numbers, positions = batch.numbers.contiguous(), batch.positions.contiguous()
        self.config, self.p = config, p
        self.size = (*(numbers if index is None else index).shape[:2], numbers.shape[2])
        self.members, self.batch, self.atoms = self.size
        self.columns = _blocks(self.batch * self.atoms**2, ALIGNMENT) * ALIGNMENT
        self.apart = slots * self.columns
        self.elements, self.channels = len(config.elements), config.channels
        self.tile = max(16, _power(self.atoms))
        self.basis = max(16, _power(config.functions))
        self.positions = positions if index is None else positions.new_empty(*self.size, 3)
        self.species = positions.new_empty(self.size, dtype=torch.int32)
        self.scale, self.others = self._new(self.members, self.batch), self._new(self.members, self.batch)
        self.mask = self.envelope = self.envelope_dot = self._new(self.members, self.columns)
        initial.batch_kernel[(self.batch, self.members)](
            numbers, positions, numbers if index is None else index.contiguous(), numbers.shape[1],
            p["elements"].contiguous(), self.positions, self.species, self.scale, self.others, self.mask,
            config.typical_atoms**-0.5, self.batch, self.atoms, self.columns, NT=self.tile, E=self.elements,
            INDEX=index is not None, CONSTANT=config.normalisation == "constant",
            num_warps=1 if self.tile <= 32 else 4,
        )  # fmt: skip

    def _new(self, *shape: int) -> Tensor:
        return self.positions.new_empty(shape)

    # ---- initial states -------------------------------------------------------------------------------

    def initial(self, x: Tensor) -> None:
        self._initial(None, x)

    def initial_dot(self, r_dot: Tensor, x_dot: Tensor) -> None:
        self.r_dot = r_dot.contiguous()
        self._initial(self.r_dot, x_dot)

    def _initial(self, r_dot: Tensor | None, out: Tensor) -> None:
        grid = (_blocks(self.columns, INITIAL_PAIRS), _blocks(self.channels, INITIAL_CHANNELS), self.members)
        initial.initial_kernel[grid](
            *self._basis(), *_pointers(self.p["K"]), self.p["g"], self.p["h"], self.p["e"],
            _stride(self.p["g"]), _stride(self.p["h"]), _stride(self.p["e"]),
            self.positions if r_dot is None else r_dot, *_pointers(out), **self._sizes(), LB=self.basis,
            RADIUS=self.config.radius, L=self.config.functions, DOT=r_dot is not None, BC=INITIAL_CHANNELS,
            BP=INITIAL_PAIRS,
        )  # fmt: skip

    def _by_distance(self, n_x: Tensor) -> Tensor:
        n_d = self._new(self.members, self.columns)
        initial.by_distance_kernel[(_blocks(self.columns, DISTANCE_PAIRS), self.members)](
            *self._basis(), *_pointers(self.p["K"]), self.p["g"], self.p["h"], _stride(self.p["g"]),
            _stride(self.p["h"]), *_pointers(n_x), n_d, **self._sizes(), L=self.config.functions,
            LB=self.basis, RADIUS=self.config.radius, BC=32, BP=DISTANCE_PAIRS,
        )  # fmt: skip
        return n_d

    def forces(self, n_x: Tensor) -> Tensor:
        n_d, found = self._by_distance(n_x), torch.empty_like(self.positions)
        initial.forces_kernel[self._atoms_grid()](
            self.positions, n_d, found, self.batch, self.atoms, self.columns, NT=self.tile, num_warps=1
        )
        return found

    def initial_gradient(self, x_hat: Tensor, n_x: Tensor) -> dict[str, Tensor]:
        chunks, count = _blocks(self.atoms, GRADIENT_ATOMS), self.batch * self.atoms
        by_atom = self._new(self.members, 2 + chunks, count, self.channels)
        by_k = self._new(self.members, self.batch * chunks, self.channels, self.basis)
        initial.initial_gradient_kernel[
            (self.batch * chunks, _blocks(self.channels, GRADIENT_CHANNELS), self.members)
        ](
            *self._basis(), *_pointers(self.p["K"]), self.p["g"], self.p["h"], _stride(self.p["g"]),
            _stride(self.p["h"]), self.r_dot, *_pointers(x_hat), *_pointers(n_x), by_atom, by_k,
            **self._sizes(), chunks=chunks, L=self.config.functions, LB=self.basis, NT=self.tile,
            RADIUS=self.config.radius, CHUNK=GRADIENT_ATOMS, BC=GRADIENT_CHANNELS,
        )  # fmt: skip
        found = self._new(self.members, 3, self.elements, self.channels)
        initial.by_element_kernel[
            (3 * self.elements, _blocks(self.channels, ELEMENT_CHANNELS), self.members)
        ](
            by_atom, self.species, found, count, chunks, C=self.channels, E=self.elements, BA=ELEMENT_ATOMS,
            BC=ELEMENT_CHANNELS,
        )  # fmt: skip
        g, e, h = found.unbind(1)
        return {"g": g, "h": h, "e": e, "K": by_k.sum(1)[..., : self.config.functions]}

    def _basis(self) -> tuple[Any, ...]:
        mu = self.p["mu"].contiguous()
        return self.positions, self.species, mu, self.config.sharpness, DECAY

    # ---- products with weights: those that are in parts, unless a gradient is wanted ----------------------

    def weigh(self, name: str, t: int, x: Tensor, out: Tensor, add: bool = False) -> None:
        parts = self._parts(name)
        if parts is None:
            super().weigh(name, t, x, out, add)
        else:
            halves.weigh(parts[:, :, t], x, out, add)

    def weigh_atoms(self, name: str, x: Tensor, out: Tensor, add: bool = False) -> None:
        parts = self._parts(name)
        if parts is None:
            super().weigh_atoms(name, x, out, add)
        else:
            halves.weigh(parts, x.mT, out.mT, add)

    def _parts(self, name: str) -> Tensor | None:
        return self.p.get(name + PARTS) if self.apart == self.columns else None

    # ---- P = s A B --------------------------------------------------------------------------------------

    def product(self, ab: Tensor, p: Tensor) -> None:
        products.product_kernel[self._matrices_grid()](
            *_pointers(ab), *_pointers(p), self.scale, **self._product(2)
        )

    def product_dot(self, ab: Tensor, ab_dot: Tensor, p_dot: Tensor) -> None:
        products.product_dot_kernel[self._matrices_grid()](
            *_pointers(ab), *_pointers(ab_dot), *_pointers(p_dot), self.scale,
            **self._product(2),
        )  # fmt: skip

    def product_adjoint(self, n_p: Tensor, ab: Tensor, n_ab: Tensor) -> None:
        products.product_adjoint_kernel[self._matrices_grid()](
            *_pointers(n_p), *_pointers(ab), *_pointers(n_ab), self.scale, **self._product(2)
        )

    def product_hat(self, p_hat: Tensor, n_p: Tensor, ab: Tensor, ab_dot: Tensor, ab_hat: Tensor) -> None:
        products.product_hat_kernel[self._matrices_grid()](
            *_pointers(p_hat), *_pointers(n_p), *_pointers(ab), *_pointers(ab_dot), *_pointers(ab_hat),
            self.scale, **self._product(4),
        )  # fmt: skip

    def _matrices_grid(self) -> tuple[int, int]:
        return self.channels * self.batch, self.members

    def _product(self, warps: int) -> dict[str, Any]:
        if self.tile > 32:
            warps = 4
        return {**self._sizes(), "NT": self.tile, "num_warps": warps}

    # ---- silu -------------------------------------------------------------------------------------------

    def activate(
        self, h: Tensor, b1: Tensor, u: Tensor, x: Tensor, b2: Tensor, x_next: Tensor | None,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        part, units = self._bounded(ceiling, b1)
        activations.activate_kernel[self._rows_grid()](
            *_pointers(h), *_pointers(b1), *_pointers(u), *_pointers(x), *_pointers(b2),
            *_pointers(x if x_next is None else x_next), *part, self.mask, self.envelope, self.columns,
            self.apart, C=self.channels, NEXT=x_next is not None, **units, **self._block(),
        )  # fmt: skip

    def activate_dot(
        self, h: Tensor, h_dot: Tensor, u_dot: Tensor, x_dot: Tensor, b2: Tensor, x_dot_next: Tensor | None
    ) -> None:
        activations.activate_dot_kernel[self._rows_grid()](
            *_pointers(h), *_pointers(h_dot), *_pointers(u_dot), *_pointers(x_dot), *_pointers(b2),
            *_pointers(x_dot if x_dot_next is None else x_dot_next), self.envelope, self.envelope_dot,
            self.columns, self.apart, C=self.channels, NEXT=x_dot_next is not None, **self._block(),
        )  # fmt: skip

    def activate_adjoint(
        self, n_u: Tensor, h: Tensor, n_next: Tensor, b2: Tensor, n_h: Tensor, n_x: Tensor,
        ceiling: Tensor | None,
    ) -> None:  # fmt: skip
        part, units = self._bounded(ceiling, b2)
        activations.activate_adjoint_kernel[self._rows_grid()](
            *_pointers(n_u), *_pointers(h), *_pointers(n_next), *_pointers(n_h), *_pointers(n_x), *part,
            self.scale, self.mask, self.envelope, **self._sizes(), ATOMS=n_u.dim() == 4,
            CARRY=n_x.data_ptr() != n_next.data_ptr(), **units, **self._block(),
        )  # fmt: skip

    def activate_hat(
        self, u_hat: Tensor, n_u: Tensor, h: Tensor, h_dot: Tensor, hat_next: Tensor, h_hat: Tensor,
        x_hat: Tensor,
    ) -> None:  # fmt: skip
        activations.activate_hat_kernel[self._rows_grid()](
            *_pointers(u_hat), *_pointers(n_u), *_pointers(h), *_pointers(h_dot), *_pointers(hat_next),
            *_pointers(h_hat), *_pointers(x_hat), self.scale, self.mask, self.envelope, self.envelope_dot,
            **self._sizes(), ATOMS=n_u.dim() == 4, **self._block(),
        )  # fmt: skip

    def _bounded(self, ceiling: Tensor | None, other: Tensor) -> tuple[tuple[Tensor, int], dict[str, int]]:
        """Pointer to the part of a ceiling for some units, and the number of all; another tensor for none."""
        if ceiling is None:
            return _pointers(other), {"UNITS": 0}
        return _pointers(ceiling), {"UNITS": ceiling.stride(1)}

    def _rows_grid(self) -> tuple[int, int, int]:
        return _blocks(self.columns, SILU_PAIRS), 2 * self.channels, self.members

    def _block(self) -> dict[str, int]:
        return {"ENVELOPE": self.has_envelope, "BLOCK": SILU_PAIRS, "num_warps": 4}

    # ---- gradients of weights ---------------------------------------------------------------------------

    def weights(self, adjoint: Tensor, state: Tensor) -> Tensor:
        """Sums over all columns: those without a pair are zero.

        The products are small and the sums long. Those of many members fill a GPU together; of one member the
        columns are split, so that the parts of a sum are products of their own.
        """
        a, x = adjoint.flatten(3), state.flatten(3)  # (T, M, R, 2P), (T, M, Q, 2P)
        rounds, members, rows, _ = a.shape
        if members > 1:
            found = torch.bmm(a.flatten(0, 1), x.flatten(0, 1).mT)
            return found.unflatten(0, (rounds, members)).transpose(0, 1)
        parts = weight_parts(rows, x.shape[2])
        found = self._new(rounds, parts, rows, x.shape[2])
        for t in range(rounds):
            left, right = (y[t, 0].unflatten(1, (parts, -1)).transpose(0, 1) for y in (a, x))
            torch.bmm(left, right.mT, out=found[t])
        return found.sum(1)[None]

    # ---- atoms --------------------------------------------------------------------------------------------

    def gather(self, x: Tensor, u: Tensor, b2: Tensor | None, x_sums: Tensor, u_sums: Tensor) -> None:
        grid = (self.batch * self.atoms, _blocks(3 * self.channels, GATHER_ROWS), self.members)
        activations.gather_kernel[grid](
            *_pointers(x), *_pointers(u), *_pointers(x if b2 is None else b2), *_pointers(x_sums),
            *_pointers(u_sums), self.species, self.scale, self.others, **self._sizes(), NT=self.tile,
            BIAS=b2 is not None, ROWS=GATHER_ROWS, num_warps=2,
        )  # fmt: skip

    def hidden(self, q: Tensor, c: Tensor, a: Tensor, ceiling: Tensor | None) -> None:
        part, units = self._bounded(ceiling, c)
        readout.hidden_kernel[self._atoms_grid()](
            *_pointers(q), *_pointers(c), *_pointers(a), *part, **units, **_features(q)
        )

    def hidden_dot(self, q: Tensor, q_dot: Tensor, a_dot: Tensor) -> None:
        self.hidden_adjoint(q_dot, q, a_dot, None)

    def hidden_adjoint(self, n_a: Tensor, q: Tensor, n_q: Tensor, ceiling: Tensor | None) -> None:
        part, units = self._bounded(ceiling, q)
        readout.slope_kernel[self._atoms_grid()](
            *_pointers(n_a), *_pointers(q), *_pointers(n_q), *part, **units, **_features(q)
        )

    def hidden_hat(self, a_hat: Tensor, n_a: Tensor, q: Tensor, q_dot: Tensor, q_hat: Tensor) -> None:
        readout.hidden_hat_kernel[self._atoms_grid()](
            *_pointers(a_hat), *_pointers(n_a), *_pointers(q), *_pointers(q_dot), *_pointers(q_hat),
            **_features(q),
        )  # fmt: skip

    def output(
        self, q: Tensor, c: Tensor, v: Tensor, bias: Tensor, a: Tensor, n_q: Tensor, ceiling: Tensor | None
    ) -> Tensor:
        energies = self._new(*self.size)
        part, units = self._bounded(ceiling, c)
        readout.output_kernel[self._atoms_grid()](
            *_pointers(q), *_pointers(c), *_pointers(v), *_pointers(bias), *_pointers(a), *_pointers(n_q),
            *part, self.species, energies, **units, **_features(q),
        )  # fmt: skip
        return energies

    def output_hat(
        self, by_energy: Tensor, q: Tensor, q_dot: Tensor, v: Tensor, a_dot: Tensor, q_hat: Tensor
    ) -> None:
        readout.output_hat_kernel[self._atoms_grid()](
            by_energy.contiguous(), *_pointers(q), *_pointers(q_dot), *_pointers(v), *_pointers(a_dot),
            *_pointers(q_hat), self.species, self.atoms, **_features(q),
        )  # fmt: skip

    def readout_sums(
        self, by_energy: Tensor, a: Tensor, a_dot: Tensor, q1_hat: Tensor, q2_hat: Tensor, r_hat: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        width = self.channels
        found = self._new(self.members, 6 * width)
        readout.sums_kernel[(_blocks(5 * width + 1, SUMS_FEATURES), self.members)](
            by_energy.contiguous(), self.species, self.scale, self.others, *_pointers(a), *_pointers(a_dot),
            *_pointers(q1_hat), *_pointers(q2_hat), *_pointers(r_hat), found, self.batch, self.atoms,
            C=width, BA=SUMS_ATOMS, BF=SUMS_FEATURES,
        )  # fmt: skip
        c1, c2, v3, b2, rest = found.split([2 * width, width, width, width, width], 1)
        return v3[:, None], rest[:, :1], c1, c2, b2

    def _atoms_grid(self) -> tuple[int, int]:
        return self.batch * self.atoms, self.members

    def _sizes(self) -> dict[str, int]:
        return {
            "batch": self.batch, "atoms": self.atoms, "columns": self.columns, "apart": self.apart,
            "C": self.channels,
        }  # fmt: skip


def weight_parts(rows: int, columns: int) -> int:
    """Parts of the sums of a gradient of weights: enough to fill a GPU.

    A power of two, at most half of ALIGNMENT, so that each of the parts begins at a multiple of 16 bytes.
    """
    tiles = _blocks(rows, WEIGHTS_TILE) * _blocks(columns, WEIGHTS_TILE)
    return min(ALIGNMENT // 2, 1 << (max(1, PROGRAMS // tiles).bit_length() - 1))


def _pointers(x: Tensor) -> tuple[Tensor, int]:
    """A tensor and the stride between its members."""
    return x, _stride(x)


def _stride(x: Tensor) -> int:
    """Between members; zero, which tells the compiler that all is aligned, if there is one."""
    return x.stride(0) if len(x) > 1 else 0


def _features(q: Tensor) -> dict[str, int]:
    return {"F": q.shape[-1], "FB": _power(q.shape[-1])}


def _blocks(count: int, size: int) -> int:
    return -(-count // size)


def _power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()
