"""The listed frames of MD17 are found in any file that contains them."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from geomatt.data import Dataset, ethanol, frame_list, read
from geomatt.data.public import frames
from geomatt.reproduce import inputs

LISTED = 40


@pytest.fixture(scope="module")
def public():
    """A trajectory that plays the public file."""
    return ethanol()[:200]


@pytest.fixture(scope="module")
def listed(public):
    """A list of some of its frames."""
    numbers = np.sort(np.random.default_rng(0).choice(len(public), LISTED, replace=False))
    return frames.FrameList(numbers, frames.geometries(public.select(numbers)))


def moved(dataset, seed=0):
    """The same frames with other positions and orientations, in single precision."""
    rng = np.random.default_rng(seed)
    atoms = len(dataset[0])
    r = dataset.positions.reshape(-1, atoms, 3)
    turns = Rotation.random(len(r), rng=rng).as_matrix()
    r = np.einsum("nij,naj->nai", turns, r) + rng.normal(size=(len(r), 1, 3))
    numbers = dataset.numbers[:atoms]
    return Dataset.from_frames(numbers, r.astype(np.float32).astype(float), dataset.energies)


def test_frames_are_found_at_their_numbers_and_elsewhere(public, listed):
    assert (listed.find(public) == listed.numbers).all()
    assert (listed.find(moved(public)) == listed.numbers).all()
    assert (listed.find(public.select(listed.numbers)) == np.arange(LISTED)).all()
    order = np.random.default_rng(1).permutation(len(public))
    assert (order[listed.find(moved(public.select(order)))] == listed.numbers).all()
    assert (listed.find(public[1:]) == listed.numbers - 1)[listed.numbers > 0].all()


def test_a_changed_frame_is_not_found(public, listed):
    changed = public.select(np.arange(len(public)))
    first = changed.offsets[listed.numbers[7]]
    changed.positions[first, 0] += 1e-3
    assert np.flatnonzero(listed.find(changed) < 0).tolist() == [7]
    assert (listed.find(public[:0]) == -1).all()
    small = Dataset.from_structures([public[0], type(public[0])(np.array([1, 1]), np.eye(3)[:2], 0.0)])
    assert (listed.find(small) == -1).all()  # of several sizes: no trajectory of one molecule


def test_an_experiment_uses_the_listed_frames_and_says_what_differs(public, listed, monkeypatch):
    monkeypatch.setattr(inputs, "frame_list", lambda name: listed)
    chosen, note = inputs.listed_frames(moved(public), "md17/ethanol")
    assert (chosen.energies == public.energies[listed.numbers]).all()
    assert note == ""
    assert inputs.described(chosen)["frames"] == inputs.LISTED
    changed = public.select(np.arange(len(public)))
    changed.positions[changed.offsets[listed.numbers[7]], 0] += 1e-3
    chosen, note = inputs.listed_frames(changed, "md17/ethanol")
    assert f"1 of the {LISTED} frames of md17/ethanol" in note
    assert f"number {listed.numbers[7]} of" in note
    assert (chosen.energies == public.energies[listed.numbers]).all()  # the others keep their places
    assert inputs.described(chosen)["frames"] == f"{inputs.LISTED}, except 1"
    other, note = inputs.listed_frames(ethanol()[1000:1100], "md17/ethanol")
    assert "All frames of the file are used" in note
    assert len(other) == 100
    assert "not" in inputs.frames_note({"data": {"ethanol": inputs.described(other)}})
    assert inputs.frames_note({"data": {"ethanol": inputs.described(ethanol()[:5])}}) == ""


def test_every_molecule_of_md17_has_a_list():
    assert frame_list("rmd17/ethanol") is None
    assert frame_list("elsewhere/x") is None
    for molecule in inputs.MD17:
        found = frame_list(f"md17/{molecule}")
        assert len(found) == 5902
        assert (np.diff(found.numbers) > 0).all()
        assert found.geometries.shape == (5902, 2)


def test_the_lists_are_those_of_the_data_measured_on(real_data):
    for molecule in inputs.MD17:
        found = frame_list(f"md17/{molecule}")
        dataset = read(inputs.find_file(real_data, f"md17/{molecule}"))
        assert (found.find(dataset) == np.arange(len(dataset))).all()
        with np.load(inputs.find_file(real_data, f"rmd17/{molecule}")) as file:
            assert (found.numbers == file["old_indices"]).all()
