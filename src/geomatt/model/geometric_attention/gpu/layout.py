"""Layout of the fused program: weights in the flat θ, rows of A and X, tables of tasks, tuning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.interface import Parameters


class Layout:
    """Offsets of the weights in the flat θ, rows of A and X, and the kernels' tables of tasks."""

    def __init__(self, config: GeometricAttentionConfig) -> None:
        self.config = config
        with torch.device("meta"):
            network = GeometricAttention(config)
        self.shapes = {name: p.shape for name, p in network.named_parameters()}
        self.at: dict[str, int] = {}
        self.parameters = 0
        for name, shape in self.shapes.items():
            self.at[name] = self.parameters
            self.parameters += shape.numel()
        self.hidden = network.hidden.out_features
        self.scale = config.spacing / len(config.orders)
        self.row_of: list[int] = []  # [stream], first row of A and X
        self.constant_of: list[int] = []  # [stream], first row of c = Q Φ̂(0) + q
        self.rows = self.constants = 0
        for order in config.orders:
            self.row_of.append(self.rows)
            self.constant_of.append(self.constants)
            count = config.layers * (order - 1) * config.width(order)
            self.rows += config.layers if order == 2 else count
            self.constants += count

    def views(self, theta: Tensor) -> dict[str, Tensor]:
        """The weights in θ (M, n) by name."""
        return {
            name: theta[:, at : at + self.shapes[name].numel()].unflatten(1, self.shapes[name])
            for name, at in self.at.items()
        }

    def chunks(self, count: int) -> tuple[list[list[int]], list[int], list[list[int]]]:
        """Channels divided over programs: the table, the stream of each chunk, each stream's range."""
        table: list[list[int]] = []
        stream_of: list[int] = []
        ranges = []
        for s, order in enumerate(self.config.orders):
            width = self.config.width(order)
            channels = 1 if order == 2 else -(-width // count)
            first = len(table)
            for f in range(0, 1 if order == 2 else width, channels):
                table.append([order, self.row_of[s], 1 if order == 2 else width, f, min(f + channels, width)])
                stream_of.append(s)
            ranges.append([first, len(table)])
        return table, stream_of, ranges

    def _overlap_rows(self, s: int) -> tuple[int, int, int, int, int]:
        """Of stream s: places of Q, K, q, k in θ (−1 where there is none), and the count of their rows."""
        q, k, q_bias, k_bias = (self.at.get(f"overlaps.{s}.{name}", -1) for name in "QKqk")
        order = self.config.orders[s]
        return q, k, q_bias, k_bias, self.config.layers * (order - 1) * self.config.width(order)

    def prepare_tasks(self, rows: int) -> list[list[int]]:
        tasks = []
        size = self.config.basis_size
        for s, order in enumerate(self.config.orders):
            q, k, q_bias, k_bias, count = self._overlap_rows(s)
            width = self.config.width(order)
            step = width if order == 2 else rows
            for f in range(0, count, step):
                row = self.row_of[s] + (f // width if order == 2 else f)
                tasks.append(
                    [int(order == 2), q + f * size, k + f * size, q_bias + f, k_bias + f, row,
                     self.constant_of[s] + f, min(step, count - f)]
                )  # fmt: skip
        return tasks

    def unfold_tasks(self, rows: int) -> list[list[int]]:
        tasks = []
        size = self.config.basis_size
        for s, order in enumerate(self.config.orders):
            q, k, q_bias, k_bias, count = self._overlap_rows(s)
            width = self.config.width(order)
            for first in range(0, count, width):  # a block never crosses from one module to the next
                for f in range(first, first + width, rows):
                    row = self.row_of[s] + (f // width if order == 2 else f)
                    tasks.append(
                        [q + f * size, k + f * size, q_bias + f, k_bias + f, row, int(order != 2),
                         self.constant_of[s] + f, min(rows, first + width - f)]
                    )  # fmt: skip
        return tasks


class Call:
    """A call's tensors, in the form the kernels want them."""

    def __init__(
        self,
        layout: Layout,
        index: Tensor,
        parameters: Parameters,
        numbers: Tensor,
        positions: Tensor,
        gather: Tensor | None,
    ) -> None:
        """`index` (M, B) is for calls that do not gather."""
        self.theta = flat(parameters, layout)
        # A stride of zero tells the compiler that rows are aligned.
        self.theta_stride = self.theta.stride(0) if len(self.theta) > 1 else 0
        self.mu = parameters["mu"].contiguous()
        self.elements = parameters["elements"].contiguous()
        self.shift = parameters["softplus_shift"].contiguous()
        self.numbers, self.positions = numbers.contiguous(), positions.contiguous()
        self.index = index if gather is None else gather
        self.count = numbers.shape[1]
        if self.index.shape != index.shape or (gather is None and numbers.shape[:2] != index.shape):
            raise ValueError(f"This program is for {tuple(index.shape)} members and structures.")


def flat(parameters: Parameters, layout: Layout) -> Tensor:
    """θ (M, n): the matrix the parameters are views of, or a copy if they are not."""
    first = parameters[next(iter(layout.at))]
    start = first.storage_offset()
    stride = first.stride(0) if len(first) > 1 else layout.parameters  # of one row it means nothing
    views = all(
        p.data_ptr() == first.data_ptr() + 4 * at
        and (p.stride(0) == stride or len(first) == 1)
        and p[0].is_contiguous()
        for p, at in ((parameters[name], at) for name, at in layout.at.items())
    )
    if views and stride >= layout.parameters:
        return first.as_strided((len(first), layout.parameters), (stride, 1), start)
    return torch.cat([parameters[name].reshape(len(first), -1) for name in layout.at], 1)


class aside:
    """Run launches on a second stream, after all that went before on the current one."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            self.context = torch.cuda.stream(self.stream)
            self.context.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.context.__exit__(*error)


def defaults(structures: int, atoms: int) -> dict[str, int]:
    """Meta-parameters: warps of each kernel, tile sizes, and into how many parts work is divided.

    `structures` of all members together.
    """
    few = structures < 80  # a GPU is not full with these
    small = atoms <= 32
    chain_warps = 1 if small else 4
    return {
        "chunks": 16 if few else 4, "chain_warps": chain_warps, "chain_stages": 2 if small and not few else 1,
        "hats_warps": chain_warps, "hats_stages": 1,
        "overlap_rows": 64, "overlap_pairs": 64 if few else 32, "overlap_warps": 4,
        "overlap_stages": 1 if few else 2, "overlap_steps": 2 if few else 11,  # blocks of rows of a program
        "folded_rows": 64 if few else 128, "folded_k": 64, "folded_warps": 4,
        "folded_splits": 12 if few else 2, "folded_stages": 4 if few else 3,
        "stream_warps": 4 if few else 2, "vectors_warps": 4,
        "group": (8 if few else 4) // (1 if small else 4),  # tiles in registers at once
    }  # fmt: skip


def coefficients(config: GeometricAttentionConfig) -> int:
    """R, of an atom after the last layer."""
    return (len(config.elements) + 1) << config.layers


def blocks(count: int, size: int) -> int:
    return -(-count // size)


def power(count: int) -> int:
    """The next power of two."""
    return 1 << (count - 1).bit_length()
