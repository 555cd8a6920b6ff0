"""Relaxation, normal modes and scans, with a shipped model of ethanol."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomatt import Dataset, GeomAttError, Potential, Structure, load
from geomatt.elements import ATOMIC_MASSES

pytest.importorskip("ase")

from geomatt.simulation.coordinates import Coordinate
from geomatt.simulation.normal_modes import PLANCK, explain_imaginary, vibrations
from geomatt.simulation.relaxation import relax
from geomatt.simulation.scans import calculator_reference, data_reference, make_calculator, scan
from geomatt.simulation.settings import RelaxSettings, ScanSettings
from geomatt.simulation.starts import aligned

# Ethanol, roughly: C C O H H H H H H.
ETHANOL = Structure(
    np.array([6, 6, 8, 1, 1, 1, 1, 1, 1]),
    np.array(
        [[-0.75, 0.02, 0.0], [0.58, -0.7, 0.02], [1.64, 0.25, -0.04], [-0.85, 0.66, 0.88],
         [-0.84, 0.65, -0.89], [-1.57, -0.71, 0.0], [0.67, -1.33, 0.91], [0.67, -1.36, -0.85],
         [2.47, -0.23, -0.02]]
    ),
)  # fmt: skip
HYDROXYL = Coordinate("torsion", (0, 1, 2, 8))


@pytest.fixture(scope="module")
def model():
    return load("md17/ethanol:fast", dtype="float64")


@pytest.fixture(scope="module")
def relaxed(model):
    return relax(model, ETHANOL, RelaxSettings(fmax=0.001))


def test_relaxation_ends_at_a_minimum(model, relaxed):
    assert relaxed.converged
    assert relaxed.fmax[-1] < 0.001
    assert relaxed.energies[-1] == relaxed.energies.min()
    assert relaxed.energies[-1] < relaxed.energies[0] - 0.01
    assert len(relaxed.energies) == relaxed.steps + 1
    assert 0.005 < relaxed.rmsd < 0.1
    assert relaxed.bonds_changed == []
    predicted = model.predict([relaxed.end])[0]
    assert relaxed.end.energy == pytest.approx(predicted.energy, abs=1e-9)
    again = relax(model, relaxed.end, RelaxSettings(fmax=0.005))
    assert again.steps == 0
    short = relax(model, ETHANOL, RelaxSettings(optimiser="fire", steps=3))
    assert not short.converged
    assert short.steps == 3
    stopped = relax(model, ETHANOL, progress=lambda seen: seen.step == 1)
    assert stopped.steps == 1
    assert not stopped.converged


def test_relaxation_refuses(model):
    close = replace(ETHANOL, positions=ETHANOL.positions * 0.3)
    with pytest.raises(GeomAttError, match="overlapping"):
        relax(model, close)
    with pytest.raises(GeomAttError, match="`cell`"):
        relax(model, ETHANOL, RelaxSettings(cell=True))
    with pytest.raises(GeomAttError, match="periodic"):
        relax(model, replace(ETHANOL, cell=9 * np.eye(3), pbc=(True, True, True)))
    for bad in ({"fmax": 0.0}, {"steps": 0}, {"optimiser": "x"}):
        with pytest.raises(GeomAttError, match=next(iter(bad))):
            RelaxSettings(**bad)


def test_an_optimiser_without_a_step_says_so(model, monkeypatch):
    def irun(self, **_):
        yield False
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr("ase.optimize.BFGS.irun", irun)
    with pytest.raises(GeomAttError, match=r"finds no step .* set `optimiser` to fire"):
        relax(model, ETHANOL)


@given(st.integers(0, 1000))
def test_alignment_undoes_rotation_and_translation(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(5, 3))
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    np.testing.assert_allclose(aligned(points @ turn.T + rng.normal(size=3), points), points, atol=1e-10)
    mirrored = points * np.array([1, 1, -1])
    assert np.abs(aligned(mirrored, points) - points).max() > 1e-3  # a mirror image is another molecule


def test_normal_modes_agree_with_ase(model, relaxed, tmp_path):
    from ase.vibrations import Vibrations as AseVibrations

    from geomatt.simulation import GeomAttCalculator
    from geomatt.simulation.atoms import to_atoms

    found = vibrations(model, relaxed.end)
    atoms = to_atoms(relaxed.end)
    atoms.calc = GeomAttCalculator(model)
    other = AseVibrations(atoms, name=str(tmp_path / "vib"), delta=0.005)
    other.run()
    theirs = other.get_frequencies().real
    np.testing.assert_allclose(found.wavenumbers, np.sort(theirs)[-21:], atol=1.0)
    assert found.wavenumbers.shape == (21,)
    assert len(found.imaginary) == 0
    assert np.abs(found.rigid).max() < 20.0
    assert 3500 < found.wavenumbers[-1] < 3900  # the O–H stretch
    assert found.movers(20).startswith("H8")
    energies = other.get_energies().real
    assert found.zero_point_energy == pytest.approx(0.5 * np.sort(energies)[-21:].sum(), abs=2e-4)
    # Orthonormal in mass-weighted coordinates, and without translation or rotation.
    flat = found.normal.reshape(21, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(21), atol=1e-10)
    weights = np.sqrt(ATOMIC_MASSES[ETHANOL.numbers - 1])[:, None]
    np.testing.assert_allclose((weights * found.normal).sum(1), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found.modes, axis=2).max(1), 1.0)
    frames = found.frames(3)
    np.testing.assert_allclose(np.mean([f.positions for f in frames], 0), relaxed.end.positions, atol=1e-9)
    assert found.zero_point_energy > 5 * PLANCK


def test_an_imaginary_mode_is_explained(model, relaxed):
    """The eclipsed hydroxyl group is a saddle point of its torsion."""
    held = relax(
        model,
        replace(relaxed.end, positions=HYDROXYL.moved(relaxed.end.positions, HYDROXYL.moving(ETHANOL), 0.0)),
        RelaxSettings(fmax=0.005),
        constraint=HYDROXYL.constraint(0.0),
    )
    found = vibrations(model, held.end)
    assert len(found.imaginary) == 1
    (text,) = explain_imaginary(found, model)
    assert "saddle point" in text
    assert "H8" in text
    with pytest.raises(GeomAttError, match="single atom"):
        vibrations(model, Structure(np.array([6]), np.zeros((1, 3))))


@given(st.integers(0, 10_000), st.floats(-179.0, 179.0))
def test_a_moved_torsion_has_its_value(seed, angle):
    rng = np.random.default_rng(seed)
    positions = ETHANOL.positions + rng.normal(size=(9, 3)) * 0.05
    moving = HYDROXYL.moving(ETHANOL)
    assert np.flatnonzero(moving).tolist() == [2, 8]
    moved = HYDROXYL.moved(positions, moving, angle)
    assert HYDROXYL.value(moved) == pytest.approx(angle, abs=1e-8)
    for i, j in ((0, 1), (1, 2), (2, 8), (0, 2), (1, 8)):
        assert np.linalg.norm(moved[i] - moved[j]) == pytest.approx(
            np.linalg.norm(positions[i] - positions[j])
        )
    bond = Coordinate("distance", (1, 2))
    stretched = bond.moved(positions, bond.moving(ETHANOL), 1.7)
    assert bond.value(stretched) == pytest.approx(1.7)
    assert np.linalg.norm(stretched[2] - stretched[8]) == pytest.approx(
        np.linalg.norm(positions[2] - positions[8])
    )


def test_torsion_has_the_sign_of_ase():
    from geomatt.simulation.atoms import to_atoms

    for moved in np.random.default_rng(0).normal(size=(5, 9, 3)):
        structure = replace(ETHANOL, positions=ETHANOL.positions + 0.3 * moved)
        theirs = to_atoms(structure).get_dihedral(0, 1, 2, 8)
        assert HYDROXYL.value(structure.positions) % 360 == pytest.approx(theirs % 360, abs=1e-6)


def test_rigid_and_relaxed_scans(model, relaxed):
    settings = ScanSettings(points=7)
    rigid = scan(model, relaxed.end, HYDROXYL, settings)
    np.testing.assert_allclose(rigid.values, np.linspace(-180, 180, 7))
    predicted = [p.energy for p in model.predict(rigid.structures, check_domain=False)]
    np.testing.assert_allclose(rigid.energies, predicted, atol=1e-9)
    assert rigid.energies[0] == pytest.approx(rigid.energies[-1], abs=1e-6)
    soft = scan(model, relaxed.end, HYDROXYL, replace(settings, relaxed=True, fmax=0.03))
    assert soft.converged.all()
    assert (soft.energies <= rigid.energies + 5e-4).all()
    assert soft.energies[4] < rigid.energies[4] - 0.02  # 60 degrees
    for structure, value in zip(soft.structures, soft.values, strict=True):
        difference = (HYDROXYL.value(structure.positions) - value + 180) % 360 - 180
        assert abs(difference) < 0.1
    kinds = dict(rigid.extrema())
    assert kinds[0] == "minimum"
    assert kinds[3] == "maximum"
    stretch = scan(
        model, relaxed.end, Coordinate("distance", (2, 8)), ScanSettings(first=0.9, last=1.1, points=9)
    )
    assert [kind for _, kind in stretch.extrema()] == ["minimum"]
    assert not stretch.outside.any()
    with pytest.warns(UserWarning, match="extrapolation"):
        further = scan(model, relaxed.end, stretch.coordinate, ScanSettings(first=1.0, last=2.0, points=3))
    assert further.outside.tolist() == [False, True, True]
    blind = Potential(model.members[0].network, model.members[0].normalisation, {})
    assert scan(blind, relaxed.end, stretch.coordinate, ScanSettings(points=3)).outside is None
    stopped = scan(model, relaxed.end, HYDROXYL, replace(settings, relaxed=True), progress=lambda done: True)
    assert len(stopped.values) == len(stopped.structures) == 1


def test_references(model, relaxed):
    found = scan(model, relaxed.end, HYDROXYL, ScanSettings(points=5))
    lennard = calculator_reference(
        make_calculator("ase.calculators.lj:LennardJones", {"rc": 10.0}), "Lennard-Jones", found
    )
    assert lennard.energies.shape == (5,)
    assert found.against(lennard)["rms_eV"] > 0
    labelled = Dataset.from_structures(found.structures[::-1])
    same = data_reference(labelled, "file", HYDROXYL, ETHANOL)
    assert (np.diff(same.values) >= 0).all()
    inner = replace(same, values=same.values[:4], energies=same.energies[:4])
    assert found.against(inner)["largest_eV"] < 1e-6
    with pytest.raises(GeomAttError, match="outside of the scan"):
        found.against(replace(inner, values=inner.values + 500))
    with pytest.raises(GeomAttError, match="no energies"):
        data_reference(Dataset.from_structures([ETHANOL]), "file", HYDROXYL, ETHANOL)
    with pytest.raises(GeomAttError, match="pip install no_such_module"):
        make_calculator("no_such_module:Thing", {})
    with pytest.raises(GeomAttError, match="has no Thing"):
        make_calculator("ase.calculators.lj:Thing", {})
    with pytest.raises(GeomAttError, match="cannot be made"):
        make_calculator("geomatt:Structure", {"a": 1})


def test_bad_coordinates(model):
    for atoms, words in (
        ((0, 1, 2), "four|4 different"),
        ((0, 1, 2, 9), "no atom 9"),
        ((0, 1, 1, 2), "different"),
    ):
        with pytest.raises(GeomAttError, match=words):
            scan(model, ETHANOL, Coordinate("torsion", atoms), ScanSettings())
    straight = Structure(np.full(4, 6), np.array([[0.0, 0, 0], [1.3, 0, 0], [2.6, 0, 0], [3.9, 0, 0]]))
    with pytest.raises(GeomAttError, match="in a line"):
        Coordinate("torsion", (0, 1, 2, 3)).check(straight)
    with pytest.raises(GeomAttError, match="O2 and H3 of the torsion are not bonded"):
        scan(model, ETHANOL, Coordinate("torsion", (0, 1, 2, 3)), ScanSettings())
    for bad in ({"points": 1}, {"fmax": -1.0}):
        with pytest.raises(GeomAttError, match=next(iter(bad))):
            ScanSettings(**bad)
    for bad in ({"first": 3.0, "last": 1.0}, {"first": 0.0, "last": 500.0}):
        with pytest.raises(GeomAttError, match="`first`"):
            ScanSettings(**bad).values("torsion", 0.0)
    benzene = load("md17/benzene:fast", dtype="float64")
    angle = np.pi / 3 * np.arange(6)
    ring = np.stack([np.cos(angle), np.sin(angle), 0 * angle], 1)
    carbon = Structure(np.repeat([6, 1], 6), np.concatenate([1.4 * ring, 2.48 * ring]))
    with pytest.raises(GeomAttError, match=r"ring.*`relaxed`"):
        scan(benzene, carbon, Coordinate("distance", (0, 1)), ScanSettings(points=3))
    settings = ScanSettings(points=3, relaxed=True, first=1.35, last=1.45, fmax=0.05)
    found = scan(benzene, carbon, Coordinate("distance", (0, 1)), settings)
    assert found.converged.all()
    np.testing.assert_allclose([np.linalg.norm(s.positions[0] - s.positions[1]) for s in found.structures],
                               found.values, atol=1e-3)  # fmt: skip
    assert found.energies[1] < found.energies[[0, 2]].min() - 0.005
