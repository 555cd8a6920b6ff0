"""Weights of structures, from the file to the trained model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_toy import npz, springs, tiny_config

import geomatt
from geomatt.errors import GeomAttError


def trained(path, folder, weight, spoiled, frames=40, **settings):
    """Trained on frames of which every second has a weight, and labels that are off by `spoiled`."""
    _, energies, forces = springs([6, 1, 1, 8], frames)
    odd = np.arange(frames) % 2 == 1
    npz(
        path,
        frames,
        E=energies + spoiled * odd,
        F=forces * np.where(odd, 1 + spoiled, 1.0)[:, None, None],
        my_weight=np.where(odd, weight, 1.0),
    )
    data = geomatt.read(path, keys={"weight": "my_weight"})
    split = geomatt.random_split(frames, 20, 10, seed=0)
    return geomatt.train(data, split, tiny_config(epochs=2, **settings), folder).potential


@pytest.mark.parametrize("scale", ["energy", "forces"])
def test_structures_of_weight_zero_do_not_matter(scale, tmp_path):
    path = tmp_path / "data.npz"
    first, second = (trained(path, tmp_path / str(s), 0.0, s, scale=scale) for s in (0.0, 50.0))
    assert first.normalisation == second.normalisation
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name]), name


def test_weights_change_the_model(tmp_path):
    path = tmp_path / "data.npz"
    light, heavy = (trained(path, tmp_path / str(w), w, 1.0) for w in (0.1, 10.0))
    assert heavy.normalisation.shift - light.normalisation.shift > 0.5  # towards labels off by 1 eV
    assert any(
        not torch.equal(value, heavy.network.state_dict()[name])
        for name, value in light.network.state_dict().items()
    )


def test_training_needs_a_weight_above_zero(tmp_path):
    data = geomatt.read(npz(tmp_path / "data.npz", weight=np.zeros(40)), keys={"weight": "weight"})
    with pytest.raises(GeomAttError, match="All structures of the training set have weight 0"):
        geomatt.train(data, geomatt.random_split(40, 20, 10), tiny_config(), tmp_path / "run")


@pytest.mark.parametrize("name", ["weight", "config_weight"])
def test_weights_that_are_not_used_are_mentioned(name, tmp_path):
    data = geomatt.read(npz(tmp_path / "data.npz", **{name: np.ones(40)}))
    assert f"weight={name}" in data.origin["notes"]
    geomatt.data.write(
        geomatt.Dataset.from_structures([geomatt.Structure([1], [[0, 0, 0]], 1.0, weight=2.0)]),
        tmp_path / "a.xyz",
    )
    assert "weight=weight" in geomatt.read(tmp_path / "a.xyz").origin["notes"]
