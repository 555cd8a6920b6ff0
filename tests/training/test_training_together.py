"""Models trained side by side are the models trained alone; on a GPU runs repeat bit by bit."""

from __future__ import annotations

import pytest
import torch
from training_toy import mixture, molecule, tiny_config

from geomatt.data.splits import random_split
from geomatt.errors import GeomAttError
from geomatt.training import Interrupted, Job, train, train_together
from geomatt.training.checkpoint import read

SPLIT = random_split(30, 16, 8, 6)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def weights(potential):
    return potential.network.state_dict()


@pytest.mark.parametrize("device", DEVICES)
def test_models_trained_together_equal_models_trained_alone(tmp_path, device):
    """Different molecules of different elements and sizes, in one program."""
    datasets = [molecule(30, (8, 1, 1)), mixture(30)]
    config = tiny_config(epochs=3, dtype="float64", device=device)
    configs = [config.replace(seed=1), config.replace(seed=2)]
    jobs = [
        Job(d, SPLIT, c, tmp_path / f"t{i}") for i, (d, c) in enumerate(zip(datasets, configs, strict=True))
    ]
    heard = []
    together = train_together(
        jobs, callback=lambda p: heard.append((p.member, p.epoch)) if p.new_row else None
    )
    assert heard == [(m, e) for e in (1, 2, 3) for m in (0, 1)]
    for i, (data, own) in enumerate(zip(datasets, configs, strict=True)):
        alone = train(data, SPLIT, own, tmp_path / f"a{i}")
        assert alone.potential.elements == together[i].potential.elements
        assert alone.best_epoch == together[i].best_epoch
        for name, value in weights(alone.potential).items():
            torch.testing.assert_close(weights(together[i].potential)[name], value, rtol=1e-8, atol=1e-10)


def test_models_of_other_elements_beside_a_run_stay_the_same(tmp_path):
    """Weights are padded to the elements of all, so a checkpoint does not fit beside others."""
    config = tiny_config(epochs=4)
    jobs = [
        Job(data, SPLIT, config, tmp_path / name)
        for name, data in (("a", molecule(30, (8, 1, 1))), ("b", mixture(30)))
    ]
    with pytest.raises(Interrupted):
        train_together(jobs, callback=lambda p: p.epoch == 2)
    with pytest.raises(GeomAttError, match=r"side by side with models of the elements H C O, .* with H O"):
        train_together(jobs[:1], resume=True)
    assert [result.epochs for result in train_together(jobs, resume=True)] == [4, 4]
    assert train_together(jobs[:1], resume=True)[0].already_finished


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_run_repeats_and_resumes_bit_by_bit(tmp_path, device, dtype):
    config = tiny_config(epochs=4, dtype=dtype, device=device, schedule="step")
    data = molecule(30, (8, 1, 1))
    whole = train(data, SPLIT, config, tmp_path / "whole")
    again = train(data, SPLIT, config, tmp_path / "again")
    train(data, SPLIT, config.replace(epochs=2), tmp_path / "parts")
    parts = train(data, SPLIT, config, tmp_path / "parts", resume=True)
    for other in (again, parts):
        for name, value in weights(whole.potential).items():
            assert torch.equal(weights(other.potential)[name], value), name
    states = [read(tmp_path / name).stepper for name in ("whole", "parts")]
    for name, value in states[0].items():
        assert torch.equal(states[1][name], value), name


def test_models_that_take_other_steps_are_refused(tmp_path):
    data, config = molecule(30, (8, 1, 1)), tiny_config(epochs=1)
    with pytest.raises(GeomAttError, match="batch"):
        train_together(
            [
                Job(data, SPLIT, config, tmp_path / "a"),
                Job(data, SPLIT, config.replace(batch=3), tmp_path / "b"),
            ]
        )
    smaller = random_split(30, 12, 8, 6)
    with pytest.raises(GeomAttError, match="sizes"):
        train_together([Job(data, SPLIT, config, tmp_path / "a"), Job(data, smaller, config, tmp_path / "b")])
