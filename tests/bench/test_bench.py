"""The benchmark: baselines, counts of operations, timing, and a quick run of all suites."""

import dataclasses
import importlib.util
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from command_line import Process
from scripts_path import load_script
from typer.testing import CliRunner

from geomatt.bench import BenchReport, BenchSettings, peers, read_result, run_bench
from geomatt.bench.floor import Ceilings
from geomatt.bench.peers import installed_peers, literal, near_pairs, schnet
from geomatt.bench.plot import curves_plot, scaling_plot
from geomatt.bench.report import BenchRow, Check
from geomatt.bench.settings import MODELS, parse_model
from geomatt.bench.systems import ASPIRIN, ELEMENTS, SMALLEST_DISTANCE, aspirin_frames, random_matter
from geomatt.bench.timing import Contender, Ratio, Timing, measure, silent
from geomatt.bench.workbench import Workbench
from geomatt.cli import app
from geomatt.data import Batch
from geomatt.errors import GeomAttError
from geomatt.model import Work, new_network
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.work import GeometricAttentionWork

QUICK = dataclasses.replace(BenchSettings.of("cpu", quick=True), frames=10, rounds=2)


def test_contenders_run_in_turns():
    calls: list[str] = []
    contenders = [
        Contender(name, lambda name=name: calls.append(name), 2, rounds)
        for name, rounds in (("a", 3), ("b", 1))
    ]
    timings = measure("", contenders, "cpu")
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
    counts = GeometricAttentionWork(config, weights=1000)
    work = counts.energy_and_forces(atoms=3)
    pairs, channels, basis = 6, 1 + 2 * 4, 10
    assert work.operations["overlaps"] == 2 * 2 * pairs * channels * basis
    assert work.operations["chains"] == 3 * 2 * 4 * 27
    assert work.operations["streams"] == 3 * 2 * (2 * 9 * 4) + 2 * (2 * 3 * 16)
    assert work.bytes["weights"] == 4000
    twice = counts.training_step(3, 2).operations
    once = counts.training_step(3, 1).operations
    assert all(twice[part] == (1 if part == "Adam" else 2) * once[part] for part in once)


def test_networks_without_counts_have_no_floor():
    network = new_network("geomatt", {"layers": 1}, (1,))
    work = network.training_work(3, 2)
    assert work is not None
    assert work.operations["Adam"] == 12 * sum(p.numel() for p in network.parameters())
    pytest.importorskip("torch_geometric")
    assert new_network("schnet", {}, (1,)).training_work(3, 2) is None


def test_floor_is_the_larger_limit():
    ceilings = Ceilings(matmul=100.0, copy=10.0)
    assert ceilings.floor(Work({"a": 100.0, "b": 100.0}, {"x": 10.0})) == 2.0
    assert ceilings.floor(Work({"a": 100.0}, {"x": 30.0})) == 3.0
    assert ceilings.floor(Work({"a": 100.0, "b": 100.0}, {"x": 10.0}).share(4)) == 0.5


def test_checks_of_upper_and_lower_targets():
    assert Check("time", 1.0, 2.0, at_most=True).met
    assert not Check("times faster", 1.0, 2.0, at_most=False).met


def test_systems():
    frames = aspirin_frames(7, atoms=9, pad_to=12)
    assert frames.positions.shape == (7, 12, 3)
    assert frames.atoms.tolist() == [9] * 7
    assert not frames.positions[:, 9:].any()
    assert sorted(z for z, *_ in ASPIRIN) == [1] * 8 + [6] * 9 + [8] * 4
    matter = random_matter(300)
    assert float(torch.pdist(matter.positions[0]).min()) >= SMALLEST_DISTANCE
    assert set(matter.numbers[0].tolist()) == {1, 6, 7, 8}


def test_near_pairs_stay_within_structures():
    positions = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [9, 0, 0]]]).repeat(2, 1, 1)
    assert near_pairs(positions).T.tolist() == [[0, 1], [1, 0], [3, 4], [4, 3]]


def test_baseline_is_the_wrapped_schnet():
    """On pairs within the cutoff it gives the energies and forces that the network gives on all pairs."""
    pytest.importorskip("torch_geometric")
    frames = aspirin_frames(4, dtype=torch.float64)
    peer = schnet(frames, 2)
    energy, forces = peer.evaluator(frames.positions)()
    network = new_network("schnet", {}, ELEMENTS, dtype=torch.float64)
    found = network.engine().evaluate(network.stacked(), Batch(frames.numbers, frames.positions).as_member())
    torch.testing.assert_close(energy, found.energy[0], rtol=1e-10, atol=0)
    torch.testing.assert_close(forces, found.forces[0], rtol=1e-8, atol=1e-12)


def test_peers_learn():
    """Training steps of a peer lower its loss on frames it has seen."""
    frames = aspirin_frames(4)
    network = new_network("geomatt", {"layers": 1, "features": 8, "overlap_features": 16}, ELEMENTS)
    peer = literal(network, frames, 2)

    def error() -> float:
        energy, forces = peer.evaluator(frames.positions)()
        return float((energy - frames.energy).square().mean() + (forces - frames.forces).square().mean())

    before = error()
    for _ in range(20):
        peer.training_step()
    assert error() < before


def test_missing_baseline_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.nn.models", None)
    with pytest.raises(GeomAttError, match=r"pip install 'geomatt\[bench\]'"):
        schnet(aspirin_frames(2), 2)


@pytest.mark.filterwarnings("ignore")  # of other packages
@pytest.mark.parametrize("name", ["mace", "nequip"])
def test_other_peers_give_derivatives(name):
    """Forces are derivatives, and a batch changes nothing."""
    pytest.importorskip(name)
    frames = aspirin_frames(4)
    peer = getattr(peers, name)(frames, 2)
    energy, forces = peer.evaluator(frames.positions)()
    alone, own = peer.evaluator(frames.positions[:1])()
    assert float(alone) == pytest.approx(float(energy[0]), abs=1e-5)
    assert float((own[0] - forces[0]).abs().max()) < 1e-5
    step = torch.zeros_like(frames.positions[:1])
    step[0, 3, 1] = 1e-2
    up, down = (peer.evaluator(frames.positions[:1] + sign * step)()[0] for sign in (1, -1))
    assert float(down - up) / 2e-2 == pytest.approx(float(own[0, 3, 1]), rel=0.02, abs=1e-3)
    assert torch.get_default_dtype() == torch.float32
    peer.training_step()


def test_peers_that_cannot_be_measured_are_named_once(monkeypatch):
    pytest.importorskip("torch_geometric")

    def other_version(frames, batch):
        raise TypeError("unexpected argument\nand more")

    monkeypatch.setattr(peers, "importable", lambda module: module == "nequip")
    monkeypatch.setitem(peers.OTHERS, "nequip", ("NequIP", "nequip", other_version))
    settings = dataclasses.replace(QUICK, peers=("mace", "nequip"))
    bench = Workbench(settings, "pair", BenchReport({}), silent)
    for _ in range(2):
        assert [peer.name for peer in installed_peers(bench, aspirin_frames(4))] == ["PyG SchNet"]
    assert bench.report.notes == [
        "MACE 128x0e was not measured (pip install 'mace-torch').",
        "NequIP was not measured (TypeError: unexpected argument).",
    ]


def test_dynamics_of_a_large_cell():
    result = run_bench(dataclasses.replace(QUICK, models=("pair", "schnet")), ["large"])
    (row,) = result.rows
    assert (row.ours.name, row.baseline.name) == ("pair, dynamics", "energy and forces alone")
    assert "steps per second" in row.note
    assert "GB of memory" in row.note
    assert [(p.path, p.atoms, len(p.seconds)) for p in result.scaling] == [("dynamics", QUICK.large, 2)]
    assert "schnet has no radius" in result.notes[0]


def test_default_networks_have_suites_of_their_own(monkeypatch):
    done: list[tuple[str, str]] = []
    module = sys.modules["geomatt.bench.run"]
    for name in module.SUITES:
        monkeypatch.setitem(module.SUITES, name, (lambda bench, name=name: done.append((bench.model, name)),))
    run_bench(dataclasses.replace(QUICK, models=tuple(MODELS)), ["train", "members", "large"])
    assert {model for model, _ in done} == set(MODELS)
    assert [model for model, name in done if name == "large"] == ["pair:channels=64"]
    run_bench(dataclasses.replace(QUICK, models=("pair",)), ["members", "large"])
    assert done[-2:] == [("pair", "members"), ("pair", "large")]


def test_networks_with_their_settings():
    assert parse_model("geomatt") == ("geomatt", {})
    assert parse_model("geomatt:features=64,bias=False") == ("geomatt", {"features": 64, "bias": False})
    with pytest.raises(GeomAttError, match="Write them as"):
        parse_model("geomatt:features=wide")
    bench = Workbench(BenchSettings(), "geomatt:features=12,layers=1", BenchReport({}), silent)
    first, again = bench.network((1,)), bench.network((1,))
    assert (first.config.features, first.config.layers) == (12, 1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("model", "suite", "match"), [("geomatt", "speed", "train, infer"), ("?", "train", "Unknown")]
)
def test_unknown_names(model, suite, match):
    with pytest.raises(GeomAttError, match=match):
        run_bench(dataclasses.replace(QUICK, models=(model,)), [suite])


def test_interrupt_keeps_what_was_measured(monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules["geomatt.bench.run"].SUITES, "infer", (stop,))
    result = run_bench(QUICK, ["members", "infer"])
    assert not result.complete
    assert [row.suite for row in result.rows] == ["members"]
    assert "Interrupted" in result.notes[0]


def run_program(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `python -c PROGRAM`, in a process that has imported torch already."""
    process = Process(command[2], run=exec)
    return subprocess.CompletedProcess(command, process.wait(), process.stdout, process.stderr)


def test_quick_run(tmp_path, monkeypatch):
    """All suites from the command line: tables, result file, picture, and a page made from them."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr("geomatt.bench.scaling.subprocess", SimpleNamespace(run=run_program))
    monkeypatch.setattr(BenchSettings, "of", classmethod(lambda cls, device, quick, models: QUICK))
    file, picture = tmp_path / "bench.json", tmp_path / "scaling.png"
    answer = CliRunner().invoke(app, ["bench", "--quick", "--json", str(file), "--plot", str(picture)])
    assert answer.exit_code == 0, answer.output
    assert "PyG SchNet" in answer.output
    assert "Exactness" in answer.output
    assert picture.stat().st_size > 10_000

    result = read_result(file)
    assert result["complete"]
    assert {"hardware", "commit", "versions", "threads"} <= set(result["machine"])
    suites = {"train", "single point", "throughput", "members", "scaling", "large"}
    suites |= {"dynamics"} if importlib.util.find_spec("ase") else set()
    suites |= {"replicas"} if importlib.util.find_spec("torch_sim") else set()
    assert {row["suite"] for row in result["rows"]} == suites
    for row in result["rows"]:
        assert row["ours"]["seconds"]
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
    assert {e["path"] for e in result["exactness"]} == {"dense", "pairs", "sparse", "training step"}
    for entry in result["exactness"]:
        goal = 1e-10 if entry["dtype"] == "float64" else 1e-3
        assert max(entry["energy"], entry["forces"]) < goal, entry
    assert {p["path"] for p in result["scaling"]} == {"dense", "sparse", "dynamics"}
    assert all(p["memory"] >= 0 for p in result["scaling"])

    page = load_script("make_performance_page").performance_page({"bench.json": result})
    assert "PyG SchNet" in page
    assert result["machine"]["hardware"] in page
    scaling_plot([result, result], tmp_path / "both.svg")


def test_any_network_can_be_measured(monkeypatch):
    """SchNet has neither named engines nor counted work nor a radius; all suites measure it all the same."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr(sys.modules["geomatt.bench.scaling"], "_memory", lambda bench, case: None)
    settings = dataclasses.replace(QUICK, models=("schnet",), molecules=(5,))
    result = run_bench(settings, ["train", "infer", "members", "scaling"])
    assert result.complete
    assert {row.ours.name for row in result.rows} == {"schnet", "schnet, together"}
    assert all(row.floor is None for row in result.rows)
    assert {e.path for e in result.exactness} == {"auto", "training step"}
    assert {(p.path, p.floor_times) for p in result.scaling} == {("dense", None)}


def test_fast_engine_and_automatic_differentiation_learn_the_same(tmp_path):
    """From the same weights, on the same batches: curves that agree, in file and picture."""
    result = run_bench(dataclasses.replace(QUICK, curve_epochs=3), ["curves"])
    ours, slow = result.curves
    assert (ours.name, slow.name) == ("geomatt", "literal")
    assert len(ours.forces) == 3
    assert ours.forces == pytest.approx(slow.forces, rel=1e-3)
    assert ours.energy == pytest.approx(slow.energy, rel=1e-2)
    result.save(tmp_path / "curves.json")
    found = read_result(tmp_path / "curves.json")
    curves_plot(found, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    page = load_script("make_performance_page").performance_page({"curves.json": found})
    assert "learning.png" in page
    with pytest.raises(GeomAttError, match="suite scaling"):
        scaling_plot([found], tmp_path / "scaling.png")


def test_result_file_contains_checks_of_rows(tmp_path):
    row = BenchRow(
        "train", "step", Timing("geomatt", (1.0,)), Timing("x", (3.0,)), [Check("a", 3.0, 2.0, False)]
    )
    report = BenchReport({}, {}, rows=[row])
    report.save(tmp_path / "r.json")
    saved = json.loads((tmp_path / "r.json").read_text())["rows"][0]
    assert saved["ratio"]["median"] == 3.0
    assert saved["checks"][0]["met"] is True


def test_targets_of_a_row():
    bench = Workbench(BenchSettings(), "geomatt", BenchReport({}), silent)
    bench.add("single point", "step", Timing("geomatt", (1.0,)), Timing("PyG SchNet", (5.0,)))
    bench.add("single point", "step", Timing("geomatt", (1.0,)), Timing("literal", (5.0,)))
    assert [[(c.goal, c.met) for c in row.checks] for row in bench.report.rows] == [[(4.5, True)], []]


def test_the_page_has_todays_targets():
    script = load_script("make_performance_page")
    other = {"what": "largest system", "goal": 5000}
    old = {"what": "times faster", "goal": 99.0}
    row = {
        "suite": "single point",
        "ours": {"name": "geomatt", "median": 1.0},
        "baseline": {"name": "PyG SchNet"},
        "ratio": {"median": 5.0},
        "checks": [old, other],
    }
    result = {"settings": {"device": "cpu"}, "rows": [row, {**row, "baseline": {"name": "other"}}]}
    first, second = script.with_targets(result)["rows"]
    assert [(c["what"], c["goal"]) for c in first["checks"]] == [
        ("times faster", 4.5),
        ("largest system", 5000),
    ]
    assert second["checks"] == [other]


def test_page_is_made_from_the_committed_results():
    script = load_script("make_performance_page")
    page = script.ROOT / "docs" / "performance.md"
    assert page.read_text(encoding="utf-8") == script.performance_page(script.committed_results())
