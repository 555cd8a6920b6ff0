"""Stability: models of several molecules are evaluated together as each alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scripts_path import load_script

from geomatt.data import Dataset, Structure, collate
from geomatt.errors import GeomAttError
from geomatt.locks import file_lock
from geomatt.model import load
from geomatt.model.zoo import STABILITY, shipped_folder
from geomatt.progress import silent
from geomatt.reproduce import ExperimentSettings, stability, stability_runs
from geomatt.reproduce.frame import Pieces, plain, read_json
from geomatt.reproduce.stability import EXPERIMENT
from geomatt.reproduce.stability_runs import (
    SEEDS,
    SO_FAR,
    WALLS,
    Simulations,
    piece_inputs,
    put_rows,
    simulated_groups,
)
from geomatt.reproduce.stability_tables import outcomes, stability_table, summary_by_model

# Chain-like structures of the right elements: every distance differs, nothing overlaps.
NUMBERS = {
    "benzene": [6] * 6 + [1] * 6,
    "ethanol": [6, 6, 8] + [1] * 6,
    "uracil": [6, 6, 7, 6, 7, 6, 8, 8, 1, 1, 1, 1],
}


def frames(numbers: list[int], count: int = 8) -> Dataset:
    rng = np.random.default_rng(len(numbers))
    spiral = np.stack([f(1.1 * np.arange(len(numbers))) for f in (np.cos, np.sin, lambda t: 0.5 * t)], -1)
    return Dataset.from_frames(
        np.array(numbers), 1.3 * spiral + 0.05 * rng.normal(size=(count, len(numbers), 3))
    )


def test_molecules_together_as_each_alone(tmp_path):
    """Other elements, other sizes and padding change nothing; replicas keep their names and walls."""
    models = {molecule: load(f"md17/{molecule}:pair-s", dtype="float64").members[0] for molecule in NUMBERS}
    data = {molecule: frames(numbers) for molecule, numbers in NUMBERS.items()}
    groups = simulated_groups(models, data, ExperimentSettings(out=tmp_path), list(WALLS))
    replicas = [replica for group in groups for replica in group.replicas]
    assert sorted(r.name for r in replicas) == sorted(
        f"{walls} {molecule}" for walls in WALLS for molecule in NUMBERS for _ in range(SEEDS)
    )
    assert all((r.limits is None) == r.name.startswith("free") for r in replicas)
    for group in groups:
        positions = torch.zeros(len(group.replicas), group.atoms, 3, dtype=torch.float64)
        for row, replica in zip(positions, group.replicas, strict=True):
            row[: len(replica.numbers)] = torch.from_numpy(replica.positions)
        energies, forces = group.forces(positions)
        for energy, force, replica in zip(energies, forces, group.replicas, strict=True):
            model = models[replica.name.partition(" ")[2]]
            alone = model.evaluate(collate([Structure(replica.numbers, replica.positions)], model.dtype))
            torch.testing.assert_close(energy, alone.energy[0], rtol=0, atol=1e-8)
            torch.testing.assert_close(force[: len(replica.numbers)], alone.forces[0], rtol=0, atol=1e-8)


def test_schnet_has_to_be_trained_first(tmp_path, monkeypatch):
    monkeypatch.setattr(stability, "load_md17", lambda settings: ({"ethanol": frames([6, 1, 1])}, False))
    with pytest.raises(GeomAttError, match="reproduce table1 --part schnet-all"):
        EXPERIMENT.run(ExperimentSettings(out=tmp_path, parts=("schnet",)), silent)


def test_models_that_do_not_ship_are_not_among_those_that_do():
    row = {"name": "ethanol", "failure": "", "survived_ps": 300.0, "wall_share": 0.01}
    rows = {f"{kind}-walls-nvt": [row] for kind in ("pair-s", "paper", "schnet")}
    models = {"pair-s": {}, "pair-s-bounded": {"ethanol": "fingerprint"}, "paper": {}, "schnet": {}}
    result = {"rows": rows, "models": models, "reached_ps": {}, "settings": {"ps": {"nvt": 300.0}}}
    found = summary_by_model(result)
    assert {name: list(about) for name, about in found.items()} == {
        "md17/ethanol": ["walls"],
        "md17/ethanol:pair-s": ["bounded", "walls"],
    }
    assert found["md17/ethanol:pair-s"]["bounded"] is None


def simulations(folder, device: str = "cpu", ps: float = 0.02) -> Simulations:
    settings = ExperimentSettings(out=folder, device=device)
    models = {molecule: load(f"md17/{molecule}:pair-s").members[0] for molecule in ("benzene", "ethanol")}
    data = {molecule: frames(NUMBERS[molecule]) for molecule in models}
    return Simulations(settings, Pieces(settings, "stability"), "pair", models, data, "nvt", ps)


def test_a_simulation_is_continued_as_it_was_begun(tmp_path, monkeypatch):
    """A run of some molecules with walls alone is not lost when a later call asks for more."""
    every = [(walls, molecule) for walls in ("walls", "free") for molecule in NUMBERS]
    assert simulations(tmp_path, "cuda").together([]) == []
    assert simulations(tmp_path, "cuda").together(every) == [(["walls", "free"], list(NUMBERS))]
    assert simulations(tmp_path).together(every) == [(["walls", "free"], [m]) for m in NUMBERS]
    gpu = simulations(tmp_path, "cuda")
    monkeypatch.setattr(Simulations, "_begun", lambda self, path, molecules: {"made": {}})
    gpu._checkpoint(["walls"], ["ethanol", "benzene"]).touch()
    assert gpu.together(every) == [
        (["walls"], ["ethanol", "benzene"]),
        (["walls", "free"], ["uracil"]),
        (["free"], ["benzene", "ethanol"]),
    ]
    assert gpu.together([("walls", "benzene")]) == [(["walls"], ["ethanol", "benzene"])]
    assert gpu.together([("free", "benzene")]) == [(["free"], ["benzene"])]


class Interrupted:
    """Progress that is interrupted after its second part."""

    def __init__(self, label: str, total: int):
        self.calls = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, done: int) -> None:
        self.calls += 1
        if self.calls == 4:  # the first is for what was done before
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::UserWarning")  # the structures have nothing to do with the models
def test_an_interrupted_simulation_ends_as_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(stability_runs, "PART", 10)
    monkeypatch.setattr(stability_runs, "KEEP", 0.0)
    whole, parts = simulations(tmp_path / "whole"), simulations(tmp_path / "parts")
    whole.simulate(["free"], ["ethanol"], silent)

    with pytest.raises(KeyboardInterrupt):
        parts.simulate(["free"], ["ethanol"], Interrupted)
    assert not parts.finished("free", "ethanol")
    late = ExperimentSettings(out=tmp_path / "parts", deadline=0.0)
    replace(parts, settings=late).simulate(["free"], ["ethanol"], silent)
    assert parts.rows("free")[1] == {"ethanol": 0.01}
    parts.simulate(["free"], ["ethanol"], silent)
    assert parts.rows("free") == whole.rows("free")
    assert not parts.rows("free")[1]
    assert len(parts.rows("free")[0]) == SEEDS
    assert not parts._checkpoint(["free"], ["ethanol"]).exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_state_of_another_seed_or_model_is_not_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(stability_runs, "PART", 10)
    monkeypatch.setattr(stability_runs, "KEEP", 0.0)
    begun = simulations(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        begun.simulate(["free"], ["ethanol"], Interrupted)
    assert begun.together([("free", "ethanol"), ("walls", "ethanol")])[0] == (["free"], ["ethanol"])
    other_seed = replace(begun, settings=ExperimentSettings(out=tmp_path, device="cpu", seed=1))
    bare = {molecule: model.without_bounds() for molecule, model in begun.models.items()}
    for other in (other_seed, replace(begun, models=bare)):
        assert other.together([("free", "ethanol"), ("walls", "ethanol")]) == [
            (["free", "walls"], ["ethanol"])
        ]
    clean = simulations(tmp_path / "clean")
    seeded = replace(clean, settings=ExperimentSettings(out=tmp_path / "clean", device="cpu", seed=1))
    other_seed = replace(other_seed, pieces=Pieces(other_seed.settings, "stability"))
    seeded = replace(seeded, pieces=Pieces(seeded.settings, "stability"))
    for each in (other_seed, seeded):
        each.simulate(["free"], ["ethanol"], silent)
    assert other_seed.rows("free") == seeded.rows("free")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_another_process_simulates_is_left_to_it(tmp_path):
    runs = simulations(tmp_path)
    lock = runs._checkpoint(["free"], ["ethanol"]).with_suffix(".lock")
    with file_lock(lock):
        runs.simulate(["free"], ["ethanol"], silent)
    assert not runs.finished("free", "ethanol")
    assert runs.together([("free", "ethanol")]) == [(["free"], ["ethanol"])]
    runs.simulate(["free"], ["ethanol"], silent)
    assert runs.finished("free", "ethanol")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_deadline_before_the_first_step_leaves_nothing_behind(tmp_path, monkeypatch):
    runs = simulations(tmp_path)
    late = iter([False] + [True] * 9)
    monkeypatch.setattr(ExperimentSettings, "out_of_time", property(lambda self: next(late)))
    runs.simulate(["free"], ["ethanol"], silent)
    assert runs.rows("free") == ([], {})
    assert not runs._checkpoint(["free"], ["ethanol"]).exists()


def test_the_longest_of_unfinished_simulations_is_kept(tmp_path):
    pieces = Pieces(ExperimentSettings(out=tmp_path), "stability")
    inputs = piece_inputs(load("md17/ethanol").members[0], frames(NUMBERS["ethanol"]), "nvt", 300.0)
    for done in (20.0, 240.0, 120.0):
        put_rows(pieces, "pair-walls-nvt", inputs, [done], done, {})
    assert pieces.find(f"pair-walls-nvt{SO_FAR}", inputs) == {"ps": 240.0, "rows": [240.0]}
    assert pieces.find("pair-walls-nvt", inputs) is None
    put_rows(pieces, "pair-walls-nvt", inputs, [300.0], 300.0, {})
    assert pieces.find("pair-walls-nvt", inputs) == [300.0]


def test_results_belong_to_the_ranges_of_a_model():
    """Walls and warnings come from them, so other ranges at the same weights are another result."""
    model, data = load("md17/ethanol").members[0], frames(NUMBERS["ethanol"])
    before = piece_inputs(model, data, "nvt", 300.0)
    assert piece_inputs(load("md17/ethanol").members[0], data, "nvt", 300.0) == before
    model.ranges = replace(model.ranges, walls=replace(model.ranges.walls, stiffness=7.0))
    assert piece_inputs(model, data, "nvt", 300.0) != before


def test_bounds_asked_of_models_without_are_an_error(tmp_path):
    for parts in (("bounded",), ("fast", "bounded")):
        settings = ExperimentSettings(out=tmp_path, quick=True, parts=parts, deadline=0.0)
        with pytest.raises(GeomAttError, match="bounds of its network"):
            EXPERIMENT.run(settings, silent)


def test_some_molecules_and_shorter_runs_are_named():
    row = {
        "failure": "", "survived_ps": 300.0, "wall_share": 0.01, "histogram_error": 0.1,
        "drift_meV_per_atom_ps": 0.0,
    }  # fmt: skip
    rows = [{**row, "name": "benzene"}, {**row, "name": "ethanol", "failure": "a bond", "survived_ps": 20.0}]
    result = {
        "rows": {"pair-bounded-nvt": rows, "pair-bounded-nve": rows},
        "models": {"pair-bounded": dict.fromkeys(NUMBERS, "fingerprint"), "pair": {}},
        "data": {f"md17/{molecule}": {} for molecule in NUMBERS},
        "reached_ps": {"pair-bounded-nvt": {"ethanol": 140.0}, "pair-bounded-nve": {"ethanol": 9.5}},
        "settings": {"ps": {"nvt": 300.0, "nve": 50.0}, "seeds": 5},
    }
    assert outcomes(result) == [
        "pair, walls and bounds: 1 of 2 runs of 2 molecules stayed intact for 140 to 300 ps."
    ]
    assert [line[:4] for line in stability_table(result, "pair").rows] == [
        ["benzene", "walls and bounds", "1 of 1", "–"],
        ["ethanol", "walls and bounds", "0 of 1 (140 ps)", "20.0"],
    ]
    assert [line[-1] for line in stability_table(result, "pair").rows] == ["0", "–, 1 failed (9.5 ps)"]
    about = summary_by_model(result)
    assert about["md17/ethanol:pair"]["bounded"]["ps"] == 140.0
    assert about["md17/benzene:pair"]["bounded"] == {
        "intact": 1, "runs": 1, "ps": 300.0, "failed_at_ps": [], "wall_share": 0.01, "histogram_error": 0.1,
        "nve": {"intact": 1, "runs": 1, "ps": 50.0, "drift_meV_per_atom_ps": 0.0},
    }  # fmt: skip


def test_what_ships_about_stability_has_errors_and_drifts():
    """Where they were measured: drifts of one molecule alone, and none of a run that failed at once."""
    about = {"failure": "", "survived_ps": 300.0, "wall_share": 0.01, "drift_meV_per_atom_ps": 9.0}
    errors = {"ethanol": (0.1, 0.3), "benzene": (None, 0.2), "uracil": (None,)}
    nvt = [{**about, "name": m, "histogram_error": e} for m, every in errors.items() for e in every]
    drifts = (-0.00062, 0.0004, None)
    nve = [
        {**about, "name": "ethanol", "drift_meV_per_atom_ps": d, "failure": "" if d else "x"} for d in drifts
    ]
    nve.append({**nve[0], "name": "benzene"})  # not at its end: no drift
    found = summary_by_model(
        {
            "rows": {"pair-s-walls-nvt": nvt, "pair-s-walls-nve": nve, "pair-s-bounded-nve": nve},
            "models": {"pair-s": {}, "pair-s-bounded": {"ethanol": "fingerprint"}},
            "reached_ps": {"pair-s-walls-nve": {"benzene": 20.0}},
            "settings": {"ps": {"nvt": 300.0, "nve": 50.0}},
        }
    )
    assert found["md17/ethanol:pair-s"]["bounded"] is None
    walls = {name: conditions["walls"] for name, conditions in found.items()}
    assert walls["md17/ethanol:pair-s"]["histogram_error"] == 0.2
    assert walls["md17/benzene:pair-s"]["histogram_error"] == 0.2
    assert "histogram_error" not in walls["md17/uracil:pair-s"]
    assert walls["md17/ethanol:pair-s"]["nve"] == {
        "intact": 2, "runs": 3, "ps": 50.0, "drift_meV_per_atom_ps": 0.0006,
    }  # fmt: skip
    assert walls["md17/benzene:pair-s"]["nve"] == {"intact": 1, "runs": 1, "ps": 20.0}
    assert "nve" not in walls["md17/uracil:pair-s"]


def test_what_ships_about_stability_is_of_the_committed_result():
    committed = Path(__file__).resolve().parents[2] / "results" / "stability.json"
    shipped = json.loads((shipped_folder() / STABILITY).read_text(encoding="utf-8"))
    assert shipped == summary_by_model(read_json(committed)), "run python -m geomatt.reproduce.docs"


def test_committed_simulations_are_restored(real_data, tmp_path):
    """Of the models that ship now, to the numbers that are committed."""
    script, settings = (
        load_script("restore_results"),
        ExperimentSettings(out=tmp_path, data=real_data, deadline=0.0),
    )
    committed = read_json(script.RESULTS / "stability.json")
    assert script.restore_stability(settings, committed) == len(committed["pieces"])
    found = plain(EXPERIMENT.run(settings, silent))
    for name in ("models", "rows", "reached_ps", "missing", "pieces"):
        assert found[name] == committed[name], name
