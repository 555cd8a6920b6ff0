"""The C-G dimer in the smallest setting, on made-up frames of the right 58 atoms."""

import numpy as np
import pytest

from geomatt.data.readers import write
from geomatt.data.structures import Dataset
from geomatt.errors import GeomAttError
from geomatt.reproduce import Settings, dna, get, run_experiment, silent
from geomatt.reproduce.dna import Scale, segment_split
from geomatt.reproduce.dna_attention import HYDROGEN_BONDS, PAIR, decode, encode, truths
from geomatt.reproduce.report import blocks
from geomatt.training.trainer import Run

SMALL = {"features": 8, "overlap_features": 8, "spacing": 0.5, "layers": 1}
TINY = Scale(10, 4, 4, 5, {"paper": 2, "fast": 2}, 3, SMALL)
GUANINE = [7, 6, 7, 6, 6, 8, 7, 6, 7, 7, 6, 1, 1, 1, 1, 1]
CYTOSINE = [7, 6, 8, 7, 6, 7, 6, 6, 1, 1, 1, 1, 1]


@pytest.fixture(scope="module")
def frames() -> Dataset:
    """28 frames on a spring-like energy; atoms sit on a grid, those of a hydrogen bond 1.9 Å apart."""
    rng = np.random.default_rng(0)
    rest = np.stack(np.meshgrid(*[np.arange(4) * 2.5] * 3), -1).reshape(-1, 3)[: 2 * PAIR]
    for start in (0, PAIR):
        for i, j in HYDROGEN_BONDS:
            rest[start + i] = rest[start + j] + [1.9, 0.0, 0.0]
    rest[[1, 2]] = rest[0] + np.array([[0.0, 1.3, 0.0], [0.0, 0.0, 1.3]])
    moves = 0.02 * rng.standard_normal((28, 2 * PAIR, 3))
    numbers = np.array((GUANINE + CYTOSINE) * 2)
    return Dataset.from_frames(
        numbers,
        rest + moves,
        (moves**2).sum((1, 2)),
        -2.0 * moves,
        name="cg-cg",
        origin={"energy_unit": "eV"},
    )


def test_the_truth_is_three_hydrogen_bonds_a_pair(frames):
    found = truths(frames)
    pairs, true = found["hydrogen-block"]
    assert true.sum() == 6
    assert (pairs & true).sum() == 6  # all of them cross between guanine and cytosine
    assert pairs.sum() == 2 * 16 * 13
    assert found["covalent"][1][0, 1]
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


def test_the_experiment_measures_errors_and_bonds(frames, tmp_path, monkeypatch):
    monkeypatch.setattr(dna, "QUICK", TINY)
    monkeypatch.setattr(Run, "plot", lambda self: None)  # takes most of the time
    (tmp_path / "gfn2").mkdir()
    write(frames, tmp_path / "gfn2" / "cg-cg.npz")
    settings = Settings(quick=True, out=tmp_path / "out", data_dir=tmp_path, parts=("fast",))
    experiment = get("dna")
    result = run_experiment(experiment, settings, silent)
    assert set(result["rows"]) == {"fast"}
    assert set(result["rows"]["fast"]) == {"random", "segments"}
    value = result["rows"]["fast"]["random"]
    assert value["epochs"] == 2
    assert value["precision"]["1 / distance (control)"]["hydrogen-block"][0] > 0.1
    assert 0.0 < value["untrained"]["hydrogen"] <= 1.0
    assert "dna --part paper" in blocks(experiment, result)["left"]
    assert "average precision" in experiment.summary(result)
    figures = experiment.figures(result, settings.figures("dna"))
    assert [figure.path.name for figure in figures] == ["dna-dimer.png", "dna-pair.png", "dna-precision.png"]
    assert run_experiment(experiment, settings, silent)["rows"] == result["rows"]
    assert not list(settings.out.rglob("checkpoint.safetensors"))


def test_without_its_data_it_says_where_to_put_them(tmp_path):
    with pytest.raises(GeomAttError, match="--data DIR"):
        run_experiment(get("dna"), Settings(quick=True, out=tmp_path), silent)
