"""Shapes: the formulas, what they share, and which order separates them."""

import json

import numpy as np
import pytest
import torch

from geomatt.reproduce import ExperimentSettings, draw_figures, get, run_experiment, silent
from geomatt.reproduce.shapes import DEGENERATE, separating_order
from geomatt.reproduce.shapes_networks import MESSAGE_PASSING, make_step, standardised
from geomatt.reproduce.shapes_pairs import even_triangle, pairs
from geomatt.reproduce.shapes_training import (
    ClassifierSetup,
    balanced_order,
    gaps,
    rotation,
    shapes,
    train_classifiers,
)

PAIRS = {pair.name: pair for pair in pairs()}


def test_the_formulas_give_the_published_numbers(real_data):
    stored = json.loads((real_data / "degenerate_pairs.json").read_text())
    assert set(stored) <= set(PAIRS)
    for name, item in stored.items():
        for side in ("plus", "minus"):
            np.testing.assert_allclose(getattr(PAIRS[name], side), item[side], atol=1e-6)
        assert PAIRS[name].congruent == item["congruent_O3"]
        assert PAIRS[name].centred == (item["centre_atom"] is not None)


@pytest.mark.parametrize("name", PAIRS)
def test_the_two_shapes_share_the_distances_of_their_centre(name):
    pair = PAIRS[name]
    plus, minus = pair.scaled(1.9)
    if pair.centred:
        radii = [np.sort(np.linalg.norm(cloud - cloud[0], axis=1)) for cloud in (plus, minus)]
    else:
        radii = [np.sort(np.linalg.norm(cloud[:, None] - cloud, axis=-1).ravel()) for cloud in (plus, minus)]
    np.testing.assert_allclose(*radii, atol=1e-12)
    assert max(np.linalg.norm(c[:, None] - c, axis=-1).max() for c in (plus, minus)) == pytest.approx(1.9)


def test_our_closed_form_gives_every_atom_the_same_distances():
    pair = PAIRS["global_EF6_exact"]

    def seen(cloud):
        rows = np.sort(np.linalg.norm(cloud[:, None] - cloud, axis=-1), axis=1).round(9)
        return sorted(map(tuple, rows))

    assert seen(pair.plus) == seen(pair.minus)
    assert sum(x for x, _ in even_triangle()) == 0.0


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_separated_from_its_order_on_and_not_before(name):
    pair = PAIRS[name]
    for order in (2, 3, 4, 5):
        gap = np.median(gaps(f"k = {order}", pair, 3, seed=0))
        assert (gap > DEGENERATE) == (pair.expected is not None and order >= pair.expected), (order, gap)
    assert (np.median(gaps(MESSAGE_PASSING, pair, 3, seed=0)) > DEGENERATE) == (pair.expected == 2)


def test_turned_and_reordered_shapes_have_the_same_central_embedding():
    pair = PAIRS["4body_nonchiral_milad"]
    distances, mask = shapes(pair, 3, seed=1, atoms=10)
    assert distances.shape == (6, 10, 10)
    for model in (MESSAGE_PASSING, "k = 4"):
        torch.manual_seed(0)
        central = make_step(model).double()(distances, mask)[:, 0]
        torch.testing.assert_close(central[::2], central[:1].expand(3), atol=1e-14, rtol=1e-12)
    turn = rotation(np.random.default_rng(0))
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turn) == pytest.approx(1.0)


def test_standardising_shows_small_gaps_and_hides_rounding():
    apart = standardised(torch.tensor([[1.0], [1.0 + 1e-5]], dtype=torch.float64))
    equal = standardised(torch.tensor([[1.0], [1.0 + 2e-16]], dtype=torch.float64))
    assert apart.abs().min() > 0.99
    assert equal.abs().max() < 1e-5


def test_classifiers_learn_pairs_with_a_gap():
    order = balanced_order(4, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(8))
    assert (order.view(-1, 2) % 2).tolist() == [[0, 1]] * 4
    two = [PAIRS["2body_dojo"], PAIRS["3body_fig1a_circle"]]
    calls = []
    angle, dihedral = train_classifiers("k = 3", two, ClassifierSetup(2, 4, 10, 5), 0, calls.append)
    assert [o["accuracy"] for o in angle] == [1.0, 1.0]
    assert all(o["accuracy"] < 0.9 for o in dihedral)
    assert sum(calls) == 5
    setup = ClassifierSetup(1, 4, 10, 40, learning_rate=1e-2)
    (raw,), (degenerate,) = train_classifiers("k = 3", two, setup, 0, calls.append, raw=True)
    assert raw["accuracy"] == 1.0  # a large gap is found without standardising
    assert degenerate["accuracy"] < 0.9
    assert abs(np.mean(raw["embedding"])) > 1e-3


def test_the_quick_run_is_complete(tmp_path):
    settings = ExperimentSettings(quick=True, out=tmp_path)
    result = run_experiment(get("shapes"), settings, silent)
    assert {name: separating_order(item) for name, item in result["pairs"].items()} == {
        name: pair.expected for name, pair in PAIRS.items()
    }
    tables = {table.name: table for table in get("shapes").tables(result)}
    assert list(tables) == ["shapes-accuracy", "shapes-gaps", "shapes-raw"]
    assert tables["shapes-raw"].rows[0][0] == "2body_dojo"
    assert all(f.path.is_file() for f in draw_figures(get("shapes"), result, settings.figures("shapes")))
    assert f"{len(PAIRS)} of {len(PAIRS)}" in get("shapes").summary(result)
