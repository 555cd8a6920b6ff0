"""Neighbouring pairs laid out for dense kernels, and their distances.

Atoms are sorted by their number of neighbours and cut into blocks; within a block every atom has the same
number of slots, so that a sum over neighbours is a dense product. Every edge knows the edge that runs the
other way: sums into the neighbours become gathers, which are deterministic on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geomatt.errors import GeomAttError
from geomatt.model.neighbours import NeighbourList

FAR = 1e3  # Å, the distance of an empty slot: every Gaussian is zero there


@dataclass(frozen=True)
class Block:
    """Atoms with `width` slots each; slot n of atom a is edge edges.start + (a − atoms.start) · width + n."""

    atoms: slice
    edges: slice
    width: int

    @property
    def size(self) -> int:
        return self.atoms.stop - self.atoms.start


@dataclass(frozen=True)
class PairLayout:
    """Edges of N atoms, in P slots. Atoms count in sorted order; slot 0 of an atom is the atom itself."""

    order: Tensor  # (N,) the atom, as the user counts, at each place of the sorted order
    place: Tensor  # (N,) its inverse
    owner: Tensor  # (P,) atom the edge starts from
    neighbour: Tensor  # (P,) atom it ends at
    reverse: Tensor  # (P,) the edge that runs the other way
    empty: Tensor  # (P,) bool, slots without a neighbour
    image: Tensor | None  # (P, 3) float64, displacement of the neighbour's image; None without a cell
    blocks: tuple[Block, ...]

    @classmethod
    def build(
        cls,
        neighbours: NeighbourList,
        atoms: int,
        block_pairs: int,  # edges a block may hold; bounds the memory of a kernel
        cell: Tensor | None = None,  # (3, 3), needed where shifts are not zero
        device: torch.device | str = "cpu",
    ) -> PairLayout:
        """Sort, pad and link the pairs of a list."""
        itself = torch.arange(atoms, device=device)
        i = torch.cat([itself, torch.from_numpy(neighbours.i).to(device)])
        j = torch.cat([itself, torch.from_numpy(neighbours.j).to(device)])
        shift = torch.cat([i.new_zeros(atoms, 3), torch.from_numpy(neighbours.shift).to(device)])
        counts, order = torch.bincount(i, minlength=atoms).sort(descending=True, stable=True)
        place = torch.empty_like(order)
        place[order] = itself
        i, j = place[i], place[j]

        # An edge as one number, smallest first for the atom itself: sorted, edges of an atom are contiguous.
        reach = 2 * int(shift.abs().max()) + 1 if len(shift) else 1
        step = (shift[:, 0] * reach + shift[:, 1]) * reach + shift[:, 2]
        steps = reach**3
        if atoms**2 * steps >= 2**62:
            raise GeomAttError(
                "Pairs cannot be numbered: atoms are too many cells apart. Wrap them into the cell."
            )

        def key(a: Tensor, b: Tensor, hop: Tensor) -> Tensor:
            return (a * atoms + (b - a) % atoms) * steps + hop % steps

        forward, by_key = key(i, j, step).sort()
        i, j, shift, step = i[by_key], j[by_key], shift[by_key], step[by_key]
        backward = key(j, i, -step)
        twin = torch.searchsorted(forward, backward).clamp(max=len(forward) - 1)
        if not torch.equal(forward[twin], backward):
            raise GeomAttError("The neighbour list must hold every pair in both directions.")

        blocks, starts = _cut(counts.tolist(), block_pairs)
        slots = blocks[-1].edges.stop if blocks else 0
        rank = torch.arange(len(i), device=device) - (counts.cumsum(0) - counts)[i]
        slot = torch.tensor(starts, device=device)[i] + rank
        owner = torch.cat([itself[b.atoms].repeat_interleave(b.width) for b in blocks] or [itself])
        neighbour, reverse = owner.clone(), torch.arange(slots, device=device)
        empty = torch.ones(slots, dtype=torch.bool, device=device)
        neighbour[slot], reverse[slot], empty[slot] = j, slot[twin], False
        image = None
        if cell is not None and bool(shift.any()):
            image = torch.zeros(slots, 3, dtype=torch.float64, device=device)
            image[slot] = shift.double() @ cell.to(device, torch.float64)
        return cls(order, place, owner, neighbour, reverse, empty, image, tuple(blocks))

    def vectors(self, positions: Tensor) -> Tensor:
        """From each owner to its neighbour (P, 3), for positions (N, 3) in sorted order."""
        vectors = positions.index_select(0, self.neighbour) - positions.index_select(0, self.owner)
        return vectors if self.image is None else vectors + self.image.to(vectors.dtype)

    def collect(self, messages: Tensor) -> Tensor:
        """Sum of what each atom's neighbours send it, (N, R), for messages (P, R) by sending edge."""
        total = messages.new_empty(len(self.order), messages.shape[1])
        for block in self.blocks:
            received = messages.index_select(0, self.reverse[block.edges])
            torch.sum(received.view(block.size, block.width, -1), 1, out=total[block.atoms])
        return total


class PairDistances(torch.autograd.Function):
    """Distances (P,) of a layout's edges from positions (N, 3, sorted order) and a strain (3, 3) of zero.

    The strain is there for its gradient, Σ ∂E/∂d · r ⊗ r / d. Only the sum of the gradients of an edge and of
    its reverse matters, so users of the distances may put either in the place of the other.
    """

    @staticmethod
    def forward(
        ctx: Any, positions: Tensor, strain: Tensor, layout: PairLayout, dtype: torch.dtype
    ) -> Tensor:
        ctx.layout = layout
        ctx.save_for_backward(positions)
        distance = torch.linalg.vector_norm(layout.vectors(positions), dim=-1)
        return distance.masked_fill_(layout.empty, FAR).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        layout: PairLayout = ctx.layout
        (positions,) = ctx.saved_tensors
        vectors = layout.vectors(positions)
        length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        unit = vectors / length.masked_fill(length == 0, 1.0)  # zero for an atom with itself
        slope = gradient.to(vectors.dtype)
        strain = torch.einsum("p,pa,pb->ab", slope, unit, vectors) if ctx.needs_input_grad[1] else None
        pull = (slope + slope[layout.reverse])[:, None] * unit  # (P, 3)
        total = torch.empty_like(positions)
        for block in layout.blocks:
            torch.sum(pull[block.edges].view(block.size, block.width, 3), 1, out=total[block.atoms])
        return -total, strain, None, None


def _cut(counts: list[int], block_pairs: int) -> tuple[list[Block], list[int]]:
    """Blocks of consecutive atoms, and the first slot of every atom. Counts are in descending order."""
    blocks: list[Block] = []
    starts: list[int] = []
    atom = edge = 0
    while atom < len(counts):
        width = counts[atom]
        size = min(max(1, block_pairs // width), len(counts) - atom)
        blocks.append(Block(slice(atom, atom + size), slice(edge, edge + size * width), width))
        starts.extend(range(edge, edge + size * width, width))
        atom, edge = atom + size, edge + size * width
    return blocks, starts
