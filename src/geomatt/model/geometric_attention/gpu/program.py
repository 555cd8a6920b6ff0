"""The sweeps of the dense engine as Triton kernels, for many small structures on a GPU.

Same formulas, same results. All buffers are allocated once, so a sweep can be captured as a CUDA graph; the
order of every sum is fixed, so results repeat bit by bit. The kernels are in `overlaps` (positions to
overlaps), `chain` (overlaps to α), `streams` (α to energies and forces) and `vectors` (shared by streams).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.gpu import chain as chain
from geomatt.model.geometric_attention.gpu import overlaps as overlaps
from geomatt.model.geometric_attention.gpu import streams as streams
from geomatt.model.geometric_attention.gpu import vectors as vectors
from geomatt.model.geometric_attention.gpu.layout import (
    Call,
    Layout,
    aside,
    blocks,
    coefficients,
    defaults,
    power,
)
from geomatt.model.interface import Parameters

PREPARE_ROWS = 16  # rows of A in a program of prepare and unfold
HALF_BLOCK = 64  # folded_k must divide it


class FusedProgram:
    """Buffers and launches for M networks on batches of B structures of N atoms.

    `precision` is "bf16x3" (errors near 1e-5) or one of tl.dot's for float32: "tf32x3", "ieee", "tf32".
    `tune` overrides what `defaults` chooses.
    """

    def __init__(
        self,
        config: GeometricAttentionConfig,
        members: int,
        batch: int,
        atoms: int,
        device: torch.device | str,
        *,
        precision: str = "bf16x3",
        tune: dict[str, int] | None = None,
    ) -> None:
        self.config, self.members, self.batch, self.atoms = config, members, batch, atoms
        self.device = torch.device(device)
        self.precision = precision
        self.layout = Layout(config)
        self.rows = members * batch * config.layers
        self.coefficients = coefficients(config)  # R
        self.tune = {**defaults(members * batch, atoms), **(tune or {})}
        self.stride = -(-atoms // 4) * 4  # NP
        self.tile = max(16, power(atoms))  # NT
        self.columns = power(config.basis_size + 1)  # LB
        self.a_rows = -(-self.layout.rows // 128) * 128
        self.index = torch.arange(batch, device=self.device).expand(members, -1).contiguous()
        self._allocate()
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    @staticmethod
    def supports(config: GeometricAttentionConfig, atoms: int) -> bool:
        """True for networks and structures whose matrices fit the kernels: few atoms, elements, layers."""
        return atoms <= 64 and config.features <= 256 and coefficients(config) <= 128

    def _allocate(self) -> None:
        c, layout = self.config, self.layout
        operand = torch.bfloat16 if self.precision == "bf16x3" else torch.float32

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        m, b, n = self.members, self.batch, self.atoms
        self.a_high = zeros(m, self.a_rows, self.columns, dtype=operand)
        self.a_low = torch.zeros_like(self.a_high) if operand is torch.bfloat16 else self.a_high
        self.constant = zeros(m, layout.constants)
        self.x = zeros(m, layout.rows, b, n, self.stride)
        self.slope = torch.zeros_like(self.x)
        n_half = n * (n + 1) // 2
        self.half = -(-b * n_half // HALF_BLOCK) * HALF_BLOCK  # pairs i ≤ j, with a tail that stays zero
        self.pair_high: Tensor | None = None  # only for gradients, see `_allocate_pairs`
        i, j = torch.triu_indices(n, n)
        self.pair_of = self._table((i * self.stride + j).tolist())
        self.chunk_table, self.stream_of, self.ranges = map(self._table, layout.chunks(self.tune["chunks"]))
        self.chunks = len(self.chunk_table)
        self.prepare_table = self._table(layout.prepare_tasks(PREPARE_ROWS))
        self.unfold_table = self._table(layout.unfold_tasks(PREPARE_ROWS))
        self.parts = zeros(self.rows, self.chunks, n, self.stride)
        s, h, r, v = len(c.orders), layout.hidden, self.coefficients, c.features
        self.alpha, self.alpha_bar, self.alpha_dot, self.alpha_hat = (
            zeros(s, self.rows, n, self.stride) for _ in range(4)
        )
        self.read_high = zeros(s, m, r, h, dtype=operand)
        self.read_low = torch.zeros_like(self.read_high) if operand is torch.bfloat16 else self.read_high
        self.vectors, self.vector_hats = zeros(s, m, r, v), zeros(s, m, r, v)
        self.c, self.c_dot, self.c_bar = (zeros(s, m * b, n, r) for _ in range(3))
        self.hidden_part, self.hidden = zeros(s, m * b, n, h), zeros(m * b, n, h)
        self.q_parts, self.output_parts = zeros(s, m * b, r, h), zeros(m * b, h + 1)
        self.energy, self.atomic, self.forces = zeros(m, b), zeros(m, b, n), zeros(m, b, n, 3)
        self.by_energy, self.by_forces = zeros(m, b), zeros(m, b, n, 3)
        self.gradient_buffer = zeros(m, layout.parameters)

    def _allocate_pairs(self) -> None:
        """Operands and result of `by_folded_kernel`."""
        operand = torch.bfloat16 if self.precision == "bf16x3" else torch.float32

        def zeros(*shape: int) -> tuple[Tensor, Tensor]:
            high = torch.zeros(self.members, *shape, dtype=operand, device=self.device)
            return high, torch.zeros_like(high) if operand is torch.bfloat16 else high

        self.pair_high, self.pair_low = zeros(self.a_rows, 2 * self.half)
        self.phi_high, self.phi_low = zeros(2 * self.half, self.columns)
        t = self.tune
        self.folded_steps = blocks(2 * self.half, t["folded_k"] * t["folded_splits"])
        self.splits = blocks(2 * self.half, t["folded_k"] * self.folded_steps)
        shape = (self.splits, self.members, self.a_rows, self.columns)
        self.folded_parts = torch.zeros(shape, device=self.device)

    def _table(self, rows: Any) -> Tensor:
        return torch.tensor(rows, dtype=torch.int32, device=self.device)

    # ---- what the engine calls ----------------------------------------------------------------------

    def call(
        self, parameters: Parameters, numbers: Tensor, positions: Tensor, index: Tensor | None = None
    ) -> Call:
        """The tensors of a batch; with `index` (M, B) they are whole data sets (M, n, ...) to gather from."""
        return Call(self.layout, self.index, parameters, numbers, positions, index)

    def values(self, call: Call, *, forces: bool = True, keep: bool = False, known: bool = False) -> None:
        """Fill energy (M, B), atomic (M, B, N) and forces (M, B, N, 3).

        `keep` what a gradient needs; `known` if the weights are those of the last call.
        """
        if keep and self.pair_high is None:
            self._allocate_pairs()
        done = None
        if not known:
            with aside(self._side):
                self.run_vectors(call)
                done = self._event()
            self.run_prepare(call)
        self.run_overlaps(call)
        self.run_alpha()
        self._wait(done)
        self.run_forward(call)
        self.run_adjoint(call)
        if forces or keep:
            self.run_bars(keep)
            self.run_forces(call)

    def gradient(self, call: Call, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        """Gradient of a loss (M, n), after `values` with `keep`, from ∂loss/∂E and ∂loss/∂F."""
        self.by_energy, self.by_forces = by_energy.contiguous(), by_forces.contiguous()
        with aside(self._side):
            self.run_basis(call)
            done = self._event()
        self.run_alpha_dot(call)
        self.run_tangent()
        self.run_stream_hats(call)
        with aside(self._side):
            self.run_weights(call)
        self.run_hats(call)
        self._wait(done)
        self.run_by_folded()
        self.run_unfold(call)
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)
        return self.gradient_buffer

    # ---- launches -----------------------------------------------------------------------------------

    def _event(self) -> torch.cuda.Event | None:
        """An event at the current position of the current stream."""
        return None if self._side is None else torch.cuda.current_stream(self.device).record_event()

    def _wait(self, event: torch.cuda.Event | None) -> None:
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def run_prepare(self, call: Call) -> None:
        overlaps.prepare_kernel[(len(self.prepare_table), self.members)](
            call.theta, call.theta_stride, call.mu, self.config.gamma, self.a_high, self.a_low, self.constant,
            self.prepare_table, **self._basis, A_ROWS=self.a_rows, CONSTANTS=self.layout.constants,
            BIAS=self.config.bias, ROWS=PREPARE_ROWS, COLUMNS=self.prepare_table.shape[1],
            PRECISION=self.precision, num_warps=4,
        )  # fmt: skip

    def run_overlaps(self, call: Call) -> None:
        t, steps = self.tune, self.tune["overlap_steps"]
        rows = blocks(self.layout.rows, t["overlap_rows"] * steps)
        pairs = blocks(self.batch * self.atoms * self.stride, t["overlap_pairs"])
        overlaps.overlaps_kernel[(pairs, rows, self.members)](
            self.a_high, self.a_low, call.mu, self.config.gamma, call.numbers, call.positions, call.index,
            call.count, self.x, self.slope, C=self.layout.rows, A_ROWS=self.a_rows, **self._pairs,
            **self._basis, BC=t["overlap_rows"], BP=t["overlap_pairs"], STEPS=steps, PRECISION=self.precision,
            num_warps=t["overlap_warps"], num_stages=t["overlap_stages"],
        )  # fmt: skip

    def run_alpha(self) -> None:
        chain.alpha_kernel[self._chain_grid](
            self.x, self.chunk_table, self.parts, **self._chain, CHUNKS=self.chunks,
            PRECISION=self.precision, num_warps=self.tune["chain_warps"],
            num_stages=self.tune["chain_stages"],
        )  # fmt: skip

    def run_bars(self, keep: bool) -> None:
        chain.bars_kernel[self._chain_grid](
            self.x, self.slope, self.alpha_bar, self.chunk_table, self.stream_of,
            self.pair_high if keep else self.x, self.pair_low if keep else self.x, self.parts, self.rows,
            **self._chain, CHUNKS=self.chunks, A_ROWS=self.a_rows, HALF=self.half, KEEP=keep,
            PRECISION=self.precision, num_warps=self.tune["chain_warps"],
            num_stages=self.tune["chain_stages"],
        )  # fmt: skip

    def run_alpha_dot(self, call: Call) -> None:
        chain.alpha_dot_kernel[self._chain_grid](
            self.x, self.slope, call.positions, call.index, self.by_forces, call.count, self.chunk_table,
            self.parts, **self._chain, CHUNKS=self.chunks, PRECISION=self.precision,
            num_warps=self.tune["chain_warps"],
            num_stages=self.tune["chain_stages"],
        )  # fmt: skip

    def run_hats(self, call: Call) -> None:
        chain.hats_kernel[self._chain_grid](
            self.x, self.slope, self.alpha_bar, self.alpha_hat, call.positions, call.index, self.by_forces,
            call.count, self.chunk_table, self.stream_of, self.pair_high, self.pair_low, self.rows,
            **self._chain, A_ROWS=self.a_rows, HALF=self.half, PRECISION=self.precision,
            num_warps=self.tune["hats_warps"], num_stages=self.tune["hats_stages"],
        )  # fmt: skip

    def run_basis(self, call: Call) -> None:
        overlaps.basis_kernel[(self.half // 16, self.members)](
            call.mu, self.config.gamma, call.numbers, call.positions, call.index, self.by_forces, call.count,
            self.pair_of, self.phi_high, self.phi_low, **self._pairs, HALF=self.half, **self._basis, BP=16,
            PRECISION=self.precision, num_warps=4,
        )  # fmt: skip

    def run_by_folded(self) -> None:
        t = self.tune
        grid = (self.splits, blocks(self.layout.rows, t["folded_rows"]), self.members)
        overlaps.by_folded_kernel[grid](
            self.pair_high, self.pair_low, self.phi_high, self.phi_low, self.folded_parts,
            A_ROWS=self.a_rows, HALF=self.half, LB=self.columns, BC=t["folded_rows"], BK=t["folded_k"],
            STEPS=self.folded_steps, PRECISION=self.precision, num_warps=t["folded_warps"],
            num_stages=t["folded_stages"],
        )  # fmt: skip

    def run_unfold(self, call: Call) -> None:
        overlaps.unfold_kernel[(len(self.unfold_table), self.members)](
            call.theta, call.theta_stride, call.mu, self.config.gamma, self.constant, self.folded_parts,
            self.gradient_buffer, self.unfold_table,
            **self._basis, A_ROWS=self.a_rows, CONSTANTS=self.layout.constants, SPLITS=self.splits,
            BIAS=self.config.bias, ROWS=PREPARE_ROWS, COLUMNS=self.unfold_table.shape[1],
            PARAMETERS=self.layout.parameters, num_warps=4 if self.splits < 8 else 8,
        )  # fmt: skip

    def run_vectors(self, call: Call) -> None:
        at = self.layout.at
        vectors.vectors_kernel[(len(self.config.orders), self.members)](
            call.theta, call.theta_stride, self.vectors, self.read_high, self.read_low, self.layout.scale,
            AT_EMBEDDING=at["embedding"], AT_W=at["W"], AT_B=at["b"], AT_HIDDEN=at["hidden.weight"],
            S=len(self.config.orders), **self._stream, **self._features, PRECISION=self.precision,
            num_warps=self.tune["vectors_warps"], num_stages=1,
        )  # fmt: skip

    def run_forward(self, call: Call) -> None:
        streams.forward_kernel[self._stream_grid](
            call.numbers, call.index, call.elements, call.count, self.read_high, self.read_low, self.parts,
            self.chunks, self.ranges, self.alpha, self.c, self.hidden_part, self.rows,
            G=self.tune["group"], **self._pairs, NT=self.tile, **self._stream, PRECISION=self.precision,
            num_warps=self.tune["stream_warps"], num_stages=1,
        )  # fmt: skip

    def run_adjoint(self, call: Call) -> None:
        at = self.layout.at
        streams.adjoint_kernel[self._stream_grid](
            call.numbers, call.index, call.shift, call.count, call.theta, call.theta_stride, self.read_high,
            self.read_low, self.alpha, self.c, self.c_bar, self.hidden_part, self.hidden, self.alpha_bar,
            self.energy, self.atomic, self.rows, AT_HIDDEN_BIAS=at["hidden.bias"],
            AT_OUTPUT=at["output.weight"], AT_OUTPUT_BIAS=at["output.bias"], S=len(self.config.orders),
            **self._pairs, NT=self.tile,
            **self._stream, PRECISION=self.precision, num_warps=self.tune["stream_warps"], num_stages=1,
        )  # fmt: skip

    def run_forces(self, call: Call) -> None:
        streams.forces_kernel[(self.members * self.batch, blocks(self.atoms, 8))](
            self.parts, call.positions, call.index, self.forces, call.count,
            PARTS=self.chunks * self.config.layers, G=16, ROWS=8, **self._pairs, NT=self.tile, num_warps=4,
        )  # fmt: skip

    def run_tangent(self) -> None:
        streams.tangent_kernel[self._stream_grid](
            self.read_high, self.read_low, self.parts, self.chunks, self.ranges, self.alpha, self.alpha_dot,
            self.c, self.c_dot, self.hidden_part, self.rows, G=self.tune["group"], **self._pairs,
            NT=self.tile, **self._stream, PRECISION=self.precision, num_warps=self.tune["stream_warps"],
            num_stages=1,
        )  # fmt: skip

    def run_stream_hats(self, call: Call) -> None:
        streams.stream_hats_kernel[self._stream_grid](
            call.numbers, call.index, call.shift, call.count, call.theta, call.theta_stride, self.read_high,
            self.read_low, self.alpha, self.alpha_dot, self.c, self.c_dot, self.c_bar, self.hidden_part,
            self.hidden, self.alpha_hat, self.q_parts, self.output_parts, self.by_energy, self.rows,
            AT_OUTPUT=self.layout.at["output.weight"], S=len(self.config.orders), **self._pairs,
            NT=self.tile, **self._stream, PRECISION=self.precision, num_warps=self.tune["stream_warps"],
            num_stages=1,
        )  # fmt: skip

    def run_weights(self, call: Call) -> None:
        c, at, v, h = self.config, self.layout.at, self.config.features, self.layout.hidden
        vectors.weights_kernel[(len(c.orders), self.members)](
            call.theta, call.theta_stride, self.vectors, self.vector_hats, self.q_parts, self.gradient_buffer,
            self.layout.scale, AT_W=at["W"], AT_B=at["b"], AT_HIDDEN=at["hidden.weight"],
            AT_HIDDEN_BIAS=at["hidden.bias"], PARAMETERS=self.layout.parameters, S=len(c.orders),
            B=self.batch, **self._stream, **self._features, PRECISION=self.precision,
            num_warps=self.tune["vectors_warps"], num_stages=1,
        )  # fmt: skip
        vectors.ends_kernel[(blocks(max(len(c.elements) * v, h + 1), 256), self.members)](
            self.vector_hats, self.output_parts, self.gradient_buffer, AT_EMBEDDING=at["embedding"],
            AT_OUTPUT=at["output.weight"], AT_OUTPUT_BIAS=at["output.bias"],
            PARAMETERS=self.layout.parameters, S=len(c.orders), E=len(c.elements), R=self.coefficients,
            B=self.batch, V=v, H=h, BLOCK=256, num_warps=4,
        )  # fmt: skip

    # ---- arguments many kernels share ---------------------------------------------------------------

    @property
    def _pairs(self) -> dict[str, int]:
        return {"B": self.batch, "N": self.atoms, "NP": self.stride}

    @property
    def _basis(self) -> dict[str, int]:
        return {"L": self.config.basis_size, "LB": self.columns}

    @property
    def _chain(self) -> dict[str, Any]:
        orders = tuple(sorted(set(self.config.orders)))
        shape = {"C": self.layout.rows, **self._pairs, "NT": self.tile, "LAYERS": self.config.layers}
        return {**shape, "ORDERS": orders}

    @property
    def _chain_grid(self) -> tuple[int, int]:
        return self.rows, self.chunks

    @property
    def _stream(self) -> dict[str, int]:
        hidden, r = self.layout.hidden, self.coefficients
        return {
            "E": len(self.config.elements), "R": r, "RT": max(16, power(r)), "LAYERS": self.config.layers,
            "H": hidden, "BH": min(64, max(16, power(hidden))),
        }  # fmt: skip

    @property
    def _features(self) -> dict[str, int]:
        v = self.config.features
        return {"V": v, "VP": max(16, power(v)), "BV": min(64, max(16, power(v)))}

    @property
    def _stream_grid(self) -> tuple[int, int]:
        return len(self.config.orders), self.members * self.batch
