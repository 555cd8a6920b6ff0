"""Theory: the closed forms against the network's own code."""

import numpy as np
import pytest

from geomatt.data import ethanol
from geomatt.reproduce import ExperimentSettings, draw_figures, get, run_experiment, silent
from geomatt.reproduce.theory_measures import (
    diatomic,
    dimensions,
    morse,
    overlap_integral,
    random_network,
    riemann,
    symmetries,
    three_atoms,
)
from geomatt.reproduce.theory_operators import operators
from geomatt.reproduce.theory_range import range_curves, two_molecules


def test_integral_agrees_with_quadrature():
    x = np.linspace(0.0, 5.0, 200_001)
    for d in (0.0, 0.3, 1.0):
        curve = np.exp(-20 * x**2) * np.exp(-20 * (d - x) ** 2)
        assert overlap_integral(np.array(d)) == pytest.approx(np.trapezoid(curve, x), rel=1e-8)


def test_overlap_in_space_is_a_constant_times_that_along_the_distance():
    found = dimensions([0.0, 0.5, 1.0, 1.5])
    for row in found["rows"]:
        assert row["summed"] == pytest.approx(row["space"], rel=1e-9)
    assert found["rows"][0]["ratio"] == pytest.approx(2 * found["factor"])  # half a Gaussian along d
    assert found["rows"][-1]["ratio"] == pytest.approx(found["factor"], rel=1e-6)


def test_products_of_operators_are_the_network():
    found = operators(random_network(0), ethanol()[0])
    assert [row["operators"] for row in found["rows"]] == [1, 2, 3]
    for row in found["rows"]:
        assert max(row["alpha_error"], row["stream_error"]) < 1e-12
    assert found["rows"][0]["asymmetry"] == 0.0
    assert found["rows"][1]["asymmetry"] > 0.1


def test_trained_attention_is_constant_beyond_the_grid_and_not_zero():
    found = range_curves()
    alpha, d = np.array(found["alpha"]), found["distance"]
    far = alpha[:, d > found["constant_from"]]
    assert np.ptp(far, axis=1).max() < 1e-6
    assert np.abs(far).min() > 1e-3
    assert found["d_max"] < found["constant_from"] < 6.0
    assert 0 < found["pairs_beyond"] < found["pairs_beyond_d_max"] < found["pairs"] == 210
    apart = two_molecules(ethanol()[0], "md17/ethanol", (12.0, 24.0))
    assert apart["energy_change"] < 1e-10
    assert apart["net_force"] < 1e-10
    assert abs(apart["beyond_additive"]) > 0.1


def test_error_of_the_sum_is_half_its_first_term():
    coarse, fine = riemann([0.1, 0.05])["rows"]
    assert coarse["worst"] == pytest.approx(0.05, rel=1e-6)
    assert fine["worst"] == pytest.approx(0.025, rel=1e-6)
    assert fine["worst_corrected"] < coarse["worst_corrected"] / 3.5  # second order
    assert fine["worst_beyond"] < 1e-4


def test_three_atoms_by_hand():
    found = three_atoms(10, 0)
    assert found["relative_error"] < 1e-12
    assert found["slopes"]["2"]["third"] == 0.0
    assert found["slopes"]["3"]["third"] > 1e-4


def test_plain_attention_does_not_depend_on_distance():
    steps = []
    found = diatomic(100, 0, steps.append)
    assert sum(steps) == 400
    for name in ("plain", "bare"):
        assert found[name]["alpha_range"] < 1e-12
        assert found[name]["correlation"] is None
    energy = morse(found["distance"])
    mean_only = 1000 * np.abs(energy - energy.mean())[1::2].mean()
    for name in ("plain", "bare"):
        assert found[name]["mae_meV"] == pytest.approx(mean_only, rel=0.05)
    for name in ("geometric", "geometric-different"):
        assert found[name]["mae_meV"] < 0.2 * mean_only
        assert abs(found[name]["correlation"]) > 0.9


def test_symmetries_hold_in_both_precisions():
    rows = symmetries(ethanol()[0], 0)
    assert len(rows) == 7
    for row in rows:
        exact, single = ([v for v in row[kind].values() if v is not None] for kind in ("float64", "float32"))
        finite_difference = row["symmetry"].startswith("forces")
        assert max(exact) < (1e-5 if finite_difference else 1e-11)
        assert max(single) < (1e-2 if finite_difference else 1e-4)


def test_the_quick_run_is_complete(tmp_path):
    settings, experiment = ExperimentSettings(quick=True, out=tmp_path), get("theory")
    result = run_experiment(experiment, settings, silent)
    assert len(experiment.tables(result)) == 7
    assert all(f.path.is_file() for f in draw_figures(experiment, result, settings.figures("theory")))
    assert "bare inner product" in experiment.summary(result)
