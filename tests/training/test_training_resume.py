"""Resuming: bit by bit equal to an uninterrupted run; refused if data or settings have changed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from command_line import Process, geomatt
from training_toy import history, molecule, npz, tiny_config

from geomatt.data import random_split
from geomatt.errors import GeomAttError
from geomatt.locks import LockedError, file_lock
from geomatt.model import load
from geomatt.training import Interrupted, checkpoint, folder, train
from geomatt.training.recipes import learning_rates

SPLIT = random_split(40, 20, 10, 5)


def same_run(a: Path, b: Path) -> None:
    """Weights, optimiser, history (but for its clock) and best model of two runs are bit by bit the same."""
    first, second = checkpoint.read(a), checkpoint.read(b)
    for one, other in ((first.stepper, second.stepper), (first.best, second.best)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[n], other[n]) for n in one)
    weights = [load(x).network.state_dict() for x in (a, b)]
    assert all(torch.equal(weights[0][n], weights[1][n]) for n in weights[0])
    rows = [[{k: v for k, v in r.items() if k != "seconds"} for r in history(x)] for x in (a, b)]
    assert rows[0] == rows[1]


class Stop(Exception):
    pass


def stop_at(when: int):
    calls = []

    def callback(progress):
        calls.append(progress)
        if len(calls) == when:
            raise Stop

    return callback


@pytest.mark.parametrize(
    "changes",
    [
        {"ema_decay": 0.9, "schedule": "cosine"},
        {"ema_decay": 0.0, "schedule": "step", "decay_every": 2, "decay": 0.5},
        {"dtype": "float64", "validate_every": 2, "patience": 5},
    ],
)
@pytest.mark.parametrize("segment", [1, 50])
def test_resumed_run_equals_uninterrupted_run(tmp_path, monkeypatch, changes, segment):
    # With segments of one step the run is also cut, and its checkpoint written, inside an epoch.
    monkeypatch.setattr("geomatt.training.loop.SEGMENT", segment)
    config = tiny_config(epochs=5, **changes)
    train(molecule(), SPLIT, config, tmp_path / "whole")
    for when in (1, 2 * segment if segment == 1 else 2):
        with pytest.raises(Stop):
            train(
                molecule(), SPLIT, config, tmp_path / "cut", callback=stop_at(when),
                resume=(tmp_path / "cut").exists(), checkpoint_every=1e-9,
            )  # fmt: skip
    result = train(molecule(), SPLIT, config, tmp_path / "cut", resume=True)
    assert result.epochs == 5
    same_run(tmp_path / "whole", tmp_path / "cut")


def test_rows_after_the_checkpoint_are_done_again(tmp_path):
    config = tiny_config(epochs=4)
    train(molecule(), SPLIT, config, tmp_path / "whole")
    with pytest.raises(Stop):  # no checkpoint but the very first
        train(molecule(), SPLIT, config, tmp_path / "cut", callback=stop_at(3), checkpoint_every=1e9)
    assert len(history(tmp_path / "cut")) == 3
    train(molecule(), SPLIT, config, tmp_path / "cut", resume=True)
    same_run(tmp_path / "whole", tmp_path / "cut")


def test_finished_runs_and_more_epochs(tmp_path):
    cosine = tiny_config(epochs=2)
    train(molecule(), SPLIT, cosine, tmp_path / "cosine")
    again = train(molecule(), SPLIT, cosine, tmp_path / "cosine", resume=True)
    assert again.already_finished
    assert again.epochs == 2
    step = tiny_config(epochs=2, schedule="step")
    train(molecule(), SPLIT, step, tmp_path / "step")
    longer = train(molecule(), SPLIT, step.replace(epochs=4), tmp_path / "step", resume=True)
    assert not longer.already_finished
    assert longer.epochs == 4
    train(molecule(), SPLIT, step.replace(epochs=4), tmp_path / "straight")
    same_run(tmp_path / "straight", tmp_path / "step")
    with pytest.raises(GeomAttError, match="4 epochs already"):
        train(molecule(), SPLIT, step.replace(epochs=3), tmp_path / "step", resume=True)


def test_extended_cosine_runs_follow_a_second_cosine(tmp_path):
    first = tiny_config(epochs=3)
    longer = first.replace(epochs=7, learning_rate=5e-4)
    for name in ("whole", "cut"):
        train(molecule(), SPLIT, first, tmp_path / name)
    with pytest.raises(GeomAttError, match="3 epochs already"):
        train(molecule(), SPLIT, first.replace(epochs=2), tmp_path / "cut", resume=True)
    with pytest.raises(GeomAttError, match="batch was 8"):
        train(molecule(), SPLIT, longer.replace(batch=4), tmp_path / "cut", resume=True)
    result = train(molecule(), SPLIT, longer, tmp_path / "whole", resume=True)
    assert (result.epochs, result.already_finished) == (7, False)
    assert result.potential.record["extended_after_epochs"] == [3]
    rates = [float(row["learning_rate"]) for row in history(tmp_path / "whole")]
    assert rates[:3] == pytest.approx([learning_rates(first, e, 3)[-1] for e in range(3)])
    assert rates[3:] == pytest.approx([learning_rates(longer.replace(epochs=4), e, 3)[-1] for e in range(4)])
    with pytest.raises(Stop):  # an extension is resumed bit by bit, too
        train(
            molecule(), SPLIT, longer, tmp_path / "cut", resume=True, callback=stop_at(2),
            checkpoint_every=1e-9,
        )  # fmt: skip
    with pytest.raises(GeomAttError, match="once it has finished"):
        train(molecule(), SPLIT, longer.replace(epochs=9), tmp_path / "cut", resume=True)
    train(molecule(), SPLIT, longer, tmp_path / "cut", resume=True)
    same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_run_ended_by_patience_can_be_extended(tmp_path):
    config = tiny_config(epochs=50, patience=1, schedule="step", learning_rate=0.5)
    ended = train(molecule(), SPLIT, config, tmp_path / "run")
    assert ended.epochs < 50
    more = config.replace(epochs=ended.epochs + 2, patience=10)
    assert train(molecule(), SPLIT, more, tmp_path / "run", resume=True).epochs == ended.epochs + 2


def test_changed_data_or_settings_are_refused(tmp_path):
    config = tiny_config(epochs=2)
    train(molecule(), SPLIT, config, tmp_path / "run")
    with pytest.raises(GeomAttError, match="data has changed"):
        train(molecule(seed=1), SPLIT, config, tmp_path / "run", resume=True)
    with pytest.raises(GeomAttError, match="split has changed"):
        train(molecule(), random_split(40, 20, 10, 5, seed=1), config, tmp_path / "run", resume=True)
    with pytest.raises(GeomAttError, match="batch was 8 and is now 4"):
        train(molecule(), SPLIT, config.replace(batch=4), tmp_path / "run", resume=True)


def test_damaged_checkpoints_are_named(tmp_path):
    train(molecule(), SPLIT, tiny_config(epochs=1), tmp_path / "run")
    path = tmp_path / "run" / folder.CHECKPOINT
    body = path.read_bytes()
    for spoiled in (b"", body[:100], body[:-10], b"x" * 200):
        path.write_bytes(spoiled)
        with pytest.raises(GeomAttError, match="not a readable checkpoint"):
            checkpoint.read(tmp_path / "run")
    found = body.replace(b'\\"format\\": 1', b'\\"format\\": 9')
    assert found != body
    path.write_bytes(found)
    with pytest.raises(GeomAttError, match="newer"):
        checkpoint.read(tmp_path / "run")


def arguments(data: Path, out: Path, epochs: int) -> list[str]:
    settings = {
        "--train": 20, "--val": 10, "--test": 0, "--batch": 8, "--epochs": epochs, "--model": "geomatt",
        "--features": 8, "--overlap-features": 16, "--orders": "2,3", "--layers": 2, "--checkpoint-every": 0,
    }  # fmt: skip
    flat = [str(x) for pair in settings.items() for x in pair]
    return ["train", str(data), "--out", str(out), *flat]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_saves_and_prints_how_to_resume(tmp_path, number):
    data = npz(tmp_path / "data.npz")
    with Process(*arguments(data, tmp_path / "run", 100000)) as process:
        process.wait_until(lambda: (tmp_path / "run/model.safetensors").exists())
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert "--resume" in process.stderr
    assert "Traceback" not in process.stderr
    assert checkpoint.read(tmp_path / "run").counters.epoch == len(history(tmp_path / "run"))
    assert (tmp_path / "run/loss.png").exists()


def test_interrupt_in_python_is_an_exception(tmp_path):
    def interrupt(progress):
        if progress.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        train(molecule(), SPLIT, tiny_config(epochs=50), tmp_path / "run", callback=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert checkpoint.read(tmp_path / "run").counters.epoch in (2, 3)


def test_a_file_that_cannot_grow_is_a_clear_error(tmp_path):
    data = npz(tmp_path / "data.npz")
    process = Process(*arguments(data, tmp_path / "run", 5), file_size=20_000)
    assert process.wait() == 1
    assert "Cannot write" in process.stderr
    assert "Traceback" not in process.stderr
    assert not list((tmp_path / "run").glob(".*tmp"))


def test_checkpoint_header_is_plain_json(tmp_path):
    train(molecule(), SPLIT, tiny_config(epochs=1), tmp_path / "run")
    body = (tmp_path / "run" / folder.CHECKPOINT).read_bytes()
    length = int.from_bytes(body[:8], "little")
    header = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["geomatt_checkpoint"])
    assert header["counters"]["epoch"] == 1


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path):
    run, data = tmp_path / "run", npz(tmp_path / "data.npz")
    resume = ("train", "--out", run, "--resume", "--checkpoint-every", 0)
    with Process(*arguments(data, run, 100000)) as process:
        process.wait_until(lambda: checkpoint.exists(run))
        second = geomatt(*resume)
        assert second.status == 1
        assert f"is being trained by process {process.pid} on" in second.stderr.replace("\n", "")
    rows = [int(row["epoch"]) for row in history(run)]
    assert rows == list(range(1, len(rows) + 1))
    with Process(*resume) as process:
        before = checkpoint.read(run).counters.epoch
        process.wait_until(lambda: checkpoint.read(run).counters.epoch > before)  # a kill leaves no lock
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM, process.stderr
    assert not (run / folder.LOCK).exists()


def count_to_twenty(lock: str, counter: str) -> None:
    for _ in range(20):
        with file_lock(Path(lock), wait=60):
            Path(counter).write_text(str(int(Path(counter).read_text()) + 1))


def test_locks_exclude_others_and_are_handed_on(tmp_path):
    path = tmp_path / "lock"
    with file_lock(path), pytest.raises(LockedError, match=f"process {os.getpid()}"), file_lock(path):
        pass
    assert not path.exists()
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [Process(path, counter, run=count_to_twenty) for _ in range(4)]
    assert [p.wait(60) for p in processes] == [0] * 4
    assert counter.read_text() == "80"


def test_files_and_other_folders_are_not_runs(tmp_path):
    file = npz(tmp_path / "data.npz")
    for resume in (False, True):
        with pytest.raises(GeomAttError, match="is a file"):
            train(molecule(), SPLIT, tiny_config(), file, resume=resume)
    with pytest.raises(GeomAttError, match="holds other files"):
        train(molecule(), SPLIT, tiny_config(), tmp_path)
