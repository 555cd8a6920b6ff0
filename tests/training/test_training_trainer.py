"""The trainer: errors go down, files are written, invalid data and divergence are handled."""

from __future__ import annotations

import dataclasses
import errno
import math

import numpy as np
import pytest
import torch
from training_toy import history, mixture, molecule, tiny_config

from geomatt.data import Dataset, Split, random_split
from geomatt.errors import GeomAttError
from geomatt.model import load
from geomatt.training import Job, checkpoint, train, train_together, without_zero
from geomatt.training.config import TrainConfig, read_settings
from geomatt.training.loop import epoch_order
from geomatt.training.step import Stepper

SPLIT = random_split(40, 20, 10, 5)


@pytest.mark.usefixtures("loss_pictures")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_reduces_errors_and_writes_all_files(tmp_path, dtype):
    seen = []
    config = tiny_config(epochs=25, dtype=dtype, report_unit="kcal/mol")
    result = train(molecule(), SPLIT, config, tmp_path / "run", callback=seen.append)
    assert result.finished == "all epochs done"
    rows = history(tmp_path / "run")
    assert [int(r["epoch"]) for r in rows] == list(range(1, 26))
    assert float(rows[-1]["train_loss"]) < 0.7 * float(rows[0]["train_loss"])
    ev, kcal = float(rows[3]["val_force_mae_eV"]), float(rows[3]["val_force_mae_kcal_mol"])
    assert kcal == pytest.approx(ev * 23.0605, rel=1e-4)
    assert (tmp_path / "run/loss.png").read_bytes()[:4] == b"\x89PNG"
    assert TrainConfig.from_dict(read_settings(tmp_path / "run/config.toml")) == config
    assert [p.epoch for p in seen if p.new_row] == list(range(1, 26))
    assert seen[-1].fraction == 1
    assert seen[-1].seconds_left == 0

    model = load(tmp_path / "run")
    record = model.record
    assert model.dtype == getattr(torch, dtype)
    assert record["data"]["fingerprint"] == molecule().fingerprint()
    assert Split.from_dict(record["split"]).train.tolist() == SPLIT.train.tolist()
    assert len(record["trained_frames"]) == 30
    assert record["settings"]["epochs"] == 25
    assert record["report_unit"] == "kcal/mol"
    # The file is the best epoch: its error on the validation set is the one recorded.
    predictions = model.predict(molecule().select(SPLIT.validation))
    labels = molecule().energies[SPLIT.validation]
    mae = float(np.mean([abs(p.energy - e) for p, e in zip(predictions, labels, strict=True)]))
    assert mae == pytest.approx(record["validation"]["energy_mae"], rel=1e-4)
    assert record["validation"]["loss"] == pytest.approx(min(float(r["val_loss"]) for r in rows))


def test_runs_repeat_and_seeds_matter(tmp_path):
    weights = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(3)  # the caller's random numbers must not matter
        state = train(
            molecule(), SPLIT, tiny_config(seed=seed), tmp_path / name
        ).potential.network.state_dict()
        weights.append(state["hidden.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_caller_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    train(molecule(), SPLIT, tiny_config(epochs=1), tmp_path / "run")
    assert torch.equal(torch.rand(4), expected)


def test_order_depends_on_seed_and_epoch_alone():
    assert sorted(epoch_order(50, 3, 4).tolist()) == list(range(50))
    assert torch.equal(epoch_order(50, 3, 4), epoch_order(50, 3, 4))
    assert not torch.equal(epoch_order(50, 3, 4), epoch_order(50, 3, 5))
    assert not torch.equal(epoch_order(50, 3, 4), epoch_order(50, 4, 4))


def test_mixed_molecules(tmp_path):
    split = random_split(40, 24, 10, 6)
    result = train(mixture(), split, tiny_config(epochs=3), tmp_path / "run")
    assert result.potential.elements == (1, 6, 8)
    assert set(result.potential.normalisation.reference) == {1, 6, 8}
    given = {"1": -10.0, "6": -20.0, "8": -30.0}
    result = train(mixture(), split, tiny_config(epochs=1, reference=given), tmp_path / "given")
    assert result.potential.normalisation.reference == {1: -10.0, 6: -20.0, 8: -30.0}


def test_missing_forces_require_energy_only(tmp_path):
    full = molecule()
    data = Dataset(full.numbers, full.positions, full.offsets, energies=full.energies)
    with pytest.raises(GeomAttError, match="energy_only"):
        train(data, SPLIT, tiny_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    result = train(data, SPLIT, tiny_config(energy_only=True), tmp_path / "run")
    assert set(result.best_errors) == {"energy_mae"}
    row = history(tmp_path / "run")[0]
    assert row["val_force_mae_eV"] == ""
    # Forces that are there but not wanted do not enter either.
    with pytest.warns(UserWarning, match="trained on energies alone"):
        result.potential.predict([data[0]])
    result.potential.predict([data[0]], forces=False)
    other = train(full, SPLIT, tiny_config(energy_only=True), tmp_path / "other")
    assert other.best_errors == result.best_errors


def test_bad_data_is_refused(tmp_path):
    data = molecule()
    for label in ("positions", "energies", "forces"):
        spoiled = molecule()
        getattr(spoiled, label)[...] = np.where(
            np.arange(len(getattr(spoiled, label))) == 7, np.nan, 1.0
        ).reshape((-1,) + (1,) * (getattr(spoiled, label).ndim - 1))
        with pytest.raises(GeomAttError, match=f"{label} that are not finite"):
            train(
                spoiled,
                Split(np.arange(20), np.arange(20, 30), np.arange(0), "x"),
                tiny_config(),
                tmp_path / "r",
            )
    with pytest.raises(GeomAttError, match="no energies"):
        train(Dataset(data.numbers, data.positions, data.offsets), SPLIT, tiny_config(), tmp_path / "r")
    with pytest.raises(GeomAttError, match="does not have"):
        train(data, Split(np.array([0]), np.array([40]), np.arange(0), "x"), tiny_config(), tmp_path / "r")
    with pytest.raises(GeomAttError, match="validation set is empty"):
        train(data, Split(np.array([0]), np.arange(0), np.arange(0), "x"), tiny_config(), tmp_path / "r")
    periodic = Dataset(
        data.numbers, data.positions, data.offsets, energies=data.energies, forces=data.forces,
        pbc=np.ones((40, 3), bool),
    )  # fmt: skip
    with pytest.raises(GeomAttError, match="periodic"):
        train(periodic, SPLIT, tiny_config(), tmp_path / "r")
    with pytest.raises(GeomAttError, match="device"):
        train(data, SPLIT, tiny_config(device="nonsense"), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_early_stopping_and_rare_validation(tmp_path):
    config = tiny_config(epochs=200, patience=4, validate_every=2, learning_rate=1e-9, ema_decay=0.0)
    result = train(molecule(), SPLIT, config, tmp_path / "run")
    assert result.epochs < 200 or result.best_epoch > 190
    rows = history(tmp_path / "run")
    assert rows[0]["val_loss"] == ""
    assert rows[1]["val_loss"] != ""


def test_early_stopping(tmp_path):
    config = tiny_config(epochs=500, patience=3, learning_rate=0.1, schedule="step", ema_decay=0.0)
    result = train(molecule(), SPLIT, config, tmp_path / "run")
    assert result.epochs - result.best_epoch == 3
    assert "no better validation loss for 3 epochs" in result.finished


def test_divergence_keeps_the_last_good_state(tmp_path, monkeypatch):
    honest, calls = Stepper.validate, []

    def validate(stepper, targets):
        calls.append(1)
        sums = honest(stepper, targets)
        if len(calls) > 3:
            sums.sums[0] += math.nan
        return sums

    monkeypatch.setattr(Stepper, "validate", validate)
    with (
        pytest.warns(UserWarning, match="astray.*weights of epoch") as warned,
        pytest.raises(GeomAttError, match="diverged: the loss is not a finite number in epoch 8"),
    ):
        train(molecule(), SPLIT, tiny_config(epochs=9), tmp_path / "run", checkpoint_every=0)
    assert len(warned) == 4
    assert checkpoint.read(tmp_path / "run").counters.epoch == 7
    kept = load(tmp_path / "run").members[0]
    assert kept.record["best_epoch"] <= 3
    assert kept.record["energy_zero"]  # as after the last epoch
    assert kept.estimate is not None


def test_a_network_with_constant_energy_stops_training(tmp_path, monkeypatch):
    honest, calls = Stepper.validate, []

    def validate(stepper, targets):
        calls.append(1)
        if len(calls) > 30:
            stepper.weights.theta.zero_()
            stepper.adam.average.zero_()
        return honest(stepper, targets)

    monkeypatch.setattr(Stepper, "validate", validate)
    config = tiny_config(epochs=60, learning_rate=0.02)
    with (
        pytest.warns(UserWarning, match="astray"),
        pytest.raises(
            GeomAttError, match=r"diverged: the network predicts no forces any more.*learning_rate"
        ),
    ):
        train(molecule(), SPLIT, config, tmp_path / "run")
    assert len(calls) == 35
    assert load(tmp_path / "run").record["best_epoch"] <= 30


@pytest.mark.parametrize("broken", [math.nan, 1e3])
def test_training_returns_to_the_best_weights_after_a_jump_of_the_error(tmp_path, monkeypatch, broken):
    honest, calls = Stepper.validate, []

    def validate(stepper, targets):
        calls.append(1)
        if len(calls) == 6:  # of the second member only
            stepper.weights.theta[1] *= broken
            stepper.adam.average[1] *= broken
            stepper.adam.second[1] *= broken
        return honest(stepper, targets)

    config = tiny_config(epochs=12, schedule="step")
    jobs = [Job(molecule(), SPLIT, dataclasses.replace(config, seed=m), tmp_path / f"{m}") for m in (0, 1)]
    monkeypatch.setattr(Stepper, "validate", validate)
    with pytest.warns(UserWarning, match=r"astray.*returns to the weights of epoch 5 .* 0.5 times"):
        results = train_together(jobs)
    assert [r.potential.record.get("slowdowns") for r in results] == [None, 1]
    assert results[1].best_epoch > 6
    assert results[1].best_errors["force_mae"] < results[0].best_errors["force_mae"] * 3
    rates = [float(row["learning_rate"]) for row in history(tmp_path / "1")]
    assert rates[7] == rates[4] / 2
    monkeypatch.setattr(Stepper, "validate", honest)
    alone = train(molecule(), SPLIT, jobs[0].config, tmp_path / "alone")
    for name, value in results[0].potential.network.tensors().items():
        assert torch.allclose(value, alone.potential.network.tensors()[name], atol=1e-6)


def test_weights_that_are_not_finite_are_never_written(tmp_path):
    with pytest.raises(GeomAttError, match="diverged"):
        train(
            molecule(), SPLIT, tiny_config(learning_rate=1e30, epochs=9), tmp_path / "run", checkpoint_every=0
        )
    state = checkpoint.read(tmp_path / "run").stepper
    assert checkpoint.all_finite(state)


def test_existing_folder_is_not_touched(tmp_path):
    (tmp_path / "run").mkdir()
    train(molecule(), SPLIT, tiny_config(epochs=1), tmp_path / "run")  # empty is fine
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    with pytest.raises(GeomAttError, match="`resume`"):
        train(molecule(), SPLIT, tiny_config(epochs=1), tmp_path / "run")
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(GeomAttError):
            train(molecule(), SPLIT, tiny_config(epochs=1), place)


def test_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    import os

    honest, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(1)
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        honest(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(GeomAttError, match="pace"):
        train(molecule(), SPLIT, tiny_config(epochs=50), tmp_path / "run", checkpoint_every=0)
    monkeypatch.setattr(os, "fsync", honest)
    kept = checkpoint.read(tmp_path / "run").counters.epoch
    assert 0 < kept < 50
    assert not list((tmp_path / "run").glob(".*tmp"))
    assert train(molecule(), SPLIT, tiny_config(epochs=50), tmp_path / "run", resume=True).epochs == 50


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_training_on_a_gpu(tmp_path):
    config = tiny_config(epochs=5, device="cuda")
    result = train(molecule(), SPLIT, config, tmp_path / "run")
    cpu = train(molecule(), SPLIT, config.replace(device="cpu"), tmp_path / "cpu")
    assert result.potential.device.type == "cpu"  # results can be used anywhere
    assert result.best_errors["force_mae"] == pytest.approx(cpu.best_errors["force_mae"], rel=1e-2)


def test_the_zero_of_the_energy_is_fitted_after_training(tmp_path):
    for name, data in (("one", molecule()), ("two", mixture())):
        split = random_split(len(data), 20, 10, 5, seed=0)
        config = tiny_config(epochs=2, rho=0.0)  # forces alone leave the zero undetermined
        potential = train(data, split, config, tmp_path / name).potential
        seen = data.select(np.concatenate([split.train, split.validation]))
        error = np.array([p.energy for p in potential.predict(seen)]) - seen.energies
        counts = seen.composition().astype(float)
        assert np.abs(counts.T @ error).max() < 1e-4 * len(seen)  # no mean error, in any composition
        assert potential.record["energy_zero"]["frames"] == 30
        assert load(tmp_path / name).normalisation == potential.normalisation
        before = np.array([p.energy for p in without_zero(potential).predict(seen)]) - seen.energies
        assert np.abs(before.mean()) > 1e-3 * np.abs(before).max()
        given = potential.record["energy_zero"]
        assert before.mean() == pytest.approx(-given["mean_error_before"], rel=1e-3, abs=1e-9)
