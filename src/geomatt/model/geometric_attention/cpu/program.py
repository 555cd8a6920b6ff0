"""The sweeps of `dense` in compiled code (native_code/), for one float32 network on a CPU.

What the weights alone decide is worked out in torch, by `DenseProgram`, and so is the way from the compiled
code's results to the gradients by the weights. In between nothing is torch: see native.cpp.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.model.geometric_attention.cpu.grid import Nodes, grid_pays
from geomatt.model.geometric_attention.cpu.library import library
from geomatt.model.geometric_attention.dense import streams
from geomatt.model.geometric_attention.dense.program import DenseProgram, Parameters, Prepared

SHARES = 2  # as in native.cpp
MOST = 1 << 24  # numbers of a thread's own space, 64 MiB
LANES = 8  # channels come in groups of so many, or one by one where there is only one


class _Stream(ctypes.Structure):
    """As `Stream` in chains.hpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("atoms", "structures", "layers", "modules", "width", "rows")),
        ("space", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("table", "cell", "value", "slope")),
        *((name, ctypes.c_void_p) for name in ("prefix", "suffix", "prefix_dots", "bars")),
        *((name, ctypes.c_void_p) for name in ("alpha", "alpha_bar", "alpha_dot", "alpha_hat", "pull")),
        ("by_table", ctypes.c_void_p),
    ]


class _Program(ctypes.Structure):
    """As `Program` in native.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("atoms", "structures", "layers", "streams", "first")),
        *((name, ctypes.c_int32) for name in ("last_node", "hidden", "threads")),
        ("step", ctypes.c_double),
        ("stream", ctypes.POINTER(_Stream)),
        *(
            (name, ctypes.c_void_p)
            for name in ("numbers", "positions", "start", "into", "from", "bias", "output")
        ),
        *((name, ctypes.c_void_p) for name in ("cell", "value", "slope", "direction")),
        *((name, ctypes.c_void_p) for name in ("c", "c_bar", "c_dot", "c_hat")),
        *((name, ctypes.c_void_p) for name in ("act", "sigmoid", "hidden_bar", "hidden_hat", "by_output")),
        *((name, ctypes.c_void_p) for name in ("atomic", "forces", "energy_label", "force_label")),
        *((name, ctypes.c_void_p) for name in ("energy_weight", "force_weight", "energy_error", "d_dot")),
    ]


@dataclass
class NativeWeights:
    """What compiled code wants to know of the weights, worked out once for as long as they stay."""

    prepared: Prepared
    nodes: Nodes
    into: Tensor  # (S · R, H), the streams' vectors times the weights of the hidden layer
    onto: Tensor  # its transpose
    bias: Tensor  # (H,)
    output: Tensor  # (H + 2,), the output's weights, its bias, and the shift of the softplus


class NativeProgram:
    """Energies, forces and gradients of one network by compiled code."""

    def __init__(self, program: DenseProgram) -> None:
        self.program, self.config = program, program.config

    def serves(self, p: Parameters, positions: Tensor, keep: bool = False) -> bool:
        """Whether compiled code can be had, and is the better way for such networks and batches.

        `keep` as in `weights`.
        """
        config, (members, elements) = self.config, p["elements"].shape
        fits = all(modules == 1 or width % LANES == 0 for _, modules, width in self.program.channels.streams)
        short = (1 + elements) << config.layers <= streams.WIDEST  # else features are formed in between
        small = self.space(positions.shape[-2]) <= MOST
        plain = all(t.dtype == torch.float32 and t.device.type == "cpu" for t in (p["mu"], positions))
        if members > 1 or not (fits and short and small and plain):
            return False
        return (keep or grid_pays(config, p["mu"], positions)) and library() is not None

    def space(self, atoms: int) -> int:
        """Numbers that a thread needs for a layer of any stream, and keeps."""
        return atoms**2 * max(
            (2 * modules + 3) * width for _, modules, width in self.program.channels.streams
        )

    def weights(self, p: Parameters, keep: bool = False) -> NativeWeights:
        """All that the weights alone decide; `keep`: for many evaluations."""
        prepared = self.program.prepare(p, keep=keep)
        nodes = prepared.nodes or Nodes(self.config, self.program.channels, p["mu"], prepared.folded)
        (vectors,) = prepared.plan.ends  # (S, R, V)
        into = torch.bmm(vectors, self._hidden(p).mT).flatten(0, 1)
        output = torch.cat(
            [p["output.weight"].flatten(), p["output.bias"].flatten(), p["softplus_shift"].flatten()]
        )
        return NativeWeights(
            prepared, nodes, into, into.mT.contiguous(), p["hidden.bias"][0].contiguous(), output
        )

    def _hidden(self, p: Parameters) -> Tensor:
        """The weights of the hidden layer by stream, (S, H, V)."""
        return p["hidden.weight"][0].unflatten(1, (len(self.config.orders), -1)).transpose(0, 1)

    def batch(self, weights: NativeWeights, numbers: Tensor, positions: Tensor) -> NativeBatch:
        """Structures (B, N) at (B, N, 3), to be asked for energies, then forces, then a gradient."""
        return NativeBatch(self, weights, numbers, positions)


class NativeBatch:
    """Structures with the arrays in which compiled code works on them."""

    def __init__(
        self, program: NativeProgram, weights: NativeWeights, numbers: Tensor, positions: Tensor
    ) -> None:
        found = library()
        if found is None:
            raise RuntimeError("there is no compiled code; ask NativeProgram.serves first")
        self.library, self.program, self.w = found, program, weights
        self.config = program.config
        self.structures, self.atoms = numbers.shape
        _check_shape("positions", positions, (*numbers.shape, 3))
        self.reached = ""  # the sweep that was made last
        self.arrays: dict[str, Tensor] = {}
        elements = weights.prepared.parameters["elements"]
        one_hot = (numbers[..., None] == elements[0]).float()
        given = {
            "numbers": numbers.to(torch.int64).contiguous(), "positions": positions.float().contiguous(),
            "start": functional.pad(one_hot, (1, 0), value=1.0), "into": weights.into, "from": weights.onto,
            "bias": weights.bias, "output": weights.output,
        }  # fmt: skip
        first = 1 + elements.shape[1]
        layers, count = self.config.layers, len(self.config.orders)
        pairs, hidden = (self.structures, self.atoms, self.atoms), weights.into.shape[1]
        self.p = _Program(
            self.atoms, self.structures, layers, count, first, weights.nodes.last, hidden,
            torch.get_num_threads(), weights.nodes.step,
        )  # fmt: skip
        self._point(self.p, given)
        self.new("cell", *pairs, dtype=torch.int32)
        for name, size in (("value", 6), ("slope", 6), ("direction", 3)):
            self.new(name, *pairs, size)
        self.new("c", *numbers.shape, len(weights.into))
        self.new("act", *numbers.shape, hidden)
        self.new("sigmoid", *numbers.shape, hidden)
        self.new("atomic", *numbers.shape)
        self.streams = (_Stream * count)()
        self.p.stream = self.streams
        units, shapes = layers * self.structures, weights.nodes.channels.streams
        for s, (_, modules, width) in enumerate(shapes):
            stream = self.streams[s]
            stream.space = program.space(self.atoms)
            stream.atoms, stream.structures, stream.layers = self.atoms, self.structures, layers
            stream.modules, stream.width, stream.rows = modules, width, weights.nodes.rows
            stream.cell, stream.value, stream.slope = self.p.cell, self.p.value, self.p.slope
            self._point(stream, {"table": weights.nodes.tables[s]}, s)
            self.new_in(s, "prefix", max(0, modules - 2), units, self.atoms, self.atoms, width)
            self.new_in(s, "alpha", units, self.atoms, self.atoms)

    def energies(self) -> Tensor:
        """Atomic energies (B, N)."""
        self._sweep("energies", after="")
        return self.arrays["atomic"]

    def alpha(self) -> list[Tensor]:
        """α, [layer] (S·B, N, N) without its factor, after the energies."""
        return self.program.program.by_layer(
            [self.arrays[f"alpha.{s}"] for s in range(len(self.config.orders))]
        )

    def forces(self) -> Tensor:
        """Forces (B, N, 3), after the energies; a gradient turns them into errors."""
        shape, hidden = (self.structures, self.atoms), self.p.hidden
        self.new("c_bar", *shape, len(self.w.into))
        self.new("hidden_bar", *shape, hidden)
        self.new("forces", *shape, 3)
        for s, (_, modules, width) in enumerate(self.w.nodes.channels.streams):
            units, pairs = self.config.layers * self.structures, self.atoms * (self.atoms + 1) // 2
            self.new_in(s, "suffix", max(0, modules - 2), units, self.atoms, self.atoms, width)
            self.new_in(s, "bars", modules, units, pairs, width)
            self.new_in(s, "alpha_bar", units, self.atoms, self.atoms)
            self.new_in(s, "pull", units, self.atoms, self.atoms)
        self._sweep("forces", after="energies")
        return self.arrays["forces"]

    def gradient(
        self, energy: Tensor, forces: Tensor | None, energy_weight: Tensor, force_weight: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor | None]:
        """The loss's gradient by every parameter, and the errors of energies and forces; after the forces.

        Labels (B,) and (B, N, 3); the loss's slopes by energies and forces are the weights (B,) times errors.
        """
        shape, hidden = (self.structures, self.atoms), self.p.hidden
        for name, value in (("energies", energy), ("weights", energy_weight), ("weights", force_weight)):
            _check_shape(name, value, (self.structures,))
        if forces is not None:
            _check_shape("forces", forces, (*shape, 3))
        given = {"energy_label": energy, "energy_weight": energy_weight, "force_weight": force_weight}
        if forces is not None:
            given["force_label"] = forces
        self._point(self.p, {name: value.float().contiguous() for name, value in given.items()})
        for name, size in (("c_dot", len(self.w.into)), ("c_hat", len(self.w.into))):
            self.new(name, *shape, size)
        for name in ("hidden_hat", "by_output"):
            self.new(name, *shape, hidden)
        self.new("energy_error", self.structures)
        self.new("d_dot", self.structures, self.atoms, self.atoms)
        for s, (_, modules, width) in enumerate(self.w.nodes.channels.streams):
            units = self.config.layers * self.structures
            self.new_in(s, "prefix_dots", max(0, modules - 2), units, self.atoms, self.atoms, width)
            self.new_in(s, "alpha_dot", units, self.atoms, self.atoms)
            self.new_in(s, "alpha_hat", units, self.atoms, self.atoms)
            self.new_in(s, "by_table", SHARES, *self.w.nodes.tables[s].shape)
        self._sweep("gradient", after="forces")
        errors = self.arrays["energy_error"], None if forces is None else self.arrays["forces"]
        return self._by_weights(energy_weight), *errors

    def _by_weights(self, energy_weight: Tensor) -> dict[str, Tensor]:
        """From what compiled code leaves to the gradients by the network's own weights."""
        program, prepared = self.program.program, self.w.prepared
        p, plan, count = prepared.parameters, prepared.plan, len(self.config.orders)
        flat = {name: self.arrays[name].flatten(0, 1) for name in ("c", "c_dot", "hidden_bar", "hidden_hat")}
        by_into = flat["c"].mT @ flat["hidden_hat"]
        by_into = by_into.addmm_(flat["c_dot"].mT, flat["hidden_bar"], alpha=-1.0).unflatten(0, (count, -1))
        t_hat = torch.bmm(by_into, self.program._hidden(p))  # (S, R, V)
        by_hidden = torch.bmm(by_into.mT, plan.ends[0])  # (S, H, V)
        weight: list[Tensor] = []
        bias: list[Tensor] = []
        for vectors, w in zip(reversed(plan.vectors[0]), reversed(plan.weight), strict=True):
            t_hat, by_w, by_b = streams.vectors_back(t_hat, vectors, w)
            weight.insert(0, by_w)
            bias.insert(0, by_b)
        real = (self.arrays["numbers"] > 0).sum(1)
        by_tables = [self.arrays[f"by_table.{s}"].sum(0) for s in range(count)]
        return {
            "hidden.weight": by_hidden.transpose(0, 1).flatten(1)[None],
            "hidden.bias": flat["hidden_hat"].sum(0)[None],
            "output.weight": self.arrays["by_output"].sum((0, 1))[None, None],
            "output.bias": (energy_weight * self.arrays["energy_error"] * real).sum()[None, None],
            **program.by_vectors(weight, bias, t_hat[:, 1:]),
            **program.unfold(p, prepared.factors, self.w.nodes.by_functions(by_tables)),
        }

    def _sweep(self, name: str, after: str) -> None:
        """Let compiled code run, on what the sweep before has left."""
        if self.reached != after:
            raise RuntimeError(f"{name} come after {after or 'nothing else'}, not after {self.reached!r}")
        getattr(self.library, f"geomatt_{name}")(ctypes.byref(self.p))
        self.reached = name

    def new(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        """An array for compiled code to fill."""
        self._point(self.p, {name: torch.empty(shape, dtype=dtype, device="cpu")})

    def new_in(self, s: int, name: str, *shape: int) -> None:
        """One of a stream's own."""
        array = torch.empty(shape, dtype=torch.float32, device="cpu")
        self._point(self.streams[s], {name: array}, s)

    def _point(self, struct: ctypes.Structure, arrays: dict[str, Tensor], s: int | None = None) -> None:
        """Let the structure point to the arrays, and keep them."""
        for name, array in arrays.items():
            setattr(struct, name, array.data_ptr())
            self.arrays[name if s is None else f"{name}.{s}"] = array


def _check_shape(name: str, array: Tensor, shape: tuple[int, ...]) -> None:
    """Compiled code would read on beyond the end."""
    if array.shape != shape:
        raise ValueError(f"{name} have the shape {tuple(array.shape)}, not {shape}")
