"""One optimisation step against automatic differentiation, finite differences and torch's own Adam."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from conftest import random_atoms, small_network

from geomatt.data.batch import Batch
from geomatt.model import new_network
from geomatt.model.geometric_attention.cpu.tables import grid_pays
from geomatt.training import Loss, Stepper
from geomatt.training.loss import Errors


def random_targets(
    members: int, count: int, dtype=torch.float64, forces: bool = True, atoms: int = 5
) -> Batch:
    """Random molecules of two sizes with random labels."""
    generator = torch.Generator().manual_seed(7)
    numbers = torch.zeros(members, count, atoms, dtype=torch.int64)
    positions = torch.zeros(members, count, atoms, 3, dtype=dtype)
    for m in range(members):
        for i in range(count):
            n = atoms - i % 2
            numbers[m, i, :n], xyz = random_atoms(n, seed=100 * m + i)
            positions[m, i, :n] = xyz.to(dtype)
    energy = torch.randn(members, count, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randn(members, count, atoms, 3, generator=generator, dtype=torch.float64).to(dtype)
    return Batch(numbers, positions, energy, labels * (numbers > 0)[..., None] if forces else None)


def autograd_loss(network, targets: Batch, member: int, loss: Loss) -> torch.Tensor:
    """The loss by the readable network and double automatic differentiation."""
    positions = targets.positions[member].clone().requires_grad_(True)
    energy = network(Batch(targets.numbers[member], positions)).sum(-1)
    force_error = None
    if targets.forces is not None:
        (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
        force_error = -gradient - targets.forces[member]
    atoms = (targets.numbers[member] > 0).sum(-1)
    return loss(Errors(energy - targets.energy[member], force_error, atoms))


@pytest.mark.parametrize("orders", [(2,), (3,), (4,), (5,), (2, 3, 4), (2, 2, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_gradient_is_that_of_automatic_differentiation(orders, bias):
    networks = [small_network(seed, orders=orders, bias=bias) for seed in range(2)]
    originals, targets, loss = copy.deepcopy(networks), random_targets(2, 3), Loss(rho=0.3)
    gradient = Stepper(networks, targets, loss).gradient(torch.arange(3).expand(2, -1))
    for member, network in enumerate(originals):
        autograd_loss(network, targets, member, loss).backward()
        expected = torch.cat([p.grad.flatten() for p in network.parameters()])
        assert (gradient[member] - expected).abs().max() < 1e-10 * expected.abs().max()


@pytest.mark.parametrize("orders", [(2,), (3,), (5,), (2, 3, 4)])
@pytest.mark.parametrize("gamma", [20.0, 8.0])
@pytest.mark.parametrize("engine", ["auto", "dense"])
def test_float32_interpolates_its_overlaps_without_losing_digits(orders, gamma, engine):
    """Enough pairs for the grid, some of them padding, some so far apart that the grid ends before them."""
    network, index = small_network(3, orders=orders, gamma=gamma, overlap_features=64), torch.arange(6)[None]
    double = random_targets(1, 6, atoms=12)
    double = Batch(double.numbers, 1.5 * double.positions, double.energy, double.forces)
    single = Batch(double.numbers, *(t.float() for t in (double.positions, double.energy, double.forces)))
    exact = Stepper([copy.deepcopy(network)], double, Loss())
    quick = Stepper([network.float()], single, Loss(), engine=engine)
    distance = torch.cdist(single.positions[0], single.positions[0])
    assert grid_pays(network.config, network.mu[None], single.positions)
    assert distance.max() > 8.0
    gradient = quick.gradient(index)
    assert torch.equal(gradient, quick.gradient(index))
    wanted = exact.gradient(index)
    assert (gradient - wanted).abs().max() < 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("weighting", ["paper", "authors", "unsquared"])
@pytest.mark.parametrize("forces", [True, False])
def test_gradient_is_that_of_finite_differences(weighting, forces):
    network, loss = small_network(orders=(2, 3, 4)), Loss(weighting, rho=0.3)
    targets = random_targets(1, 3, forces=forces)
    stepper = Stepper([network], targets, loss)
    gradient = stepper.gradient(torch.arange(3)[None])[0]

    def value() -> float:
        return stepper.validate(targets).per_member()[0][0] / 3

    for i in np.random.default_rng(0).choice(len(gradient), size=40, replace=False):
        start, step = float(stepper.weights.theta[0, i]), 1e-5
        sides = []
        for sign in (1, -1):
            stepper.weights.theta[0, i] = start + sign * step
            sides.append(value())
        stepper.weights.theta[0, i] = start
        assert float(gradient[i]) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-4, abs=1e-8)


def test_steps_are_those_of_torchs_adam_and_members_are_independent():
    networks = [small_network(seed, orders=(2, 3)) for seed in range(2)]
    references, targets, loss = copy.deepcopy(networks), random_targets(2, 6), Loss()
    orders = [torch.stack([torch.randperm(6) for _ in range(2)]) for _ in range(4)]
    stepper = Stepper(networks, targets, loss)
    for order in orders:
        stepper.run_epoch(order, 4, [1e-3, 5e-4])
    for member, network in enumerate(references):
        adam = torch.optim.Adam(network.parameters())
        for order in orders:
            for index, rate in zip(order[member].split(4), [1e-3, 5e-4], strict=True):
                adam.param_groups[0]["lr"] = rate
                adam.zero_grad()
                autograd_loss(network, targets.rows(index.expand(2, -1)), member, loss).backward()
                adam.step()
        kept = stepper.kept_weights(member)
        for name, theirs in network.named_parameters():
            torch.testing.assert_close(kept[name], theirs.detach(), rtol=1e-9, atol=1e-11)


def test_frozen_weights_stay_and_the_average_follows():
    network, targets = small_network(orders=(2, 3)), random_targets(1, 4)
    before = copy.deepcopy(network)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith(("hidden", "output")))
    stepper = Stepper([network], targets, Loss(), ema_decay=0.9)
    for _ in range(30):
        stepper.run_epoch(torch.arange(4)[None], 2, [1e-3, 1e-3])
    now, kept = stepper.weights.parameters, stepper.kept_weights(0)
    assert torch.equal(now["embedding"][0], before.embedding)
    assert torch.equal(now["W"][0], before.W)
    assert not torch.equal(now["hidden.weight"][0], before.hidden.weight)
    assert 0 < (kept["hidden.weight"] - now["hidden.weight"][0]).abs().max() < 0.05


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_fused_steps_are_dense_steps():
    """In float32 on a GPU; the fused kernels and plain torch, from the same start."""
    targets = random_targets(2, 6, torch.float32)
    moved = Batch(
        *(t.to("cuda") for t in (targets.numbers, targets.positions, targets.energy, targets.forces))
    )
    results = []
    for engine in ("dense", "auto"):
        networks = [small_network(seed, torch.float32, orders=(2, 3, 4)).to("cuda") for seed in range(2)]
        stepper = Stepper(networks, moved, Loss(), ema_decay=0.9, engine=engine)
        for _ in range(5):
            sums = stepper.run_epoch(torch.arange(6).expand(2, -1), 4, [1e-3, 1e-3]).per_member()
        results.append((sums, stepper.validate(moved).per_member()))
    for dense, fused in zip(*results, strict=True):
        for mine, theirs in zip(dense, fused, strict=True):
            assert fused is not dense
            assert theirs == pytest.approx(mine, rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_step_on_the_gpu_is_the_step_on_the_cpu():
    targets = random_targets(2, 6)
    thetas = []
    for device in ("cpu", "cuda"):
        networks = [small_network(seed, orders=(2, 3, 4)).to(device) for seed in range(2)]
        moved = Batch(
            *(t.to(device) for t in (targets.numbers, targets.positions, targets.energy, targets.forces))
        )
        stepper = Stepper(networks, moved, Loss(), ema_decay=0.9)
        for _ in range(3):
            stepper.run_epoch(torch.arange(6).expand(2, -1), 4, [1e-3, 1e-3])
        thetas.append(stepper.weights.theta.cpu())
    torch.testing.assert_close(thetas[0], thetas[1], rtol=1e-8, atol=1e-10)


def test_clipping_limits_the_gradient_of_each_member_alone():
    networks, targets = [small_network(seed, orders=(2, 3)) for seed in range(2)], random_targets(2, 4)
    loud = Batch(targets.numbers, targets.positions, targets.energy * torch.tensor([[1e-3], [1e3]]), None)
    index, clip = torch.arange(4).expand(2, -1), 1.0
    gradient = Stepper(networks, loud, Loss()).gradient(index)
    norms = gradient.norm(dim=1)
    assert norms[0] < clip < norms[1]
    stepper = Stepper(networks, loud, Loss(), clip=clip)
    stepper.run_epoch(index, 4, [1e-3])
    torch.testing.assert_close(stepper.adam.first[0], 0.1 * gradient[0], rtol=1e-10, atol=1e-15)
    torch.testing.assert_close(stepper.adam.first[1], 0.1 * gradient[1] / norms[1], rtol=1e-10, atol=1e-15)


def test_stepper_does_not_modify_the_given_networks():
    network, targets = small_network(orders=(2,)), random_targets(1, 4)
    before = copy.deepcopy(network)
    Stepper([network], targets, Loss()).run_epoch(torch.arange(4)[None], 2, [1e-2, 1e-2])
    for mine, theirs in zip(network.parameters(), before.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("model", ["geomatt", "pair"])
def test_steps_do_not_compute_padding_of_other_batches(model, monkeypatch):
    """One large molecule among small ones: only its own batch has its size, with the same results."""
    settings = {"geomatt": {"features": 8, "overlap_features": 16}, "pair": {"channels": 8, "rounds": 1}}[
        model
    ]
    networks = [new_network(model, settings, (1, 6, 8), seed=m, dtype=torch.float64) for m in range(2)]
    small, large = random_targets(2, 6), random_targets(2, 1, atoms=11)

    def padded(x, name):
        axis = {"numbers": 2, "positions": 2, "forces": 2}.get(name)
        wide = x if axis is None else torch.cat([x, x.new_zeros(2, 6, 6, *x.shape[3:])], 2)
        return torch.cat([wide, getattr(large, name)], 1)

    names = ("numbers", "positions", "energy", "forces")
    targets = Batch(*(padded(getattr(small, name), name) for name in names))
    stepper, sizes, honest = Stepper(networks, targets, Loss()), [], Stepper._evaluate

    def evaluate(self, parameters, batch, *rest, **more):
        sizes.append(batch.numbers.shape[-1])
        return honest(self, parameters, batch, *rest, **more)

    monkeypatch.setattr(Stepper, "_evaluate", evaluate)
    index = torch.stack([torch.tensor([0, 1, 2]), torch.tensor([3, 6, 4])])
    found = stepper.gradient(index)
    assert sizes == [5, 11]
    sums = stepper._sums.sums.clone()
    monkeypatch.setattr(Batch, "trimmed", lambda self: self)
    stepper._sums.sums.zero_()
    torch.testing.assert_close(stepper.gradient(index), found, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(stepper._sums.sums, sums, rtol=1e-10, atol=1e-12)
    assert sizes[2:] == [11, 11]
