"""Errors of a model on data: values, frames left out, and files written."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from geomatt import (
    Committee,
    Dataset,
    GeomAttError,
    Potential,
    Structure,
    evaluate,
    save,
)
from geomatt.data import read
from geomatt.evaluation import parity_plot, write_predictions
from geomatt.model import Normalisation, new_network
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.units import ENERGY_IN_EV

CONFIG = GeometricAttentionConfig(
    elements=(1, 6, 8), orders=(2, 3), layers=1, features=8, overlap_features=16, gamma=8.0, d_max=3.0,
    spacing=0.25,
)  # fmt: skip


def make(seed=0, **record) -> Potential:
    torch.manual_seed(seed)
    return Potential(GeometricAttention(CONFIG).double(), Normalisation(-100.0, 0.5), record)


def data(potential, forces=True, energies=True) -> Dataset:
    """Two compositions whose labels are off by known amounts: energies 0.3 eV, forces on H 0.1 eV/Å."""
    rng = np.random.default_rng(0)
    structures = []
    for i in range(6):
        numbers = np.array([6, 1, 1] if i < 4 else [8, 1])
        s = Structure(numbers, rng.normal(size=(len(numbers), 3)) * 1.5)
        p = potential.predict([s])[0]
        shifted = p.forces + 0.1 * (numbers == 1)[:, None]
        sign = (-1) ** i
        structures.append(
            Structure(
                numbers,
                s.positions,
                p.energy + 0.3 * sign if energies else None,
                shifted if forces else None,
            )
        )
    return Dataset.from_structures(structures, name="toy")


def test_known_errors_are_reproduced():
    potential = make()
    result = evaluate(potential, data(potential))
    assert result.overall.structures == 6
    assert result.overall.energy_mae == pytest.approx(0.3)
    assert result.overall.energy_rmse == pytest.approx(0.3)
    assert result.overall.energy_per_atom_mae == pytest.approx((4 * 0.1 + 2 * 0.15) / 6)
    assert result.overall.forces_mae == pytest.approx(0.1 * 10 / 16)
    assert result.overall.forces_rmse == pytest.approx(0.1 * np.sqrt(10 / 16))
    assert result.per_element["H"].forces_mae == pytest.approx(0.1)
    assert result.per_element["H"].energy_mae is None
    assert result.per_element["O"].forces_mae == pytest.approx(0, abs=1e-12)
    assert result.per_element["O"].structures == 2
    assert list(result.per_molecule) == ["CH2", "HO"]
    assert result.per_molecule["HO"].energy_per_atom_rmse == pytest.approx(0.15)
    assert result.spread is None


def test_report_in_the_unit_of_the_training_data():
    potential = make(report_unit="kcal/mol")
    report = json.loads(json.dumps(evaluate(potential, data(potential)).to_dict()))
    assert report["unit"] == {"energy": "kcal/mol", "forces": "kcal/mol/Ang"}
    assert report["overall"]["energy_mae"] == pytest.approx(0.3 / ENERGY_IN_EV["kcal/mol"])
    assert report["overall"]["atoms"] == 16
    assert {"data_sha256", "model_sha256", "geomatt", "date", "hardware"} <= report["provenance"].keys()
    assert evaluate(potential, data(potential), unit="ev").to_dict()["unit"]["energy"] == "eV"
    with pytest.raises(GeomAttError, match="unit"):
        evaluate(potential, data(potential), unit="parsec")


def test_trained_frames_are_left_out_and_counted():
    potential = make()
    frames = data(potential)
    potential.record["trained_frames"] = frames.select([0, 5]).frame_hashes()
    result = evaluate(potential, frames)
    assert (len(result.data), result.trained) == (4, 2)
    assert list(result.per_molecule) == ["CH2", "HO"]
    everything = evaluate(potential, frames, exclude_trained=False)
    assert (len(everything.data), everything.trained) == (6, 2)
    assert everything.to_dict()["trained_frames"] == {"count": 2, "included": True}
    with pytest.raises(GeomAttError, match="include_trained"):
        evaluate(potential, frames, indices=[0, 5])
    assert len(evaluate(potential, frames, indices=[0, 1]).data) == 1
    with pytest.raises(GeomAttError, match="below the number"):
        evaluate(potential, frames, indices=[9])
    with pytest.raises(GeomAttError, match="no frame"):
        evaluate(potential, frames, indices=[])


def test_energy_only_and_forces_only(tmp_path):
    potential = make()
    only_energy = evaluate(potential, data(potential, forces=False))
    assert only_energy.overall.forces_mae is None
    assert only_energy.overall.energy_mae == pytest.approx(0.3)
    only_forces = evaluate(potential, data(potential, energies=False))
    assert only_forces.overall.energy_mae is None
    assert only_forces.overall.forces_mae > 0
    for result in (only_energy, only_forces):
        json.dumps(result.to_dict())
        assert parity_plot(result, tmp_path / "p.png").stat().st_size > 1000
    with pytest.raises(GeomAttError, match="neither"):
        evaluate(potential, data(potential, forces=False, energies=False))


def test_committee():
    members = [make(seed) for seed in range(3)]
    frames = data(members[0])
    members[0].record["trained_frames"] = frames.select([0]).frame_hashes()
    members[2].record["trained_frames"] = frames.select([1]).frame_hashes()
    result = evaluate(Committee(members), frames)
    assert result.trained == 2  # what any member has seen
    assert result.energies_spread.shape == (4,)
    assert result.forces_spread.shape == (len(result.data.numbers),)
    assert -1 <= result.spread["forces_correlation"] <= 1
    report = result.to_dict("kcal/mol")["committee_spread"]
    assert report["energy_mean"] == pytest.approx(result.spread["energy_mean"] / ENERGY_IN_EV["kcal/mol"])
    assert report["forces_correlation"] == result.spread["forces_correlation"]
    assert result.provenance["members"] == 3


def test_from_a_file_with_progress(tmp_path):
    potential = make()
    save(potential, tmp_path / "m.safetensors")
    done = []
    result = evaluate(tmp_path / "m.safetensors", data(potential), progress=done.append, batch_size=4)
    assert sum(done) == 6
    assert result.overall.energy_mae == pytest.approx(0.3)


def test_parity_plot(tmp_path):
    potential = make(report_unit="kcal/mol")
    result = evaluate(potential, data(potential))
    assert parity_plot(result, tmp_path / "parity.png").read_bytes().startswith(b"\x89PNG")
    assert parity_plot(result, tmp_path / "parity.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(GeomAttError, match="no directory"):
        parity_plot(result, tmp_path / "none" / "parity.png")


def test_unknown_element_is_refused():
    potential = make()
    other = Dataset.from_structures([Structure(np.array([7]), np.zeros((1, 3)), energy=0.0)])
    with pytest.raises(GeomAttError, match="not trained on"):
        evaluate(potential, other)


def test_predictions_of_cells_have_stress_charge_and_multiplicity(tmp_path) -> None:
    network = new_network("pair", {"channels": 8, "rounds": 1, "radius": 3.0}, (1, 8), seed=0)
    model = Potential(network.double(), Normalisation(-100.0, 0.5))
    atoms = np.array([8, 1]), np.array([[0.0, 0, 0], [1.0, 0.1, 0]])
    ion = Structure(
        *atoms, cell=3 * np.eye(3), pbc=(True,) * 3, charge=-1.0, multiplicity=3, info={"k": "a b"}
    )
    with pytest.warns(UserWarning, match="does not use"):
        predictions = model.predict([ion, Structure(*atoms)])
    back = read(write_predictions([ion, Structure(*atoms)], predictions, tmp_path / "out.extxyz"))
    np.testing.assert_allclose(back[0].stress, predictions[0].stress, rtol=1e-12)
    assert (back[0].charge, back[0].multiplicity, back[0].info["k"]) == (-1.0, 3, "a b")
    assert back[1].stress is None
    assert back[1].energy == predictions[1].energy
    ase_io = pytest.importorskip("ase.io")
    found = ase_io.read(tmp_path / "out.extxyz", 0)
    np.testing.assert_allclose(found.get_stress(voigt=False), predictions[0].stress, atol=1e-12)
    np.testing.assert_allclose(found.get_potential_energies(), predictions[0].atomic_energies, atol=1e-7)


def test_a_committee_says_that_a_member_ignores_charges() -> None:
    settings = {"channels": 8, "rounds": 1}
    networks = [new_network("pair", {**settings, "electrons": e}, (1,), seed=0) for e in (True, False)]
    members = [Potential(network, Normalisation(0.0, 1.0)) for network in networks]
    ion = Structure(np.array([1, 1]), np.eye(2, 3), charge=1.0, multiplicity=2)
    assert members[0].doubts(ion) == []
    assert len(Committee(members).doubts(ion)) == 2
