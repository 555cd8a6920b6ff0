"""`geomatt train` and `geomatt transfer` through their command line."""

from __future__ import annotations

import json
import sys
import types
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import geomatt
from training_toy import history, npz, springs

from geomatt.cli.train_display import live_progress, summary_table
from geomatt.data import Dataset, Structure, write
from geomatt.data.make import Workers
from geomatt.model import Committee, load
from geomatt.training.config import read_settings
from geomatt.training.history import EpochRow
from geomatt.training.loop import TrainProgress
from geomatt.training.scratch import Comparison

TINY = ["--model", "geomatt", "--features", "8", "--overlap-features", "16", "--orders", "2,3",
        "--layers", "2", "--batch", "8", "--no-report"]  # fmt: skip
SIZES = ["--train", "20", "--val", "10"]


@pytest.fixture(autouse=True)
def no_parity_plots(request, monkeypatch):
    """They take longer than the training; drawn in tests with `loss_pictures`."""
    if "loss_pictures" not in request.fixturenames:
        monkeypatch.setattr("geomatt.evaluation.parity_plot", lambda *_: None)


@pytest.fixture
def data(tmp_path):
    return npz(tmp_path / "data.npz")


@pytest.mark.usefixtures("loss_pictures")
def test_train_and_repeat_from_its_configuration(data, tmp_path):
    run, again = tmp_path / "run", tmp_path / "again"
    arguments = ("train", data, "--out", run, *SIZES, *TINY)
    status, out, err = geomatt(*arguments, "--epochs", 3, "--unit", "kcal/mol", "--report")
    assert status == 0, err
    assert "kcal/mol" in out
    assert "Units: energy eV" in err
    assert f"geomatt evaluate {run / 'model.safetensors'}" in err.replace("\n", "")
    names = {p.name for p in run.iterdir()}
    assert {"model.safetensors", "history.csv", "config.toml", "loss.png", "parity.png"} <= names
    assert f"Report: {run / 'report.html'}" in err.replace("\n", "")
    assert "geomatt explain" in (run / "report.html").read_text()
    assert read_settings(run / "config.toml")["test"] == 10
    status, _, err = geomatt("train", "--config", run / "config.toml", "--out", again)
    assert status == 0, err
    losses = [[r["val_loss"] for r in history(x)] for x in (run, again)]
    assert losses[0] == losses[1]
    assert (run / "config.toml").read_text() == (again / "config.toml").read_text()

    status, _, err = geomatt(*arguments)
    assert status == 1
    assert "--resume" in err
    status, _, err = geomatt("train", "--out", run, "--resume")
    assert status == 0
    assert "is finished" in err
    status, _, err = geomatt("train", "--out", run, "--resume", "--batch", 4)
    assert status == 1
    assert "batch was 8 and is now 4" in err


def test_members_and_transfer(data, tmp_path):
    run = tmp_path / "run"
    status, out, err = geomatt(
        "train", data, "--out", run, *SIZES, *TINY, "--epochs", 1, "--folds", 3, "--report"
    )
    assert status == 0, err
    assert "member_2/report.html" in (run / "report.html").read_text()
    assert (run / "member_1" / "report.html").is_file()
    assert "± spread" in out
    assert isinstance(load(run), Committee)
    status, _, err = geomatt("transfer", run, data, "--out", tmp_path / "moved", *SIZES, "--epochs", 1)
    assert status == 1
    assert "member_0" in err
    status, _, err = geomatt(
        "transfer", run / "member_0", data, "--out", tmp_path / "moved", *SIZES, "--epochs", 1,
        "--unfreeze", "overlaps", "--unfreeze", "embedding", "--no-compare",
    )  # fmt: skip
    assert status == 0, err
    assert not (tmp_path / "moved/scratch").exists()
    settings = read_settings(tmp_path / "moved/config.toml")
    assert settings["recipe"] == "fast"
    assert settings["unfreeze"] == ("overlaps", "embedding")
    assert settings["network"]["features"] == 8
    status, _, err = geomatt("train", "--out", tmp_path / "moved", "--resume", "--epochs", 2, "--no-report")
    assert status == 0, err
    assert len(history(tmp_path / "moved")) == 2


def test_members_of_workers_are_no_finished_run(data, tmp_path, monkeypatch):
    """They were trained a moment ago; only when nothing was left to do, the message says how to go on."""
    monkeypatch.setattr("geomatt.data.make.open_workers", lambda workers, dask: nullcontext(Workers()))
    run = (*TINY, *SIZES, "--out", tmp_path / "run", "--workers", 2)
    said = geomatt("train", data, *run, "--members", 2, "--epochs", 1)
    assert said.status == 0, said.stderr
    assert "is finished" not in said.stderr
    again = geomatt("train", "--out", tmp_path / "run", "--workers", 2, "--resume")
    assert "member_0 is finished" in again.stderr


def test_transfer_from_a_model_that_ships(tmp_path):
    status, out, err = geomatt(
        "transfer", "md17/ethanol:fast", "embedded/ethanol", "--out", tmp_path / "moved", *SIZES,
        "--epochs", 1, "--no-report",
    )  # fmt: skip
    assert status == 0, err
    assert "zero forces" in out
    assert "The transfer paid" in err
    found = Comparison(**json.loads((tmp_path / "moved/comparison.json").read_text()))
    assert found.paid
    assert found.transferred < 0.7 * min(found.from_scratch, found.zero_forces)
    alone = read_settings(tmp_path / "moved/scratch/config.toml")
    assert alone["recipe"] == "fast"
    assert alone["epochs"] == 1
    assert "base" not in alone
    moved = read_settings(tmp_path / "moved/config.toml")
    assert moved["base"] == "md17/ethanol:fast"
    assert moved["recipe"] == "fast"
    status, _, err = geomatt("train", "--out", tmp_path / "moved", "--resume", "--epochs", 2, "--no-report")
    assert status == 0, err
    assert len(history(tmp_path / "moved")) == 2
    status, _, err = geomatt("transfer", "md17/etanol", "embedded/ethanol", "--out", tmp_path / "other")
    assert status == 1
    assert "md17/ethanol:fast" in err  # it says which there are


def test_transfer_uses_the_recipe_of_the_base(tmp_path):
    status, _, err = geomatt(
        "transfer", "md17/ethanol:pair-s", "embedded/ethanol", "--out", tmp_path, *SIZES,
        "--epochs", 1, "--no-report", "--no-compare",
    )  # fmt: skip
    assert status == 0, err
    found = read_settings(tmp_path / "config.toml")
    assert (found["recipe"], found["weighting"]) == ("pair", "unsquared")


def test_transfer_to_data_that_the_base_has_no_inputs_for(tmp_path):
    numbers, positions = np.array([6, 1, 1, 8]), springs([6, 1, 1, 8], 40)[0]
    small = ("--channels", 8, "--rounds", 1, "--functions", 8, "--epochs", 1, "--no-report", *SIZES)
    frames = [Structure(numbers, r, float((r**2).sum()), -2 * r) for r in positions]
    for name, change in (
        ("neutral", {}),
        ("ions", {"charge": 1.0, "multiplicity": 2}),
        ("cells", {"cell": 8 * np.eye(3), "pbc": (True,) * 3}),
    ):
        write(Dataset.from_structures([replace(s, **change) for s in frames]), tmp_path / f"{name}.extxyz")
    status, _, err = geomatt("train", tmp_path / "neutral.extxyz", "--out", tmp_path / "base", *small)
    assert status == 0, err
    common = ("transfer", tmp_path / "base", "--epochs", 1, "--no-report", *SIZES)
    status, _, err = geomatt(*common, tmp_path / "ions.extxyz", "--out", tmp_path / "one", "--no-compare")
    assert status == 0, err
    assert "which this network does not use" in err.replace("\n", " ")
    status, _, err = geomatt(*common, tmp_path / "cells.extxyz", "--out", tmp_path / "two")
    assert status == 1
    assert "cannot be transferred to cells" in err.replace("\n", " ")


def test_energy_only(tmp_path):
    data = npz(tmp_path / "data.npz", F=None)
    status, _, err = geomatt("train", data, "--out", tmp_path / "run", *SIZES, *TINY, "--epochs", 1)
    assert status == 1
    assert "--energy-only" in err
    status, out, err = geomatt(
        "train", data, "--out", tmp_path / "run", *SIZES, *TINY, "--epochs", 1, "--energy-only"
    )
    assert status == 0, err
    assert "–" in out


def test_index_files_keys_and_references(tmp_path):
    positions = np.load(npz(tmp_path / "whole.npz"))["F"]
    data = npz(tmp_path / "data.npz", F=None, my_forces=positions)
    (tmp_path / "train.txt").write_text("\n".join(map(str, range(20))))
    (tmp_path / "val.txt").write_text("\n".join(map(str, range(20, 30))))
    status, _, err = geomatt(
        "train", data, "--out", tmp_path / "run", *TINY, "--epochs", 1, "--key", "forces=my_forces",
        "--train-indices", tmp_path / "train.txt", "--val-indices", tmp_path / "val.txt",
        "--reference", "H=-1", "--reference", "C=-30", "--reference", "O=-60.5",
    )  # fmt: skip
    assert status == 0, err
    model = load(tmp_path / "run")
    assert model.record["split"]["train"] == "0-19"
    assert model.normalisation.reference == {1: -1.0, 6: -30.0, 8: -60.5}
    assert json.dumps(model.record)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "-5"], "at least 1"),
        (["--train", "35", "--val", "6"], "only 40"),
        (["--epochs", "0"], "--epochs"),
        (["--orders", "two"], "--orders"),
        (["--key", "forces"], "--key"),
        (["--reference", "H=x"], "--reference"),
        (["--reference", "Xx=1"], "Xx"),
        (["--recipe", "slow"], "fast"),
        (["--device", "abacus"], "--device 'abacus'"),
        (["--device", "mps"], "does not compute on --device 'mps'"),
        (["--device", "cuda:9999"], "--device"),
        (["--d-max", "nan"], "--d-max must be from 0.001 to 1000, not nan"),
        (["--d-max", "1e9"], "--d-max must be from"),
        (["--d-max", "1000", "--spacing", "0.001"], "1,000,000 basis functions"),
        (["--spacing", "1e-6"], "--spacing must be from"),
        (["--features", "100000"], "--features must be from 1 to 10000"),
        (["--features", "10000", "--layers", "100", "--dtype", "float64"], "Choose a smaller network"),
        (["--gamma", "nan"], "--gamma must be from"),
        (["--checkpoint-every", "-1"], "--checkpoint-every"),
        (["--unit", "calories"], "unit"),
        (["--resume"], "no run to resume"),
        (["--config", "absent.toml"], "absent.toml"),
    ],
)
def test_invalid_arguments_give_clear_messages(data, tmp_path, arguments, message):
    status, _, err = geomatt("train", data, "--out", tmp_path / "run", *TINY, *arguments)
    assert status == 1
    assert message in err
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_places_that_are_not_runs(data, tmp_path):
    for resume in ([], ["--resume"]):
        status, _, err = geomatt("train", data, "--out", data, *SIZES, *TINY, *resume)
        assert status == 1
        assert "is a file" in err
    status, _, err = geomatt("train", "--out", tmp_path, "--resume")
    assert status == 1
    assert "no run to resume" in err


@pytest.mark.filterwarnings("always:.*outliers")
def test_outliers_are_dropped_on_request(tmp_path):
    _, energies, forces = springs([6, 1, 1, 8], 40)
    energies[3] += 100.0
    forces[7] *= 1e4
    data = npz(tmp_path / "data.npz", E=energies, F=forces)
    common = ("train", data, "--drop-outliers", *TINY, "--epochs", 1)
    status, _, err = geomatt(*common, "--out", tmp_path / "run", "--train", 30, "--val", 8)
    assert status == 0, err
    assert "2 outliers are left out (3: energy +" in err
    assert "None" not in err
    assert "All structures were used" in err
    assert read_settings(tmp_path / "run" / "config.toml")["drop_outliers"] is True
    record = load(tmp_path / "run").record
    assert record["data"]["structures"] == 38
    files = {"train": range(20), "val": range(20, 30), "test": range(30, 40)}
    for name, numbers in files.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(map(str, numbers)))
    indices = [x for name in files for x in (f"--{name}-indices", tmp_path / f"{name}.txt")]
    status, _, err = geomatt(*common, "--out", tmp_path / "indices", *indices)
    assert status == 0, err
    assert load(tmp_path / "indices").record["split"]["train"] == "0-2,4-6,8-19"
    status, _, err = geomatt("train", "--out", tmp_path / "indices", "--resume")
    assert status == 0, err


def test_bad_files_and_folders(data, tmp_path):
    status, _, err = geomatt("train", tmp_path / "absent.npz", "--out", tmp_path / "run")
    assert status == 1
    assert "absent.npz" in err
    status, _, err = geomatt("train", "--out", tmp_path / "run")
    assert status == 1
    assert "Which data" in err
    status, _, err = geomatt("train", data, "--out", data / "below", *SIZES, *TINY)
    assert status == 1
    spoiled = np.full(40, np.nan)
    status, _, err = geomatt("train", npz(tmp_path / "nan.npz", E=spoiled), "--out", tmp_path / "run", *TINY)
    assert status == 1


def test_tensorboard_is_an_extra(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    status, _, err = geomatt("train", data, "--out", tmp_path / "run", *SIZES, *TINY, "--tensorboard")
    assert status == 1
    assert "pip install tensorboard" in err


@pytest.mark.parametrize("command", ["train", "transfer"])
def test_help_has_an_example(command):
    status, out, _ = geomatt(command, "--help")
    assert status == 0
    assert f"Example: geomatt {command}" in out


def test_tensorboard_gets_every_epoch(data, tmp_path, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, epoch):
            written.append((name, epoch))

        def flush(self):
            pass

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    status, _, err = geomatt(
        "train", data, "--out", tmp_path / "run", *SIZES, *TINY, "--epochs", 2, "--tensorboard"
    )
    assert status == 0, err
    assert {epoch for name, epoch in written if name == "val_force_mae"} == {1, 2}


def test_progress_line(capsys):
    row = EpochRow(3, 1e-3, 2.0, 3.0, 0.1, 0.2, 0.3, 0.4, 5.0)
    shown = TrainProgress(3, 10, 0.3, row, True, 3, 5.0, 12.0, "kcal/mol")
    with live_progress() as show:
        show(shown)  # without a terminal: a line
    err = capsys.readouterr().err
    for part in ("epoch 3/10", "loss 2", "E 6.918 kcal/mol", "F 9.224 kcal/mol/Å", "lr 1.0e-03", "12 s left"):
        assert part in err


@pytest.mark.filterwarnings("always:.*in the other files too")
def test_several_files_and_files_to_validate_and_test_on(tmp_path):
    def part(name, first, last, **changes):
        positions, energies, forces = (x[first:last] for x in springs([6, 1, 1, 8], 40))
        return npz(tmp_path / name, R=positions, E=energies, F=forces, **changes)

    one, two = part("one.npz", 0, 10), part("two.npz", 10, 20)
    val, test = part("val.npz", 20, 28), part("test.npz", 26, 40)
    files = ("--val-data", val, "--test-data", test)
    status, out, err = geomatt("train", one, two, *files, "--out", tmp_path / "run", *TINY, "--epochs", 2)
    assert status == 0, err
    assert "2 of 14 test structures are in the other files too" in err
    assert "Training on 20, validating on 8 structures (files split)" in err
    assert "test" in out
    record = load(tmp_path / "run").record
    assert record["split"]["test"] == "28-41"
    assert record["settings"]["more_data"] == ["two.npz"]
    assert record["data"]["origin"]["path"].startswith("one.npz + two.npz + val.npz")
    status, _, err = geomatt("train", "--config", tmp_path / "run/config.toml", "--out", tmp_path / "again")
    assert status == 0, err
    assert history(tmp_path / "run")[1]["val_loss"] == history(tmp_path / "again")[1]["val_loss"]

    common = ("train", one, two, "--out", tmp_path / "other", *TINY, "--epochs", 1)
    status, _, err = geomatt(*common, "--test-data", test)  # the rest is divided as usual
    assert status == 0, err
    assert "Training on 15, validating on 3" in err
    assert err.replace("\n", "").count("geomatt evaluate") == 1
    status, _, err = geomatt(*common[:4], tmp_path / "both", *common[5:])
    assert status == 0, err
    for file in (one, two):
        assert f"{tmp_path / 'both' / 'model.safetensors'} {file}" in err.replace("\n", "")
    other = part("other.npz", 30, 40, z=np.array([6, 1, 1, 9]))
    status, _, err = geomatt(*common[:4], tmp_path / "third", *common[5:], "--test-data", other)
    assert status == 1
    assert "test on contain F, which no training" in err
    part("kcal.npz", 20, 30, e_unit="kcal/mol")
    status, _, err = geomatt(*common[:4], tmp_path / "third", *common[5:], "--val-data",
                             tmp_path / "kcal.npz", "--energy-unit", "eV")  # fmt: skip
    assert status == 1
    assert "holds for all files" in err
    status, _, err = geomatt(*common[:4], tmp_path / "third", *common[5:], "--val-data", val, "--val", 3)
    assert status == 1
    assert "leave out --val and --folds" in err


def test_the_closing_table_has_the_stress_of_test_structures():
    result = types.SimpleNamespace(
        unit="kcal/mol", best_errors={"energy_mae": 1.0}, folder=Path("run"), best_epoch=3
    )
    errors = types.SimpleNamespace(energy_mae=1.0, forces_mae=2.0, stress_mae=0.00123)
    made = summary_table([result] * 2, [types.SimpleNamespace(overall=errors), None])
    assert list(made.columns[-2].cells)[:2] == ["0.00123", "–"]
    errors.stress_mae = None
    assert len(summary_table([result], [types.SimpleNamespace(overall=errors)]).columns) == 6
