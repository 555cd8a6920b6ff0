"""`PairAttention` in compiled code (native.cpp), for one float32 network on a CPU.

Nodes and places are those of `grid`, and so are the numbers; see there.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from geomatt.model.grid import Places
from geomatt.model.native_library import library
from geomatt.model.pair_attention import PairAttention
from geomatt.model.pair_functions import Channels

LANES = 8  # channels come in groups of so many, or one by one where there is only one

SIZES = ("atoms", "structures", "layers", "modules", "width", "rows", "threads")
INPUTS = ("table", "cell", "value", "slope")
WORK = ("prefix", "suffix", "prefix_dots", "bars", "hats")


class _Stream(ctypes.Structure):
    """As `Stream` in native.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in SIZES),
        *((name, ctypes.c_void_p) for name in (*INPUTS, *WORK)),
    ]


class NativeAttention(PairAttention):
    """α and its derivatives, a structure and layer at a time."""

    def __init__(self, places: Places) -> None:
        found = library()
        if found is None:
            raise RuntimeError("there is no compiled code; ask native_serves first")
        self.library, self.nodes, self.shape = found, places.nodes, places.shape
        structures, atoms, _ = places.shape
        layers = self.nodes.channels.layers
        cell = places.cell.to(torch.int32)
        value, slope = places.value.mT.contiguous(), places.slope.mT.contiguous()  # (P, 6)
        self.streams: list[_Stream] = []
        self.kept: list[tuple[Tensor, ...]] = []  # what the streams point to
        for table, (_, modules, width) in zip(self.nodes.tables, self.nodes.channels.streams, strict=True):
            units = layers * structures
            inner = (max(0, modules - 2), units, atoms * atoms, width)
            folded = (modules, units, atoms * (atoms + 1) // 2, width)
            work = (table.new_empty(shape) for shape in (inner, inner, inner, folded, folded))
            kept = (table, cell, value, slope, *work)
            sizes = atoms, structures, layers, modules, width, self.nodes.rows, torch.get_num_threads()
            self.streams.append(_Stream(*sizes, *(tensor.data_ptr() for tensor in kept)))
            self.kept.append(kept)

    def alpha(self) -> list[Tensor]:
        return [self._call("attention", s) for s in range(len(self.streams))]

    def by_distance(self, alpha_bar: list[Tensor]) -> Tensor:
        self.alpha_bar = [bar.contiguous() for bar in alpha_bar]
        parts = [self._call("by_distance", s, bar) for s, bar in enumerate(self.alpha_bar)]
        return torch.stack(parts).view(-1, *self.shape).sum(0)

    def alpha_dot(self, d_dot: Tensor) -> list[Tensor]:
        self.d_dot = d_dot.contiguous()
        return [self._call("attention_dot", s, self.d_dot) for s in range(len(self.streams))]

    def gradient(self, alpha_hat: list[Tensor]) -> Tensor:
        by_tables = []
        for s, hat in enumerate(alpha_hat):
            by_table = torch.empty_like(self.nodes.tables[s])
            self._call("gradient", s, self.alpha_bar[s], hat.contiguous(), self.d_dot, out=by_table)
            by_tables.append(by_table)
        return self.nodes.by_functions(by_tables)

    def _call(self, name: str, s: int, *inputs: Tensor, out: Tensor | None = None) -> Tensor:
        """A function of the library on stream s; the result is like α, (R, N, N), unless `out` is given."""
        if out is None:
            structures, atoms, _ = self.shape
            out = self.nodes.tables[s].new_empty(self.streams[s].layers * structures, atoms, atoms)
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (*inputs, out))
        getattr(self.library, f"geomatt_{name}")(ctypes.byref(self.streams[s]), *pointers)
        return out


def native_serves(channels: Channels, dtype: torch.dtype) -> bool:
    """Whether compiled code can be had, and serves such networks."""
    fits = all(modules == 1 or width % LANES == 0 for _, modules, width in channels.streams)
    return fits and dtype == torch.float32 and library() is not None
