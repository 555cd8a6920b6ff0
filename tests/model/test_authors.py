"""Checkpoints in the authors' format: the stored predictions, synthetic ones of all orders, bad input."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from authors_checkpoint import write_checkpoint
from oracle import oracle_energy_and_forces

from geomatt import GeomAttError, load, save
from geomatt.data.batch import collate
from geomatt.data.structures import Structure
from geomatt.model import Normalisation
from geomatt.model.geometric_attention.authors import MODULES, import_authors
from geomatt.units import ENERGY_IN_EV

UNIT = Normalisation()


@pytest.fixture
def fixture():
    root = os.environ.get("GEOMATT_DATA")
    directory = Path(root or "") / "authors_checkpoint" / "ethanol"
    if not root or not directory.is_dir():
        pytest.skip("the authors' checkpoint is not here (set GEOMATT_DATA)")
    return directory, np.load(directory / "predictions.npz")


@pytest.mark.parametrize("stored_mu", [True, False])
def test_agrees_with_the_authors_code(fixture, tmp_path, stored_mu):
    directory, truth = fixture
    scale = ENERGY_IN_EV["kcal/mol"]
    mean, std = float(truth["energy_mean"]) * scale, float(truth["energy_std"]) * scale
    save(
        import_authors(directory, elements=["H", "C", "O"], normalisation=Normalisation(mean, std)),
        tmp_path / "m.safetensors",
    )
    potential = load(tmp_path / "m.safetensors", dtype="float64")
    if stored_mu:
        potential.network.mu.copy_(torch.from_numpy(truth["mu"]))
    batch = collate([Structure(truth["z"], r) for r in truth["R"]], torch.float64)
    out = potential.evaluate(batch, attention=True)
    energy = (out.energy.numpy() - mean) / std
    forces = out.forces.numpy() / std
    assert np.abs(energy - truth["E_normalised"]).max() < 1e-7
    assert np.abs(forces - truth["F_normalised"]).max() < 1e-10 * np.abs(truth["F_normalised"]).max()
    assert len(out.attention) == 9
    for record in out.attention:
        expected = truth[f"alpha_stream{record.order - 2}_layer{record.layer}"]
        assert np.abs(record.matrix.numpy() - expected).max() < 1e-10 * np.abs(expected).max()


def test_the_grid_is_the_authors_own(fixture):
    directory, truth = fixture
    potential = import_authors(directory, elements=[1, 6, 8], normalisation=UNIT)
    assert np.array_equal(potential.network.mu.double().numpy(), truth["mu"])
    assert sum(p.numel() for p in potential.network.parameters()) == 436_545 - 128  # Li is not taken over


@pytest.mark.parametrize("orders", [(2,), (3,), (4,), (5,), (2, 3, 4, 5), (2, 2, 2)])
def test_parameters_of_every_order_are_assigned_correctly(tmp_path, orders):
    """The oracle, fed from the checkpoint by name here, and the imported potential say the same."""
    tensors, hyper = write_checkpoint(tmp_path, orders)
    potential = import_authors(tmp_path, elements=["C", "H"], normalisation=UNIT).to(dtype=torch.float64)
    layers = range(hyper["Nl"])
    weights = {
        "mu": torch.arange(0, hyper["dmax"], hyper["interval"]),
        "embedding": torch.cat([tensors["H_embeddings"], tensors["C_embeddings"]])[:, 0],
        "W": torch.stack(
            [
                torch.stack([tensors[f"geom_att.streams.{s}.interactions.{i}.W.weight"] for i in layers])
                for s in range(len(orders))
            ]
        ),
        "b": torch.stack(
            [
                torch.stack([tensors[f"geom_att.streams.{s}.interactions.{i}.W.bias"] for i in layers])
                for s in range(len(orders))
            ]
        ),
        "hidden.weight": tensors["energy_extractor.Q.weight"],
        "hidden.bias": tensors["energy_extractor.Q.bias"],
        "output.weight": tensors["energy_extractor.R.weight"],
        "output.bias": tensors["energy_extractor.R.bias"],
    }
    names = {"Q": "_0.weight", "q": "_0.bias", "K": ".weight", "k": ".bias"}
    for s, order in enumerate(orders):
        for ours, theirs in names.items():
            weights[f"overlaps.{s}.{ours}"] = torch.stack(
                [
                    torch.stack(
                        [
                            tensors[f"geom_att.streams.{s}.interactions.{i}.correlator.{m}{theirs}"]
                            for m in MODULES[: order - 1]
                        ]
                    )
                    for i in layers
                ]
            )
    numbers = np.array([6, 1, 1, 6])
    positions = np.random.default_rng(0).normal(size=(4, 3))
    energy, forces, alphas = oracle_energy_and_forces(
        weights, potential.network.config, numbers, torch.from_numpy(positions)
    )
    prediction = potential.predict([Structure(numbers, positions)], attention=True)[0]
    assert prediction.energy == pytest.approx(float(energy), abs=1e-6)  # the shift is float32's ln 2
    np.testing.assert_allclose(prediction.forces, forces.numpy(), atol=1e-10)
    flat = [a for stream in alphas for a in stream]
    for record, alpha in zip(prediction.attention, flat, strict=True):
        np.testing.assert_allclose(record.matrix, alpha.numpy(), atol=1e-12)


def test_a_grid_that_does_not_divide_evenly(tmp_path):
    _, hyper = write_checkpoint(tmp_path, grid=4)
    hyper |= {"dmax": 1.0, "interval": 0.3}
    (tmp_path / "hyperparameters.json").write_text(json.dumps(hyper))
    potential = import_authors(tmp_path, elements=["H"], normalisation=UNIT)
    np.testing.assert_allclose(potential.network.mu, [0, 0.3, 0.6, 0.9], atol=1e-6)


def test_importing_leaves_random_numbers_alone(tmp_path):
    write_checkpoint(tmp_path)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    import_authors(tmp_path, elements=["H"], normalisation=UNIT)
    assert torch.equal(torch.rand(1), expected)


def drop(name):
    def change(tensors, hyper):
        tensors.pop(name)

    return change


def edit(**values):
    def change(tensors, hyper):
        hyper.update(values)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("energy_extractor.Q.bias"), "has no energy_extractor.Q.bias"),
        (lambda t, h: t.update(surprise=torch.zeros(2)), "no place in the model"),
        (lambda t, h: t.update(H_embeddings=torch.zeros(1, 1, 5)), r"shape \(1, 1, 5\)"),
        (edit(orders=[2, 3, 4]), "hyperparameters.json calls for"),
        (edit(orders=[2, 6]), "orders 2 to 5"),
        (edit(orders=[2]), "hyperparameters.json asks for"),
        (edit(orders="many"), "not numbers"),
        (edit(Fi=32), "hyperparameters.json asks for"),
        (edit(dmax=7.0), "hyperparameters.json asks for"),
        (edit(dmin=1.0), "start at 0"),
        (edit(interval=-1), "not positive"),
        (lambda t, h: h.pop("Nl"), "lacks Nl"),
        (lambda t, h: t.update(number=3), "state dict"),
    ],
)
def test_bad_checkpoints(tmp_path, change, message):
    tensors, hyper = write_checkpoint(tmp_path)
    change(tensors, hyper)
    torch.save(tensors, tmp_path / "params.pt")
    (tmp_path / "hyperparameters.json").write_text(json.dumps(hyper))
    with pytest.raises(GeomAttError, match=message):
        import_authors(tmp_path, elements=["H", "C"], normalisation=UNIT)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(GeomAttError, match=r"no hyperparameters\.json"):
        import_authors(tmp_path, elements=["H"], normalisation=UNIT)
    write_checkpoint(tmp_path)
    for elements, message in ((["N"], "no embedding of N"), (["Xx"], "not the symbol"), ([], "Name the")):
        with pytest.raises(GeomAttError, match=message):
            import_authors(tmp_path, elements=elements, normalisation=UNIT)
    (tmp_path / "params.pt").write_bytes(pickle.dumps(Path("anything")))
    with pytest.raises(GeomAttError, match="refused"):
        import_authors(tmp_path, elements=["H"], normalisation=UNIT)
    (tmp_path / "params.pt").unlink()
    with pytest.raises(GeomAttError, match=r"no params\.pt"):
        import_authors(tmp_path, elements=["H"], normalisation=UNIT)
    (tmp_path / "hyperparameters.json").write_text("{")
    with pytest.raises(GeomAttError, match="Cannot read"):
        import_authors(tmp_path, elements=["H"], normalisation=UNIT)
    (tmp_path / "hyperparameters.json").write_text("[]")
    with pytest.raises(GeomAttError, match="one JSON object"):
        import_authors(tmp_path, elements=["H"], normalisation=UNIT)
