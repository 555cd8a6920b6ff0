"""Settings of the benchmark, and the targets of its rows."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass
from typing import Any

from geomatt.errors import GeomAttError

# Atoms in the eight molecules of the paper's Table 1, in its order (aspirin first).
MOLECULES = (21, 12, 9, 9, 18, 16, 15, 12)
FOLDS = 5
# Names of baselines: SchNet, the network by automatic differentiation, and its own single points.
BASELINE, LITERAL, ONE_AT_A_TIME = "PyG SchNet", "literal", "one at a time"
MACE, NEQUIP = "MACE 128x0e", "NequIP l=1"
# Networks measured by default, with their suites. Sizes of pair states: S, M, L.
ALL = ("train", "infer", "replicas", "members", "scaling", "curves")
MODELS = {
    "geomatt": ALL,
    "pair:channels=64": ("train", "infer", "replicas", "scaling", "large"),
    "pair": ("train", "infer"),
    "pair:rounds=5": ("train", "infer"),
}
SCHEDULE = 160_000  # steps of the paper's training: 2000 epochs of 800 structures in batches of 10
# Settings of random matter, by network: the paper's interacts at any distance unless it has no bias.
WITH_RADIUS: dict[str, dict[str, Any]] = {"geomatt": {"bias": False}, "pair": {"radius": 5.0}}


@dataclass(frozen=True)
class BenchSettings:
    """Settings of a benchmark, with defaults for a CPU."""

    device: str = "cpu"
    quick: bool = False  # a test that everything runs: small network, no targets
    models: tuple[str, ...] = ("geomatt",)  # networks, see `parse_model`
    batch: int = 10
    frames: int = 100  # of the molecule; an epoch of training steps in every round
    rounds: int = 10
    peer_steps: int = 2  # of a peer in every round
    literal_rounds: int = 5  # automatic differentiation is slow
    single_points: int = 30  # evaluations of one molecule in every round
    throughput: int = 512  # structures of a large batch
    throughput_rounds: int = 3
    md_steps: int = 30  # in every round
    replicas: int = 64  # of a molecule in torch-sim
    replica_steps: int = 10  # of each in every round
    molecules: tuple[int, ...] = MOLECULES
    folds: int = FOLDS
    member_rounds: int = 5
    sparse_sizes: tuple[int, ...] = (20, 100, 500, 2000, 5000)
    dense_sizes: tuple[int, ...] = (20, 100, 200)
    compared_sizes: tuple[int, int] = (500, 5000)  # time per atom of the second over the first
    exact_sizes: tuple[int, int] = (100, 200)  # against automatic differentiation, and against all pairs
    scaling_rounds: int = 3
    large: int = 10_000  # atoms in dynamics
    curve_epochs: int = 50
    curve_frames: tuple[int, int] = (800, 200)  # to train on, to validate on
    seed: int = 0
    peers: tuple[str, ...] = ("mace", "nequip")  # besides the baseline, where they are installed

    @classmethod
    def of(cls, device: str, quick: bool = False, models: tuple[str, ...] = ("geomatt",)) -> BenchSettings:
        """The settings for a kind of device."""
        if quick:
            return cls(
                device, True, models, frames=20, rounds=3, peer_steps=1, literal_rounds=2, single_points=2,
                throughput=4, throughput_rounds=2, md_steps=2, replicas=3, replica_steps=2,
                molecules=(9, 5), folds=2, member_rounds=2, sparse_sizes=(20, 60), dense_sizes=(20,),
                compared_sizes=(20, 60), exact_sizes=(20, 30), scaling_rounds=2, large=60,
                curve_epochs=2, curve_frames=(20, 10), peers=(),
            )  # fmt: skip
        if device.startswith("cuda"):
            # Ten rounds of 100 steps are the 1000 replayed steps of the target.
            return cls(
                device, False, models, frames=1000, rounds=10, peer_steps=20, literal_rounds=10,
                single_points=100, throughput_rounds=10, member_rounds=10, compared_sizes=(2000, 50_000),
                replicas=512, sparse_sizes=(20, 100, 500, 2000, 5000, 20_000, 50_000, 100_000),
                dense_sizes=(20, 100, 500, 1000), exact_sizes=(200, 2000), scaling_rounds=5, large=50_000,
            )  # fmt: skip
        # Five members show what sharing a CPU brings; forty would take eight times as long.
        return cls(device, False, models, molecules=MOLECULES[:1])

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_model(text: str) -> tuple[str, dict[str, Any]]:
    """The kind and settings of a network: "geomatt", or "geomatt:features=64,layers=2"."""
    kind, _, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",") if part]
    try:
        return kind, {name.strip(): ast.literal_eval(value.strip()) for name, _, value in pairs}
    except (ValueError, SyntaxError) as error:
        raise GeomAttError(
            f"Cannot read the settings of {text!r}. Write them as geomatt:features=64,layers=2."
        ) from error


# Targets by network, device, suite and baseline: times faster than the baseline, or at most so many ms.
TARGETS: dict[tuple[str, str, str, str], tuple[tuple[float, str], ...]] = {
    ("geomatt", "cpu", "train", BASELINE): ((4.0, "×"),),
    ("geomatt", "cpu", "train", LITERAL): ((20.0, "×"),),
    ("geomatt", "cpu", "single point", BASELINE): ((4.5, "×"),),
    ("geomatt", "cpu", "dynamics", BASELINE): ((3.0, "×"),),
    ("geomatt", "cuda", "train", BASELINE): ((0.35, "ms"), (35.0, "×")),
    ("geomatt", "cuda", "single point", BASELINE): ((0.3, "ms"),),
    ("geomatt", "cuda", "throughput", ONE_AT_A_TIME): ((20.0, "×"),),
    ("pair:channels=64", "cpu", "single point", BASELINE): ((1.0, "×"),),
    ("pair:channels=64", "cpu", "dynamics", BASELINE): ((1.0, "×"),),
    ("pair", "cpu", "single point", BASELINE): ((0.5, "×"),),
    ("pair", "cpu", "dynamics", BASELINE): ((0.5, "×"),),
    ("pair:rounds=5", "cpu", "single point", MACE): ((1.0, "×"),),
    ("pair:rounds=5", "cpu", "single point", NEQUIP): ((1.0, "×"),),
    ("pair:channels=64", "cuda", "train", BASELINE): ((0.6, "ms"),),
    ("pair", "cuda", "train", BASELINE): ((0.9, "ms"),),
    ("pair:rounds=5", "cuda", "train", BASELINE): ((1.6, "ms"),),
    ("pair:channels=64", "cuda", "single point", BASELINE): ((0.5, "ms"),),
}
