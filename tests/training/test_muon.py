"""Muon: hidden matrices step along orthogonal matrices, all other weights by Adam."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_toy import molecule, tiny_config

from geomatt.data import random_split
from geomatt.errors import GeomAttError
from geomatt.model import new_network
from geomatt.training import Interrupted, TrainConfig, checkpoint, resolve, train
from geomatt.training.muon import MOMENTUM, SIZE, Muon, orthogonal
from geomatt.training.optimiser import Adam
from geomatt.training.weights import Weights

PAIR = {"channels": 8, "rounds": 2, "functions": 8}
SPLIT = random_split(40, 20, 10, 5)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 12), columns=st.integers(1, 12), seed=st.integers(0, 99))
def test_orthogonal_matrices_have_the_directions_and_singular_values_near_one(rows, columns, seed):
    torch.manual_seed(seed)
    rows, columns = sorted((rows, columns))
    matrices = torch.randn(2, 3, rows, columns, dtype=torch.float64) * 1e-9  # their size does not matter
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    found = u.mT @ orthogonal(matrices) @ v.mT
    values = found.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(found, torch.diag_embed(values), atol=1e-6, rtol=0)
    assert (values[s > 0.05 * s[..., :1]] > 0.5).all()
    assert (values < 1.3).all()
    assert not orthogonal(torch.zeros(2, 1, rows, columns)).any()


def networks(count: int = 2) -> list:
    return [new_network("pair", PAIR, elements=(1, 6), seed=s).double() for s in range(count)]


def step_both(rate: float, gradient: torch.Tensor, weights: Weights, beside: Weights, steps: int = 3) -> Muon:
    """Steps of Muon on `weights` and of Adam on `beside`, with the same gradient in each."""
    muon, adam = Muon(weights, networks(1)[0].matrices), Adam(beside)
    for optimiser in (muon, adam):
        optimiser.rate.fill_(rate)
        for _ in range(steps):
            optimiser.step(gradient)
    return muon


def test_matrices_take_steps_of_equal_size_and_all_else_those_of_adam():
    torch.manual_seed(0)
    weights, beside, before = (Weights(networks()) for _ in range(3))
    gradient = torch.randn_like(weights.theta)
    muon = step_both(1e-3, gradient, weights, beside, steps=1)
    slope = weights.views((1 + MOMENTUM) * gradient)  # of the first step
    for name in weights.shapes:
        ours, start = weights.parameters[name], before.parameters[name]
        if name not in muon.matrices:
            torch.testing.assert_close(ours, beside.parameters[name], rtol=0, atol=0)
            continue
        change = (start - ours) / 1e-3
        one_by_one = slope[name].reshape(len(change), -1, *change.shape[-2:])
        turned = one_by_one.mT if change.shape[-2] > change.shape[-1] else one_by_one
        along = orthogonal(turned) * SIZE * max(change.shape[-2:]) ** 0.5
        along = (along if turned is one_by_one else along.mT).reshape(change.shape)
        torch.testing.assert_close(change, along, rtol=1e-9, atol=1e-9)
        assert change.square().mean().sqrt() == pytest.approx(SIZE, rel=0.4)


def test_members_are_independent_and_frozen_matrices_stay():
    torch.manual_seed(1)
    two = networks()
    for network in two:
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(name.startswith("readout"))
    together, first, start = Weights(two), Weights(two[:1]), Weights(two)
    gradient = torch.randn_like(together.theta)
    step_both(1e-2, gradient, together, Weights(two))
    step_both(1e-2, gradient[:1], first, Weights(two[:1]))
    torch.testing.assert_close(together.theta[:1], first.theta, rtol=0, atol=1e-14)
    for name, value in together.parameters.items():
        assert torch.equal(value, start.parameters[name]) != name.startswith("readout"), name


def test_a_member_that_returns_to_its_best_weights_loses_its_momentum():
    weights = Weights(networks())
    muon = step_both(1e-3, torch.ones_like(weights.theta), weights, Weights(networks()))
    muon.restart(1, networks()[1].tensors())
    assert muon.momentum[0].all()
    assert not muon.momentum[1].any()


def settings_of(**changes: object) -> TrainConfig:
    sizes = {"epochs": 5, "batch": 8, "train": 20, "val": 10}
    return resolve({"model": "pair", "network": PAIR, "optimiser": "muon", **sizes, **changes})


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    config = settings_of()
    train(molecule(), SPLIT, config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(molecule(), SPLIT, config, tmp_path / "cut", callback=lambda progress: progress.epoch == 2)
    train(molecule(), SPLIT, config, tmp_path / "cut", resume=True)
    train(molecule(), SPLIT, settings_of(optimiser="adam"), tmp_path / "adam")
    whole, cut, adam = (checkpoint.read(tmp_path / name).stepper for name in ("whole", "cut", "adam"))
    assert whole.keys() == cut.keys() == adam.keys() | {"momentum"}
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert not torch.equal(whole["theta"], adam["theta"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-8), ("float32", 1e-2)])
def test_a_run_on_the_gpu_is_that_on_the_cpu(tmp_path, dtype, digits):
    """Where steps are captured as a graph; the second with the engine's own kernels."""
    for device in ("cpu", "cuda"):
        train(molecule(), SPLIT, settings_of(dtype=dtype, device=device, epochs=2), tmp_path / device)
    theta = [checkpoint.read(tmp_path / device).stepper["theta"].cpu() for device in ("cpu", "cuda")]
    torch.testing.assert_close(*theta, rtol=0, atol=digits)


def test_networks_without_matrices_are_refused():
    with pytest.raises(GeomAttError, match=r"geomatt name no matrices.*Leave `optimiser`"):
        tiny_config(optimiser="muon")
