"""The benchmark: its baselines are right, its counts add up, and a quick run gives all it promises."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from conftest import random_atoms, small_network
from oracle import oracle_energy_and_forces
from typer.testing import CliRunner

from geomatt.bench import Settings, run_bench
from geomatt.bench.floor import Ceilings, Work, energy_and_forces, parameter_count, training_step
from geomatt.bench.literal import literal_energies_and_forces
from geomatt.bench.page import performance_page
from geomatt.bench.peers import near_pairs, schnet
from geomatt.bench.plot import curves_plot, scaling_plot
from geomatt.bench.result import Bench, Check, Row, read_result
from geomatt.bench.systems import ASPIRIN, SMALLEST_DISTANCE, aspirin_frames, random_matter
from geomatt.bench.timing import Contender, Ratio, Timing, measure
from geomatt.bench.training import new_network
from geomatt.cli import app
from geomatt.errors import GeomAttError
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention

ROOT = Path(__file__).parents[2]
QUICK = dataclasses.replace(
    Settings.of("cpu", quick=True), frames=10, rounds=2, features=4, overlap_features=8
)


@pytest.mark.parametrize("bias", [True, False])
def test_literal_is_the_oracle(bias):
    network = small_network(orders=(2, 3, 4), bias=bias)
    numbers, positions = random_atoms(5)
    energy, forces = literal_energies_and_forces(network, numbers, positions[None])
    expected, expected_forces, _ = oracle_energy_and_forces(
        network.state_dict(), network.config, numbers.tolist(), positions
    )
    torch.testing.assert_close(energy[0], expected, rtol=1e-7, atol=0)  # ln 2 is stored in float32
    torch.testing.assert_close(forces[0], expected_forces, rtol=1e-9, atol=1e-12)


def test_contenders_run_in_turns():
    calls: list[str] = []
    contenders = [Contender(name, lambda name=name: calls.append(name), 2) for name in "ab"]
    timings = measure(contenders, [3, 1], "cpu", lambda done: None)
    assert "".join(calls) == "ab" + "ab" + "aa"  # a warm-up, then rounds
    assert [len(t.seconds) for t in timings] == [3, 1]


def test_ratio_pairs_rounds():
    ratio = Ratio.of(Timing("slow", (2.0, 40.0)), Timing("fast", (1.0, 10.0, 99.0)))
    assert ratio == Ratio(3.0, 2.5, 3.5)


def test_operations_of_the_paper_model():
    """Counted by hand for one layer of k = 2 and one of k = 3."""
    config = GeometricAttentionConfig(
        (1,), orders=(2, 3), layers=1, features=4, overlap_features=8, d_max=1.0, spacing=0.1
    )
    work = energy_and_forces(config, atoms=3)
    pairs, channels, basis = 6, 1 + 2 * 4, 10
    assert work.operations["overlaps"] == 2 * 2 * pairs * channels * basis
    assert work.operations["chains"] == 3 * 2 * 4 * 27
    assert work.operations["streams"] == 3 * 2 * (2 * 9 * 4) + 2 * (2 * 3 * 16)
    twice = training_step(config, 3, 2).operations
    once = training_step(config, 3, 1).operations
    assert all(twice[part] == (1 if part == "Adam" else 2) * once[part] for part in once)
    assert parameter_count(config) == sum(p.numel() for p in GeometricAttention(config).parameters())


def test_floor_is_the_larger_limit():
    ceilings = Ceilings(matmul=100.0, copy=10.0)
    assert ceilings.floor(Work({"a": 100.0, "b": 100.0}, {"x": 10.0})) == 2.0
    assert ceilings.floor(Work({"a": 100.0}, {"x": 30.0})) == 3.0


def test_check_knows_its_direction():
    assert Check("time", 1.0, 2.0, at_most=True).met
    assert not Check("times faster", 1.0, 2.0, at_most=False).met


def test_systems():
    workload = aspirin_frames(7, 3)
    assert len(ASPIRIN) == 21
    assert workload.positions.shape == (7, 21, 3)
    assert [len(b) for b in workload.batches] == [3, 3]
    assert sorted(z for z, *_ in ASPIRIN) == [1] * 8 + [6] * 9 + [8] * 4
    numbers, positions = random_matter(300)
    distances = torch.pdist(torch.from_numpy(positions))
    assert float(distances.min()) >= SMALLEST_DISTANCE
    assert set(numbers.tolist()) == {1, 6, 7, 8}


def test_near_pairs_stay_within_structures():
    positions = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [9, 0, 0]]]).repeat(2, 1, 1)
    assert near_pairs(positions).T.tolist() == [[0, 1], [1, 0], [3, 4], [4, 3]]


def test_schnet_forces_are_derivatives():
    pytest.importorskip("torch_geometric")
    workload = aspirin_frames(4, 2, dtype=torch.float64)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        peer = schnet(workload)
    finally:
        torch.set_default_dtype(torch.float32)
    positions = workload.positions[0]
    _, forces = peer.energy_and_forces(positions)
    step = torch.zeros_like(positions)
    step[3, 1] = 1e-5
    up, down = (peer.energy_and_forces(positions + sign * step)[0] for sign in (1, -1))
    assert float(forces[3, 1]) == pytest.approx(float(down - up) / 2e-5, rel=1e-5)


def test_missing_baseline_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GeomAttError, match=r"pip install geomatt\[bench\]"):
        schnet(aspirin_frames(2, 2))


def test_unknown_suite():
    with pytest.raises(GeomAttError, match="train, infer"):
        run_bench(QUICK, ["speed"])


def test_interrupt_keeps_what_was_measured(monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules["geomatt.bench.run"].SUITES, "infer", (stop,))
    result = run_bench(QUICK, ["members", "infer"])
    assert not result.complete
    assert [row.suite for row in result.rows] == ["members"]
    assert "Interrupted" in result.notes[0]


def test_quick_run(tmp_path, monkeypatch):
    """All suites from the command line: tables, result file, picture, and a page made from them."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr(Settings, "of", classmethod(lambda cls, device, quick: QUICK))
    file, picture = tmp_path / "bench.json", tmp_path / "scaling.png"
    answer = CliRunner().invoke(app, ["bench", "--quick", "--json", str(file), "--plot", str(picture)])
    assert answer.exit_code == 0, answer.output
    assert "PyG SchNet" in answer.output
    assert "Exactness" in answer.output
    assert picture.stat().st_size > 10_000

    result = read_result(file)
    assert result["complete"]
    assert {"hardware", "commit", "versions", "threads"} <= set(result["machine"])
    assert {row["suite"] for row in result["rows"]} == {"train", "infer", "members", "scaling"}
    for row in result["rows"]:
        assert row["ours"]["seconds"]
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
    for entry in result["exactness"]:
        goal = 1e-10 if entry["dtype"] == "float64" else 1e-3
        assert max(entry["energy"], entry["forces"]) < goal, entry
    assert {p["path"] for p in result["scaling"]} == {"dense", "sparse"}
    assert all(p["memory"] >= 0 for p in result["scaling"])

    page = performance_page({"bench.json": result}, "scaling.png", "learning.png")
    assert "PyG SchNet" in page
    assert result["machine"]["hardware"] in page
    scaling_plot([result, result], tmp_path / "both.svg")


def test_fast_path_and_literal_equations_learn_the_same(tmp_path):
    """From the same weights, on the same batches: curves that lie over each other, in file and picture."""
    result = run_bench(dataclasses.replace(QUICK, curve_epochs=3), ["curves"])
    ours, literal = result.curves
    assert (ours.name, literal.name) == ("geomatt", "literal")
    assert len(ours.forces) == 3
    assert ours.forces == pytest.approx(literal.forces, rel=1e-3)
    assert ours.energy == pytest.approx(literal.energy, rel=1e-2)
    result.save(tmp_path / "curves.json")
    found = read_result(tmp_path / "curves.json")
    curves_plot(found, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert "learning.png" in performance_page({"curves.json": found}, "scaling.png", "learning.png")
    with pytest.raises(GeomAttError, match="--suite scaling"):
        scaling_plot([found], tmp_path / "scaling.png")


def test_row_in_the_file_carries_its_verdict(tmp_path):
    row = Row("train", "step", Timing("geomatt", (1.0,)), Timing("x", (3.0,)), (Check("a", 3.0, 2.0, False),))
    bench = Bench({}, {}, rows=[row])
    bench.save(tmp_path / "r.json")
    saved = json.loads((tmp_path / "r.json").read_text())["rows"][0]
    assert saved["ratio"]["median"] == 3.0
    assert saved["checks"][0]["met"] is True


def test_page_is_made_from_the_committed_results():
    files = sorted((ROOT / "results").glob("bench_*.json"))
    page = ROOT / "docs" / "performance.md"
    if not files:
        assert not page.exists()
        return
    results = {f"results/{file.name}": read_result(file) for file in files}
    assert page.read_text(encoding="utf-8") == performance_page(results, "scaling.png", "learning.png")


def test_network_is_reproducible():
    a, b = (new_network(QUICK.config((1,)), "cpu", 3).state_dict() for _ in range(2))
    assert all(torch.equal(a[name], b[name]) for name in a)
