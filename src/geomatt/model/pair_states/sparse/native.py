"""The C++ code (native_code/) of triangles: finding them, and sums over them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from geomatt.model.native.library import library

CODE = Path(__file__).with_name("native_code")


def native_triangles(
    span: int, i: Tensor, j: Tensor, hop: Tensor, first: Tensor, key: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """As `graph._triangles`; None where the code is not available."""
    if i.device.type != "cpu" or not len(i) or (code := library(CODE)) is None:
        return None
    states, atoms = len(i), len(first) - 1
    arrays = [_pointer(x) for x in (i, j, hop, first, key)]
    sizes = [ctypes.c_int64(x) for x in (states, atoms, span)]
    threads = ctypes.c_int(torch.get_num_threads())
    start = torch.zeros(states + 1, dtype=torch.int64)
    code.geomatt_count_triangles(*arrays, *sizes, threads, _pointer(start))
    start = start.cumsum(0)
    left = torch.empty(int(start[-1]), dtype=torch.int32)
    right = torch.empty_like(left)
    code.geomatt_find_triangles(*arrays, *sizes, threads, _pointer(start), _pointer(left), _pointer(right))
    return start, left, right


def native_sums(
    u: Tensor, v: Tensor, start: Tensor, left: Tensor, right: Tensor, left_of: Tensor | None,
    right_of: Tensor | None, out: Tensor,
) -> bool:  # fmt: skip
    """Σ over the terms of every state of u[left] ∘ v[right], as `products.sums`; False if not available."""
    if u.device.type != "cpu" or u.dtype not in (torch.float32, torch.float64):
        return False
    if (code := library(CODE)) is None:
        return False
    u, v = u.contiguous(), v.contiguous()
    call = code.geomatt_sums_f32 if u.dtype == torch.float32 else code.geomatt_sums_f64
    none = ctypes.c_void_p(None)
    call(
        _pointer(u), _pointer(v), _pointer(start), _pointer(left), _pointer(right),
        none if left_of is None else _pointer(left_of), none if right_of is None else _pointer(right_of),
        ctypes.c_int64(len(u)), ctypes.c_int64(u.shape[1]), ctypes.c_int(torch.get_num_threads()),
        _pointer(out),
    )  # fmt: skip
    return True


def _pointer(x: Tensor) -> ctypes.c_void_p:
    if not x.is_contiguous():
        raise ValueError("the C++ code needs contiguous arrays")
    return ctypes.c_void_p(x.data_ptr())
