"""Gaps with random weights, and classifiers for all pairs and seeds, trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from geomatt.model.geometric_attention import pair_distances
from geomatt.reproduce.shapes_networks import Classifier, make_step, readout
from geomatt.reproduce.shapes_pairs import ShapePair

SHOWN = 20  # embeddings of each shape kept for the figure
LARGEST = 1.9  # the largest distance of every scaled shape: the centre of the last basis function


@dataclass(frozen=True)
class ClassifierSetup:
    """Settings for the training of classifiers. Numbers of examples are per shape."""

    seeds: int
    examples: int  # to train on
    tests: int  # to test on
    epochs: int
    batch: int = 4
    learning_rate: float = 1e-4


FULL, QUICK = ClassifierSetup(5, 10, 100, 250), ClassifierSetup(1, 4, 10, 5)


def gaps(model: str, pair: ShapePair, draws: int, seed: int) -> list[float]:
    """Relative differences between the embeddings of the two shapes, float64, one per draw of the weights.

    For exactly degenerate shapes they are rounding errors of about 1e-15.
    """
    clouds = torch.from_numpy(np.stack(pair.scaled(LARGEST)))  # (2, N, 3)
    mask = torch.ones(clouds.shape[:2], dtype=torch.bool)
    result = []
    for draw in range(draws):
        step = _seeded(seed + draw, lambda: make_step(model)).double()
        with torch.no_grad():
            m = readout(step(pair_distances(clouds), mask), torch.tensor(pair.centred))
        result.append(float((m[0] - m[1]).abs().max() / m.abs().max()))
    return result


def train_classifiers(
    model: str,
    pairs: Sequence[ShapePair],
    setup: ClassifierSetup,
    seed: int,
    advance: Callable[[int], None],
    raw: bool = False,
) -> list[list[dict[str, Any]]]:
    """Test accuracy and embeddings of test shapes for every pair and seed.

    With `raw` the embeddings are not standardised. All classifiers are trained as one program with a leading
    axis M; Adam works on each weight by itself, so they are independent. Training and test shapes are rotated
    and ordered independently.
    """
    atoms, seeds, examples = max(len(p.plus) for p in pairs), setup.seeds, setup.examples
    members = [(p, seed + s) for p in pairs for s in range(seeds)]
    networks = [_seeded(own, lambda: Classifier(make_step(model), atoms, raw)).double() for _, own in members]
    parameters, buffers = stack_module_state(networks)
    centred = torch.tensor([p.centred for p, _ in members])
    train = _stacked([shapes(p, examples, 2 * own, atoms) for p, own in members])
    test = _stacked([shapes(p, setup.tests, 2 * own + 1, atoms) for p, own in members])

    def one(p: dict[str, Tensor], b: dict[str, Tensor], *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return functional_call(networks[0], (p, b), inputs)

    run = torch.vmap(one)
    optimiser = torch.optim.Adam([p for p in parameters.values() if p.requires_grad], setup.learning_rate)
    labels = torch.arange(2 * examples) % 2
    generator = torch.Generator().manual_seed(seed)
    for _ in range(setup.epochs):
        order = torch.stack([balanced_order(examples, generator) for _ in members])
        for index in order.split(setup.batch, 1):
            row = torch.arange(len(members))[:, None]
            _, logits = run(parameters, buffers, train[0][row, index], train[1][row, index], centred)
            target = labels[index].double()
            loss = binary_cross_entropy_with_logits(logits, target, reduction="none").mean(1).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        advance(1)
    with torch.no_grad():
        embedding, logits = run(parameters, buffers, *test, centred)
    labels = torch.arange(2 * setup.tests) % 2
    right = ((logits > 0) == (labels > 0)).double().mean(1).tolist()
    outcome = [
        {"accuracy": right[m], "embedding": _one_number(embedding[m], labels)} for m in range(len(members))
    ]
    return [outcome[i : i + seeds] for i in range(0, len(outcome), seeds)]


def balanced_order(examples: int, generator: torch.Generator) -> Tensor:
    """A random order in which both shapes (even and odd numbers) alternate."""
    plus, minus = (2 * torch.randperm(examples, generator=generator) + c for c in (0, 1))
    return torch.stack([plus, minus], 1).flatten()


def shapes(pair: ShapePair, examples: int, seed: int, atoms: int) -> tuple[Tensor, Tensor]:
    """Distances (2 · examples, atoms, atoms) and mask of randomly rotated and ordered shapes.

    The two shapes alternate; the centre stays first.
    """
    rng = np.random.default_rng(seed)
    first = 1 if pair.centred else 0
    clouds = []
    for _ in range(examples):
        for cloud in pair.scaled(LARGEST):
            order = np.concatenate([np.arange(first), first + rng.permutation(len(cloud) - first)])
            clouds.append(cloud[order] @ rotation(rng))
    positions = torch.from_numpy(np.stack(clouds))
    absent = atoms - positions.shape[1]
    distances = pad(pair_distances(positions), (0, absent, 0, absent))
    return distances, (torch.arange(atoms) < positions.shape[1]).expand(len(clouds), -1)


def rotation(rng: np.random.Generator) -> np.ndarray:
    """A random rotation (3, 3), uniform over SO(3)."""
    q, r = np.linalg.qr(rng.standard_normal((3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.linalg.det(q)


def _one_number(embedding: Tensor, labels: Tensor) -> list[list[float]]:
    """Embeddings (n, N) of each shape, for the atom in which they differ most."""
    plus, minus = (embedding[labels == c].mean(0) for c in (0, 1))
    along = int((plus - minus).abs().argmax())
    return [embedding[labels == c, along][:SHOWN].tolist() for c in (0, 1)]


def _stacked(items: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.stack([d for d, _ in items]), torch.stack([m for _, m in items])


def _seeded(seed: int, make: Callable[[], Any]) -> Any:
    """The result of `make` with torch's random numbers seeded; their state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()
