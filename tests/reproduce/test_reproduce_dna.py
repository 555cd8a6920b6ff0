"""The C-G dimer in the smallest setting, on the frames that ship with the package."""

from dataclasses import replace

import numpy as np
import pytest
from scripts_path import load_script

from geomatt.analysis import bond_matrix
from geomatt.data import Dataset, Structure, dimer, write
from geomatt.errors import GeomAttError
from geomatt.reproduce import ExperimentSettings, dna_models, draw_figures, get, run_experiment, silent
from geomatt.reproduce.dna_attention import HYDROGEN_BONDS, PAIR, decode, encode, truths
from geomatt.reproduce.dna_models import DnaSize, segment_split
from geomatt.reproduce.report import blocks

SMALL = {"features": 8, "overlap_features": 8, "spacing": 0.5, "layers": 1}
NETWORKS = {"geomatt": SMALL, "pair": {"channels": 8, "rounds": 2}}
TINY = DnaSize(10, 4, 4, 5, dict.fromkeys(dna_models.RECIPES, 2), 3, 2, NETWORKS, seeds=2)
GUANINE = [7, 6, 7, 6, 6, 8, 7, 6, 7, 7, 6, 1, 1, 1, 1, 1]
CYTOSINE = [7, 6, 8, 7, 6, 7, 6, 6, 1, 1, 1, 1, 1]
BONDS = 2 * (17 + 13)  # atoms - 1 + rings of every base


@pytest.fixture(scope="module")
def frames() -> Dataset:
    return dimer()


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(dna_models, "QUICK", TINY)


def test_the_script_builds_two_pairs():
    script = load_script("make_dimer")
    numbers, positions = script.dimer()
    assert numbers.tolist() == (GUANINE + CYTOSINE) * 2
    script.check(numbers, positions)
    assert script.contacts(positions).shape == (6,)
    bonds = bond_matrix(Structure(numbers, positions))
    assert bonds.sum() == 2 * BONDS  # none is missing, and nothing else is as close
    assert not bonds[:PAIR, PAIR:].any()
    assert (bonds[numbers == 1].sum(1) == 1).all()
    apart = np.linalg.norm(positions[:PAIR, None] - positions[None, PAIR:], axis=-1)
    assert apart.min() > 3.0
    for start in (0, PAIR):  # a hydrogen bond is nearly straight
        for hydrogen, acceptor in HYDROGEN_BONDS:
            donor = int(np.flatnonzero(bonds[start + hydrogen])[0])
            sides = positions[[donor, start + acceptor]] - positions[start + hydrogen]
            first, second = sides / np.linalg.norm(sides, axis=1, keepdims=True)
            assert first @ second < np.cos(np.radians(160))


def test_script_refuses_separated_pairs():
    script = load_script("make_dimer")
    numbers, positions = script.dimer()
    with pytest.raises(GeomAttError, match="came apart"):
        script.check(numbers, 1.3 * positions)
    with pytest.raises(GeomAttError, match="C18H20N16O4"):
        script.check(np.where(numbers == 8, 16, numbers), positions)


def test_script_samples_independent_segments(tmp_path):
    script = load_script("make_dimer")
    out = tmp_path / "gfn2" / "cg-cg.npz"
    options = script.parse(["--segments", "3", "--frames", "4", "--out", str(out)])
    toy = {"calculator": "ase.calculators.lj:LennardJones", "arguments": {"epsilon": 0.0}, "equilibrate": 0.0}
    script.make(options, **toy)
    with np.load(out) as file:
        assert file["R"].shape == (12, 58, 3)
        assert file["segment"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert file["z"].tolist() == (GUANINE + CYTOSINE) * 2
    with pytest.raises(GeomAttError, match="exists already"):
        script.make(options, **toy)


def test_three_hydrogen_bonds_per_pair(frames):
    found = truths(frames)
    pairs, true = found["hydrogen-block"]
    assert true.sum() == 6
    assert (pairs & true).sum() == 6  # all of them cross between guanine and cytosine
    assert pairs.sum() == 2 * 16 * 13
    assert found["covalent"][1].sum() == BONDS
    with pytest.raises(GeomAttError, match="58 atoms"):
        truths(_pair_only(frames))


def _pair_only(frames: Dataset) -> Dataset:
    return Dataset.from_structures(
        [type(s)(s.numbers[:PAIR], s.positions[:PAIR], s.energy) for s in frames[:2]]
    )


def test_matrices_survive_their_encoding():
    matrix = np.abs(np.random.default_rng(0).normal(size=(5, 5)))
    assert np.abs(decode(encode(matrix)) - matrix / matrix.max()).max() < 0.003
    assert decode(encode(np.zeros((2, 2)))).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_trajectory_has_one_role_only():
    segments = np.repeat(np.arange(7), 10)
    split = segment_split(segments, 30, 5, 10)
    assert [len(p) for p in (split.train, split.validation, split.test)] == [30, 5, 10]
    assert set(segments[split.validation]) == {5}
    assert set(segments[split.test]) == {6}


def test_the_experiment_measures_errors_and_bonds(tmp_path):
    settings = ExperimentSettings(quick=True, out=tmp_path / "out", parts=("fast", "pair", "fast-seeds"))
    experiment = get("dna")
    result = run_experiment(experiment, settings, silent)
    assert set(result["rows"]) == {"fast", "pair"}
    assert set(result["rows"]["pair"]) == {"random", "segments"}
    assert "precision" not in result["rows"]["pair"]["random"]  # errors alone
    (again,) = result["seeds"]["fast"]
    assert again["seed"] == 1
    assert again["force_mae"] != result["rows"]["fast"]["random"]["force_mae"]
    assert "matrices" not in again
    assert result["missing"] == {"paper": 2, "paper-seeds": 1}
    assert set(result["rows"]["fast"]) == {"random", "segments"}
    value = result["rows"]["fast"]["random"]
    assert value["epochs"] == 2
    control = value["precision"]["1 / distance (control)"]
    assert control["covalent"][0] > 0.95
    assert control["hydrogen-block"][0] > 0.5
    assert all(0.0 < ap <= 1.0 for ap in result["controls"]["untrained"]["hydrogen"])
    assert len(result["controls"]["untrained"]["hydrogen"]) == 2
    mean, _, length = result["controls"]["length"]["hydrogen-block"]
    assert mean > 0.5
    assert 1.4 < length < 2.5
    content = blocks(experiment, result)
    assert "of 2 untrained networks" in content["summary"]
    assert "| embedded/dimer | 58 | 70 |" in content["dna-ranges"]
    assert "GTX 1080" not in content["dna-errors"]
    assert "dna --part paper" in content["left"]
    assert "| fast | random frames | 1 |" in content["dna-seeds"]
    assert "| fast | a trajectory never seen | 0 |" in content["dna-seeds"]
    for seed, kinds in enumerate(zip(*result["controls"]["untrained"].values(), strict=True)):
        (line,) = (x for x in content["dna-seeds"].splitlines() if f"| random frames | {seed} |" in x)
        assert [
            f"before {ap:.2f})" in cell for ap, cell in zip(kinds, line.split(" | ")[5:], strict=True)
        ] == [True] * 3
    assert "| the same network before training (best matrix) |" in content["dna-precision-fast"]
    assert "| pair |" not in content["dna-seeds"]
    assert "| pair | a trajectory never seen | –" not in content["dna-errors"]
    assert "average precision" in experiment.summary(result)
    figures = draw_figures(experiment, result, settings.figures("dna"))
    assert [figure.path.stem for figure in figures] == [
        "dna-dimer-fast",
        "dna-pair-fast",
        "dna-graphs",
        "dna-precision",
    ]
    assert run_experiment(experiment, settings, silent)["rows"] == result["rows"]
    assert not list(settings.out.rglob("checkpoint.safetensors"))


def test_a_shorter_run_does_not_replace_a_longer_one(tmp_path, monkeypatch):
    """Another machine has the numbers of a model, not its checkpoint."""
    settings = ExperimentSettings(quick=True, out=tmp_path / "out", parts=("fast",))
    longer = replace(TINY, epochs={**TINY.epochs, "fast": 4})
    study, member = dna_models.DnaStudy(settings, silent, longer), dna_models.DnaModel("fast")
    before = {"epochs": 3, "force_mae": 1.0}
    study.pieces.put(
        member.name, study.inputs(member), before, {"seconds": 1.0, "commit": "", "hardware": ""}
    )
    monkeypatch.setattr(dna_models.DnaStudy, "measure", lambda *of: {"epochs": 2, "training_seconds": 1.0})
    study.train([member])
    assert study.find(member) == before
    monkeypatch.setattr(dna_models.DnaStudy, "measure", lambda *of: {"epochs": 4, "training_seconds": 1.0})
    study.train([member])
    assert study.find(member)["epochs"] == 4


def test_a_file_is_used_instead_of_the_embedded_frames(frames, tmp_path):
    """Models trained on the embedded frames are not taken for models of the file."""
    experiment = get("dna")
    settings = ExperimentSettings(quick=True, out=tmp_path / "out", data=tmp_path, parts=("fast",))
    result = run_experiment(experiment, settings, silent)
    assert result["settings"]["stand_in"]
    assert list(result["data"]) == ["embedded/dimer"]
    assert "used instead" in experiment.summary(result)
    assert "used instead" in experiment.tables(result)[0].note
    (tmp_path / "gfn2").mkdir()
    write(frames[::2], tmp_path / "gfn2" / "cg-cg.npz")
    real = run_experiment(experiment, settings, silent)
    assert not real["settings"]["stand_in"]
    assert list(real["data"]) == ["gfn2/cg-cg"]
    assert real["data"]["gfn2/cg-cg"]["structures"] == 35
    assert "used instead" not in experiment.summary(real)
    assert real["rows"]["fast"]["random"]["force_mae"] != result["rows"]["fast"]["random"]["force_mae"]


@pytest.mark.parametrize("given", [False, True])
def test_missing_data_message_names_the_script(tmp_path, given):
    folder = tmp_path if given else None
    with pytest.raises(GeomAttError, match=r"scripts/make_dimer\.py --out .*gfn2/cg-cg\.npz") as error:
        run_experiment(get("dna"), ExperimentSettings(out=tmp_path / "out", data=folder), silent)
    assert (str(tmp_path) if given else "`data`") in str(error.value)
