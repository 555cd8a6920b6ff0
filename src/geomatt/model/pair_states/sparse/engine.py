"""Automatic differentiation over neighbour lists: any number of atoms, any cells, memory planned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import functional_call

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.autograd import AutogradEngine
from geomatt.model.interface import Evaluation, Network, Parameters
from geomatt.model.memory import fitting_atoms, free_memory, out_of_memory
from geomatt.model.pair_states.sparse.graph import Graphs, PairGraph, joined
from geomatt.model.pair_states.sparse.rounds import Space

# Arrays of C numbers per state that are alive at once, measured: for each round, and besides. Without and
# with a gradient of a loss, for which automatic differentiation keeps what derivatives of derivatives need.
ARRAYS = {False: (4, 16), True: (50, 36)}
PER_TRIANGLE = 8  # bytes
SHARE = 0.25  # of the free memory that structures evaluated together may take


class SparseEngine(AutogradEngine):
    """States of neighbours only, of all pairs without a radius. Members one after the other."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.graphs = Graphs(network.config.radius)
        self._find = self.graphs.of
        self._spaces: defaultdict[int, Space] = defaultdict(Space)  # of each member

    def prepare(self, parameters: Parameters, *, keep: bool = False) -> Parameters:
        return _Kept(parameters) if keep else parameters

    def compute(
        self,
        prepared: Parameters,
        batch: Batch,
        index: Tensor | None,
        forces: bool,
        gradient: bool,
        switch: Tensor | None = None,
    ) -> Evaluation:
        """Without a gradient, as many structures at a time as fit into memory."""
        self._find = self.graphs.of
        try:
            if gradient:
                return super().compute(prepared, batch, None, forces, True, switch)
            if isinstance(prepared, _Kept) and batch.numbers.shape[:2] == (1, 1):
                self._find = self.graphs.moving  # a simulation, perhaps
                return super().compute(prepared, batch, None, forces, False, switch)
            parts = []
            for part in self._parts(batch):
                own = batch.apply(lambda x, part=part: x[:, part])  # type: ignore[misc]
                lever = switch if switch is None or switch.dim() < 3 else switch[..., part, :, :]
                parts.append(super().compute(prepared, own, None, forces, False, lever))
            return _joined(parts)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise GeomAttError(self._too_large(batch, gradient)) from error

    def capturable(self, batch: Batch) -> bool:
        return False

    def _atomic_energies(self, parameters: Parameters, batch: Batch, switch: Tensor | None) -> Tensor:
        found = []
        for m in range(len(batch.numbers)):
            own = batch.member(m)
            graph = joined(self._find(own), own.numbers.shape[-1])
            gradient = any(p.requires_grad for p in parameters.values())
            if self.bytes_of(graph, gradient) > free_memory(own.positions.device):
                raise GeomAttError(self._too_large(own.as_member(), gradient))
            weights = {name: value[m] for name, value in parameters.items()}
            space = None if gradient else self._spaces[m]
            found.append(functional_call(self.network, weights, (own, switch, graph, space)))
        return torch.stack(found)

    def bytes_of(self, graph: PairGraph, gradient: bool = False) -> int:
        """Memory that energies and forces of a graph take, or a gradient of a loss."""
        config = self.network.config
        per_round, besides = ARRAYS[gradient]
        arrays = per_round * config.rounds + besides
        size = self.network.dtype.itemsize
        return len(graph) * config.channels * arrays * size + PER_TRIANGLE * len(graph.triangles.left)

    def _parts(self, batch: Batch) -> list[slice]:
        """Structures to evaluate together: neighbours in the batch, by what they need."""
        count = batch.numbers.shape[1]
        if count == 1:
            return [slice(0, 1)]
        limit = SHARE * free_memory(batch.positions.device)
        needs = [0] * count
        for m in range(len(batch.numbers)):
            own = [self.bytes_of(graph) for graph in self.graphs.of(batch.member(m))]
            needs = [max(a, b) for a, b in zip(needs, own, strict=True)]
        parts, start, total = [], 0, 0
        for b, need in enumerate(needs):
            if b > start and total + need > limit:
                parts.append(slice(start, b))
                start, total = b, 0
            total += need
        return [*parts, slice(start, count)]

    def _too_large(self, batch: Batch, gradient: bool) -> str:
        """The message for structures that do not fit, with how many atoms would."""
        own = batch.member(0)
        graph = joined(self.graphs.of(own), own.numbers.shape[-1])
        needed, free = self.bytes_of(graph, gradient), free_memory(own.positions.device)
        atoms = int(own.atoms.sum())
        fits = fitting_atoms(atoms, free / needed, linear=bool(self.network.config.radius))
        what = "A step of training" if gradient else "An evaluation"
        advice = "a smaller `batch`, " if gradient and len(own.numbers) > 1 else ""
        return (
            f"{what} of {atoms:,} atoms with {len(graph) - atoms:,} pairs needs {needed / 1e9:.1f} GB; "
            f"{free / 1e9:.1f} GB are free, enough for about {fits:,} atoms like these. Use fewer atoms, "
            f"{advice}or a network with fewer `channels` or a smaller `radius`."
        )


class _Kept(dict[str, Tensor]):
    """Weights for many evaluations."""


def _joined(parts: list[Evaluation]) -> Evaluation:
    """Evaluations of consecutive structures as one."""
    if len(parts) == 1:
        return parts[0]

    def cat(name: str) -> Tensor | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values, 1)

    return replace(parts[0], **{name: cat(name) for name in ("energy", "atomic", "forces", "stress")})  # type: ignore[arg-type]
