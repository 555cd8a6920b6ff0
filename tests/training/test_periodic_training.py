"""Training on cells, and on data with different labels, sizes, weights and charges."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from geomatt import Dataset, Structure
from geomatt.data import collate
from geomatt.data.splits import Split
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate
from geomatt.model import Normalisation, load
from geomatt.model.interface import Evaluation
from geomatt.training import train
from geomatt.training.config import resolve
from geomatt.training.dataset import resolve_inputs
from geomatt.training.loss import WEIGHTINGS, Errors, Loss

CELL = np.array([[2.6, 0.0, 0.2], [0.9, 2.5, 0.0], [0.0, -0.3, 2.9]])
PAIR = {"model": "pair", "channels": 6, "rounds": 1, "functions": 6, "radius": 3.3}
PAPER = {
    "model": "geomatt", "bias": False, "features": 6, "overlap_features": 8, "layers": 1, "orders": (2, 3),
    "d_max": 3.0, "spacing": 0.25,
}  # fmt: skip


def springs(structure: Structure) -> Structure:
    """Labels of a lattice sum of exp(−2d), by finite sums over images."""
    n = len(structure)
    hops = (
        np.array(np.meshgrid(*[range(-3, 4)] * 3)).reshape(3, -1).T
        if structure.periodic
        else np.zeros((1, 3))
    )
    images = hops @ (CELL if structure.cell is None else structure.cell)
    vectors = structure.positions[None, :, None] - structure.positions[:, None, None] + images  # (i, j, S, 3)
    d = np.linalg.norm(vectors, axis=-1)
    value = np.where(d > 0, np.exp(-2.0 * d), 0.0)
    unit = vectors / np.where(d > 0, d, 1.0)[..., None]
    forces = -2.0 * (value[..., None] * unit).sum((1, 2))
    virial = -1.0 * np.einsum("ijs,ijsa,ijsb->ab", value, unit, vectors)
    stress = virial / abs(np.linalg.det(structure.cell)) if structure.periodic else None
    return dataclasses.replace(structure, energy=0.5 * value.sum() - 3.0 * n, forces=forces, stress=stress)


def mixed(count: int = 12) -> Dataset:
    """Crystals of one and two atoms and molecules; some without forces, some without stress, with weights."""
    rng, structures = np.random.default_rng(0), []
    for k in range(count):
        atoms = 1 + k % 3
        periodic = atoms < 3
        cell = CELL @ (np.eye(3) + 0.05 * rng.standard_normal((3, 3))) if periodic else None
        ideal = np.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.0, 0.5, 0.0]])[:atoms]
        positions = (ideal + 0.08 * rng.standard_normal((atoms, 3))) @ CELL
        one = springs(
            Structure(
                rng.choice([1, 8], atoms), positions, cell=cell, pbc=(periodic,) * 3, weight=1.0 + k % 2
            )
        )
        drop = {"forces": None} if k % 4 == 1 else {"stress": None} if k % 4 == 3 else {}
        structures.append(dataclasses.replace(one, **drop))
    return Dataset.from_structures(structures)


def short(tmp_path, data: Dataset, name: str = "run", split: Split | None = None, **settings):
    n = len(data)
    split = split or Split(np.arange(n - 4), np.arange(n - 4, n), np.arange(0), "random", 0)
    plain = {"epochs": 3, "batch": 4, "recipe": "pair", "dtype": "float64", "ema_decay": 0.0}
    config = resolve_inputs(resolve({**plain, **settings}), data)
    return train(data, split, config, tmp_path / name)


@pytest.mark.parametrize(("network", "rate"), [(PAIR, 0.02), (PAPER, 0.05)], ids=["pair", "paper"])
def test_cells_and_molecules_train_together(tmp_path, network, rate):
    result = short(tmp_path, mixed(), epochs=25, learning_rate=rate, **network)
    before = short(tmp_path, mixed(), "before", epochs=1, learning_rate=1e-9, **network)
    errors = [evaluate(r.potential, mixed(), exclude_trained=False).overall for r in (before, result)]
    assert errors[1].forces_mae < 0.7 * errors[0].forces_mae
    assert errors[1].stress_mae < 0.85 * errors[0].stress_mae
    again = load(tmp_path / "run" / "model.safetensors")
    assert evaluate(again, mixed(), exclude_trained=False).overall == errors[1]


def test_all_pairs_refuse_cells(tmp_path):
    data, everything = mixed(), resolve({**PAIR, "radius": 0.0})
    split = Split(np.arange(8), np.arange(8, 12), np.arange(0), "random", 0)
    with pytest.raises(GeomAttError, match="Train with a `radius`"):
        train(data, split, everything, tmp_path / "all")
    assert resolve_inputs(everything, data).network["radius"] == 5.0
    with pytest.raises(GeomAttError, match="`bias` False"):
        short(tmp_path, mixed(), **{**PAPER, "bias": True})


def test_one_composition_is_extensive(tmp_path):
    rng = np.random.default_rng(1)
    water = [springs(Structure(np.array([8, 1, 1]), rng.standard_normal((3, 3)))) for _ in range(10)]
    potential = short(tmp_path, Dataset.from_structures(water), **PAIR).potential
    (one,) = potential.predict(water[0])
    far = water[0].positions + np.array([50.0, 0.0, 0.0])
    pair = Structure(np.tile(water[0].numbers, 2), np.concatenate([water[0].positions, far]))
    (two,) = potential.predict(pair, check_domain=False)
    assert two.energy == pytest.approx(2 * one.energy, rel=1e-13)
    assert potential.normalisation.shift == 0.0


def test_charges_are_an_input_where_the_data_has_them(tmp_path):
    rng = np.random.default_rng(2)
    structures = [springs(Structure(np.array([8, 1, 1]), rng.standard_normal((3, 3)))) for _ in range(8)]
    ions = [dataclasses.replace(s, charge=1.0, multiplicity=2, energy=s.energy + 5.0) for s in structures]
    data = Dataset.from_structures([*structures, *ions])
    split = Split(np.arange(12), np.arange(12, 16), np.arange(0), "random", 0)
    result = short(tmp_path, data, split=split, epochs=40, learning_rate=3e-2, rho=1.0, **PAIR)
    neutral, charged = result.potential.predict([structures[0], ions[0]], check_domain=False)
    assert charged.energy - neutral.energy == pytest.approx(5.0, abs=1.0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        short(tmp_path, data, "ignored", split=split, epochs=1, **{**PAPER, "bias": True})
    assert any("which this network does not use" in str(w.message) for w in found)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("per_atom", [False, True])
def test_slopes_are_those_of_the_loss(weighting, per_atom):
    """With missing labels, weights and stress, against automatic differentiation."""
    loss, generator = Loss(weighting, 0.3, 0.7, per_atom), torch.Generator().manual_seed(0)
    batch = collate(list(mixed(4)), torch.float64)
    found = [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((4,), (4, 3, 3), (4, 3, 3))
    ]
    energy, forces, stress = found
    errors = Errors.of(Evaluation(energy, None, forces * batch.mask[..., None], stress), batch)
    volume = errors.volume_per_atom
    live = dataclasses.replace(
        errors,
        energy=energy - batch.energy,
        forces=torch.where(batch.forces.isnan(), 0.0, forces * batch.mask[..., None] - batch.forces),
        virial=torch.where(batch.stress.isnan(), 0.0, (stress - batch.stress) * volume[:, None, None]),
    )
    expected = torch.autograd.grad(loss(live), found)
    for got, wanted in zip(loss.slopes(errors), expected, strict=True):
        assert torch.allclose(got, wanted.nan_to_num(0.0), atol=1e-13)  # nan is 0 / 0, where nothing is wrong
    known = ~batch.forces.isnan() & batch.mask[..., None]
    assert int(errors.components) == int(known.sum())


def test_reference_energies_of_several_compositions_do_not_need_all_forces():
    found = Normalisation.fit(mixed(), scale_by="forces")
    assert np.isfinite(found.scale)
    assert set(found.reference) == {1, 8}
    assert found.shift == 0.0


def test_energies_per_atom(tmp_path):
    data = mixed()
    from geomatt.data.io.readers import write
    from geomatt.training.dataset import load_dataset

    path = tmp_path / "data.xyz"
    per_atom = Dataset.from_structures(dataclasses.replace(s, energy=s.energy / len(s)) for s in data)
    write(per_atom, path)
    config = resolve({**PAIR, "data": str(path), "energies_per_atom": True})
    assert np.allclose(load_dataset(config)[0].energies, data.energies)
