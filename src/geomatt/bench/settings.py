"""How much a run of the benchmark measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from geomatt.model.geometric_attention.config import ModelConfig

# Atoms in the eight molecules of the paper's Table 1, in its order (aspirin first).
MOLECULES = (21, 12, 9, 9, 18, 16, 15, 12)
FOLDS = 5
SCHEDULE = 160_000  # steps of the paper's training: 2000 epochs of 800 structures in batches of 10


@dataclass(frozen=True)
class Settings:
    """What to measure, with defaults for a careful run on a processor."""

    device: str = "cpu"
    quick: bool = False  # a test that everything runs: small network, no targets
    orders: tuple[int, ...] = (2, 3, 4)
    layers: int = 3
    features: int = 128
    overlap_features: int = 128
    batch: int = 10
    frames: int = 100  # of the molecule; an epoch of our training steps in every round
    rounds: int = 15
    peer_steps: int = 2  # of a peer in every round
    literal_rounds: int = 7  # the literal implementation takes seconds for a step
    single_points: int = 30  # evaluations of one molecule in every round
    md_steps: int = 30  # in every round
    molecules: tuple[int, ...] = MOLECULES
    folds: int = FOLDS
    member_rounds: int = 5
    sparse_sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000, 5000)
    dense_sizes: tuple[int, ...] = (20, 50, 100, 200, 500)
    compared_sizes: tuple[int, int] = (500, 5000)  # time per atom of the second over the first
    exact_sizes: tuple[int, int] = (100, 200)  # held against the literal equations, and against all pairs
    scaling_rounds: int = 3
    curve_epochs: int = 50
    curve_frames: tuple[int, int] = (800, 200)  # to train on, to validate on
    seed: int = 0
    peers: tuple[str, ...] = ("schnet", "mace")

    @classmethod
    def of(cls, device: str, quick: bool = False) -> Settings:
        """The settings for a kind of device."""
        if quick:
            return cls(
                device, True, layers=2, features=16, overlap_features=16, frames=20, rounds=3, peer_steps=1,
                literal_rounds=2, single_points=2, md_steps=2, molecules=(9, 5), folds=2, member_rounds=2,
                sparse_sizes=(20, 60), dense_sizes=(20,), compared_sizes=(20, 60),
                exact_sizes=(20, 30), scaling_rounds=2, curve_epochs=2, curve_frames=(20, 10),
                peers=("schnet",),
            )  # fmt: skip
        if device.startswith("cuda"):
            # Ten rounds of 100 steps are the 1000 replayed steps of the target.
            return cls(
                device, frames=1000, rounds=10, peer_steps=20, literal_rounds=10, single_points=50,
                member_rounds=10, sparse_sizes=(20, 100, 500, 2000, 5000, 20_000, 50_000, 100_000),
                dense_sizes=(20, 100, 500, 1000), compared_sizes=(2000, 20_000), exact_sizes=(200, 2000),
                scaling_rounds=5,
            )  # fmt: skip
        # Five members show what sharing a processor brings; forty would take forty times as long.
        return cls(device, molecules=MOLECULES[:1])

    def config(self, elements: tuple[int, ...], bias: bool = True) -> ModelConfig:
        """The network: the paper's, unless this is a quick run."""
        return ModelConfig(
            elements,
            orders=self.orders,
            layers=self.layers,
            features=self.features,
            overlap_features=self.overlap_features,
            bias=bias,
        )

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
