"""Basis functions in periodic cells, summed over images.

An atom's features are the same in all its images, and so are chains of overlaps that end at any of them: with
Φ̂(d_ij) replaced by its sum over the images of j, all equations of `network` hold for cells. Only without
biases is that sum finite.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from geomatt.data.batch import Batch
from geomatt.errors import GeomAttError
from geomatt.model.neighbours import NeighbourList, neighbour_list

if TYPE_CHECKING:
    from geomatt.model.geometric_attention.network import GeometricAttention

KEPT_LISTS = 1024  # of structures: training comes back to them


def summed_basis(network: GeometricAttention, batch: Batch) -> Tensor:
    """Σ over images of Φ̂(d_ij), (B, N, N, L); for i = j also Φ̂(0), zero for padding."""
    radius = network.radius
    if radius is None:
        raise GeomAttError(
            "This model has a bias in its overlap functions, which acts at any distance: with periodic "
            f"images its energy is infinite. {network.periodic_hint}Or set pbc to False."
        )
    assert batch.cell is not None
    structures, atoms = batch.numbers.shape
    positions, cells = (x.detach().cpu().double().numpy() for x in (batch.positions, batch.cell))
    place, shift, owner = [], [], []
    for b, count in enumerate(batch.atoms.tolist()):
        near = _neighbours(positions[b, :count].tobytes(), cells[b].tobytes(), radius)
        place.append((b * atoms + near.i) * atoms + near.j)  # of (b, i, j)
        shift.append(near.shift)
        owner.append(np.full(len(near), b))
    device, dtype = batch.positions.device, batch.positions.dtype
    pair = torch.from_numpy(np.concatenate(place)).to(device)
    structure = torch.from_numpy(np.concatenate(owner)).to(device)
    hops = torch.from_numpy(np.concatenate(shift)).to(device, dtype)
    r = batch.positions.reshape(-1, 3)
    i, j = pair // atoms, structure * atoms + pair % atoms
    vectors = r.index_select(0, j) - r.index_select(0, i)
    vectors = vectors + torch.einsum("pk,pkl->pl", hops, batch.cell.index_select(0, structure))
    phi = network.basis(torch.linalg.vector_norm(vectors, dim=-1))  # (P, L)
    result = phi.new_zeros(structures * atoms * atoms, phi.shape[-1]).index_add(0, pair, phi)
    own = torch.diag_embed(batch.mask.to(dtype))[..., None] * network.basis_at_zero()  # (B, N, N, L)
    return result.view(structures, atoms, atoms, -1) + own


@lru_cache(maxsize=KEPT_LISTS)
def _neighbours(positions: bytes, cell: bytes, radius: float) -> NeighbourList:
    """Of a structure given as the bytes of its float64 arrays."""
    box = np.frombuffer(cell).reshape(3, 3)
    pbc = [bool(row.any()) for row in box]
    return neighbour_list(np.frombuffer(positions).reshape(-1, 3), box, pbc, radius)
