"""Tables and figures of the C-G dimer, from the committed result."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from geomatt.analysis import untrained_networks
from geomatt.data import dimer
from geomatt.drawing import SERIES, style
from geomatt.reproduce import ExperimentSettings, get, silent
from geomatt.reproduce.dna_attention import CONTROL, KINDS, PAIR, before_training, score, strongest
from geomatt.reproduce.dna_figures import BOND, BRIDGE, drawings
from geomatt.reproduce.dna_models import FULL, SCORED, SPLITS, DnaModel, DnaStudy
from geomatt.reproduce.report import blocks
from geomatt.training.start import starting_network

ROOT = Path(__file__).parents[2]
ROW = "the same network before training (best matrix)"


@pytest.fixture
def result():
    return json.loads((ROOT / "results" / "dna.json").read_text(encoding="utf-8"))


CONTROLS = ["1 / distance", "|d − d₀|", "untrained: median", "untrained: largest", "before training"]
# The paper's networks, on the few frames that ship with the package.
FULL_ON_FEW = replace(FULL, train=24, validation=8, test=16, scored=8)


def bars(axis, kind):
    """The bars of one kind of bond."""
    from matplotlib.colors import to_rgba

    return [bar for bar in axis.patches if bar.get_edgecolor() == to_rgba(SERIES[kind])]


def figure(result, name, recipes=SCORED):
    models = {recipe: result["rows"][recipe]["random"] for recipe in recipes}
    before = {recipe: before_training(result, recipe) for recipe in recipes}
    (found,) = (d for d in drawings(models, result["controls"], before) if d.name == name)
    with style():
        made = found.draw()
        made.canvas.draw()
    return made


@pytest.mark.parametrize("recipe", SCORED)
def test_a_control_is_the_network_that_training_begins_with(tmp_path, recipe):
    """Its best matrix for hydrogen bonds is in layer 1, as the page says."""
    study = DnaStudy(ExperimentSettings(quick=True, out=tmp_path), silent, FULL_ON_FEW)
    config = study.config(DnaModel(recipe))
    start = starting_network(config, study.frames.elements, None, config.own_seed)
    control = next(untrained_networks(start, 1))
    assert start.config == control.config
    for (name, ours), theirs in zip(start.named_parameters(), control.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    frames = dimer()
    found = score(control, frames[::14], frames)["precision"]
    assert strongest(found, "hydrogen")[0] == "k=2 layer 1"


def test_scores_before_training_are_those_of_the_same_seed_and_settings(result):
    untrained = result["controls"]["untrained"]
    for recipe in SCORED:
        assert before_training(result, recipe) == {kind: untrained[kind][0] for kind in KINDS}
        assert before_training(result, recipe, 2) == {kind: untrained[kind][2] for kind in KINDS}
        assert before_training(result, recipe, 99)
        assert before_training(result, recipe, 100) == {}
    other = copy.deepcopy(result)
    other["settings"]["fast"]["network"]["layers"] = 2
    assert before_training(other, "fast") == {}
    assert before_training(other, "paper")
    other["settings"]["paper"]["seed"] = 7
    assert before_training(other, "paper", 1)["covalent"] == untrained["covalent"][8]


def test_tables_show_the_start_of_each_training(result):
    content = blocks(get("dna"), result)
    start = [result["controls"]["untrained"][kind][0] for kind in KINDS]
    row = f"| {ROW} | " + " | ".join(f"{ap:.3f}" for ap in start) + " |"
    for recipe in SCORED:
        assert row in content[f"dna-precision-{recipe}"]
        assert "with the seed of this model, 0." in content[f"dna-precision-{recipe}"]
    assert content["summary"].count("that of the very network before training") == len(KINDS)
    for recipe in SCORED:
        result["settings"][recipe]["seed"] = 100
    content = blocks(get("dna"), result)
    assert "before training" not in content["dna-precision-paper"] + content["summary"]
    assert "; before" not in content["dna-seeds"]
    assert "| paper | random frames | 100 |" in content["dna-seeds"]


def test_models_trained_on_whole_trajectories_are_shown(result):
    again = copy.deepcopy(result["rows"]["fast"]["random"])
    result["seeds"]["fast"] = [{"seed": 1, **again}]
    content = blocks(get("dna"), result)
    table = content["dna-seeds"]
    untrained = result["controls"]["untrained"]
    for recipe in SCORED:
        for split, label in SPLITS.items():
            row = result["rows"][recipe][split]
            matrix, ap = strongest(row["precision"], "covalent")
            cell = f"{ap:.2f} ({matrix}; before {untrained['covalent'][0]:.2f})"
            errors = f"{row['energy_mae']:.2f} / {row['force_mae']:.2f}"
            assert f"| {recipe} | {label} | 0 | {errors} | {row['epochs']} | {cell} |" in table
    assert "| fast | random frames | 1 |" in table
    assert f"; before {untrained['covalent'][1]:.2f})" in table
    whole = [strongest(result["rows"][r]["segments"]["precision"], "covalent")[1] for r in SCORED]
    assert f"whole trajectories {whole[0]:.2f} (paper recipe), {whole[1]:.2f} (fast" in content["summary"]


def test_the_loss_of_each_recipe_is_named_as_it_was_set(result):
    note = blocks(get("dna"), result)["dna-errors"]
    assert (
        "Loss: that of the authors' code (paper), as printed in the paper (fast), errors not squared (pair)"
        in note
    )
    result["settings"]["paper"]["weighting"] = "paper"
    assert "Loss: as printed in the paper (paper)" in blocks(get("dna"), result)["dna-errors"]


@pytest.mark.parametrize(("kind", "atoms"), [("dimer", 2 * PAIR), ("pair", PAIR)])
def test_matrices_mark_bonds_in_both_directions(result, kind, atoms):
    from matplotlib.colors import to_rgba

    made = figure(result, f"dna-{kind}-paper", ("paper",))
    axis = made.axes[0]
    boxes = next(c for c in axis.collections if to_rgba(BOND) in map(tuple, c.get_edgecolor()))
    centres = {tuple(path.vertices[:4].mean(0).round().astype(int)) for path in boxes.get_paths()}
    bonds = [pair for pair in result["rows"]["paper"]["random"]["bonds"] if max(pair) < atoms]
    assert centres == {(i, j) for i, j in bonds} | {(j, i) for i, j in bonds}
    circles = next(c for c in axis.collections if to_rgba(BRIDGE) in map(tuple, c.get_edgecolor()))
    assert len(circles.get_offsets()) == 6 * atoms // PAIR
    assert not circles.get_clip_on()  # one is in the last column
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names[:2] == (["N0", "N2"] if kind == "dimer" else ["N0", "C1"])
    bases = [text for text in axis.texts if text.get_text() in ("G", "C")]
    assert [text.get_text() for text in bases] == ["G", "C"] * (atoms // PAIR)
    renderer = made.canvas.get_renderer()
    box, title = axis.get_window_extent(renderer), axis.title.get_window_extent(renderer)
    for text in bases:  # between the matrix and its title
        place = text.get_window_extent(renderer)
        assert box.y1 <= place.y0
        assert place.y1 <= title.y0


def heights(result, recipe):
    """The height that each group of bars should have, by kind of bond."""
    value, controls = result["rows"][recipe]["random"], result["controls"]
    untrained = controls["untrained"]
    found = {name: scores for name, scores in value["precision"].items() if name != CONTROL}
    found["1 / distance"] = value["precision"][CONTROL]
    found["|d − d₀|"] = controls["length"]
    found["untrained: median"] = {kind: [np.median(untrained[kind])] for kind in KINDS}
    found["untrained: largest"] = {kind: [np.max(untrained[kind])] for kind in KINDS}
    found["before training"] = {kind: untrained[kind][:1] for kind in KINDS}
    return {name: [scores[kind][0] for kind in KINDS] for name, scores in found.items()}


def test_controls_are_bars_beside_those_of_attention(result):
    axes = figure(result, "dna-precision").axes
    for axis, recipe in zip(axes, SCORED, strict=True):
        wanted = heights(result, recipe)
        assert [label.get_text() for label in axes[-1].get_xticklabels()] == list(wanted)
        drawn = [bars(axis, number) for number in range(len(KINDS))]
        for group, expected in zip(zip(*drawn, strict=True), wanted.values(), strict=True):
            assert [bar.get_height() for bar in group] == pytest.approx(expected)
        for group, name in zip(zip(*drawn, strict=True), wanted, strict=True):
            assert all(bool(bar.get_hatch()) == (name in CONTROLS) for bar in group)
        places = np.diff(axis.get_xticks())
        assert places.argmax() == len(wanted) - len(CONTROLS) - 1
        assert len(axis.collections) == len(KINDS) * (len(wanted) - 3)  # error bars, of three groups none
        dotted = [line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == ":"]
        assert dotted == [result["rows"][recipe]["random"]["chance"][kind] for kind in KINDS]


def test_precision_without_a_known_start_has_one_group_less(result):
    for recipe in SCORED:
        result["settings"][recipe]["seed"] = 100
    axis = figure(result, "dna-precision").axes[-1]
    assert [label.get_text() for label in axis.get_xticklabels()][-1] == CONTROLS[-2]
