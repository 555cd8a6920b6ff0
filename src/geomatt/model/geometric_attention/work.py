"""Operations and bytes of geometric attention, for the lower bounds in `geomatt bench`.

Counted are the operations of the engines with all basis functions: k = 2 collapsed, each pair of atoms once,
a multiplication and an addition as two operations. Bytes are those that must move even if every intermediate
number stayed in the caches: weights, their averages in Adam, positions, labels and results.
"""

from __future__ import annotations

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.work import FLOAT, Work


class GeometricAttentionWork:
    """Counts of one configuration of the paper's network."""

    def __init__(self, config: GeometricAttentionConfig, weights: int) -> None:
        """`weights`: the number of parameters."""
        self.config, self.weights = config, weights

    def energy_and_forces(self, atoms: int, batch: int = 1) -> Work:
        """All pairs of `batch` structures, energies and forces."""
        # The overlap functions and their slopes; each product of a chain has two in the reverse sweep.
        operations = self._passes(atoms, batch, overlaps=2, products=3, transforms=(2, -1), readout=2)
        moved = batch * atoms * (8 + 2 * 3 * FLOAT + FLOAT)  # number, position, force, energy
        return Work(operations, {"weights": FLOAT * self.weights, "atoms": moved})

    def training_step(self, atoms: int, batch: int) -> Work:
        """Energies, forces, the gradient of the loss with respect to every weight, and Adam."""
        # Besides functions and slopes, the gradients with respect to the folded weights of both. Of products
        # 1 forward, 2 reverse, 2 for the tangent, 4 for the tangent of the reverse sweep.
        operations = self._passes(atoms, batch, overlaps=4, products=9, transforms=(6, -2), readout=6)
        moved = batch * (atoms * (8 + 2 * 3 * FLOAT) + FLOAT)
        # Weights and both averages of Adam are read and written.
        return Work(
            {**operations, "Adam": 12.0 * self.weights}, {"weights": 6 * FLOAT * self.weights, "atoms": moved}
        )

    def sparse_energy_and_forces(self, atoms: int, pairs: float, elements: int) -> Work:
        """One structure by neighbour lists; `pairs` are counted in both directions, with i = j."""
        config = self.config
        streams, basis = len(config.orders), config.basis_size
        spread = maps = steps = gather = 0.0
        columns = elements  # of the coefficients c; a layer doubles them
        for layer in range(config.layers):
            fresh = elements if layer == 0 else streams * columns / 2
            spread += 2 * pairs * fresh * basis
            for order in config.orders:
                features = config.width(order)
                if order == 2:
                    maps += 2 * atoms * columns * basis
                    continue
                maps += 2 * 2 * atoms * columns * basis * features
                steps += (order - 3) * (pairs * basis * features + 2 * pairs * columns * features)
                gather += 2 * pairs * columns * basis
            columns *= 2
        readout = 2 * streams * atoms * columns * config.features + self._readout(atoms)
        forward = {"spread": spread, "maps": maps, "steps": steps, "gather": gather, "readout": readout}
        moved = {
            "weights": FLOAT * self.weights,
            "atoms": atoms * (8 + 2 * 3 * FLOAT + FLOAT),
            "pairs": pairs * FLOAT,  # an index each
        }
        # Two products in reverse for each forward.
        return Work({name: 3 * count for name, count in forward.items()}, moved)

    def _passes(
        self,
        atoms: int,
        batch: int,
        *,
        overlaps: int,
        products: int,
        transforms: tuple[int, int],
        readout: int,
    ) -> dict[str, float]:
        """Operations of several passes over all pairs; `transforms`: by W, of each layer and besides."""
        c, streams = self.config, len(self.config.orders)
        channels = sum(1 if k == 2 else (k - 1) * c.width(k) for k in c.orders) * c.layers
        chains = sum(2 * (k - 2) * c.width(k) for k in c.orders) * c.layers * atoms**3
        attend, transform = streams * 2 * atoms**2 * c.features, streams * 2 * atoms * c.features**2
        often = transforms[0] * c.layers + transforms[1]
        return {
            "overlaps": batch * overlaps * atoms * (atoms + 1) * c.basis_size * channels,
            "chains": batch * products * chains,
            "streams": batch * (products * c.layers * attend + often * transform),
            "readout": batch * readout * self._readout(atoms),
        }

    def _readout(self, atoms: int) -> int:
        width = len(self.config.orders) * self.config.features
        return 2 * atoms * max(1, width // 2) * (width + 1)
