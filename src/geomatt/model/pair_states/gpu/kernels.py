"""`TorchKernels` with Triton kernels: the same functions of a batch, in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geomatt.model.interface import Parameters
from geomatt.model.pair_states.config import DECAY, PairStatesConfig
from geomatt.model.pair_states.dense.kernels import TorchKernels
from geomatt.model.pair_states.gpu import activations, initial, products, readout

ALIGNMENT = 64  # columns of states are a multiple of it; `batch_kernel` clears no more than that
LARGEST = 64  # atoms; a matrix over atoms is one tile
PROGRAMS = 264  # that fill a GPU, twice the processors of an H100 or H200

TUNE = {
    "activate_block": 1024, "activate_warps": 4, "gather_rows": 32, "gather_warps": 2,
    "product_warps": 2, "adjoint_warps": 2, "hat_warps": 4, "initial_channels": 32, "initial_pairs": 64,
    "distance_pairs": 32, "gradient_rows": 4, "gradient_channels": 16, "weights_rows": 64,
    "weights_columns": 64, "weights_pairs": 32, "weights_warps": 4, "weights_stages": 4,
}  # fmt: skip


class TritonKernels(TorchKernels):
    """One batch of M networks on a GPU. `precision` is that of `tl.dot`."""

    def __init__(
        self,
        config: PairStatesConfig,
        p: Parameters,
        numbers: Tensor,
        positions: Tensor,
        *,
        precision: str = "ieee",
        tune: dict[str, int] | None = None,
    ) -> None:
        self.config, self.p, self.numbers = config, p, numbers.contiguous()
        self.positions, self.precision = positions.contiguous(), precision
        self.tune = {**TUNE, **(tune or {})}
        self.members, self.batch, self.atoms = numbers.shape
        self.pairs = self.batch * self.atoms * self.atoms
        self.columns = -(-self.pairs // ALIGNMENT) * ALIGNMENT
        self.elements, self.channels = len(config.elements), config.channels
        self.tile = max(16, _power(self.atoms))
        self.basis = max(16, _power(config.functions))
        self.species = self._new(self.members, self.batch, self.atoms, dtype=torch.int32)
        self.scale = self._new(self.members, self.batch)
        self.others = self._new(self.members, self.batch)
        self.mask = self._new(self.members, self.columns)
        constant = config.normalisation == "constant"
        initial.batch_kernel[(self.batch, self.members)](
            self.numbers, p["elements"].contiguous(), self.species, self.scale, self.others, self.mask,
            config.typical_atoms**-0.5, B=self.batch, N=self.atoms, NT=self.tile, E=self.elements,
            COLUMNS=self.columns, CONSTANT=constant, num_warps=1 if self.tile <= 32 else 4,
        )  # fmt: skip

    def _new(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.positions.device)

    # ---- initial states -------------------------------------------------------------------------------

    def initial(self, x: Tensor) -> None:
        self._initial(None, x)

    def initial_dot(self, r_dot: Tensor, x_dot: Tensor) -> None:
        self.r_dot = r_dot.contiguous()
        self._initial(self.r_dot, x_dot)

    def _initial(self, r_dot: Tensor | None, out: Tensor) -> None:
        channels, pairs = self.tune["initial_channels"], self.tune["initial_pairs"]
        grid = (_blocks(self.columns, pairs), _blocks(self.channels, channels), self.members)
        initial.initial_kernel[grid](
            *self._basis(), *_pointers(self.p["K"]), self.p["g"], self.p["h"], self.p["e"],
            _stride(self.p["g"]), _stride(self.p["h"]), _stride(self.p["e"]),
            self.positions if r_dot is None else r_dot, *_pointers(out), **self._sizes(), LB=self.basis,
            L=self.config.functions, DOT=r_dot is not None, BC=channels, BP=pairs, PRECISION=self.precision,
        )  # fmt: skip

    def forces(self, n_x: Tensor) -> Tensor:
        n_d = self._new(self.members, self.columns)
        found = torch.empty_like(self.positions)
        pairs = self.tune["distance_pairs"]
        initial.by_distance_kernel[(_blocks(self.columns, pairs), self.members)](
            *self._basis(), *_pointers(self.p["K"]), self.p["g"], self.p["h"], _stride(self.p["g"]),
            _stride(self.p["h"]), *_pointers(n_x), n_d, **self._sizes(), L=self.config.functions,
            LB=self.basis, BC=32, BP=pairs, PRECISION=self.precision,
        )  # fmt: skip
        initial.forces_kernel[(self.batch * self.atoms, self.members)](
            self.positions, n_d, found, B=self.batch, N=self.atoms, NT=self.tile, COLUMNS=self.columns,
            num_warps=1,
        )  # fmt: skip
        return found

    def initial_gradient(self, x_hat: Tensor, n_x: Tensor) -> dict[str, Tensor]:
        rows, channels = self.tune["gradient_rows"], self.tune["gradient_channels"]
        chunks, atoms = _blocks(self.atoms, rows), self.batch * self.atoms
        by_atom = self._new(self.members, 2 + chunks, atoms, self.channels)
        by_k = self._new(self.members, self.batch * chunks, self.channels, self.basis)
        initial.initial_gradient_kernel[
            (self.batch * chunks, _blocks(self.channels, channels), self.members)
        ](
            *self._basis(), *_pointers(self.p["K"]), self.p["g"], self.p["h"], _stride(self.p["g"]),
            _stride(self.p["h"]), self.r_dot, *_pointers(x_hat), *_pointers(n_x), by_atom, by_k,
            **self._sizes(), L=self.config.functions, LB=self.basis, NT=self.tile, CHUNK=rows, CHUNKS=chunks,
            BC=channels, PRECISION=self.precision,
        )  # fmt: skip
        found = self._new(self.members, 3, self.elements, self.channels)
        initial.by_element_kernel[(3 * self.elements, _blocks(self.channels, 32), self.members)](
            by_atom, self.species, found, C=self.channels, E=self.elements, ATOMS=atoms, CHUNKS=chunks,
            BA=64, BC=32,
        )  # fmt: skip
        g, e, h = found.unbind(1)
        return {"g": g, "h": h, "e": e, "K": by_k.sum(1)[..., : self.config.functions]}

    def _basis(self) -> tuple[Any, ...]:
        mu = self.p["mu"].contiguous()
        return self.positions, self.species, mu, self.config.sharpness, DECAY

    # ---- P = s A B --------------------------------------------------------------------------------------

    def product(self, ab: Tensor, p: Tensor) -> None:
        products.product_kernel[self._matrices_grid()](
            *_pointers(ab), *_pointers(p), self.scale, **self._product("product_warps")
        )

    def product_dot(self, ab: Tensor, ab_dot: Tensor, p_dot: Tensor) -> None:
        products.product_dot_kernel[self._matrices_grid()](
            *_pointers(ab), *_pointers(ab_dot), *_pointers(p_dot), self.scale,
            **self._product("adjoint_warps"),
        )  # fmt: skip

    def product_adjoint(self, n_p: Tensor, ab: Tensor, n_ab: Tensor) -> None:
        products.product_adjoint_kernel[self._matrices_grid()](
            *_pointers(n_p), *_pointers(ab), *_pointers(n_ab), self.scale, **self._product("adjoint_warps")
        )

    def product_hat(self, p_hat: Tensor, n_p: Tensor, ab: Tensor, ab_dot: Tensor, ab_hat: Tensor) -> None:
        products.product_hat_kernel[self._matrices_grid()](
            *_pointers(p_hat), *_pointers(n_p), *_pointers(ab), *_pointers(ab_dot), *_pointers(ab_hat),
            self.scale, **self._product("hat_warps"),
        )  # fmt: skip

    def _matrices_grid(self) -> tuple[int, int]:
        return self.channels * self.batch, self.members

    def _product(self, warps: str) -> dict[str, Any]:
        few = self.tune[warps] if self.tile <= 32 else 4
        return {**self._sizes(), "NT": self.tile, "PRECISION": self.precision, "num_warps": few}

    # ---- silu -------------------------------------------------------------------------------------------

    def activate(
        self, h: Tensor, b1: Tensor, u: Tensor, x: Tensor, b2: Tensor, x_next: Tensor | None
    ) -> None:
        activations.activate_kernel[self._rows_grid()](
            *_pointers(h), *_pointers(b1), *_pointers(u), *_pointers(x), *_pointers(b2),
            *_pointers(x if x_next is None else x_next), self.mask, C=self.channels, COLUMNS=self.columns,
            NEXT=x_next is not None, **self._block(),
        )  # fmt: skip

    def activate_dot(
        self, h: Tensor, h_dot: Tensor, u_dot: Tensor, x_dot: Tensor, x_dot_next: Tensor | None
    ) -> None:
        activations.activate_dot_kernel[self._rows_grid()](
            *_pointers(h), *_pointers(h_dot), *_pointers(u_dot), *_pointers(x_dot),
            *_pointers(x_dot if x_dot_next is None else x_dot_next), C=self.channels, COLUMNS=self.columns,
            NEXT=x_dot_next is not None, **self._block(),
        )  # fmt: skip

    def activate_adjoint(self, n_u: Tensor, h: Tensor, n_next: Tensor, n_h: Tensor, n_x: Tensor) -> None:
        activations.activate_adjoint_kernel[self._rows_grid()](
            *_pointers(n_u), *_pointers(h), *_pointers(n_next), *_pointers(n_h), *_pointers(n_x), self.scale,
            self.mask, **self._sizes(), ATOMS=n_u.dim() == 4, CARRY=n_x.data_ptr() != n_next.data_ptr(),
            **self._block(),
        )  # fmt: skip

    def activate_hat(
        self, u_hat: Tensor, n_u: Tensor, h: Tensor, h_dot: Tensor, hat_next: Tensor, h_hat: Tensor,
        x_hat: Tensor,
    ) -> None:  # fmt: skip
        activations.activate_hat_kernel[self._rows_grid()](
            *_pointers(u_hat), *_pointers(n_u), *_pointers(h), *_pointers(h_dot), *_pointers(hat_next),
            *_pointers(h_hat), *_pointers(x_hat), self.scale, self.mask, **self._sizes(),
            ATOMS=n_u.dim() == 4, **self._block(),
        )  # fmt: skip

    def _rows_grid(self) -> tuple[int, int, int]:
        return _blocks(self.columns, self.tune["activate_block"]), 2 * self.channels, self.members

    def _block(self) -> dict[str, int]:
        return {"BLOCK": self.tune["activate_block"], "num_warps": self.tune["activate_warps"]}

    # ---- gradients of weights and biases ------------------------------------------------------------------

    def weights(self, adjoint: Tensor, state: Tensor) -> Tensor:
        rounds, _, members, rows, _ = adjoint.shape
        columns, t = state.shape[3], self.tune
        tiles = _blocks(rows, t["weights_rows"]) * _blocks(columns, t["weights_columns"])
        most = _blocks(self.pairs, 4 * t["weights_pairs"])
        splits = max(1, min(most, PROGRAMS // (tiles * rounds * members)))
        steps = _blocks(self.pairs, splits * t["weights_pairs"])
        splits = _blocks(self.pairs, steps * t["weights_pairs"])
        parts = self._new(splits, members, rounds, rows, columns)
        products.weights_kernel[(tiles, splits, members * rounds)](
            adjoint, *adjoint.stride()[:3], state, *state.stride()[:3], parts, rounds, self.pairs, steps,
            R=rows, Q=columns, COLUMNS=self.columns, BR=t["weights_rows"], BQ=t["weights_columns"],
            BK=t["weights_pairs"], PRECISION=self.precision, num_warps=t["weights_warps"],
            num_stages=t["weights_stages"],
        )  # fmt: skip
        return parts.sum(0) if splits > 1 else parts[0]

    def biases(self, adjoint: Tensor) -> Tensor:
        return adjoint[:, 0, :, :, : self.pairs].sum(-1).transpose(0, 1)

    # ---- atoms --------------------------------------------------------------------------------------------

    def gather(self, x: Tensor, u: Tensor, b2: Tensor | None, x_sums: Tensor, u_sums: Tensor) -> None:
        rows = self.tune["gather_rows"]
        grid = (self.batch * self.atoms, _blocks(3 * self.channels, rows), self.members)
        activations.gather_kernel[grid](
            *_pointers(x), *_pointers(u), *_pointers(x if b2 is None else b2), *_pointers(x_sums),
            *_pointers(u_sums), self.species, self.scale, self.others, **self._sizes(), NT=self.tile,
            BIAS=b2 is not None, ROWS=rows, num_warps=self.tune["gather_warps"],
        )  # fmt: skip

    def hidden(self, q: Tensor, c: Tensor, a: Tensor) -> None:
        readout.hidden_kernel[self._atoms_grid()](*_pointers(q), *_pointers(c), *_pointers(a), **_features(q))

    def hidden_dot(self, q: Tensor, q_dot: Tensor, a_dot: Tensor) -> None:
        readout.slope_kernel[self._atoms_grid()](
            *_pointers(q_dot), *_pointers(q), *_pointers(a_dot), **_features(q)
        )

    def hidden_adjoint(self, n_a: Tensor, q: Tensor, n_q: Tensor) -> None:
        readout.slope_kernel[self._atoms_grid()](
            *_pointers(n_a), *_pointers(q), *_pointers(n_q), **_features(q)
        )

    def hidden_hat(self, a_hat: Tensor, n_a: Tensor, q: Tensor, q_dot: Tensor, q_hat: Tensor) -> None:
        readout.hidden_hat_kernel[self._atoms_grid()](
            *_pointers(a_hat), *_pointers(n_a), *_pointers(q), *_pointers(q_dot), *_pointers(q_hat),
            **_features(q),
        )  # fmt: skip

    def output(self, q: Tensor, c: Tensor, v: Tensor, bias: Tensor, a: Tensor, n_q: Tensor) -> Tensor:
        energies = self._new(*self.numbers.shape)
        readout.output_kernel[self._atoms_grid()](
            *_pointers(q), *_pointers(c), *_pointers(v), *_pointers(bias), *_pointers(a), *_pointers(n_q),
            self.species, energies, **_features(q),
        )  # fmt: skip
        return energies

    def output_hat(
        self, by_energy: Tensor, q: Tensor, q_dot: Tensor, v: Tensor, a_dot: Tensor, q_hat: Tensor
    ) -> None:
        readout.output_hat_kernel[self._atoms_grid()](
            by_energy.contiguous(), *_pointers(q), *_pointers(q_dot), *_pointers(v), *_pointers(a_dot),
            *_pointers(q_hat), self.species, N=self.atoms, **_features(q),
        )  # fmt: skip

    def readout_sums(
        self, by_energy: Tensor, a: Tensor, a_dot: Tensor, q1_hat: Tensor, q2_hat: Tensor, r_hat: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        width = self.channels
        found = self._new(self.members, 6 * width)
        readout.sums_kernel[(_blocks(5 * width + 1, 32), self.members)](
            by_energy.contiguous(), self.species, self.scale, self.others, *_pointers(a), *_pointers(a_dot),
            *_pointers(q1_hat), *_pointers(q2_hat), *_pointers(r_hat), found, C=width, B=self.batch,
            N=self.atoms, BA=64, BF=32,
        )  # fmt: skip
        c1, c2, v3, b2, rest = found.split([2 * width, width, width, width, width], 1)
        return v3[:, None], rest[:, :1], c1, c2, b2

    def _atoms_grid(self) -> tuple[int, int]:
        return self.batch * self.atoms, self.members

    def _sizes(self) -> dict[str, int]:
        return {"C": self.channels, "B": self.batch, "N": self.atoms, "COLUMNS": self.columns}


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
