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


def overlap_integral_3d(d: np.ndarray, gamma: float = GAMMA) -> np.ndarray:
    """∫ exp(−γ |r|²) exp(−γ |r − R|²) d³r with |R| = d, the overlap of two atomic densities in space."""
    return (math.pi / (2.0 * gamma)) ** 1.5 * np.exp(-gamma * d**2 / 2)


def dimensions(distances: list[float]) -> dict[str, Any]:
    """The overlap in space, in closed form and as a sum over points, and the one along the distance."""
    step, edge = 0.02, 1.2  # Å; the integrand is exp(−γ edge²) = 3e-13 at the edge
    line = np.arange(-edge, edge + step / 2, step)
    rows = []
    for d in distances:
        # The integrand is a product of functions of x, y and z.
        x, middle = line + d / 2, np.exp(-2.0 * GAMMA * line**2).sum() * step
        along = (np.exp(-GAMMA * x**2) * np.exp(-GAMMA * (x - d) ** 2)).sum() * step
        exact, one = overlap_integral_3d(np.array(d)), overlap_integral(np.array(d))
        rows.append(
            {
                "distance": d,
                "space": exact,
                "summed": along * middle**2,
                "along": one,
                "ratio": exact / one,
            }
        )
    return {"rows": rows, "factor": math.pi / (2.0 * GAMMA)}


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
    """Attention of the features in place of geometric attention: q_i · k_j, bare or as a softmax over j."""

    def __init__(self, network: GeometricAttention, softmax: bool) -> None:
        super().__init__()
        width = network.config.features
        self.network, self.softmax = network, softmax
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def coefficients(self, numbers: Tensor, distances: Tensor) -> list[list[Tensor]]:
        """Attention coefficients; the distances are not used."""
        v = self.network.embed(numbers)
        scores = self.query(v) @ self.key(v).mT
        return [[(scores / math.sqrt(v.shape[-1])).softmax(-1) if self.softmax else scores]]


# Attention of the diatomic molecule, and whether its two atoms are of different elements.
DIATOMIC = {
    "geometric": False,  # k = 2
    "geometric-different": True,
    "plain": False,  # softmax, equal atoms
    "bare": True,  # the paper's appendix B: the inner product of two different atoms
}


def diatomic(steps: int, seed: int, advance: Callable[[int], None]) -> dict[str, Any]:
    """Fit E(d) of a diatomic molecule with geometric attention and with plain self-attention."""
    d = np.linspace(0.5, 3.0, 126)
    energy = morse(d)
    scaled = torch.from_numpy((energy - energy.mean()) / energy.std())
    distances, train = _diatomic(torch.from_numpy(d)), torch.arange(0, len(d), 2)
    result: dict[str, Any] = {"distance": d, "energy": energy}
    for name, different in DIATOMIC.items():
        elements = (1, 9) if different else (1,)
        numbers = torch.tensor([elements[0], elements[-1]]).expand(len(d), 2)
        network = _network((2,), seed, elements, features=8, overlap_features=32, scale=1.0)
        plain = None
        if not name.startswith("geometric"):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                plain = PlainSelfAttention(network, softmax=name == "plain").double()

        def coefficients(
            rows: Any, net: Any = network, other: Any = plain, z: Tensor = numbers
        ) -> list[list[Tensor]]:
            if other is None:
                found: list[list[Tensor]] = net.coefficients(distances[rows], z[rows] > 0)
            else:
                found = other.coefficients(z[rows], distances[rows])
            return found

        optimiser = torch.optim.Adam((plain or network).parameters(), 3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for _ in range(steps):
            error = network.energies_with(numbers[train], coefficients(train)).sum(-1) - scaled[train]
            optimiser.zero_grad()
            error.square().mean().backward()
            optimiser.step()
            schedule.step()
            advance(1)
        with torch.no_grad():
            alpha = coefficients(slice(None))
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
    """Errors of symmetries that hold by construction, and of the forces, in both precisions."""
    rng = np.random.default_rng(seed)
    order, turn, shift = rng.permutation(len(structure)), rotation(rng), rng.normal(size=3) * 10.0
    plain, unmoved = structure.positions - structure.positions.mean(0), np.arange(len(order))
    mirror = np.diag([-1.0, 1.0, 1.0])
    cases = {
        "translation": (plain + shift, unmoved, np.eye(3)),
        "rotation": (plain @ turn, unmoved, turn),
        "reflection": (plain @ mirror, unmoved, mirror),
        "permutation of atoms": (plain[order], order, np.eye(3)),
    }
    elements = tuple(int(z) for z in np.unique(structure.numbers))
    rows: dict[str, dict[str, Any]] = {}
    for dtype, step in (("float64", 1e-4), ("float32", 1e-2)):
        network = _network((2, 3, 4), seed, elements, 128, 128, layers=3)
        potential = Potential(network, Normalisation()).to(dtype=dtype)

        def answer(positions: Any, index: Any = unmoved, model: Potential = potential) -> tuple[Any, ...]:
            (found,) = model.predict([Structure(structure.numbers[index], positions)], attention=True)
            return found.energy, found.forces, [record.matrix for record in found.attention or []]

        energy, forces, alpha = answer(plain)
        size = np.abs(forces).max()
        for case, (positions, index, matrix) in cases.items():
            moved, turned, permuted = answer(positions, index)
            pairs = [(x[np.ix_(index, index)], y) for x, y in zip(alpha, permuted, strict=True)]
            rows.setdefault(case, {})[dtype] = {
                "energy": abs(moved - energy) / size,
                "forces": np.abs(turned - forces[index] @ matrix).max() / size,
                "attention": max(np.abs(y - x).max() / np.abs(x).max() for x, y in pairs),
            }
        steps = [step * np.outer(unmoved == 0, axis) for axis in np.eye(3)]  # of the first atom
        slope = [(answer(plain - s)[0] - answer(plain + s)[0]) / (2 * step) for s in steps]
        torque = np.cross(plain, forces).sum(0)
        checks = {"net force": forces.sum(0), "net torque": torque, "forces = −∂E/∂r": slope - forces[0]}
        for name, value in checks.items():
            relative = np.abs(value).max() / size
            rows.setdefault(name, {})[dtype] = {"energy": None, "forces": relative, "attention": None}
    return [{"symmetry": name, **row} for name, row in rows.items()]


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


def random_network(seed: int) -> GeometricAttention:
    """A network of orders 2, 3, 4 and three layers with random weights, small enough to write it out."""
    return _network((2, 3, 4), seed, (1, 6, 8), layers=3)


def _diatomic(d: Tensor) -> Tensor:
    """Distance matrices (n, 2, 2) of two atoms."""
    zero = torch.zeros_like(d)
    return torch.stack([torch.stack([zero, d], -1), torch.stack([d, zero], -1)], -2)
