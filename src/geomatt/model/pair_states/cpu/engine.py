"""The sweeps of `dense` in C++ (native_code/), for one float32 network on a CPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.interface import Engine, Evaluation, Network, Parameters
from geomatt.model.native.library import library
from geomatt.model.native.structs import check_shape, fields
from geomatt.model.pair_states.ceiling import refuse_ceiling
from geomatt.model.pair_states.config import DECAY

CODE = Path(__file__).with_name("native_code")
LANES = 32  # channels must be a multiple of it
# Parameters by their names in C++.
NAMES = {
    "g": "g", "h": "h", "e": "e", "k": "K", "ab": "W_AB", "w1": "W1", "b1": "b1", "w2": "W2", "b2": "b2",
    "v1": "readout.0.weight", "c1": "readout.0.bias", "v2": "readout.2.weight", "c2": "readout.2.bias",
    "v3": "readout.4.weight", "c3": "readout.4.bias",
}  # fmt: skip


class _Weights(ctypes.Structure):
    """`Weights` of program.hpp."""

    _fields_ = fields(ctypes.c_void_p, *NAMES)


class _Program(ctypes.Structure):
    """`Program` of program.hpp."""

    _fields_ = [
        *fields(ctypes.c_int32, "atoms", "structures", "channels", "rounds", "functions", "elements"),
        *fields(ctypes.c_int32, "threads", "keep", "forces"),
        *fields(ctypes.c_float, "sharpness", "decay", "scale", "radius"),
        *fields(ctypes.c_void_p, "numbers", "known", "positions", "mu", "ceiling", "weights", "by_weights"),
        *fields(ctypes.c_void_p, "packed", "space", "atomic", "found", "by_energy", "by_forces"),
    ]


@dataclass(eq=False)
class CompiledWeights:
    """The weights of one network; if they are for many evaluations, also packed in an array of their own."""

    parameters: dict[str, Tensor]
    pointers: _Weights
    own: Tensor | None


class CompiledEngine(Engine):
    """Energies, forces and gradients of one network in C++."""

    def __init__(self, network: Network) -> None:
        self.config = network.config
        self.supported = network.config.channels % LANES == 0 and not network.config.electrons
        self.names = [name for name, _ in network.named_parameters()]
        self._space: Tensor | None = None
        self._work: _Work | None = None  # the last evaluation, if it is in the work space
        self._packed: tuple[CompiledWeights, Tensor] | None = None

    def serves(self, parameters: Parameters, batch: Batch) -> bool:
        """True if the library is available and supports such networks and batches."""
        tensors = (parameters["mu"], batch.positions)
        plain = all(t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors)
        single = len(parameters["mu"]) == 1 and batch.cell is None
        return plain and single and self.supported and library(CODE) is not None

    @torch.no_grad()
    def prepare(self, parameters: Parameters, *, keep: bool = False) -> CompiledWeights:
        names = {"elements", "mu", "ceiling", *NAMES.values()} & parameters.keys()
        p = {name: parameters[name].detach().contiguous() for name in names}
        pointers = _Weights(*(p[name].data_ptr() for name in NAMES.values()))
        weights = CompiledWeights(p, pointers, None)
        if keep:
            weights.own = self._pack(weights, None)
        return weights

    def packed(self, weights: CompiledWeights) -> Tensor:
        """The weights in the order in which products read them."""
        if weights.own is not None:
            return weights.own
        if self._packed is None or self._packed[0] is not weights:
            self._packed = weights, self._pack(weights, self._packed and self._packed[1])
        return self._packed[1]

    def _pack(self, weights: CompiledWeights, into: Tensor | None) -> Tensor:
        program = self.program(weights.pointers)
        if into is None:
            into = _empty(_library().geomatt_packed(ctypes.byref(program)))
        program.packed = into.data_ptr()
        _library().geomatt_pack(ctypes.byref(program))
        return into

    def compute(
        self, prepared: CompiledWeights, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        work = _Work(self, prepared, batch.numbers[0], batch.positions[0], forces or gradient, gradient)
        self._work = work if gradient else None
        found = work.forces[None] if forces or gradient else None
        return Evaluation(work.atomic.sum(-1)[None], work.atomic[None], found, state=self._work)

    def backward(self, state: _Work | None, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        if state is None or state is not self._work:
            raise RuntimeError("a gradient comes once, after its evaluation and before the next")
        self._work = None
        return state.gradient(by_energy[0], by_forces[0])

    def program(self, weights: _Weights) -> _Program:
        """With all that does not depend on a batch."""
        c = self.config
        scale = c.typical_atoms**-0.5 if c.normalisation == "constant" else 0.0
        return _Program(
            channels=c.channels, rounds=c.rounds, functions=c.functions, elements=len(c.elements),
            threads=torch.get_num_threads(), sharpness=c.sharpness, decay=DECAY, scale=scale, radius=c.radius,
            weights=ctypes.addressof(weights),
        )  # fmt: skip

    def space(self, size: int) -> Tensor:
        """Work space, reused if it is large enough: new memory costs more than what is done with it."""
        if self._space is None or self._space.numel() < size:
            self._space = _empty(size)
        return self._space


class _Work:
    """A batch with the arrays in which the C++ code works on it."""

    def __init__(
        self,
        engine: CompiledEngine,
        weights: CompiledWeights,
        numbers: Tensor,
        positions: Tensor,
        forces: bool,
        keep: bool,
    ) -> None:
        self.engine, self.weights = engine, weights
        self.structures, self.atoms = numbers.shape
        check_shape("positions", positions, (*numbers.shape, 3))
        self.atomic = positions.new_zeros(numbers.shape)
        self.forces = torch.zeros_like(positions, memory_format=torch.contiguous_format)
        self.arrays = {
            "numbers": numbers.to(torch.int64).contiguous(), "positions": positions.contiguous(),
            "known": weights.parameters["elements"], "mu": weights.parameters["mu"],
            "packed": engine.packed(weights), "atomic": self.atomic, "found": self.forces,
        }  # fmt: skip
        self.p = p = engine.program(weights.pointers)
        p.atoms, p.structures, p.keep, p.forces = self.atoms, self.structures, keep, forces
        size = _library().geomatt_space(ctypes.byref(p))
        spaces = self.structures if keep else min(p.threads, self.structures)
        if keep:
            refuse_ceiling(weights.parameters)
        elif "ceiling" in weights.parameters:
            self.arrays["ceiling"] = weights.parameters["ceiling"]
        self._point(space=engine.space(spaces * size), **self.arrays)
        _library().geomatt_evaluate(ctypes.byref(p))

    def gradient(self, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        """Gradient of a loss (1, n) from ∂loss/∂E (B,) and ∂loss/∂F (B, N, 3)."""
        check_shape("slopes of the loss", by_energy, (self.structures,))
        check_shape("slopes of the loss", by_forces, (self.structures, self.atoms, 3))
        names = self.engine.names
        sizes = [self.weights.parameters[name].numel() for name in names]
        found = _empty(sum(sizes))[None]
        by_weights = dict(zip(names, found[0].split(sizes), strict=True))
        pointers = _Weights(*(by_weights[name].data_ptr() for name in NAMES.values()))
        self.p.by_weights = ctypes.addressof(pointers)
        self._point(by_energy=by_energy.float().contiguous(), by_forces=by_forces.float().contiguous())
        _library().geomatt_gradient(ctypes.byref(self.p))
        return found

    def _point(self, **arrays: Tensor) -> None:
        """Set pointers of the program, and keep the arrays alive."""
        self.arrays |= arrays
        for name, array in arrays.items():
            setattr(self.p, name, array.data_ptr())


def _empty(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.float32, device="cpu")


def _library() -> ctypes.CDLL:
    found = library(CODE)
    if found is None:
        raise RuntimeError("the C++ library is not available; ask CompiledEngine.serves first")
    found.geomatt_space.restype = found.geomatt_packed.restype = ctypes.c_int64
    return found
