"""Energies, forces and loss gradients in C++ (native_code/), for one float32 network on a CPU.

Quantities that depend on the weights alone, and the last step from the results of the C++ code to gradients
with respect to the weights, are computed in torch by `Folding`. The rest is in native.cpp.
"""

from __future__ import annotations

import weakref
from ctypes import POINTER, Structure, byref, c_double, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from geomatt.data.batch import Batch
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.cpu.tables import Nodes, grid_pays
from geomatt.model.geometric_attention.folding import WIDEST, Folded, Folding, vectors_back
from geomatt.model.interface import Engine, Evaluation, Parameters
from geomatt.model.native.library import library
from geomatt.model.native.structs import check_shape, fields

CODE = Path(__file__).with_name("native_code")
SHARES = 2  # as in native.cpp
MOST = 1 << 24  # float32 numbers in the work space of a thread: 64 MiB
LANES = 8  # channels come in groups of this size, or one by one where there is only one


class _Stream(Structure):
    """`Stream` of chains.hpp."""

    _fields_ = [
        *fields(c_int32, "atoms", "structures", "layers", "modules", "width", "rows"),
        ("space", c_int64),
        *fields(c_void_p, "table", "cell", "value", "slope", "prefix", "suffix", "prefix_dots", "bars"),
        *fields(c_void_p, "alpha", "alpha_bar", "alpha_dot", "alpha_hat", "pull", "by_table"),
    ]


class _Program(Structure):
    """`Program` of native.cpp."""

    _fields_ = [
        *fields(
            c_int32, "atoms", "structures", "layers", "streams", "first", "last_node", "hidden", "threads"
        ),
        ("step", c_double),
        ("stream", POINTER(_Stream)),
        *fields(c_void_p, "numbers", "positions", "start", "into", "from", "bias", "output"),
        *fields(c_void_p, "cell", "value", "slope", "direction", "c", "c_bar", "c_dot", "c_hat"),
        *fields(c_void_p, "act", "sigmoid", "hidden_bar", "hidden_hat", "by_output"),
        *fields(c_void_p, "atomic", "forces", "by_energy", "by_forces", "d_dot"),
    ]


@dataclass
class CompiledWeights:
    """The weights of one network in the form the C++ code reads."""

    folded: Folded
    nodes: Nodes
    into: Tensor  # (S · R, H), vectors of the streams times the weights of the hidden layer
    onto: Tensor  # its transpose
    bias: Tensor  # (H,)
    output: Tensor  # (H + 2,), weights of the output layer, its bias, and the shift of the softplus


class CompiledEngine(Engine):
    """Energies, forces and gradients of one network in C++."""

    def __init__(self, config: GeometricAttentionConfig) -> None:
        self.config = config
        self.folding = Folding(config)
        self._arrays: dict[tuple[str, tuple[int, ...]], Tensor] = {}  # reused by later evaluations
        # Weights whose tables are work arrays, too; overwritten once these weights are no longer referenced.
        self._last: weakref.ref[CompiledWeights] | None = None

    def serves(self, parameters: Parameters, batch: Batch, keep: bool = False) -> bool:
        """True if the library is available, supports such networks and batches, and is faster for them.

        `keep` as in `prepare`.
        """
        members, elements = parameters["elements"].shape
        fits = all(modules == 1 or width % LANES == 0 for _, modules, width in self.folding.channels.streams)
        short = (1 + elements) << self.config.layers <= WIDEST
        small = self.space(batch.positions.shape[-2]) <= MOST
        plain = all(
            t.dtype == torch.float32 and t.device.type == "cpu" for t in (parameters["mu"], batch.positions)
        )
        if members > 1 or batch.cell is not None or not (fits and short and small and plain):
            return False
        pays = keep or grid_pays(self.config, parameters["mu"], batch.positions)
        return pays and library(CODE) is not None

    def space(self, atoms: int) -> int:
        """Numbers that a thread needs for a layer of any stream."""
        return atoms**2 * max(
            (2 * modules + 3) * width for _, modules, width in self.folding.channels.streams
        )

    @torch.no_grad()
    def prepare(self, parameters: Parameters, *, keep: bool = False) -> CompiledWeights:
        p = parameters
        folded = self.folding.fold(p)
        free = not keep and (self._last is None or self._last() is None)
        nodes = Nodes(
            self.config, self.folding.channels, p["mu"], folded.functions, keep, self.array if free else None
        )
        (vectors,) = folded.plan.ends  # (S, R, V)
        into = torch.bmm(vectors, self.hidden_weights(p).mT).flatten(0, 1)
        output = torch.cat(
            [p["output.weight"].flatten(), p["output.bias"].flatten(), p["softplus_shift"].flatten()]
        )
        bias = p["hidden.bias"][0].contiguous()
        weights = CompiledWeights(folded, nodes, into, into.mT.contiguous(), bias, output)
        if free:
            self._last = weakref.ref(weights)
        return weights

    def hidden_weights(self, p: Parameters) -> Tensor:
        """Weights of the hidden layer by stream, (S, H, V)."""
        return p["hidden.weight"][0].unflatten(1, (len(self.config.orders), -1)).transpose(0, 1)

    def compute(
        self, prepared: CompiledWeights, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        work = _Work(self, prepared, batch.numbers[0], batch.positions[0])
        atomic = work.energies()[None]
        found = work.forces()[None] if forces or gradient else None
        return Evaluation(atomic.sum(-1), atomic, found if forces else None, state=work)

    def backward(self, state: _Work, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        return state.gradient(by_energy[0], by_forces[0])

    def array(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A work array; fresh memory in every step would cost a third of the step in page faults."""
        if (name, shape) not in self._arrays:
            if sum(known == name for known, _ in self._arrays) >= 2:  # a full and a last, smaller batch
                self._arrays = {key: value for key, value in self._arrays.items() if key[0] != name}
            self._arrays[name, shape] = torch.empty(shape, dtype=dtype, device="cpu")
        return self._arrays[name, shape]


class _Work:
    """A batch with the arrays in which the C++ code works on it."""

    def __init__(
        self, engine: CompiledEngine, weights: CompiledWeights, numbers: Tensor, positions: Tensor
    ) -> None:
        found = library(CODE)
        if found is None:
            raise RuntimeError("the C++ library is not available; ask CompiledEngine.serves first")
        self.library, self.engine, self.w = found, engine, weights
        self.config = engine.config
        self.structures, self.atoms = numbers.shape
        check_shape("positions", positions, (*numbers.shape, 3))
        self.reached = ""  # the last sweep
        self.arrays: dict[str, Tensor] = {}
        elements = weights.folded.parameters["elements"]
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
        self._new("cell", *pairs, dtype=torch.int32)
        for name, size in (("value", 6), ("slope", 6), ("direction", 3)):
            self._new(name, *pairs, size)
        self._new("c", *numbers.shape, len(weights.into))
        self._new("act", *numbers.shape, hidden)
        self._new("sigmoid", *numbers.shape, hidden)
        self._new("atomic", *numbers.shape)
        self.streams = (_Stream * count)()
        self.p.stream = self.streams
        units, shapes = layers * self.structures, weights.nodes.channels.streams
        for s, (_, modules, width) in enumerate(shapes):
            stream = self.streams[s]
            stream.space = engine.space(self.atoms)
            stream.atoms, stream.structures, stream.layers = self.atoms, self.structures, layers
            stream.modules, stream.width, stream.rows = modules, width, weights.nodes.rows
            stream.cell, stream.value, stream.slope = self.p.cell, self.p.value, self.p.slope
            self._point(stream, {"table": weights.nodes.tables[s]}, s)
            self._new_in(s, "prefix", max(0, modules - 2), units, self.atoms, self.atoms, width)
            self._new_in(s, "alpha", units, self.atoms, self.atoms)

    def energies(self) -> Tensor:
        """Atomic energies (B, N)."""
        self._sweep("energies", after="")
        return self.arrays["atomic"]

    def forces(self) -> Tensor:
        """Forces (B, N, 3), after the energies."""
        shape, hidden = (self.structures, self.atoms), self.p.hidden
        self._new("c_bar", *shape, len(self.w.into))
        self._new("hidden_bar", *shape, hidden)
        self._new("forces", *shape, 3)
        for s, (_, modules, width) in enumerate(self.w.nodes.channels.streams):
            units, pairs = self.config.layers * self.structures, self.atoms * (self.atoms + 1) // 2
            self._new_in(s, "suffix", max(0, modules - 2), units, self.atoms, self.atoms, width)
            self._new_in(s, "bars", modules, units, pairs, width)
            self._new_in(s, "alpha_bar", units, self.atoms, self.atoms)
            self._new_in(s, "pull", units, self.atoms, self.atoms)
        self._sweep("forces", after="energies")
        return self.arrays["forces"]

    def gradient(self, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        """Gradient of a loss (1, n) from ∂loss/∂E (B,) and ∂loss/∂F (B, N, 3); after the forces."""
        shape, hidden = (self.structures, self.atoms), self.p.hidden
        check_shape("slopes of the loss", by_energy, (self.structures,))
        check_shape("slopes of the loss", by_forces, (*shape, 3))
        given = {"by_energy": by_energy, "by_forces": by_forces}
        self._point(self.p, {name: value.float().contiguous() for name, value in given.items()})
        for name, size in (("c_dot", len(self.w.into)), ("c_hat", len(self.w.into))):
            self._new(name, *shape, size)
        for name in ("hidden_hat", "by_output"):
            self._new(name, *shape, hidden)
        self._new("d_dot", self.structures, self.atoms, self.atoms)
        for s, (_, modules, width) in enumerate(self.w.nodes.channels.streams):
            units = self.config.layers * self.structures
            self._new_in(s, "prefix_dots", max(0, modules - 2), units, self.atoms, self.atoms, width)
            self._new_in(s, "alpha_dot", units, self.atoms, self.atoms)
            self._new_in(s, "alpha_hat", units, self.atoms, self.atoms)
            self._new_in(s, "by_table", SHARES, *self.w.nodes.tables[s].shape)
        self._sweep("gradient", after="forces")
        found, parameters = self._by_weights(by_energy), self.w.folded.parameters
        return torch.cat([found[name].flatten(1) for name in parameters if name in found], 1)

    def _by_weights(self, by_energy: Tensor) -> dict[str, Tensor]:
        """Gradients with respect to the network's weights from the results of the C++ code."""
        folding, folded = self.engine.folding, self.w.folded
        p, plan, count = folded.parameters, folded.plan, len(self.config.orders)
        pairs = {name: self.arrays[name].flatten(0, 1) for name in ("c", "c_dot", "hidden_bar", "hidden_hat")}
        by_into = pairs["c"].mT @ pairs["hidden_hat"]
        by_into = by_into.addmm_(pairs["c_dot"].mT, pairs["hidden_bar"], alpha=-1.0).unflatten(0, (count, -1))
        t_hat = torch.bmm(by_into, self.engine.hidden_weights(p))  # (S, R, V)
        by_hidden = torch.bmm(by_into.mT, plan.ends[0])  # (S, H, V)
        weight: list[Tensor] = []
        bias: list[Tensor] = []
        for vectors, w in zip(reversed(plan.vectors[0]), reversed(plan.weight), strict=True):
            t_hat, by_w, by_b = vectors_back(t_hat, vectors, w)
            weight.insert(0, by_w)
            bias.insert(0, by_b)
        real = (self.arrays["numbers"] > 0).sum(1)
        by_tables = []
        for s in range(count):
            total, *others = self.arrays[f"by_table.{s}"]
            for other in others:  # in place, as for all large arrays
                total += other
            by_tables.append(total)
        return {
            "hidden.weight": by_hidden.transpose(0, 1).flatten(1)[None],
            "hidden.bias": pairs["hidden_hat"].sum(0)[None],
            "output.weight": self.arrays["by_output"].sum((0, 1))[None, None],
            "output.bias": (by_energy * real).sum()[None, None],
            **folding.by_vectors(weight, bias, t_hat[:, 1:]),
            **folding.unfold(p, folded.factors, self.w.nodes.by_functions(by_tables)),
        }

    def _sweep(self, name: str, after: str) -> None:
        """Run the C++ code on the results of the previous sweep."""
        if self.reached != after:
            raise RuntimeError(f"{name} come after {after or 'nothing else'}, not after {self.reached!r}")
        getattr(self.library, f"geomatt_{name}")(byref(self.p))
        self.reached = name

    def _new(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> None:
        """An array for the C++ code to fill."""
        self._point(self.p, {name: self.engine.array(name, shape, dtype)})

    def _new_in(self, s: int, name: str, *shape: int) -> None:
        """An array of one stream."""
        self._point(self.streams[s], {name: self.engine.array(f"{name}.{s}", shape)}, s)

    def _point(self, struct: Structure, arrays: dict[str, Tensor], s: int | None = None) -> None:
        """Set the pointers of the structure, and keep the arrays alive."""
        for name, array in arrays.items():
            setattr(struct, name, array.data_ptr())
            self.arrays[name if s is None else f"{name}.{s}"] = array
