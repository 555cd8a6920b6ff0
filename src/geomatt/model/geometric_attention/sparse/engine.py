"""The same network at a cost proportional to the number of atoms.

Beyond the grid of distances every overlap function equals its bias β, so each matrix of pairs is β times ones
plus a matrix over near neighbours, and Σ_j α_ij u_j is evaluated right to left: k − 1 sums over neighbours,
each with a global sum times β. Nothing is approximated: Gaussians are dropped where they are below the
precision of the numbers.

Until the readout the features are linear in the elements' embeddings: v = c B with coefficients c (N, R)
over R basis vectors B (R, V). The first E columns of c say which element an atom is. They sum to one, so the
bias b can join their images, and a layer appends to c the columns α c and to B the rows W B (+ b on the first
E). R doubles with a layer, and stays far below V for a few elements; where it does not, features are carried.

Shapes: N atoms, P edges, R columns, L basis functions, F overlap features, V atom features.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import EXPONENT_LIMIT, GeometricAttention, OverlapFunctions
from geomatt.model.geometric_attention.sparse.layout import PairDistances, PairLayout
from geomatt.model.geometric_attention.sparse.ops import Gather, Gaussians, Spread, Step
from geomatt.model.interface import Engine, Evaluation, Neighbours, Parameters
from geomatt.model.neighbours import NeighbourList, neighbour_list

# Bytes of the largest array of a block of pairs: on a processor about what its caches hold, on a graphics
# card enough to fill it.
BLOCK_BYTES = {"cpu": 2**23, "cuda": 2**29}

RESOLUTION = 1e-3  # required resolution of features, which are of order one in small molecules


@dataclass(frozen=True)
class SparseResult:
    """Normalised energies and their derivatives (energies in the network's units, lengths in Å)."""

    atomic_energies: Tensor  # (N,), the network's precision
    forces: Tensor  # (N, 3), −∂E/∂r in the precision of the positions
    stress: Tensor | None = None  # (3, 3), in ASE's sign: positive where the cell wants to shrink


@dataclass(frozen=True)
class Layouts(Neighbours):
    """A layout for each structure of a batch."""

    each: list[PairLayout]

    @property
    def pairs(self) -> int:
        return sum(int((~layout.empty).sum()) for layout in self.each)


class SparseEngine(Engine):
    """One structure after the other, each without its padding; the only engine for periodic cells.

    It has no loss gradients.
    """

    linear = True

    def __init__(self, config: GeometricAttentionConfig) -> None:
        self.config = config

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> list[GeometricAttention]:
        found = []
        for m, mu in enumerate(parameters["mu"]):
            with torch.random.fork_rng(devices=[]):
                network = GeometricAttention(self.config, mu.dtype).to(mu.device)
            network.load_tensors({name: value[m] for name, value in parameters.items()})
            found.append(network.requires_grad_(False))
        return found

    def compute(
        self,
        prepared: list[GeometricAttention],
        batch: Batch,
        index: Tensor | None,
        forces: bool,
        gradient: bool,
        neighbours: Layouts | None = None,
    ) -> Evaluation:
        """Members one after the other; `neighbours` are those of a single member."""
        atomic = torch.zeros_like(batch.positions[..., 0])
        found = torch.zeros_like(batch.positions)
        stress = None if batch.cell is None else torch.full_like(batch.cell, torch.nan)
        for m, network in enumerate(prepared):
            for b, (numbers, positions, box, pbc) in enumerate(_structures(batch.member(m))):
                count, near = len(numbers), None if neighbours is None else neighbours.each[b]
                if not forces and not any(pbc):
                    atomic[m, b, :count] = sparse_atomic_energies(network, numbers, positions, near)
                    continue
                result = sparse_energy_and_forces(
                    network, numbers, positions, box, pbc, stress=all(pbc), neighbours=near
                )
                atomic[m, b, :count], found[m, b, :count] = result.atomic_energies, result.forces
                if stress is not None and result.stress is not None:
                    stress[m, b] = result.stress
        return Evaluation(atomic.sum(-1), atomic, found if forces else None, stress)

    def neighbours(self, prepared: list[GeometricAttention], batch: Batch) -> Layouts:
        return Layouts(
            [
                pair_layout(prepared[0], numbers, positions, None, box, pbc)
                for numbers, positions, box, pbc in _structures(batch.member(0))
            ]
        )

    def capturable(self, batch: Batch) -> bool:
        return False


def _structures(batch: Batch) -> Iterator[tuple[Tensor, Tensor, Tensor | None, list[bool]]]:
    """Numbers, positions, cell (None without periodic directions) and pbc of each structure."""
    for b, count in enumerate(batch.atoms.tolist()):
        cell = None if batch.cell is None else batch.cell[b]
        pbc = [False] * 3 if cell is None else (cell != 0).any(-1).tolist()
        yield batch.numbers[b, :count], batch.positions[b, :count], cell if any(pbc) else None, pbc


def sparse_atomic_energies(
    network: GeometricAttention,
    numbers: Tensor,  # (N,)
    positions: Tensor,  # (N, 3), in the network's precision or in float64
    neighbours: NeighbourList | PairLayout | None = None,
    cell: Tensor | None = None,  # (3, 3)
    pbc: Sequence[bool] | None = None,
) -> Tensor:
    """Atomic energies (N,) of one structure without padding.

    Differentiable once, with respect to positions and parameters. A neighbour list may hold pairs beyond
    `interaction_radius`; a layout made by `pair_layout` saves laying the pairs out again.
    """
    strain = positions.new_zeros(3, 3)
    layout = pair_layout(network, numbers, positions, neighbours, cell, pbc)
    return _atomic_energies(network, numbers, positions, strain, layout, _overlaps(network))


def sparse_energy_and_forces(
    network: GeometricAttention,
    numbers: Tensor,  # (N,)
    positions: Tensor,  # (N, 3), in the network's precision or in float64
    cell: Tensor | None = None,  # (3, 3)
    pbc: Sequence[bool] | None = None,
    *,
    stress: bool = False,
    neighbours: NeighbourList | PairLayout | None = None,
) -> SparseResult:
    """Atomic energies, forces and, optionally, stress of one structure without padding."""
    volume = 0.0 if cell is None else abs(float(torch.linalg.det(cell.double())))
    if stress and not volume > 0.0:
        raise GeomAttError("Stress needs a cell with a volume: give three lattice vectors.")
    layout = pair_layout(network, numbers, positions, neighbours, cell, pbc)
    with torch.no_grad():  # constant overlap functions: their gradients would keep arrays of N · R · L
        overlaps = _overlaps(network)
    with torch.enable_grad():
        positions = positions.detach().requires_grad_()
        strain = positions.new_zeros(3, 3).requires_grad_(stress)
        atomic = _atomic_energies(network, numbers, positions, strain, layout, overlaps)
        gradients = torch.autograd.grad(atomic.sum(), [positions, strain] if stress else [positions])
    if not stress:
        return SparseResult(atomic.detach(), -gradients[0])
    return SparseResult(atomic.detach(), -gradients[0], gradients[1] / volume)


def interaction_radius(config: GeometricAttentionConfig, dtype: torch.dtype) -> float:
    """The distance (Å) from which every Gaussian is below a hundredth of the precision of the numbers.

    In float64 that is where `GeometricAttention.basis` sets them to zero.
    """
    exponent = min(EXPONENT_LIMIT, -math.log(torch.finfo(dtype).eps / 100))
    return (config.basis_size - 1) * config.spacing + math.sqrt(exponent / config.gamma)


def pair_layout(
    network: GeometricAttention,
    numbers: Tensor,
    positions: Tensor,
    neighbours: NeighbourList | PairLayout | None = None,
    cell: Tensor | None = None,
    pbc: Sequence[bool] | None = None,
) -> PairLayout:
    """The pairs of a structure in the layout of the kernels; valid while its neighbours stay the same."""
    if isinstance(neighbours, PairLayout):
        return neighbours
    config = network.config
    radius = interaction_radius(config, network.mu.dtype)
    if pbc is not None and any(pbc) and config.bias:
        raise GeomAttError(
            "This model has a bias in its overlap functions, which acts at any distance: with periodic "
            "images its energy is infinite. Train with `bias` False for periodic structures, or set pbc "
            "to False."
        )
    if neighbours is None:
        box = None if cell is None else _array(cell)
        neighbours = neighbour_list(_array(positions), box, pbc, radius)
    elif neighbours.radius < radius:
        raise GeomAttError(
            f"The neighbour list reaches {neighbours.radius:g} Å, but this model needs {radius:g} Å."
        )
    columns = min(config.features, len(config.elements) * 2 ** (config.layers - 1))
    widest = max([config.basis_size] + [columns * config.width(k) for k in config.orders if k > 3])
    bytes_per_pair = widest * network.mu.element_size()
    block_pairs = BLOCK_BYTES["cpu" if positions.device.type == "cpu" else "cuda"] // bytes_per_pair
    return PairLayout.build(neighbours, len(numbers), block_pairs, cell, positions.device)


# Overlap functions A Φ̂(d) + β of one stream: A (layers, k − 1, F, L), β (layers, k − 1, F) or None.
_Overlap = tuple[Tensor, Tensor | None]


def _overlaps(network: GeometricAttention) -> list[_Overlap]:
    result = []
    for overlap in network.overlaps:
        assert isinstance(overlap, OverlapFunctions)
        weight, beta = overlap.folded(network.basis_at_zero())
        result.append((weight, beta if network.config.bias else None))
    return result


def _atomic_energies(
    network: GeometricAttention,
    numbers: Tensor,  # (N,)
    positions: Tensor,  # (N, 3)
    strain: Tensor,  # (3, 3)
    layout: PairLayout,
    overlaps: list[_Overlap],
) -> Tensor:
    numbers = numbers[layout.order]
    distance = PairDistances.apply(positions[layout.order], strain, layout, network.mu.dtype)
    features = _Streams(network, overlaps, layout, distance).run(numbers)
    if network.config.bias:
        _warn_of_magnitude(features)
    return network.readout(numbers, features)[layout.place]


class _Streams:
    """All streams of a network side by side, so that they share the passes over the pairs."""

    def __init__(
        self, network: GeometricAttention, overlaps: list[_Overlap], layout: PairLayout, distance: Tensor
    ) -> None:
        self.network, self.overlaps, self.layout, self.distance = network, overlaps, layout, distance
        self.basis = Gaussians(network.mu, network.config.gamma)

    def run(self, numbers: Tensor) -> list[Tensor]:
        """Features (N, V) of every stream."""
        network, layers = self.network, self.network.config.layers
        streams = range(len(self.overlaps))
        known = network.elements[torch.isin(network.elements, numbers)]  # elements that occur: fewer columns
        one_hot = (numbers[:, None] == known).to(network.mu.dtype)  # (N, E)
        if not bool(one_hot.any(1).all()):
            raise GeomAttError(f"The model knows atomic numbers {network.elements.tolist()} only.")
        columns = [one_hot] * len(streams)
        spread = [self._spread(one_hot)] * len(streams)
        vectors = [network.embed(known)] * len(streams)  # (E, V)
        layer = 0
        while layer < layers and columns[0].shape[1] < network.config.features:
            moved = self._attend(layer, columns, spread)
            for s in streams:
                image = vectors[s] @ network.W[s, layer].T  # (R, V)
                image = torch.cat([image[: len(known)] + network.b[s, layer], image[len(known) :]])
                vectors[s] = torch.cat([vectors[s], image])
                columns[s] = torch.cat([columns[s], moved[s]], 1)
            layer += 1
            if layer < layers and columns[0].shape[1] < network.config.features:
                more = self._spread(torch.cat(moved, 1)).split([m.shape[1] for m in moved], 1)
                spread = [torch.cat([spread[s], more[s]], 1) for s in streams]
        features = [columns[s] @ vectors[s] for s in streams]
        for later in range(layer, layers):
            columns = [features[s] @ network.W[s, later].T + network.b[s, later] for s in streams]
            spread = [self._spread(c) for c in columns]
            features = [v + m for v, m in zip(features, self._attend(later, columns, spread), strict=True)]
        return features

    def _attend(self, layer: int, columns: list[Tensor], spread: list[Tensor]) -> list[Tensor]:
        """Σ_j α_ij c_j of every stream (N, R), from columns c (N, R) and their spread (N, R, L)."""
        config = self.network.config
        result: list[Tensor | None] = []
        pending: list[Tensor] = []  # of each stream of order 3 and more, what its neighbours will gather
        constant: list[Tensor | float] = []
        for (weights, biases), c, s in zip(self.overlaps, columns, spread, strict=True):
            weight, beta = weights[layer], None if biases is None else biases[layer]
            modules = len(weight)
            if modules == 1:  # k = 2: the sum over channels is one function of the distance
                far = 0.0 if beta is None else beta[0].sum() * c.sum(0)
                result.append(s @ weight[0].sum(0) + far)
                continue
            t = s @ weight[-1].T  # (N, R, F)
            if beta is not None:
                t = t + beta[-1] * c.sum(0)[:, None]
            for m in range(modules - 2, 0, -1):
                y = Step.apply(self.distance, t, weight[m], self.layout, self.basis)
                t = y if beta is None else y + beta[m] * t.sum(0)
            result.append(None)
            pending.append(t @ weight[0])  # (N, R, L)
            constant.append(0.0 if beta is None else t.sum(0) @ beta[0])
        if pending:
            widths = [g.shape[1] for g in pending]
            near = Gather.apply(self.distance, torch.cat(pending, 1), self.layout, self.basis).split(
                widths, 1
            )
            gathered = iter([n + far for n, far in zip(near, constant, strict=True)])
            result = [next(gathered) if r is None else r for r in result]
        scale = config.spacing / len(config.orders)
        return [scale * r for r in result if r is not None]

    def _spread(self, columns: Tensor) -> Tensor:
        return Spread.apply(self.distance, columns, self.layout, self.basis)  # (N, R, L)


def _warn_of_magnitude(features: list[Tensor]) -> None:
    """Warn if features are too large for their precision; with a bias they grow with the number of atoms."""
    dtype = features[0].dtype
    largest = max(float(v.detach().abs().max()) for v in features)
    if not largest * torch.finfo(dtype).eps < RESOLUTION:
        warnings.warn(
            f"Features reach {largest:.1e}, where {str(dtype).removeprefix('torch.')} resolves no better "
            f"than {largest * torch.finfo(dtype).eps:.1e}: energies and forces lose their digits. "
            "The bias of the overlap functions makes features grow with the number of atoms. Use float64, or "
            "a model trained with `bias` False.",
            stacklevel=4,
        )


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()
