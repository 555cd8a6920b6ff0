"""Attention as values, bonds from distances, ranking scores, figures and files."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import rc_context
from matplotlib.patches import Circle
from oracle import oracle_energy

from geomatt import (
    Committee,
    Dataset,
    GeomAttError,
    Potential,
    Structure,
    attention,
    save,
)
from geomatt.analysis import (
    attention_figure,
    auroc,
    average_precision,
    bond_matrix,
    bond_scores,
    draw_atoms,
    molecule_figure,
    untrained_attention,
)
from geomatt.analysis.bonds import COVALENT_RADII, Pairs, symmetrised
from geomatt.analysis.export import write_json, write_npz
from geomatt.analysis.figures import _lines
from geomatt.analysis.projection import flat_view
from geomatt.data.bonds import separations
from geomatt.drawing import new_figure
from geomatt.model import AttentionRecord, Normalisation, new_network
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention

CONFIG = GeometricAttentionConfig(
    elements=(1, 6, 8), orders=(2, 2, 3), layers=2, features=8, overlap_features=16, gamma=8.0,
    d_max=3.0, spacing=0.25,
)  # fmt: skip


def make(seed=0) -> Potential:
    torch.manual_seed(seed)
    return Potential(GeometricAttention(CONFIG).double(), Normalisation())


def methanol() -> Structure:
    return Structure(
        np.array([6, 8, 1, 1, 1, 1]),
        np.array([[-0.05, 0.66, 0], [-0.05, -0.76, 0], [-1.09, 0.98, 0], [0.88, -1.06, 0], [0.44, 1.07, 0.89],
                  [0.44, 1.07, -0.89]]),
    )  # fmt: skip


def test_records_are_the_oracles_matrices():
    potential, molecule = make(), methanol()
    records = attention(potential, molecule)
    _, expected = oracle_energy(
        potential.network.state_dict(), CONFIG, molecule.numbers, torch.from_numpy(molecule.positions)
    )
    assert [(r.order, r.layer, r.head) for r in records] == [
        (2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1), (3, 0, 0), (3, 1, 0),
    ]  # fmt: skip
    flat = [a.detach().numpy() for stream in expected for a in stream]
    for record, alpha in zip(records, flat, strict=True):
        np.testing.assert_allclose(record.matrix, alpha, atol=1e-12)


def test_accepted_models_and_structures(tmp_path):
    ase = pytest.importorskip("ase")
    potential, molecule = make(), methanol()
    one = attention(potential, molecule)
    save(potential, tmp_path / "m.safetensors")
    atoms = ase.Atoms(molecule.numbers, molecule.positions)
    smaller = Structure(molecule.numbers[:2], molecule.positions[:2])
    many = attention(tmp_path / "m.safetensors", Dataset.from_structures([smaller, molecule]))
    assert many[0][0].matrix.shape == (2, 2)
    for other in (attention(potential, atoms), attention(str(tmp_path / "m.safetensors"), molecule), many[1]):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a.matrix, b.matrix, atol=1e-12)
    assert len(attention(potential, [atoms, molecule])) == 2
    mean = attention(Committee([potential, make(1)]), molecule)[0].matrix
    second = attention(make(1), molecule)[0].matrix
    np.testing.assert_allclose(mean, (one[0].matrix + second) / 2, atol=1e-12)
    with pytest.raises(GeomAttError, match="is not a structure"):
        attention(potential, 3)
    atoms.pbc = True
    with pytest.raises(GeomAttError, match="periodic"):
        attention(potential, atoms)


def test_bonds():
    bonds = bond_matrix(methanol())
    assert [tuple(p) for p in np.argwhere(np.triu(bonds))] == [(0, 1), (0, 2), (0, 4), (0, 5), (1, 3)]
    assert (bonds == bonds.T).all()
    assert not bonds.diagonal().any()
    assert len(COVALENT_RADII) >= 86
    with pytest.raises(GeomAttError, match="Og"):
        bond_matrix(Structure(np.array([118, 1]), np.zeros((2, 3))))


def test_scores_by_hand():
    truth = np.array([1, 0, 1, 0], dtype=bool)
    assert average_precision(truth, np.array([4.0, 3, 2, 1])) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert auroc(truth, np.array([4.0, 3, 2, 1])) == pytest.approx(0.75)
    assert average_precision(truth, np.array([4.0, 1, 3, 2])) == 1
    assert auroc(truth, np.array([4.0, 1, 3, 2])) == 1
    assert average_precision(truth, np.ones(4)) == pytest.approx(0.5)  # all ties: how common bonds are
    assert auroc(truth, np.ones(4)) == pytest.approx(0.5)
    for bad in (np.zeros(3, bool), np.ones(3, bool)):
        with pytest.raises(GeomAttError):
            auroc(bad, np.arange(3))
    with pytest.raises(GeomAttError):
        average_precision(np.zeros(3, bool), np.arange(3))


def test_bond_matrix_has_perfect_scores():
    molecule = methanol()
    matrix = -bond_matrix(molecule).astype(float) + 9.0 * np.eye(6)  # sign and diagonal do not matter
    knowing, control = bond_scores([AttentionRecord(2, 0, 0, matrix)], molecule)
    assert knowing.label == "k=2 layer 1"
    assert (knowing.average_precision, knowing.auroc) == (1.0, 1.0)
    assert "control" in control.label
    assert control.average_precision > 0.9
    alone = Structure(np.array([1, 1]), np.array([[0.0, 0, 0], [9, 0, 0]]))
    assert bond_scores([], alone)[0].average_precision is None
    lopsided = np.array([[5.0, 2.0], [-4.0, 5.0]])
    np.testing.assert_array_equal(symmetrised(lopsided), [[0, 3], [3, 0]])


def test_bond_scores_of_untrained_networks_are_those_of_each_alone():
    potential, molecule, counted = make(), methanol(), []
    controls = untrained_attention(potential, molecule, 3, counted.append)
    assert len(counted) == 3
    scores = bond_scores(attention(potential, molecule), molecule, controls)
    for matrix, score in enumerate(scores[:-1]):
        alone = [bond_scores(records, molecule)[matrix].average_precision for records in controls]
        assert score.untrained == tuple(alone)
    assert len(set(scores[0].untrained)) == 3  # seeds differ
    assert scores[-1].untrained == ()  # the distance is no network
    apart = Structure(np.array([1, 1]), np.array([[0.0, 0, 0], [9, 0, 0]]))
    assert bond_scores(attention(potential, apart), apart, controls)[0].untrained == ()


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_view_is_a_rotation(size):
    positions = methanol().positions[:size]
    flat = flat_view(positions)

    def between(p):
        return np.linalg.norm(p[:, None] - p, axis=-1)

    np.testing.assert_allclose(between(flat), between(positions), atol=1e-10)
    if size == 6:  # not its mirror image
        centred = positions - positions.mean(0)
        turn = np.linalg.lstsq(centred, flat - flat.mean(0), rcond=None)[0]
        assert np.linalg.det(turn) == pytest.approx(1)


def test_figures(tmp_path):
    molecule = methanol()
    records = attention(make(), molecule)
    for draw in (attention_figure, molecule_figure):
        assert draw(records, molecule, tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
        with pytest.raises(GeomAttError, match=r"\.png"):
            draw(records, molecule, tmp_path / "f.docx")
        with pytest.raises(GeomAttError, match="no directory"):
            draw(records, molecule, tmp_path / "none" / "f.png")
        with pytest.raises(GeomAttError, match="no attention"):
            draw([], molecule, tmp_path / "f.png")
    assert attention_figure(records, molecule, tmp_path / "f.svg").read_bytes().lstrip().startswith(b"<?xml")


def test_attention_without_sign_is_one_row(tmp_path):
    """One matrix a round, distances and bonds beside them; colours from 0 if none is negative."""
    signed = [record for record in attention(make(), methanol()) if record.order == 2 and record.head == 0]
    unsigned = [replace(record, matrix=np.abs(record.matrix)) for record in signed]
    for records, has_sign in ((signed, True), (unsigned, False)):
        with rc_context({"svg.fonttype": "none"}):
            drawn = attention_figure(records, methanol(), tmp_path / "a.svg").read_text()
        width, height = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn).groups())
        assert width > 1.5 * height
        assert (">−1.00<" in drawn) == has_sign


@pytest.mark.parametrize("size", [1, 2, 40])
def test_figures_of_all_sizes(tmp_path, size):
    """One atom, no bonds, and more atoms than there is room for labels."""
    rng = np.random.default_rng(0)
    structure = Structure(rng.choice([1, 6, 8], size), rng.normal(size=(size, 3)) * 4)
    records = attention(make(), structure)[:2]
    attention_figure(records, structure, tmp_path / "a.png")
    molecule_figure(records, structure, tmp_path / "b.png")


def test_labels_of_atoms_stay_inside_their_discs():
    """Also of hydrogen, the smallest, with two digits, in a figure of any size."""
    numbers, flat = np.array([6, 17] + [1] * 28), np.random.default_rng(0).normal(size=(30, 3)) * 5
    axis = new_figure(1.0, 1.0).subplots()
    draw_atoms(axis, numbers, flat, numbered=True)
    discs = [patch for patch in axis.patches if isinstance(patch, Circle)]
    letters = [patch for patch in axis.patches if not isinstance(patch, Circle)]
    assert len(discs) == len(letters) == 30
    for disc, label in zip(discs, letters, strict=True):
        reach = np.linalg.norm(label.get_path().vertices - disc.center, axis=1).max()
        assert 0.5 * disc.radius < reach < disc.radius
        assert label.zorder > disc.zorder


def test_values_as_files(tmp_path):
    molecule = methanol()
    records = attention(make(), molecule)
    with np.load(write_npz(records, molecule, tmp_path / "a.npz"), allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["alpha"], np.stack([r.matrix for r in records]))
        assert stored["order"].tolist() == [2, 2, 2, 2, 3, 3]
        assert stored["bonds"].sum() == 10
    content = json.loads(write_json(records, molecule, tmp_path / "a.json").read_text())
    assert content["elements"][:2] == ["C", "O"]
    np.testing.assert_array_equal(content["attention"][4]["matrix"], records[4].matrix)


def pair_states(seed: int, elements: tuple[int, ...]) -> Potential:
    network = new_network("pair", {"channels": 8, "rounds": 2, "radius": 3.0}, elements, seed=seed)
    return Potential(network.double(), Normalisation(0.0, 1.0))


def water_over_the_edge() -> Structure:
    """A water molecule whose second hydrogen is on the other side of its cell."""
    positions = np.array([[0.3, 2.0, 2.0], [1.26, 2.0, 2.0], [5.06, 2.93, 2.0]])
    return Structure(np.array([8, 1, 1]), positions, cell=5.0 * np.eye(3), pbc=(True,) * 3)


def test_committees_keep_the_attention_of_images():
    members = [pair_states(seed, (1, 8)) for seed in (0, 1)]
    cell = water_over_the_edge()
    found, one, two = (attention(model, cell)[1].images for model in (Committee(members), *members))
    np.testing.assert_array_equal(found.shift, one.shift)
    np.testing.assert_allclose(found.value, (one.value + two.value) / 2)
    other = pair_states(2, (1, 8))
    other.network.config = replace(other.network.config, radius=1.2)
    assert attention(Committee([members[0], other]), cell)[0].images is None


def test_pairs_in_cells_are_those_with_images():
    cell = water_over_the_edge()
    for images in (None, attention(pair_states(0, (1, 8)), cell)[0].images):
        pairs = Pairs.of(cell, images)
        bonds = pairs.vector[pairs.bonded]
        assert len(bonds) == 2
        assert np.linalg.norm(bonds, axis=1).max() < 1.0
    assert len(separations(cell)) == 3


def test_the_bonds_of_one_atom_are_those_with_its_images(tmp_path):
    """A chain of cells of one atom: there is nothing to rank without images."""
    chain = Structure(np.array([6]), np.zeros((1, 3)), cell=np.diag([1.4, 2.5, 2.5]), pbc=(True,) * 3)
    records = attention(pair_states(0, (6,)), chain)
    scores = bond_scores(records, chain)
    assert scores[-1].average_precision == 1.0
    assert all(score.average_precision is not None for score in scores)
    lopsided = records[0].images
    value = np.where(lopsided.shift @ [9, 3, 1] > 0, 2.0, 0.0) * (abs(lopsided.shift) == [1, 0, 0]).all(1)
    one_way = records[0].with_matrix(records[0].matrix, replace(lopsided, value=value))
    pairs = Pairs.of(chain, one_way.images)
    np.testing.assert_array_equal(pairs.strength(one_way), pairs.bonded)
    assert len(pairs.i) == len(lopsided.i) / 2
    molecule_figure(records, chain, tmp_path / "chain.png")


def test_lines_to_images_leave_the_atoms(tmp_path):
    start, end = np.zeros(3), np.array([4.0, 0, 0])
    assert _lines(start, end, end).shape == (2, 2)
    halves = _lines(start, end, np.array([-1.0, 0, 0]))
    np.testing.assert_array_equal(halves[0], [0.0, -0.5, np.nan, 4.0, 4.5])
    cell = water_over_the_edge()
    molecule_figure(attention(pair_states(0, (1, 8)), cell), cell, tmp_path / "cell.png")
