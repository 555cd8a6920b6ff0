"""The experiment physics: a short run, and tables and figures of a result."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from geomatt.errors import GeomAttError
from geomatt.reproduce import ExperimentSettings, draw_figures, get, run_experiment, silent
from geomatt.reproduce.physics_molecules import configurational_temperature
from geomatt.reproduce.study import STEPS, progress_teller
from geomatt.simulation import velocity_spectrum
from geomatt.simulation.spectrum import SPEED_OF_LIGHT
from geomatt.units import BOLTZMANN


def test_a_short_run(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    physics = get("physics")
    settings = ExperimentSettings(quick=True, out=tmp_path, parts=("nve", "own", "million"))
    result = run_experiment(physics, settings, silent)
    assert result["settings"]["stand_in"]
    drift = result["rows"]["nve"]["ethanol"]["drift_meV_per_atom_ps"]
    assert abs(drift) < 5.0
    assert result["rows"]["million"]["ethanol"]["steps"] == 200
    assert result["missing"] == {"nvt": 1, "xtb": 1}
    again = run_experiment(physics, settings, silent)
    assert again["rows"] == result["rows"]
    assert again["seconds"] == result["seconds"]  # read, not computed
    dynamics, xtb, left = physics.tables(result)
    assert dynamics.rows[0][:2] == ["ethanol", "pair-s"]
    assert 100 < result["rows"]["own"]["ethanol"]["data_K"] < 1500
    assert not xtb.rows
    assert left.rows[0][2] == "geomatt reproduce physics --part nvt --quick"
    assert "own ethanol data" in dynamics.note
    assert "200 steps of ethanol" in physics.summary(result)
    assert "used instead" in physics.summary(result)
    assert "MD17 by" not in physics.summary(result)
    assert list(result["data"]) == ["embedded/ethanol"]
    assert physics.drawings(result) == []


def test_figures_of_the_reference(tmp_path):
    physics = get("physics")
    grid = np.arange(0.0, 4500.0, 5.0)
    spectrum = {
        "wavenumbers": grid, "model": grid / grid.sum(), "reference": grid / grid.sum(), "overlap": 0.97,
        "halves_model": 0.8, "halves_reference": 0.81,
        "stretch_model": 3500.0, "stretch_reference": 3510.0, "drift_model": 0.01, "drift_reference": 0.02,
    }  # fmt: skip
    torsion = {
        "values": [-180, 0, 180], "model_eV": [0, 0.1, 0], "reference_eV": [0, 0.09, 0], "rms_eV": 0.005,
        "barrier_model_eV": 0.1, "barrier_reference_eV": 0.09,
    }  # fmt: skip
    result = {
        "xtb": {"torsion": torsion, "spectrum": spectrum},
        "settings": {"stand_in": False},
        "rows": {"nve": {}, "nvt": {}, "own": {}, "million": {}},
    }
    assert "by 97 %; those of two halves of the GFN2-xTB runs by 81 %" in physics.summary(result)
    figures = draw_figures(physics, result, tmp_path)
    assert [f.path.name for f in figures] == ["physics-torsion.png", "physics-spectrum.png"]
    assert all(f.path.stat().st_size > 1000 for f in figures)


def test_temperature_of_positions_without_velocities():
    """Boltzmann samples of an anharmonic well V = ½ k x² + ¼ c x⁴ in three dimensions of two atoms."""
    rng = np.random.default_rng(0)
    k, c, kelvin = 3.0, 8.0, 400.0
    grid = np.linspace(-2.0, 2.0, 20001)
    weight = np.exp(-(0.5 * k * grid**2 + 0.25 * c * grid**4) / (BOLTZMANN * kelvin))
    x = rng.choice(grid, size=(4000, 6), p=weight / weight.sum())
    forces = -(k * x + c * x**3)
    curved = np.arange(len(x))
    found, error = configurational_temperature(forces, lambda i: np.diag(k + 3 * c * x[i] ** 2), curved)
    assert found == pytest.approx(kelvin, abs=3 * error)
    assert 0.5 < error < 20.0


def test_the_spectrum_of_known_oscillations():
    """Two frequencies, the heavier atom with the weight of its mass."""
    time = 2.0 * np.arange(2000)  # fs
    velocities = np.zeros((2000, 1, 2, 3))
    velocities[:, 0, 0, 0] = np.cos(2 * np.pi * SPEED_OF_LIGHT * 1000.0 * time)
    velocities[:, 0, 1, 2] = np.sin(2 * np.pi * SPEED_OF_LIGHT * 3000.0 * time)
    grid, spectrum = velocity_spectrum(np.array([1, 6]), velocities, 2.0)
    assert spectrum.sum() == pytest.approx(1.0)
    low, high = grid < 2000, grid > 2000
    assert grid[low][spectrum[low].argmax()] == pytest.approx(1000, abs=3)
    assert grid[high][spectrum[high].argmax()] == pytest.approx(3000, abs=3)
    assert spectrum[high].sum() / spectrum[low].sum() == pytest.approx(12.011 / 1.008, rel=0.01)
    with pytest.raises(GeomAttError, match="too far apart"):
        velocity_spectrum(np.array([1, 6]), velocities, 5.0)


def test_a_bar_of_training_ends_where_training_does():
    """A callback comes several times in an epoch, and with the epoch again after a return to the best."""
    told: list[int] = []
    tell = progress_teller(told.append)
    for fraction in (0.0, 0.25, 0.25, 0.5, 0.4, 1.0):
        tell(SimpleNamespace(fraction=fraction))
    assert sum(told) == STEPS
    assert min(told) == 0
