"""Systems to measure: aspirin with displaced atoms, and random matter of any size. No data set is needed."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial import cKDTree

from geomatt.data import Batch

# Aspirin at its GFN2-xTB minimum, made by scripts/make_aspirin.py: atomic number and position (Å).
ASPIRIN = (
    (6, 0.5233, -0.8594, -0.4870), (6, -0.2426, 0.3024, -0.6377), (6, -1.6134, 0.1993, -0.8467),
    (6, -2.2241, -1.0401, -0.8979), (6, -1.4700, -2.1946, -0.7547), (6, -0.1067, -2.1010, -0.5612),
    (1, -2.1856, 1.1052, -0.9808), (1, -3.2897, -1.1036, -1.0579), (1, -1.9440, -3.1625, -0.8030),
    (1, 0.5056, -2.9844, -0.4623), (6, 1.9958, -0.8519, -0.2899), (8, 2.7126, -1.7759, -0.5760),
    (8, 2.4589, 0.2711, 0.2720), (1, 3.4261, 0.2420, 0.3411), (8, 0.3394, 1.5485, -0.6921),
    (6, 0.4977, 2.3324, 0.4002), (8, 1.0060, 3.4062, 0.2722), (6, -0.0084, 1.7707, 1.7039),
    (1, -1.0621, 1.5111, 1.6212), (1, 0.1293, 2.5127, 2.4846), (1, 0.5518, 0.8717, 1.9522),
)  # fmt: skip
ELEMENTS = (1, 6, 8)  # of aspirin
MATTER = (1, 6, 7, 8)  # elements of random matter
NOISE = 0.05  # Å, on every coordinate of a frame
DENSITY = 0.1  # atoms/Å³ of random matter, about that of organic liquids
SMALLEST_DISTANCE = 0.9  # Å


def aspirin_frames(
    frames: int,
    *,
    seed: int = 0,
    atoms: int = len(ASPIRIN),
    pad_to: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """Frames of aspirin, or of its first atoms as a smaller molecule, with random labels of unit variance."""
    rng = np.random.default_rng(seed)
    table = np.array(ASPIRIN[:atoms])
    positions = table[:, 1:] + NOISE * rng.standard_normal((frames, atoms, 3))
    pad = ((0, 0), (0, max(0, pad_to - atoms)), (0, 0))
    numbers = np.broadcast_to(table[:, 0].astype(np.int64), (frames, atoms))
    batch = Batch(
        torch.from_numpy(np.pad(numbers, pad[:2])),
        torch.from_numpy(np.pad(positions - positions.mean(1, keepdims=True), pad)),
        torch.from_numpy(rng.standard_normal(frames)),
        torch.from_numpy(np.pad(rng.standard_normal((frames, atoms, 3)), pad)),
    )
    return batch.apply(lambda x: x.to(device, dtype if x.is_floating_point() else None))


def cube_edge(atoms: int) -> float:
    """Å, of the cube of random matter."""
    return float((atoms / DENSITY) ** (1 / 3))


def random_matter(
    atoms: int, *, seed: int = 0, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float64
) -> Batch:
    """One structure of C, H, O and N scattered in a cube with open boundaries."""
    rng = np.random.default_rng([seed, atoms])
    edge = cube_edge(atoms)
    positions = rng.uniform(0, edge, (atoms, 3))
    while True:  # draw atoms that are too close to others again
        crowded = cKDTree(positions).query_pairs(SMALLEST_DISTANCE, output_type="ndarray")
        if not len(crowded):
            break
        again = np.unique(crowded[:, 0])
        positions[again] = rng.uniform(0, edge, (len(again), 3))
    numbers = rng.choice(MATTER, atoms)
    return Batch(
        torch.from_numpy(numbers).to(device)[None],
        torch.from_numpy(positions - edge / 2).to(device, dtype)[None],
    )
