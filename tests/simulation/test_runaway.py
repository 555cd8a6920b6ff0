"""Optimisations that run away are stopped; others never are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from geomatt import Structure, load
from geomatt.model import Normalisation, Potential, new_network
from geomatt.simulation.runaway import (
    ENDED_OVERLAPPING,
    FOREIGN,
    NOT_FINITE,
    OVERLAPPING,
    PATIENCE,
    STEEP,
    Runaway,
)

pytest.importorskip("ase")

from geomatt.simulation.calculator import GeomAttCalculator
from geomatt.simulation.coordinates import Coordinate
from geomatt.simulation.relaxation import relax
from geomatt.simulation.scans import scan
from geomatt.simulation.settings import RelaxSettings, ScanSettings

ACETAMIDE = Structure(
    np.array([8, 6, 7, 6, 1, 1, 1, 1, 1]),
    np.array(
        [[0.425, 1.327, 0.008], [0.077, 0.150, -0.004], [0.986, -0.879, -0.049], [-1.371, -0.289, 0.0],
         [0.708, -1.824, 0.170], [-1.997, 0.585, -0.175], [-1.561, -1.039, -0.772],
         [-1.632, -0.723, 0.970], [1.953, -0.632, 0.112]]
    ),
)  # fmt: skip
ETHANOL = Structure(
    np.array([6, 6, 8, 1, 1, 1, 1, 1, 1]),
    np.array(
        [[-0.75, 0.02, 0.0], [0.58, -0.7, 0.02], [1.64, 0.25, -0.04], [-0.85, 0.66, 0.88],
         [-0.84, 0.65, -0.89], [-1.57, -0.71, 0.0], [0.67, -1.33, 0.91], [0.67, -1.36, -0.85],
         [2.47, -0.23, -0.02]]
    ),
)  # fmt: skip
APART = Structure(np.array([6, 6]), np.array([[0.0, 0, 0], [1.5, 0, 0]]))
CLOSE = replace(APART, positions=0.4 * APART.positions)
CALM, WILD = np.full((2, 3), 10.0), np.full((2, 3), 100.0)


@pytest.fixture(scope="module")
def uracil():
    """Without bounds, so that it runs away with molecules it does not know."""
    return load("md17/uracil:pair", dtype="float64").members[0].without_bounds()


def failures(energies, forces, structures):
    runaway = Runaway()
    found = [runaway.failure(e, f, s) for e, f, s in zip(energies, forces, structures, strict=True)]
    return found, runaway.failure_at_end()


def test_high_forces_stop_only_if_they_last():
    many = 3 * PATIENCE
    found, end = failures([0.0] * PATIENCE, [WILD] * PATIENCE, [APART] * PATIENCE)
    assert found == [""] * (PATIENCE - 1) + [STEEP]
    assert end == ""
    now_and_then = [CALM if step % PATIENCE == 0 else WILD for step in range(many)]
    assert not any(failures([0.0] * many, now_and_then, [APART] * many)[0])
    falling = list(-1e3 * np.arange(many))  # a large system may fall by any amount
    assert not any(failures(falling, [CALM] * many, [APART] * many)[0])


def test_overlapping_atoms_stop_if_they_stay():
    found, end = failures([0.0] * PATIENCE, [CALM] * PATIENCE, [CLOSE] * PATIENCE)
    assert found == [""] * (PATIENCE - 1) + [OVERLAPPING]
    assert end == ENDED_OVERLAPPING
    found, end = failures([0.0] * 3, [CALM] * 3, [CLOSE, CLOSE, APART])
    assert not any(found)
    assert end == ""


@pytest.mark.parametrize(("energy", "force"), [(np.nan, 0.0), (-np.inf, 0.0), (0.0, np.nan), (0.0, np.inf)])
def test_numbers_that_are_not_finite_stop_at_once(energy, force):
    assert Runaway().failure(energy, np.full((2, 3), force), APART) == NOT_FINITE


@pytest.mark.filterwarnings("ignore:This model was trained on")
@pytest.mark.parametrize("optimiser", ["bfgs", "fire"])
def test_a_molecule_the_model_does_not_know_is_stopped_early(uracil, optimiser):
    result = relax(uracil, ACETAMIDE, RelaxSettings(optimiser=optimiser))
    assert result.failure == result.to_dict()["failure"] == STEEP
    assert result.steps == PATIENCE - 1
    assert not result.converged


@pytest.mark.filterwarnings("ignore:This model was trained on", "ignore:.*has other bonds")
def test_other_bonds_of_a_molecule_the_model_does_not_know_are_no_result():
    """A model as it ships, whose bounds keep its forces low."""
    result = relax(load("md17/uracil:pair", dtype="float64"), ACETAMIDE, RelaxSettings(steps=300))
    assert result.bonds_changed
    assert result.failure == FOREIGN
    assert not result.ran_away
    assert not result.converged
    assert result.fmax.max() < 100.0
    stopped = relax(load("md17/uracil:pair"), ACETAMIDE, progress=lambda seen: seen.step >= result.steps // 2)
    assert stopped.failure == ""  # it may end elsewhere


def test_several_of_one_molecule_are_not_foreign_if_energies_are_extensive():
    network = new_network("pair", {"channels": 4, "rounds": 1, "functions": 4, "radius": 4.0}, (1, 8))
    model = Potential(network, Normalisation(0.0, 1.0, {1: -1.0, 8: -2.0}, {1: 2, 8: 1}), {})

    def foreign(*numbers, **cell):
        positions = np.arange(3.0 * len(numbers)).reshape(-1, 3)
        return model.foreign(Structure(np.array(numbers), positions, **cell))

    assert not foreign(8, 1, 1)
    assert not foreign(8, 8, 1, 1, 1, 1)
    assert foreign(8, 1)
    assert foreign(8, 8, 1, 1)
    box = {"cell": 9.0 * np.eye(3), "pbc": (True, True, True)}
    model.members[0].normalisation.composition.update({1: 4, 8: 2})
    assert foreign(8, 1, 1)
    assert not foreign(8, 1, 1, **box)  # a smaller cell of the same material
    assert foreign(8, 1, **box)


def test_forces_that_overflow_end_the_relaxation(monkeypatch):
    calculate = GeomAttCalculator.calculate

    def overflowing(self, *arguments):
        calculate(self, *arguments)
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps > 2:
            self.results = {**self.results, "energy": -np.inf, "forces": np.full((9, 3), np.inf)}

    monkeypatch.setattr(GeomAttCalculator, "calculate", overflowing)
    result = relax("md17/ethanol:fast", ETHANOL)
    assert result.failure == NOT_FINITE
    assert result.steps == 2


@pytest.mark.filterwarnings("ignore:This model was trained on")
def test_a_relaxed_scan_says_which_points_ran_away(uracil):
    found = scan(uracil, ACETAMIDE, Coordinate("torsion", (0, 1, 2, 4)), ScanSettings(points=2, relaxed=True))
    assert found.failures == (STEEP, STEEP)
    assert not found.converged.any()


@pytest.mark.filterwarnings("ignore:.*outside its range in the training data", "ignore:.*has other bonds")
@pytest.mark.parametrize("optimiser", ["bfgs", "fire"])
@pytest.mark.parametrize("name", ["md17/ethanol", "md17/ethanol:fast"])
def test_strongly_distorted_starts_are_not_stopped(name, optimiser):
    rng = np.random.default_rng(0)
    for squeezed in (0.85, 1.0):
        moved = squeezed * ETHANOL.positions + 0.12 * rng.normal(size=ETHANOL.positions.shape)
        result = relax(name, replace(ETHANOL, positions=moved), RelaxSettings(fmax=0.05, optimiser=optimiser))
        assert result.failure == ""
        assert result.converged
