"""Dynamics in a folder: exact restart after a kill, the watchdog, and what goes wrong on the way."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Process
from tiny_network import Tiny, TinyConfig

from geomatt import Committee, GeomAttError, Potential, Structure
from geomatt.data import read
from geomatt.files import sha256
from geomatt.locks import file_lock
from geomatt.model import Normalisation
from geomatt.model.pair_states.config import PairStatesConfig
from geomatt.model.pair_states.network import PairStates
from geomatt.simulation.md import RESTART, TO_LABEL, run_dynamics
from geomatt.simulation.results import write_results
from geomatt.simulation.settings import MDSettings

WATER = Structure(np.array([8, 1, 1]), np.array([[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]))
SHORT = MDSettings(temperature=50.0, time=0.2, interval=10, stop_on="never")


def make(seed=0) -> Potential:
    torch.manual_seed(seed)
    return Potential(Tiny(TinyConfig((1, 8)), torch.float64), Normalisation(-10.0, 0.05))


def killer(signal):
    def kill(progress):
        if progress.steps >= 200:
            os.kill(os.getpid(), signal)

    return kill


def run_until_killed(folder: str) -> None:
    settings = replace(SHORT, ensemble="bussi", format="traj", replicas=2)
    run_dynamics(make(), WATER, settings, folder, checkpoint_every=0.0, progress=killer(signal.SIGKILL))


def frames(path: Path) -> list[tuple]:
    from ase.io import iread

    return [(a.info["time_fs"], a.positions, a.get_momenta(), a.get_forces()) for a in iread(path, ":")]


@pytest.mark.parametrize(("ensemble", "format"), [("bussi", "traj"), ("langevin", "extxyz")])
def test_an_interrupted_run_continues_bit_by_bit(tmp_path, ensemble, format):
    settings = replace(SHORT, ensemble=ensemble, format=format, replicas=2)
    whole = run_dynamics(make(), WATER, settings, tmp_path / "whole")
    if format == "traj":
        process = Process(tmp_path / "cut", run=run_until_killed)
        assert process.wait() == -signal.SIGKILL, process.stderr
    else:
        cut = run_dynamics(make(), WATER, settings, tmp_path / "cut", progress=killer(signal.SIGINT))
        assert cut.signal == signal.SIGINT
        assert 200 <= cut.steps < 400
        assert not cut.finished
    rest = run_dynamics(make(), WATER, settings, tmp_path / "cut", resume=True)
    assert rest.steps == whole.steps == 400
    for r in range(2):
        one, two = (tmp_path / folder / f"trajectory_{r}.{format}" for folder in ("whole", "cut"))
        if format == "extxyz":
            assert sha256(one) == sha256(two)
        assert len(frames(one)) == len(frames(two)) == 41
        for first, second in zip(frames(one), frames(two), strict=True):
            for x, y in zip(first, second, strict=True):
                np.testing.assert_array_equal(x, y)
    for name in ("conserved_energy", "temperature_K", "highest_force"):
        np.testing.assert_array_equal(
            getattr(rest.outcome.records, name), getattr(whole.outcome.records, name)
        )
    assert np.abs(frames(one)[-1][1] - WATER.positions).max() > 0.01


def test_frames_written_after_the_last_checkpoint_are_not_repeated(tmp_path):
    whole = run_dynamics(make(), WATER, SHORT, tmp_path / "a")
    run_dynamics(make(), WATER, replace(SHORT, time=0.1), tmp_path / "b")
    with open(tmp_path / "b" / "trajectory.extxyz", "a") as stream:
        stream.write("3\nhalf a fra")
    run_dynamics(make(), WATER, SHORT, tmp_path / "b", resume=True)  # longer than it was
    assert sha256(tmp_path / "a" / "trajectory.extxyz") == sha256(tmp_path / "b" / "trajectory.extxyz")
    (tmp_path / "b" / "trajectory.extxyz").write_text("")
    with pytest.raises(GeomAttError, match="shorter"):
        run_dynamics(make(), WATER, SHORT, tmp_path / "b", resume=True)
    (tmp_path / "b" / "trajectory.extxyz").unlink()
    with pytest.raises(GeomAttError, match="missing"):
        run_dynamics(make(), WATER, SHORT, tmp_path / "b", resume=True)
    assert whole.finished


def test_trajectory_and_results(tmp_path):
    report = run_dynamics(make(), WATER, replace(SHORT, ensemble="nve"), tmp_path / "run", model="tiny")
    files = write_results(report, make())
    found = json.loads(files["numbers"].read_text())
    assert found["model"] == "tiny"
    assert found["picoseconds"] == pytest.approx(0.2)
    assert abs(found["replicas"][0]["drift_meV_per_atom_ps"]) < 0.5
    assert files["plot"].stat().st_size > 1000
    series = np.load(files["series"])
    trajectory = read(tmp_path / "run" / "trajectory.extxyz", energy_unit="eV")
    assert len(trajectory) == len(series["time_fs"]) == 41
    predicted = make().predict(list(trajectory))
    np.testing.assert_allclose([p.energy for p in predicted], trajectory.energies, atol=1e-7)
    np.testing.assert_allclose([p.forces for p in predicted], [s.forces for s in trajectory], atol=1e-6)
    np.testing.assert_allclose(series["potential_energy"][:, 0], trajectory.energies, atol=1e-9)
    for _, positions, momenta, _ in frames(tmp_path / "run" / "trajectory.extxyz")[:1]:
        np.testing.assert_allclose(positions, WATER.positions, atol=1e-8)
        np.testing.assert_allclose(momenta.sum(0), 0.0, atol=1e-7)
    assert (tmp_path / "run" / TO_LABEL).exists() == (report.to_label > 0)


def test_the_watchdog_saves_frames_and_stops(tmp_path):
    """Members that disagree, and a start from far above the ground."""
    committee = Committee([make(0), make(1)])
    quiet = run_dynamics(committee, WATER, replace(SHORT, max_spread=1e-6), tmp_path / "doubt")
    assert quiet.outcome.intact.all()
    assert "disagree" in next(iter(quiet.outcome.alarms[0]))
    to_label = read(tmp_path / "doubt" / TO_LABEL)
    assert len(to_label) == quiet.to_label == 1  # the alarm never ended, so it is one
    assert to_label.energies is None
    assert "disagree" in to_label[0].info["alarm"]
    strict = replace(SHORT, max_spread=1e-6, stop_on="doubt")
    stopped = run_dynamics(committee, WATER, strict, tmp_path / "strict")
    assert "disagree" in stopped.outcome.failures[0]
    assert stopped.steps < 400
    assert stopped.finished
    loose = Potential(make().network, Normalisation(-10.0, 500.0))  # forces that no molecule has
    hot = run_dynamics(loose, WATER, replace(SHORT, stop_on="failure"), tmp_path / "hot")
    assert not hot.outcome.intact.any()
    assert hot.to_label == 1


def test_a_bond_that_breaks_is_named(tmp_path):
    apart = Potential(make().network, Normalisation(-10.0, 0.0))  # nothing holds the atoms
    report = run_dynamics(apart, WATER, replace(SHORT, temperature=3000.0, time=0.1), tmp_path / "run")
    changes = report.outcome.bond_changes[0]
    assert changes
    assert {c.names for c in changes} <= {"O0–H1", "O0–H2", "H1–H2"}
    assert any(c.what == "broke" for c in changes)
    stopped = replace(SHORT, temperature=3000.0, time=0.1, stop_on="failure")
    report = run_dynamics(apart, WATER, stopped, tmp_path / "stopped")
    assert report.outcome.failures == ["a bond broke"]
    assert "a bond broke" in read(tmp_path / "stopped" / TO_LABEL)[0].info["alarm"]


def test_charge_and_spin_reach_the_model(tmp_path):
    """A model that depends on them gives the energy of its prediction, in a box, too, and in a relaxation."""
    torch.manual_seed(0)
    config = PairStatesConfig((1, 8), channels=8, rounds=1, functions=8, electrons=True, radius=4.0)
    network = PairStates(config).double()
    with torch.no_grad():  # those of charge and spin start at zero
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model = Potential(network, Normalisation(-10.0, 0.01))
    ion = replace(WATER, charge=1.0, multiplicity=2)
    predicted = {s.charge: model.predict([s])[0].energy for s in (ion, WATER)}
    assert abs(predicted[1.0] - predicted[0.0]) > 1e-6
    box = replace(ion, cell=8.0 * np.eye(3), pbc=(True, True, True))
    for name, start in (("ion", ion), ("box", box)):
        report = run_dynamics(model, start, replace(SHORT, time=0.005), tmp_path / name)
        assert report.outcome.records.potential_energy[0, 0] == pytest.approx(predicted[1.0], abs=1e-8)
        again = run_dynamics(model, start, replace(SHORT, time=0.01), tmp_path / name, resume=True)
        assert again.steps == 20
    with pytest.raises(GeomAttError, match="charge"):
        run_dynamics(model, WATER, SHORT, tmp_path / "ion", resume=True)
    from geomatt.simulation import relax

    assert relax(model, ion).start.energy == pytest.approx(predicted[1.0], abs=1e-8)


def test_bad_input_of_a_run(tmp_path):
    run_dynamics(make(), WATER, SHORT, tmp_path / "run")
    again = {"folder": tmp_path / "run", "resume": True}
    with pytest.raises(GeomAttError, match="holds a simulation"):
        run_dynamics(make(), WATER, SHORT, tmp_path / "run")
    with pytest.raises(GeomAttError, match="another model"):
        run_dynamics(make(1), WATER, SHORT, **again)
    hydroxyl = Structure(WATER.numbers[:2], WATER.positions[:2])
    with pytest.raises(GeomAttError, match="is of H2O, not of this HO"):
        run_dynamics(make(), hydroxyl, SHORT, **again)
    with pytest.raises(GeomAttError, match="`timestep` = 0"):
        run_dynamics(make(), WATER, replace(SHORT, timestep=0.25), **again)
    with pytest.raises(GeomAttError, match="no simulation to continue"):
        run_dynamics(make(), WATER, SHORT, tmp_path / "none", resume=True)
    close = Structure(WATER.numbers, np.array([[0.0, 0, 0], [0.9, 0, 0], [0.9, 0.1, 0]]))
    with pytest.raises(GeomAttError, match="overlapping atoms: H1 and H2"):
        run_dynamics(make(), close, SHORT, tmp_path / "close")
    with pytest.raises(GeomAttError, match="not trained on"):
        run_dynamics(make(), Structure(np.array([7]), np.zeros((1, 3))), SHORT, tmp_path / "nitrogen")
    cell = replace(WATER, cell=10.0 * np.eye(3), pbc=(True, True, True))
    with pytest.raises(GeomAttError, match="periodic"):
        run_dynamics(make(), cell, SHORT, tmp_path / "cell")
    with file_lock(tmp_path / "run" / ".lock"), pytest.raises(GeomAttError, match="in use by process"):
        run_dynamics(make(), WATER, SHORT, **again)
    (tmp_path / "file").write_text("")
    with pytest.raises(GeomAttError, match="Cannot write"):
        run_dynamics(make(), WATER, SHORT, tmp_path / "file" / "run")
    (tmp_path / "run" / RESTART).write_bytes(b"no such file")
    with pytest.raises(GeomAttError, match="damaged"):
        run_dynamics(make(), WATER, SHORT, **again)


@pytest.mark.parametrize("format", ["extxyz", "traj"])
def test_a_trajectory_of_other_atoms_is_left_as_it_is(tmp_path, format):
    """The restart file of one simulation beside the trajectory of another."""
    short = replace(SHORT, time=0.05, format=format)
    hydroxyl = Structure(WATER.numbers[:2], WATER.positions[:2])
    run_dynamics(make(), WATER, short, tmp_path / "water")
    run_dynamics(make(), hydroxyl, replace(short, time=0.02), tmp_path / "other")
    (tmp_path / "water" / RESTART).write_bytes((tmp_path / "other" / RESTART).read_bytes())
    kept = (tmp_path / "water" / f"trajectory.{format}").read_bytes()
    with pytest.raises(GeomAttError, match=r"does not belong to the simulation .* left as it is"):
        run_dynamics(make(), hydroxyl, short, tmp_path / "water", resume=True)
    assert (tmp_path / "water" / f"trajectory.{format}").read_bytes() == kept


def test_the_whole_time_is_run():
    assert [MDSettings(time=t, timestep=2.0, interval=10).steps for t in (0.1, 0.12, 0.003)] == [50, 60, 10]
    assert MDSettings(time=10.0).steps == 20_000
    assert MDSettings(time=0.3, timestep=0.1, interval=1).steps == 3000


@pytest.mark.parametrize(
    "bad",
    [{"time": 0.0}, {"ensemble": "npe"}, {"temperature": 0.0}, {"timestep": 5.0}, {"replicas": 0},
     {"stop_on": "x"}, {"format": "xyz"}, {"interval": 0}, {"temperature": float("nan")}],
)  # fmt: skip
def test_bad_settings_of_a_run(bad):
    with pytest.raises(GeomAttError, match=f"`{next(iter(bad))}`"):
        MDSettings(**bad)


@pytest.mark.parametrize("format", ["extxyz", "traj"])
def test_a_full_disk(tmp_path, format):
    """Files may not grow beyond a limit: what was written stays whole, and the run can be continued."""
    resource = pytest.importorskip("resource")
    settings = replace(SHORT, format=format, interval=2, time=0.1)
    whole = run_dynamics(make(), WATER, settings, tmp_path / "whole")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = (tmp_path / "whole" / RESTART).stat().st_size + 2000  # less than the trajectory
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(
            GeomAttError, match=r"Cannot write .*(size limit|disk is full).*stopped at .* ps.*`resume`"
        ):
            run_dynamics(make(), WATER, settings, tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    path = tmp_path / "full" / f"trajectory.{format}"
    kept = frames(path)
    assert 5 < len(kept) < 101
    rest = run_dynamics(make(), WATER, settings, tmp_path / "full", resume=True)
    np.testing.assert_array_equal(
        rest.outcome.records.conserved_energy, whole.outcome.records.conserved_energy
    )
    for first, second in zip(frames(tmp_path / "whole" / path.name), frames(path), strict=True):
        np.testing.assert_array_equal(first[1], second[1])
