"""The interface between networks and the rest of the package: `Network` and `Engine`.

A network gives atomic energies; an engine evaluates and differentiates M networks of the same configuration
at once. Automatic differentiation (`geomatt.model.autograd`) is the engine of every network that has no
faster one. Shapes: M members (independent networks), B structures, N atoms (padded).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.settings import NetworkConfig
from geomatt.model.work import Work

Matrix = TypeVar("Matrix", Tensor, np.ndarray)

# Weights and buffers of M networks by their names in the state dict, each with a leading axis M.
Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class ImagePairs(Generic[Matrix]):
    """Attention between atoms i and images of atoms j, shifted by lattice vectors."""

    i: Matrix  # (P,)
    j: Matrix  # (P,)
    shift: Matrix  # (P, 3)
    value: Matrix  # (P,)


@dataclass(frozen=True)
class AttentionRecord(Generic[Matrix]):
    """Attention coefficients of one order, layer and head: (B, N, N), or (N, N) for one structure.

    In cells coefficients are summed over images; a network may add those of each image.
    """

    order: int  # k, the number of bodies a coefficient describes
    layer: int
    head: int
    matrix: Matrix
    name: str = ""  # replaces the default label
    images: Any = None  # of a batch a list with `ImagePairs` of each structure, or of one structure these

    @property
    def label(self) -> str:
        """A short name for tables and figures, such as 'k=3 layer 1'."""
        head = f" head {self.head + 1}" if self.head else ""
        return self.name or f"k={self.order} layer {self.layer + 1}{head}"

    def with_matrix(self, matrix: Any, images: Any = None) -> AttentionRecord[Any]:
        """The same record with other coefficients."""
        return dataclasses.replace(self, matrix=matrix, images=images)


@dataclass(frozen=True)
class AttentionPaths:
    """The strongest paths i – m – … – j between pairs of atoms. P pairs, K paths each, strongest first."""

    atoms: Tensor  # (P, K, length) indices of the atoms along a path
    values: Tensor  # (P, K)
    note: str  # what the values are, in a sentence


class Network(nn.Module, ABC):
    """Atomic energies, in normalised units, of structures in Å."""

    kind: ClassVar[str]  # names the network in model files
    Config: ClassVar[type[NetworkConfig]]
    # Groups of parameters that a transfer can train, as prefixes of their names; "readout" is always trained.
    parts: ClassVar[Mapping[str, tuple[str, ...]]]
    # Parameters whose first axis runs over the elements of the config.
    per_element: ClassVar[tuple[str, ...]] = ()
    # Parameters (..., rows, columns) that are matrices between hidden layers, for optimisers that step these
    # as a whole; none: the network cannot be trained by such.
    matrices: ClassVar[tuple[str, ...]] = ()
    # Buffers that only a trained network has, see `bounds`.
    optional: ClassVar[tuple[str, ...]] = ()
    # Optimisation settings used by default: one of `training.recipes`, or of the config's own `recipes`.
    recipe: ClassVar[str] = "fast"
    periodic_hint: ClassVar[str] = ""  # advice in the error message about periodic cells
    # Settings of a small network, for tests and examples.
    small: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    # True if torch.func.vmap can run the network for several members at once.
    vectorises: ClassVar[bool] = True

    config: Any

    def __init__(self, config: NetworkConfig, dtype: torch.dtype = torch.float32) -> None:
        """Subclasses create their parameters, then call `self.to(dtype)`."""
        super().__init__()
        self.config = config
        self.elements: Tensor
        self.register_buffer("elements", torch.tensor(config.elements))

    @abstractmethod
    def atomic_energies(self, batch: Batch, switch: Tensor | None = None) -> Tensor:
        """Atomic energies (B, N); zero for padding.

        `switch`, of any shape that broadcasts to (`switch_layers`, B, N, N), multiplies what the pairs i ≠ j
        contribute in each layer: one changes nothing, zero removes a pair. A network whose `switch_layers`
        is 0 is never given one.
        """

    def forward(self, batch: Batch, switch: Tensor | None = None) -> Tensor:
        return self.atomic_energies(batch) if switch is None else self.atomic_energies(batch, switch)

    @property
    def switch_layers(self) -> int:
        """In how many layers pairs can be switched off; 0 if the network cannot do that."""
        return 0

    def attention(self, batch: Batch) -> list[AttentionRecord[Tensor]]:
        """Attention coefficients, in any number of records; none for a network without attention."""
        return []

    def paths(
        self, batch: Batch, record: AttentionRecord[Tensor], pairs: Sequence[tuple[int, int]], count: int
    ) -> AttentionPaths | None:
        """The `count` strongest paths of each pair (i, j) in a batch of one structure, for one record.

        None if the record has no paths, as for coefficients of two bodies.
        """
        return None

    @property
    def radius(self) -> float | None:
        """Distance in Å beyond which atoms do not interact; None if all pairs do.

        Only a network with a radius may be used on periodic cells.
        """
        return None

    @property
    def uses_electrons(self) -> bool:
        """True if energies depend on the total charge and the number of unpaired electrons."""
        return False

    def engine(self, name: str = "auto") -> Engine:
        """The fastest engine for networks of this configuration, or the one called `name`."""
        from geomatt.model.autograd import AutogradEngine

        if name not in self.engines():
            raise GeomAttError(f"Unknown `engine` {name!r}. Use one of: {', '.join(self.engines())}.")
        return AutogradEngine(self)

    @classmethod
    def engines(cls) -> tuple[str, ...]:
        """Names `engine` accepts."""
        return ("auto", "autograd")

    def evaluation_work(self, atoms: int, batch: int = 1, pairs: float | None = None) -> Work | None:
        """Work of energies and forces of `batch` structures; None if it is not counted.

        `pairs`: those of one structure evaluated by neighbour lists, in both directions, with i = j.
        """
        return None

    def training_work(self, atoms: int, batch: int) -> Work | None:
        """Work of a training step on `batch` structures; None if it is not counted."""
        return None

    def with_elements(self, elements: Sequence[int]) -> Self:
        """The same network for exactly these elements; parameters of elements it did not have are zero."""
        config = dataclasses.replace(self.config, elements=tuple(elements))
        if config.elements == self.config.elements:
            return self
        state = self.tensors()
        with torch.random.fork_rng(devices=[]):
            other = type(self)(config, self.dtype)
        for name in self.per_element:
            table = torch.zeros_like(other.get_parameter(name))
            for row, z in enumerate(config.elements):
                if z in self.config.elements:
                    table[row] = state[name][self.config.elements.index(z)]
            state[name] = table
        other.load_tensors({**state, "elements": other.elements})
        for name, parameter in self.named_parameters():
            other.get_parameter(name).requires_grad_(parameter.requires_grad)
        return other.to(self.device)

    @property
    def device(self) -> torch.device:
        return self.elements.device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers by name, each once even if it is used in several places."""
        return {**{n: p.detach() for n, p in self.named_parameters()}, **dict(self.named_buffers())}

    def load_tensors(self, values: Mapping[str, Tensor]) -> Self:
        """Copy all parameters and buffers from `values`."""
        needed = {name for name in self.tensors() if name not in self.optional}
        if wrong := needed ^ {name for name in values if name not in self.optional}:
            raise ValueError(f"weights do not fit: {sorted(wrong)}")
        self.make_room(values.keys())
        for name, value in self.tensors().items():
            value.copy_(values[name])
        return self

    def make_room(self, names: Collection[str]) -> None:
        """Have those of the `optional` buffers that are among `names`, with any values."""
        return

    def bounds(
        self, batches: Iterable[Batch], base: Mapping[str, Tensor] = MappingProxyType({})
    ) -> dict[str, Tensor]:
        """Values of the `optional` buffers: they limit what a trained network does outside its training data.

        From the structures it was trained on, whose energies and forces they do not change. `base`: those of
        the network whose weights it started from. Most networks have none.
        """
        return {}

    def stacked(self) -> dict[str, Tensor]:
        """Parameters and buffers with a leading axis of one member."""
        return {name: value[None] for name, value in self.tensors().items()}


@dataclass
class Evaluation:
    """Predictions of M networks for a batch, in normalised units and Å."""

    energy: Tensor  # (M, B)
    atomic: Tensor  # (M, B, N), summing to the energy
    forces: Tensor | None  # (M, B, N, 3)
    stress: Tensor | None = None  # (M, B, 3, 3), nan for structures without a volume
    state: Any = None  # what a gradient continues from; None if none was asked for
    maker: Engine | None = None  # the engine chosen by one that chooses among several


class Neighbours(ABC):
    """Neighbours of the structures in a batch, as an engine stores them."""

    @property
    @abstractmethod
    def pairs(self) -> int:
        """The number of pairs in both directions, with i = j."""


class Engine(ABC):
    """Evaluates and differentiates M networks of one configuration. Holds no weights.

    `prepare` once for given weights, then `evaluate` any number of batches. After an evaluation with
    `gradient=True`, `gradient` turns the derivatives of a loss with respect to energies and forces into its
    gradient with respect to all parameters. Results may be overwritten by the next evaluation. An engine
    defines `compute`, and `backward` if it has loss gradients.
    """

    gathers: ClassVar[bool] = False  # True if `compute` takes the structures of an index on the way
    linear: ClassVar[bool] = False  # True if memory grows with the number of atoms, not of their pairs

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Any:
        """Precompute what depends on the weights alone; `keep` if it will be used for many evaluations."""
        return parameters

    @torch.no_grad()
    def evaluate(
        self,
        prepared: Any,
        batch: Batch,
        *,
        index: Tensor | None = None,
        forces: bool = True,
        gradient: bool = False,
        **options: Any,
    ) -> Evaluation:
        """Evaluate a batch with a leading member axis: numbers (M, B, N), positions (M, B, N, 3).

        With `index` (M, B) only these structures of each member. `options` are those of the engine's
        `compute`, such as the `switch` of `AutogradEngine`.
        """
        if index is not None and not self.gathers:
            batch, index = batch.rows(index), None
        return self.compute(prepared, batch, index, forces, gradient, **options)

    @torch.no_grad()
    def gradient(
        self,
        evaluation: Evaluation,
        by_energy: Tensor,
        by_forces: Tensor | None,
        by_stress: Tensor | None = None,
    ) -> Tensor:
        """Gradient of a loss (M, n) in the order of the network's parameters.

        From ∂loss/∂E (M, B), ∂loss/∂F (M, B, N, 3) and, of evaluations with stress, ∂loss/∂σ (M, B, 3, 3).
        """
        if by_forces is None:
            by_forces = evaluation.energy.new_zeros(*evaluation.atomic.shape, 3)
        return self.backward(evaluation.state, by_energy, by_forces)

    @abstractmethod
    def compute(
        self, prepared: Any, batch: Batch, index: Tensor | None, forces: bool, gradient: bool
    ) -> Evaluation:
        """As `evaluate`; the index is None unless the engine `gathers`."""

    def backward(self, state: Any, by_energy: Tensor, by_forces: Tensor) -> Tensor:
        """As `gradient`, from the state of an evaluation without stress."""
        raise NotImplementedError(f"{type(self).__name__} has no loss gradients")

    def neighbours(self, prepared: Any, batch: Batch) -> Neighbours | None:
        """Neighbours for the option `neighbours` of `evaluate`, valid while they stay the same.

        None if the engine has no such option.
        """
        return None

    def setup_pending(self) -> bool:
        """True if `setup` would take seconds, because code must be compiled for this machine."""
        return False

    def setup(self) -> None:
        """Compile what is compiled at first use; nothing for most engines."""
        return

    def chosen(self, parameters: Parameters, batch: Batch) -> Engine:
        """The engine that evaluates such a batch: itself, unless it chooses among several."""
        return self

    def capturable(self, batch: Batch) -> bool:
        """True if an evaluation of such a batch can be captured as a CUDA graph.

        A graph is given atomic numbers and positions only: no cells, charges or unpaired electrons.
        """
        alone = batch.cell is None and batch.charge is None and batch.spin is None
        return alone and batch.numbers.is_cuda
