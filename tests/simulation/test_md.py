"""Molecular dynamics: conservation, temperature, reproducibility, and stopping in time."""

from __future__ import annotations

import numpy as np
import pytest

from geomatt import GeomAttError

ase = pytest.importorskip("ase")

from ase.calculators.calculator import Calculator, all_changes  # noqa: E402

from geomatt.simulation import run_md  # noqa: E402


class Springs(Calculator):
    """Harmonic springs between all atoms: a system whose answers are known."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012
    break_after: int | None = None
    calls = 0

    def calculate(self, atoms=None, properties=("energy",), system_changes=tuple(all_changes)):
        super().calculate(atoms, properties, system_changes)
        self.calls += 1
        difference = self.atoms.positions[:, None] - self.atoms.positions
        distance = np.linalg.norm(difference, axis=-1) + np.eye(len(self.atoms))
        strain = distance - 1.0
        scale = np.nan if self.break_after is not None and self.calls > self.break_after else 1.0
        forces = -scale * 20.0 * (strain / distance)[..., None] * difference
        self.results = {"energy": scale * 5.0 * float((strain**2).sum()), "forces": forces.sum(1)}


def molecule():
    return ase.Atoms("CH3", [[0, 0, 0], [1, 0, 0], [0.5, 0.87, 0], [0.5, 0.29, 0.82]])


def test_nve_keeps_the_energy():
    result = run_md(molecule(), Springs(), steps=400, timestep_fs=0.25, temperature_K=300, ensemble="nve")
    assert len(result.time_fs) == 401
    assert result.time_fs[-1] == 100
    assert abs(result.drift) < 1e-3
    assert result.fluctuation < 1e-3
    assert result.to_dict()["drift_eV_per_atom_ps"] == result.drift


def test_langevin_has_the_right_temperature():
    """A molecule this small would be a third too hot with ASE's own fixcm."""
    result = run_md(
        molecule(), Springs(), steps=2500, timestep_fs=1.0, temperature_K=300, friction=0.05, seed=1
    )
    assert result.temperature_K[500:].mean() == pytest.approx(300, rel=0.12)
    centre = result.atoms.get_center_of_mass()
    np.testing.assert_allclose(centre, molecule().get_center_of_mass(), atol=1e-8)
    assert result.to_dict()["drift_eV_per_atom_ps"] is None


def test_same_seed_same_run_and_input_untouched(tmp_path):
    from ase.io import read

    atoms = molecule()
    start = atoms.positions.copy()
    done: list[int] = []
    first = run_md(
        atoms, Springs(), steps=20, seed=4, trajectory=tmp_path / "md.traj", interval=5, progress=done.append
    )
    second = run_md(atoms, Springs(), steps=20, seed=4)
    np.testing.assert_array_equal(first.total_energy, second.total_energy)
    np.testing.assert_array_equal(atoms.positions, start)
    assert atoms.calc is None
    assert not atoms.constraints
    assert sum(done) == 20
    assert len(read(tmp_path / "md.traj", ":")) == 5
    assert run_md(atoms, Springs(), steps=20, seed=5).total_energy[-1] != first.total_energy[-1]


def test_divergence_stops():
    calculator = Springs()
    calculator.break_after = 10
    with pytest.raises(GeomAttError, match="diverged"):
        run_md(molecule(), calculator, steps=50)
    with pytest.raises(GeomAttError, match="diverged"):  # far beyond the stability limit of Verlet
        run_md(molecule(), Springs(), steps=500, timestep_fs=20.0, ensemble="nve")


def test_one_atom():
    result = run_md(ase.Atoms("H"), Springs(), steps=5)
    assert np.isfinite(result.total_energy).all()


@pytest.mark.parametrize(
    "bad",
    [{"steps": 0}, {"timestep_fs": 0.0}, {"temperature_K": -1.0}, {"friction": -1.0}, {"ensemble": "npt"}],
)
def test_bad_settings(bad):
    with pytest.raises(GeomAttError):
        run_md(molecule(), Springs(), **({"steps": 5} | bad))
