"""Numbers for the paper's theory: integrals, identities, a diatomic molecule, symmetries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geomatt.data import Structure
from geomatt.model import Normalisation, Potential
from geomatt.model.geometric_attention import GeometricAttention, GeometricAttentionConfig, pair_distances
from geomatt.reproduce.shapes_training import rotation

GAMMA, D_MAX = 20.0, 5.0
MORSE = {"depth_eV": 4.75, "steepness": 1.94, "length": 0.741}  # the hydrogen molecule


def overlap_integral(d: np.ndarray, gamma: float = GAMMA, d_max: float = D_MAX) -> np.ndarray:
    """∫₀^d_max exp(−γ x²) exp(−γ (d − x)²) dx, the overlap of two atomic functions along the distance."""
    from scipy.special import erf

    root = math.sqrt(2.0 * gamma)
    span = erf(root * (d_max - d / 2)) + erf(root * d / 2)
    return math.sqrt(math.pi / (8.0 * gamma)) * np.exp(-gamma * d**2 / 2) * span


def riemann(spacings: list[float]) -> dict[str, Any]:
    """α^(2) of the network with Q = K = 1 and no bias, compared with the integral it approximates."""
    d = np.linspace(0.0, 3.0, 301)
    exact = overlap_integral(d)
    curves, rows = {}, []
    for spacing in spacings:
        sums = _plain_overlap(spacing, d)
        # The sum has its first term, at μ = 0, with full weight; a trapezoidal sum has half of it.
        corrected = sums - 0.5 * spacing * np.exp(-GAMMA * d**2)
        far = d >= 0.6
        rows.append(
            {
                "spacing": spacing,
                "worst": np.abs(sums - exact).max(),
                "worst_beyond": np.abs(sums - exact)[far].max(),
                "worst_corrected": np.abs(corrected - exact).max(),
            }
        )
        curves[f"{spacing:g}"] = sums
    return {"distance": d, "integral": exact, "curves": curves, "rows": rows}


def _plain_overlap(spacing: float, d: np.ndarray) -> np.ndarray:
    """α^(2)(d) of a network whose overlap module is the identity."""
    size = round(D_MAX / spacing)
    config = GeometricAttentionConfig(
        (1,), (2,), 1, 1, overlap_features=size, gamma=GAMMA, d_max=D_MAX, spacing=spacing, bias=False
    )
    network = GeometricAttention(config).double()
    network.mu = torch.arange(size, dtype=torch.float64) * spacing
    overlap: Any = network.overlaps[0]
    with torch.no_grad():
        for weight in (overlap.Q, overlap.K):
            weight.copy_(torch.eye(size, dtype=torch.float64)[None, None])
        alpha = network.coefficients(_diatomic(torch.from_numpy(d)), torch.ones(len(d), 2, dtype=torch.bool))
    return alpha[0][0][:, 0, 1].numpy()


def three_atoms(samples: int, seed: int) -> dict[str, Any]:
    """α^(3) of three atoms written out, and the derivatives of α_ij with respect to all distances.

    F^(3)(i,j) = F(0) ∘ G(d_ij) + F(d_ij) ∘ G(0) + F(d_im) ∘ G(d_mj): two terms of the pair and one of the
    triangle.
    """
    rng = np.random.default_rng(seed)
    positions = torch.from_numpy(rng.normal(size=(samples, 3, 3)))
    d = pair_distances(positions)
    network, mask = _network((2, 3), seed), torch.ones(samples, 3, dtype=torch.bool)
    alpha = network.coefficients(d, mask)
    overlap: Any = network.overlaps[1]
    weight, bias = overlap.folded(network.basis_at_zero())

    def f(module: int, distance: Tensor) -> Tensor:
        return network.basis(distance) @ weight[0, module].T + bias[0, module]

    zero, (ij, im, mj) = torch.zeros(samples).double(), (d[:, 0, 1], d[:, 0, 2], d[:, 2, 1])
    by_hand = f(0, zero) * f(1, ij) + f(0, ij) * f(1, zero) + f(0, im) * f(1, mj)
    expected = (network.config.spacing / 2) * by_hand.sum(-1)
    error = (alpha[1][0][:, 0, 1] - expected).abs().max() / expected.abs().max()
    slopes = {}
    for stream, order in enumerate((2, 3)):
        free = d.detach().clone().requires_grad_()  # each distance by itself
        value = network.coefficients(free, mask)[stream][0][:, 0, 1].sum()
        (slope,) = torch.autograd.grad(value, free)
        slopes[str(order)] = {
            "own": float(slope[:, 0, 1].abs().mean()),
            "third": float((slope[:, 0, 2].abs() + slope[:, 2, 1].abs()).mean() / 2),
        }
    return {"relative_error": float(error.detach()), "slopes": slopes, "samples": samples}


def morse(d: np.ndarray) -> np.ndarray:
    """Energy of the diatomic molecule in eV."""
    stretch = 1.0 - np.exp(-MORSE["steepness"] * (d - MORSE["length"]))
    return MORSE["depth_eV"] * (stretch**2 - 1.0)


class PlainSelfAttention(nn.Module):
    """Softmax attention of the features, softmax(q_i · k_j / √F), in place of geometric attention."""

    def __init__(self, network: GeometricAttention) -> None:
        super().__init__()
        width = network.config.features
        self.network = network
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def coefficients(self, distances: Tensor, mask: Tensor) -> list[list[Tensor]]:
        """Attention coefficients; the distances are not used."""
        v = self.network.embed(mask.long())
        scores = self.query(v) @ self.key(v).mT / math.sqrt(v.shape[-1])
        return [[scores.softmax(-1)]]


def diatomic(steps: int, seed: int, advance: Callable[[int], None]) -> dict[str, Any]:
    """Fit E(d) of a diatomic molecule with geometric attention and with plain self-attention."""
    d = np.linspace(0.5, 3.0, 126)
    energy = morse(d)
    scaled = torch.from_numpy((energy - energy.mean()) / energy.std())
    distances, train = _diatomic(torch.from_numpy(d)), torch.arange(0, len(d), 2)
    numbers = torch.ones(len(d), 2, dtype=torch.long)
    result: dict[str, Any] = {"distance": d, "energy": energy}
    for name in ("geometric", "plain"):
        network = _network((2,), seed, features=8, overlap_features=32, scale=1.0)
        model: Any = network if name == "geometric" else PlainSelfAttention(network).double()
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            alpha = model.coefficients(distances[train], numbers[train] > 0)
            error = network.energies_with(numbers[train], alpha).sum(-1) - scaled[train]
            optimiser.zero_grad()
            error.square().mean().backward()
            optimiser.step()
            schedule.step()
            advance(1)
        with torch.no_grad():
            alpha = model.coefficients(distances, numbers > 0)
            fitted = network.energies_with(numbers, alpha).sum(-1).numpy() * energy.std() + energy.mean()
        coefficient = alpha[0][0][:, 0, 1].numpy()
        varies = np.ptp(coefficient) > 1e-9
        result[name] = {
            "alpha": coefficient,
            "fitted": fitted,
            "mae_meV": 1000 * np.abs(fitted - energy)[1::2].mean(),  # between the training distances
            "correlation": float(np.corrcoef(coefficient, energy)[0, 1]) if varies else None,
            "alpha_range": float(np.ptp(coefficient)),
        }
    return result


def symmetries(structure: Structure, seed: int) -> list[dict[str, Any]]:
    """Errors of the symmetries that the network has by construction, in both precisions."""
    rng = np.random.default_rng(seed)
    order, turn, shift = rng.permutation(len(structure)), rotation(rng), rng.normal(size=3) * 10.0
    plain, unmoved = structure.positions - structure.positions.mean(0), np.arange(len(structure))
    cases = {
        "translation": (plain + shift, unmoved, np.eye(3)),
        "rotation": (plain @ turn, unmoved, turn),
        "reflection": (plain * [-1.0, 1.0, 1.0], unmoved, np.diag([-1.0, 1.0, 1.0])),
        "permutation of atoms": (plain[order], order, np.eye(3)),
    }
    rows = []
    reference = {name: _answers(structure, plain, structure.numbers, seed, t) for name, t in _DTYPES.items()}
    for case, (positions, index, matrix) in cases.items():
        row: dict[str, Any] = {"symmetry": case}
        for name, dtype in _DTYPES.items():
            e0, f0, a0 = reference[name]
            e1, f1, a1 = _answers(structure, positions, structure.numbers[index], seed, dtype)
            row[name] = {
                "energy": abs(e1 - e0) / np.abs(f0).max(),
                "forces": np.abs(f1 - f0[index] @ matrix).max() / np.abs(f0).max(),
                "attention": max(
                    np.abs(y - x[np.ix_(index, index)]).max() / np.abs(x).max()
                    for x, y in zip(a0, a1, strict=True)
                ),
            }
        rows.append(row)
    return rows + _conservation(structure, plain, reference, seed)


_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def _conservation(
    structure: Structure, plain: np.ndarray, reference: dict[str, Any], seed: int
) -> list[dict[str, Any]]:
    """Net force, net torque, and forces compared with finite differences of the energy."""
    rows: dict[str, dict[str, Any]] = {
        name: {"symmetry": name} for name in ("net force", "net torque", "forces = −∂E/∂r")
    }
    for name, (_, forces, _) in reference.items():
        size = np.abs(forces).max()
        step = 1e-4 if name == "float64" else 1e-2
        slope = np.zeros(3)
        for axis in range(3):
            moved = [plain.copy(), plain.copy()]
            moved[0][0, axis] += step
            moved[1][0, axis] -= step
            up, down = (_answers(structure, p, structure.numbers, seed, _DTYPES[name])[0] for p in moved)
            slope[axis] = (down - up) / (2 * step)
        values = (forces.sum(0), np.cross(plain, forces).sum(0), slope - forces[0])
        for row, value in zip(rows.values(), values, strict=True):
            row[name] = {"energy": None, "forces": np.abs(value).max() / size, "attention": None}
    return list(rows.values())


def _answers(
    structure: Structure, positions: np.ndarray, numbers: np.ndarray, seed: int, dtype: torch.dtype
) -> tuple[float, np.ndarray, list[np.ndarray]]:
    """Energy, forces and attention of a network with random weights, in normalised units."""
    network = _network((2, 3, 4), seed, tuple(sorted(set(structure.numbers.tolist()))), 128, 128, layers=3)
    potential = Potential(network.to(dtype), Normalisation(0.0, 1.0))
    (answer,) = potential.predict([Structure(numbers, positions)], attention=True)
    assert answer.forces is not None
    assert answer.attention is not None
    return answer.energy, answer.forces, [record.matrix for record in answer.attention]


def _network(
    orders: tuple[int, ...],
    seed: int,
    elements: tuple[int, ...] = (1,),
    features: int = 8,
    overlap_features: int = 64,
    layers: int = 1,
    scale: float = 4.0,
) -> GeometricAttention:
    """A network with random weights in float64, with overlaps scaled up so that all orders contribute."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = GeometricAttentionConfig(elements, orders, layers, features, overlap_features)
        network = GeometricAttention(config).double()
    with torch.no_grad():
        for overlap in network.overlaps:
            overlap.Q.mul_(scale)  # type: ignore[operator]
            overlap.K.mul_(scale)  # type: ignore[operator]
    return network


def _diatomic(d: Tensor) -> Tensor:
    """Distance matrices (n, 2, 2) of two atoms."""
    zero = torch.zeros_like(d)
    return torch.stack([torch.stack([zero, d], -1), torch.stack([d, zero], -1)], -2)
