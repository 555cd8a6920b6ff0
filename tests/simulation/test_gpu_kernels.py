"""Dynamics with Triton kernels: the same as in plain torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from triton_kernels import DEVICE, runs_kernels

from geomatt.model.domain import PairLimits, Walls
from geomatt.simulation.batched import BatchedDynamics
from geomatt.simulation.ensembles import DynamicsConfig
from geomatt.simulation.replicas import Group, Replica

pytestmark = runs_kernels


def springs(lengths):
    """Springs between all pairs of a molecule, at rest at `lengths`; nan forces far from there."""
    rest = torch.from_numpy(lengths).to(DEVICE)

    def forces(positions):
        vectors = positions[:, :, None] - positions[:, None]
        distance = vectors.square().sum(-1).clamp(min=1e-20).sqrt()
        strain = (distance - rest) * (rest > 0)
        strain = torch.where(distance > 6.0, torch.nan, strain)
        return 10.0 * strain.square().sum((1, 2)), -(20.0 * (strain / distance)[..., None] * vectors).sum(2)

    return forces


def simulations(config, *, walls=True):
    """The same simulation in plain torch and with kernels: four replicas of two molecules, one to diverge."""
    groups = []
    for numbers in ([6, 1, 1, 8], [8, 1]):
        positions = np.random.default_rng(len(numbers)).normal(size=(len(numbers), 3))
        lengths = np.linalg.norm(positions[:, None] - positions, axis=-1)
        limits = PairLimits(lengths - 0.02, lengths + 0.02, "") if walls else None
        still = np.zeros((len(numbers), 3))
        still[0] = 60.0 if len(numbers) == 2 else 0.0
        replicas = [
            Replica(np.array(numbers), positions, 3, limits=limits),
            Replica(np.array(numbers), positions, 4, velocities=still),
        ]
        groups.append(Group(replicas, springs(lengths)))
    found = []
    for fused in (False, True):
        one = BatchedDynamics(groups, config, walls=Walls(margin=0.01), device=DEVICE, capture=False)
        one._steps = one._fused_walls = None
        if fused:
            one.fuse()
            assert (one._fused_walls is not None) == walls
        found.append(one)
    return found


@pytest.mark.parametrize("ensemble", ["nve", "nose-hoover", "langevin"])
@pytest.mark.parametrize("walls", [True, False])
def test_kernels_do_what_torch_does(ensemble, walls):
    config = DynamicsConfig(ensemble=ensemble, interval=5, chain=3 if walls else 1, bond_limit=None)
    slow, fast = simulations(config, walls=walls)
    assert (fast._steps is not None) == (ensemble != "langevin")
    for one in (slow, fast):
        one.run(20)
    assert slow.state.alive.tolist() == [True, True, True, False]
    for name, expected in slow.state.tensors().items():
        torch.testing.assert_close(getattr(fast.state, name), expected, rtol=1e-9, atol=1e-9, msg=name)
    for name, expected in slow.monitor.tensors().items():
        torch.testing.assert_close(getattr(fast.monitor, name), expected, rtol=1e-9, atol=1e-9, msg=name)
    assert not walls or bool(slow.monitor.wall_steps.any())
    assert int(fast.state.step) == 20


def test_large_molecules_stay_in_torch():
    numbers, positions = np.ones(65, dtype=int), np.random.default_rng(0).normal(size=(65, 3)) * 5
    forces = springs(np.zeros((65, 65)))
    dynamics = BatchedDynamics([Group([Replica(numbers, positions)], forces)], device=DEVICE)
    dynamics.fuse()
    assert dynamics._steps is None
    assert dynamics._fused_walls is None
