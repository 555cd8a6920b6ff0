"""Which pairs and triangles of atoms take part when interactions end at a radius.

A state belongs to a pair (i, j) with its image, and to an atom with itself. States are sorted by i, then by j
and image. P_ij = Σ_m A_im ∘ B_mj runs over the atoms m (and images) near both i and j: `Triangles` lists for
every state (i, j) the states (i, m) and (m, j).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.model.neighbours import complete_cell, home_cells, neighbour_list
from geomatt.model.pair_states.sparse.native import native_triangles

SORTED = 100  # atoms from which they are put in an order in which neighbours are near each other in memory
BITS = 16  # of the cubes along an edge for that
CANDIDATES = 2**22  # third atoms that are looked at together
KEPT_TRIANGLES = 2**25  # in all graphs that a cache holds
# Å beyond the radius that the graph of a moving structure reaches, so that it serves for some steps: pairs
# beyond the radius are exactly zero. On a CPU finding triangles costs less than pairs that are zero.
SKIN = {"cuda": 0.5}
NEAR = 0.3  # Å; atoms that moved less since the last evaluation belong to a simulation


@dataclass(frozen=True)
class Triangles:
    """Terms of the product: those of state e are start[e]:start[e + 1]."""

    start: Tensor  # (S + 1,) int64
    left: Tensor  # (T,) int32, states (i, m)
    right: Tensor  # (T,) int32, states (m, j)
    reverse: Tensor  # (S,) int32, the state (j, i) of each (i, j)

    def to(self, device: torch.device) -> Triangles:
        return Triangles(*(x.to(device) for x in (self.start, self.left, self.right, self.reverse)))


@dataclass(frozen=True)
class PairGraph:
    """S states of A atoms. Atoms count without padding, structure after structure."""

    atom: Tensor  # (A,) int64, place of each atom in a batch flattened to B·N
    structure: Tensor  # (A,) int64
    i: Tensor  # (S,) int64
    j: Tensor  # (S,) int64
    shift: Tensor | None  # (S, 3) lattice vectors from i to the image of j; None without cells
    own: Tensor  # (A,) int64, the state of each atom with itself
    triangles: Triangles

    def __len__(self) -> int:
        return len(self.i)

    def vectors(self, positions: Tensor, cell: Tensor | None) -> Tensor:
        """From i to the image of j, (S, 3), of positions (B, N, 3) and cells (B, 3, 3)."""
        r = positions.reshape(-1, 3).index_select(0, self.atom)
        found = r.index_select(0, self.j) - r.index_select(0, self.i)
        if cell is None or self.shift is None:
            return found
        own_cell = cell.index_select(0, self.structure.index_select(0, self.i))  # (S, 3, 3)
        return found + torch.einsum("sk,skl->sl", self.shift.to(cell.dtype), own_cell)


def structure_graph(positions: Tensor, cell: Tensor | None, radius: float) -> PairGraph:
    """The graph of one structure without padding, on the device of its positions (N, 3).

    A radius of zero stands for all pairs.
    """
    device, atoms = positions.device, len(positions)
    pbc = [False] * 3 if cell is None else (cell != 0).any(-1).tolist()
    box = cell.detach().double().cpu().numpy() if cell is not None and any(pbc) else None
    itself, place = np.arange(atoms), positions.detach().double().cpu().numpy()
    atom = itself
    if atoms > SORTED and radius:
        atom = spatial_order(place, box, pbc, radius)
        place = place[atom]
    home = home_cells(place, box, pbc)  # of atoms far outside the cell, whose shifts would be large numbers
    if radius:
        inside = place - home @ complete_cell(box, pbc)
        near = neighbour_list(inside, box, pbc, radius)
        i, j = np.concatenate([itself, near.i]), np.concatenate([itself, near.j])
        shift = np.concatenate([np.zeros((atoms, 3), dtype=np.int64), near.shift])
    else:
        i, j = np.repeat(itself, atoms), np.tile(itself, atoms)
        shift = np.zeros((atoms**2, 3), dtype=np.int64)
    # A shift as one number, so that differences of shifts are differences of numbers.
    reach = 4 * int(np.abs(shift).max(initial=0)) + 1
    hop = (shift[:, 0] * reach + shift[:, 1]) * reach + shift[:, 2]
    span = reach**3
    key = (i * atoms + j) * span + hop + span // 2
    order = np.argsort(key)
    i, j, hop, shift, key = i[order], j[order], hop[order], shift[order], key[order]
    reverse = np.searchsorted(key, (j * atoms + i) * span - hop + span // 2)
    own = np.searchsorted(key, itself * (atoms + 1) * span + span // 2)
    first = np.searchsorted(i, np.arange(atoms + 1))
    moved = [torch.from_numpy(x).to(device) for x in (i, j, hop, first, key)]
    start, left, right = native_triangles(span, *moved) or _triangles(span, *moved)
    shift = shift + (home[i] - home[j]).astype(np.int64)
    return PairGraph(
        torch.from_numpy(atom).to(device),
        torch.zeros(atoms, dtype=torch.int64, device=device),
        moved[0],
        moved[1],
        None if box is None else torch.from_numpy(shift).to(device),
        torch.from_numpy(own).to(device),
        Triangles(start, left, right, torch.from_numpy(reverse).to(device, torch.int32)),
    )


def spatial_order(
    positions: np.ndarray, cell: np.ndarray | None, pbc: Sequence[bool], size: float
) -> np.ndarray:
    """Atoms in an order in which neighbours are near each other: along a Z-shaped curve through cubes."""
    if cell is not None:  # atoms of a cell may be anywhere
        positions = positions - home_cells(positions, cell, pbc) @ complete_cell(cell, pbc)
    cubes = np.floor((positions - positions.min(0)) / size).astype(np.int64) & (2**BITS - 1)
    code = np.zeros(len(positions), dtype=np.int64)
    for bit in range(BITS):  # the bits of x, y and z in turns
        for axis in range(3):
            code |= ((cubes[:, axis] >> bit) & 1) << (3 * bit + axis)
    return np.argsort(code, kind="stable")


def _triangles(
    span: int, i: Tensor, j: Tensor, hop: Tensor, first: Tensor, key: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`start`, `left` and `right` of sorted states: all m near i, kept where (m, j) is a state."""
    atoms, states = len(first) - 1, len(i)
    degree = first.diff()[i]  # candidates of each state
    ends = degree.cumsum(0)
    counts = torch.zeros(states, dtype=torch.int64, device=i.device)
    left, right, begin = [], [], 0
    while begin < states:
        before = int(ends[begin] - degree[begin])
        limit = torch.tensor(before + CANDIDATES, device=i.device)
        end = max(begin + 1, int(torch.searchsorted(ends, limit, right=True)))
        own = degree[begin:end]
        state = torch.repeat_interleave(torch.arange(begin, end, device=i.device), own)
        rank = torch.arange(len(state), device=i.device) + before - (ends - degree)[state]
        through = first[i[state]] + rank  # (i, m)
        wanted = (j[through] * atoms + j[state]) * span + hop[state] - hop[through] + span // 2
        place = torch.searchsorted(key, wanted).clamp_(max=states - 1)
        there = key[place] == wanted
        left.append(through[there].to(torch.int32))
        right.append(place[there].to(torch.int32))
        counts += torch.bincount(state[there], minlength=states)
        begin = end
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return start, torch.cat(left), torch.cat(right)


def joined(graphs: Sequence[PairGraph], padded: int) -> PairGraph:
    """The graph of a batch of structures padded to `padded` atoms, from those of its structures."""
    if len(graphs) == 1:
        return graphs[0]
    atoms = np.cumsum([0, *(len(g.atom) for g in graphs)])[:-1].tolist()
    states = np.cumsum([0, *(len(g) for g in graphs)])[:-1].tolist()
    terms = np.cumsum([0, *(len(g.triangles.left) for g in graphs)]).tolist()
    shift = None
    if any(g.shift is not None for g in graphs):
        shift = torch.cat([g.i.new_zeros(len(g), 3) if g.shift is None else g.shift for g in graphs])

    def cat(name: str, offsets: Sequence[int], triangles: bool = False) -> Tensor:
        parts = [getattr(g.triangles if triangles else g, name) for g in graphs]
        return torch.cat([part + offset for part, offset in zip(parts, offsets, strict=True)])

    start = torch.cat(
        [g.triangles.start[:-1] + t for g, t in zip(graphs, terms[:-1], strict=True)]
        + [graphs[0].triangles.start.new_tensor(terms[-1:])]
    )
    return PairGraph(
        atom=cat("atom", [padded * b for b in range(len(graphs))]),
        structure=cat("structure", range(len(graphs))),
        i=cat("i", atoms),
        j=cat("j", atoms),
        shift=shift,
        own=cat("own", states),
        triangles=Triangles(
            start, cat("left", states, True), cat("right", states, True), cat("reverse", states, True)
        ),
    )


@dataclass(frozen=True)
class _Reference:
    """A graph of a moving structure, with the geometry it was made for."""

    positions: np.ndarray  # (N, 3)
    cell: np.ndarray | None  # (3, 3)
    reach: float  # Å
    graph: PairGraph

    def displacement(self, positions: np.ndarray, cell: np.ndarray | None) -> tuple[float, float]:
        """The largest shift of an atom besides the deformation of the cell, and the size of that."""
        if positions.shape != self.positions.shape or (cell is None) != (self.cell is None):
            return np.inf, np.inf
        if cell is None or self.cell is None:
            return float(np.linalg.norm(positions - self.positions, axis=1).max(initial=0.0)), 0.0
        strain = np.linalg.pinv(self.cell) @ cell
        strain -= np.linalg.pinv(self.cell) @ self.cell  # not the identity along directions without a period
        moved = positions - self.positions - self.positions @ strain
        return float(np.linalg.norm(moved, axis=1).max(initial=0.0)), float(np.linalg.norm(strain, 2))


class Graphs:
    """Graphs of structures by their geometry; the most recent are kept, since training comes back to them."""

    def __init__(self, radius: float) -> None:
        self.radius = radius
        self._kept: OrderedDict[tuple[bytes, bytes, torch.device], PairGraph] = OrderedDict()
        self._triangles = 0
        self._references: dict[tuple[int, torch.device], _Reference] = {}

    def moving(self, batch: Batch) -> list[PairGraph]:
        """As `of`, for structures that may move little from call to call: a graph serves for some of them."""
        device, found = batch.positions.device, []
        places = batch.positions.detach().double().cpu().numpy()
        cells = None if batch.cell is None else batch.cell.detach().double().cpu().numpy()
        for b, count in enumerate(batch.atoms.tolist()):
            here, cell = places[b, :count], None if cells is None else cells[b]
            known, skin = self._references.get((b, device)), 0.0
            if known is not None:
                shift, strain = known.displacement(here, cell)
                every = self.radius == 0 and shift < np.inf  # all pairs, wherever they are
                if every or known.reach * (1.0 - strain) - 2.0 * shift >= self.radius:
                    found.append(known.graph)
                    continue
                skin = SKIN.get(device.type, 0.0) if shift < NEAR and self.radius else 0.0
            reach, box = self.radius + skin, None if batch.cell is None else batch.cell[b]
            graph = structure_graph(batch.positions[b, :count], box, reach)
            self._references[b, device] = _Reference(here, cell, reach, graph)
            found.append(graph)
        return found

    def of(self, batch: Batch) -> list[PairGraph]:
        """The graph of every structure of a batch (B, N)."""
        cells = None if batch.cell is None else batch.cell.detach()
        positions, counts = batch.positions.detach(), batch.atoms.tolist()
        here = positions.cpu().numpy()
        boxes = None if cells is None else cells.cpu().numpy()
        found = []
        for b, count in enumerate(counts):
            cell = None if cells is None else cells[b]
            box = b"" if boxes is None else boxes[b].tobytes()
            key = (here[b, :count].tobytes(), box, positions.device)
            if key not in self._kept:
                self._keep(key, structure_graph(positions[b, :count], cell, self.radius))
            self._kept.move_to_end(key)
            found.append(self._kept[key])
        return found

    def _keep(self, key: tuple[bytes, bytes, torch.device], graph: PairGraph) -> None:
        self._kept[key] = graph
        self._triangles += len(graph.triangles.left)
        while self._triangles > KEPT_TRIANGLES and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._triangles -= len(oldest.triangles.left)
