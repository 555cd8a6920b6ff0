"""Theory: the closed forms against the network's own code."""

import numpy as np
import pytest

from geomatt.data import ethanol
from geomatt.reproduce import ExperimentSettings, draw_figures, get, run_experiment, silent
from geomatt.reproduce.theory_measures import (
    diatomic,
    morse,
    overlap_integral,
    riemann,
    symmetries,
    three_atoms,
)


def test_integral_agrees_with_quadrature():
    x = np.linspace(0.0, 5.0, 200_001)
    for d in (0.0, 0.3, 1.0):
        curve = np.exp(-20 * x**2) * np.exp(-20 * (d - x) ** 2)
        assert overlap_integral(np.array(d)) == pytest.approx(np.trapezoid(curve, x), rel=1e-8)


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
    found = diatomic(150, 0, steps.append)
    assert sum(steps) == 300
    assert found["plain"]["alpha_range"] < 1e-12
    assert found["plain"]["correlation"] is None
    energy = morse(found["distance"])
    mean_only = 1000 * np.abs(energy - energy.mean())[1::2].mean()
    assert found["plain"]["mae_meV"] == pytest.approx(mean_only, rel=0.05)
    assert found["geometric"]["mae_meV"] < 0.2 * mean_only
    assert abs(found["geometric"]["correlation"]) > 0.9


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
    assert len(experiment.tables(result)) == 4
    assert all(f.path.is_file() for f in draw_figures(experiment, result, settings.figures("theory")))
    assert "plain self-attention" in experiment.summary(result)
