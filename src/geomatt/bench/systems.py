"""What is measured on: aspirin with shaken atoms, and random matter of any size. No data set is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

# Aspirin at its GFN2-xTB minimum, made by scripts/make_aspirin.py: atomic number and position (Å).
ASPIRIN = (
    (6, 0.5233, -0.8594, -0.4870),
    (6, -0.2426, 0.3024, -0.6377),
    (6, -1.6134, 0.1993, -0.8467),
    (6, -2.2241, -1.0401, -0.8979),
    (6, -1.4700, -2.1946, -0.7547),
    (6, -0.1067, -2.1010, -0.5612),
    (1, -2.1856, 1.1052, -0.9808),
    (1, -3.2897, -1.1036, -1.0579),
    (1, -1.9440, -3.1625, -0.8030),
    (1, 0.5056, -2.9844, -0.4623),
    (6, 1.9958, -0.8519, -0.2899),
    (8, 2.7126, -1.7759, -0.5760),
    (8, 2.4589, 0.2711, 0.2720),
    (1, 3.4261, 0.2420, 0.3411),
    (8, 0.3394, 1.5485, -0.6921),
    (6, 0.4977, 2.3324, 0.4002),
    (8, 1.0060, 3.4062, 0.2722),
    (6, -0.0084, 1.7707, 1.7039),
    (1, -1.0621, 1.5111, 1.6212),
    (1, 0.1293, 2.5127, 2.4846),
    (1, 0.5518, 0.8717, 1.9522),
)
ELEMENTS = (1, 6, 8)  # of aspirin
NOISE = 0.05  # Å, on every coordinate of a frame
DENSITY = 0.1  # atoms/Å³ of random matter, about that of organic liquids
SMALLEST_DISTANCE = 0.9  # Å


@dataclass(frozen=True)
class Workload:
    """Frames of one molecule with random labels in normalised units: their values do not matter here."""

    numbers: Tensor  # (N,)
    positions: Tensor  # (n, N, 3)
    energy: Tensor  # (n,)
    forces: Tensor  # (n, N, 3)
    batches: tuple[Tensor, ...]  # of frames (B,), shuffled; for peers, which prepare their edges ahead

    @property
    def atoms(self) -> int:
        return len(self.numbers)

    @property
    def batch(self) -> int:
        return len(self.batches[0])

    @property
    def device(self) -> torch.device:
        return self.positions.device


def aspirin_frames(
    frames: int,
    batch: int,
    *,
    seed: int = 0,
    atoms: int = len(ASPIRIN),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Workload:
    """Frames of aspirin, or of its first atoms: a stand-in for a smaller molecule."""
    rng = np.random.default_rng(seed)
    table = np.array(ASPIRIN[:atoms])
    positions = table[:, 1:] + NOISE * rng.standard_normal((frames, atoms, 3))
    order = torch.from_numpy(rng.permutation(frames)).to(device)

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device, dtype)

    return Workload(
        torch.from_numpy(table[:, 0].astype(np.int64)).to(device),
        tensor(positions - positions.mean(1, keepdims=True)),
        tensor(rng.standard_normal(frames)),
        tensor(rng.standard_normal((frames, atoms, 3))),
        tuple(order[: frames - frames % batch].split(batch)),
    )


def random_matter(atoms: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Atomic numbers and positions (Å) of C, H, O and N scattered in a cube with open boundaries."""
    rng = np.random.default_rng([seed, atoms])
    edge = (atoms / DENSITY) ** (1 / 3)
    positions = rng.uniform(0, edge, (atoms, 3))
    while True:  # throw atoms that sit on others again until none does
        crowded = cKDTree(positions).query_pairs(SMALLEST_DISTANCE, output_type="ndarray")
        if not len(crowded):
            break
        again = np.unique(crowded[:, 0])
        positions[again] = rng.uniform(0, edge, (len(again), 3))
    return rng.choice([1, 6, 7, 8], atoms), positions - edge / 2
