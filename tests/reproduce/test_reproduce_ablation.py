"""The ablation: its networks, its plan, and a run in the smallest setting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import random_atoms
from typer.testing import CliRunner

from geomatt.cli import app
from geomatt.data import Batch
from geomatt.errors import GeomAttError
from geomatt.model import Network, network_class, network_names, new_network
from geomatt.reproduce import ExperimentSettings, get, run_experiment, silent, study
from geomatt.reproduce.ablation import VARIATIONS, AblationMember, AblationStudy, compared, errors_table
from geomatt.reproduce.ablation_networks import NETWORKS, Changed
from geomatt.reproduce.frame import plain
from geomatt.reproduce.report import made_by
from geomatt.training import Diverged

SETTINGS = {"channels": 6, "rounds": 2, "functions": 8}
ELEMENTS = (1, 6, 8)


def make(kind: str) -> Network:
    """A small network whose biases are not zero, in float64."""
    network = new_network(kind, SETTINGS, ELEMENTS, dtype=torch.float64)
    with torch.no_grad():
        for name in ("b1", "b2"):
            bias = network.get_parameter(name)
            bias.copy_(0.3 * torch.randn(bias.shape, generator=torch.Generator().manual_seed(1)))
    return network


def atoms(count: int = 5, padding: int = 0) -> Batch:
    numbers, positions = random_atoms(count, seed=3)
    pad = torch.nn.functional.pad
    return Batch(pad(numbers, (0, padding))[None], pad(positions, (0, 0, 0, padding), value=0.7)[None])


def evaluate(network: Network, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    engine = network.engine()
    found = engine.evaluate(engine.prepare(network.stacked()), batch.as_member())
    return found.energy[0], found.forces[0]


def carried(source: Network, target: Network) -> Network:
    """The target with the source's weights, in the leading rows and columns where its own are larger."""
    with torch.no_grad():
        for name, value in source.tensors().items():
            own = target.tensors()[name]
            own[tuple(slice(size) for size in value.shape)] = value
    return target


@pytest.mark.parametrize("name", NETWORKS)
def test_symmetries_padding_and_forces(name):
    network, batch, step = make(NETWORKS[name].kind), atoms(), 1e-5
    energy, forces = evaluate(network, batch)
    assert forces.abs().max() > 1e-3
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(2)).double())[0]
    turned, moved = evaluate(network, Batch(batch.numbers, batch.positions @ rotation.T + 2.0))
    torch.testing.assert_close(turned, energy)
    torch.testing.assert_close(moved, forces @ rotation.T)
    order = torch.tensor([3, 0, 4, 1, 2])
    other, permuted = evaluate(network, Batch(batch.numbers[:, order], batch.positions[:, order]))
    torch.testing.assert_close(other, energy)
    torch.testing.assert_close(permuted, forces[:, order])
    padded, with_padding = evaluate(network, atoms(padding=2))
    torch.testing.assert_close(padded, energy)
    torch.testing.assert_close(with_padding[:, :5], forces)
    sides = [batch.positions.clone() for _ in range(2)]
    for sign, positions in zip((1, -1), sides, strict=True):
        positions[0, 1, 2] += sign * step
    above, below = (float(evaluate(network, Batch(batch.numbers, r))[0]) for r in sides)
    assert (below - above) / (2 * step) == pytest.approx(float(forces[0, 1, 2]), rel=1e-5, abs=1e-8)


def test_networks_are_known_to_the_experiment_alone():
    kinds = {network.kind for network in NETWORKS.values()}
    assert not kinds & set(network_names())
    assert all(network_class(network.kind) is network for network in NETWORKS.values())
    with pytest.raises(GeomAttError, match="pair-gated network is for molecules"):
        make("pair-gated").graph(atoms())


def test_every_network_is_pair_states_but_for_its_change():
    pair, batch = make("pair"), atoms()
    width, expected = SETTINGS["channels"], evaluate(make("pair"), atoms())[0]
    unchanged = Changed(pair.config, torch.float64).load_tensors(pair.tensors())
    torch.testing.assert_close(evaluate(unchanged, batch)[0], expected)
    normal = make("pair-normal-elements").load_tensors(pair.tensors())
    torch.testing.assert_close(evaluate(normal, batch)[0], expected)
    gated = carried(pair, make("pair-gated"))
    with torch.no_grad():  # h₂ = 1
        gated.W1[:, 2 * width :] = 0.0
        gated.b1[:, 2 * width :] = 1.0
    torch.testing.assert_close(evaluate(gated, batch)[0], expected)
    both = carried(pair, make("pair-both-products"))
    assert not torch.allclose(evaluate(both, batch)[0], expected)
    with torch.no_grad():  # no weight on the second product
        both.W1[:, :, 2 * width :] = 0.0
    torch.testing.assert_close(evaluate(both, batch)[0], expected)


def test_each_variation_changes_the_network():
    batch = atoms()
    for one in make("pair-symmetric").run(batch):
        torch.testing.assert_close(one.states, one.states.transpose(1, 2))
    for one in make("pair").run(batch):
        assert not torch.allclose(one.states, one.states.transpose(1, 2))
    gaussians = make("pair-gaussians")
    centres = 6.0 * torch.arange(8, dtype=torch.float64) / 7
    torch.testing.assert_close(gaussians.basis(centres).diagonal(), torch.ones(8, dtype=torch.float64))
    wide = {**SETTINGS, "channels": 200}
    start, normal = (new_network(kind, wide, ELEMENTS) for kind in ("pair", "pair-normal-elements"))
    assert abs(float(start.g.detach().mean()) - 1.0) < 0.1
    assert abs(float(normal.g.detach().mean())) < 0.2
    torch.testing.assert_close(normal.K.T @ normal.K, torch.eye(8))
    both = make("pair-both-products")
    a, b = torch.randn(2, 1, 3, 3, 6, generator=torch.Generator().manual_seed(0))
    second = both.products(a, b, a, b)[1]
    for i, j in ((0, 1), (2, 2)):
        torch.testing.assert_close(second[0, i, j], sum(a[0, i, m] * b[0, j, m] for m in range(3)))
    for rows in both.W_AB[0].split(6):
        torch.testing.assert_close(rows @ rows.T, torch.eye(6).double(), atol=1e-5, rtol=0.0)


@pytest.fixture
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "no-cache"))
    return ExperimentSettings(quick=True, out=tmp_path / "out")


def test_variations_change_one_choice(quick):
    models = AblationStudy(quick, silent)
    assert len({v.name for v in VARIATIONS}) == len(VARIATIONS) == 30
    names = {v.name: v for v in VARIATIONS}

    def flat(name: str, molecule: str = "aspirin") -> dict:
        settings = models.config(AblationMember(names[name], molecule)).to_dict()
        return {**settings.pop("network"), **settings}

    def changed(name: str) -> dict:
        before, after = flat("seed-0"), flat(name)
        return {key: value for key, value in after.items() if before[key] != value}

    assert changed("seed-2") == {"seed": 2}
    assert changed("channels-128") == {"channels": 128}
    assert changed("squared") == {"weighting": "paper"}
    assert changed("no-average") == {"ema_decay": 0.0}
    assert changed("double-rate") == {"learning_rate": 6e-3}
    assert changed("muon") == {"optimiser": "muon"}
    assert changed("gated") == {"model": "pair-gated"}
    # The constant is the number of atoms of the molecule, so sums are divided by what they were.
    assert changed("radius-4") == {"radius": 4.0, "normalisation": "constant", "typical_atoms": 9.0}
    assert all(changed(name) for name in names if name not in ("seed-0", "rounds-2"))  # quick: two rounds


@pytest.mark.parametrize("batch", [5, 20])
def test_other_batches_take_as_many_steps(tmp_path, batch):
    models = AblationStudy(ExperimentSettings(out=tmp_path), silent)
    names = {v.name: v for v in VARIATIONS}
    for molecule in ("malonaldehyde", "aspirin"):
        before, after = (
            models.config(AblationMember(names[n], molecule)) for n in ("seed-0", f"batch-{batch}")
        )
        steps = [config.epochs * -(-config.train // config.batch) for config in (before, after)]
        assert steps[0] == {"malonaldehyde": 20900, "aspirin": 14250}[molecule]
        assert steps[1] == pytest.approx(steps[0], rel=0.003)
        assert after.batch == batch
        assert (after.warmup < before.warmup) == (batch < 10)


def test_parts_choose_variations_and_molecules():
    members = [AblationMember(v, m) for m in ("malonaldehyde", "aspirin") for v in VARIATIONS]

    def chosen(*parts: str) -> int:
        return sum(member.asked(ExperimentSettings(parts=parts)) for member in members)

    assert chosen() == 60
    assert chosen("aspirin") == 30
    assert (chosen("baseline"), chosen("networks")) == (6, 12)
    assert chosen("networks", "seed-0", "rho-0.1") == 2 * (6 + 2)
    assert chosen("rho-0.1", "aspirin") == 1
    assert {p for p in get("ablation").parts if not chosen(p)} == set()


def test_the_script_for_a_gpu_runs_every_variation_once():
    script = (Path(__file__).parents[2] / "scripts" / "paper_gpu.sh").read_text(encoding="utf-8")
    step = script.partition("    ablation)")[2].partition("; do")[0].partition("for parts in")[2]
    assert sorted(step.replace('"', " ").replace("\\", " ").split()) == sorted(v.name for v in VARIATIONS)


def test_a_quick_run_says_so_and_continues(quick):
    experiment = get("ablation")
    result = run_experiment(experiment, quick, silent)
    assert list(result["rows"]["malonaldehyde"]) == ["seed-0", "seed-1", "functions-8", "gated"]
    assert result["missing"] == {}
    assert "used instead" in experiment.summary(result)
    table, left = experiment.tables(result)
    assert "own ethanol data" in table.note
    assert "data: embedded/ethanol (" in made_by(result)
    assert [row[0] for row in table.rows] == ["baseline", "functions-8", "gated"]
    assert [row[1] for row in table.rows] == ["1,689", "1,625", "2,233"]
    assert table.rows[0][5].startswith("1.00 ± ")
    assert left.rows == [["nothing", "0", "all has been run"]]
    row = result["rows"]["malonaldehyde"]["gated"]
    assert (row["frames"], row["training_frames"], row["epochs"]) == (20, 20, 2)
    assert run_experiment(experiment, replace(quick, deadline=0.0), silent)["rows"] == result["rows"]


def test_parts_of_several_processes_come_together(quick):
    """Each process runs its part into the same folder; the tables of a molecule show all that is there."""
    experiment = get("ablation")
    parts = (("seed-0", "malonaldehyde"), ("normal-elements", "malonaldehyde"))
    first, second = (run_experiment(experiment, replace(quick, parts=part), silent) for part in parts)
    assert list(first["rows"]["malonaldehyde"]) == ["seed-0"]
    assert list(second["rows"]["malonaldehyde"]) == ["seed-0", "normal-elements"]
    assert second["missing"] == {"baseline": 2, "settings": 21, "networks": 5}
    assert second["rows"]["aspirin"] == {}
    assert "--part settings" in experiment.tables(second)[-1].rows[1][2]
    wrong = CliRunner().invoke(app, ["reproduce", "ablation", "--part", "x", "--out", str(quick.out)])
    assert "Its parts are: baseline" in str(wrong.exception)


def test_a_model_that_diverges_is_a_result(quick, monkeypatch):
    def diverging(settings, progress, name, jobs):
        raise Diverged("the loss is not a finite number in epoch 2", "No model was kept.")

    monkeypatch.setattr(study, "train_jobs", diverging)
    settings = replace(quick, parts=("no-clip", "malonaldehyde"))
    result = run_experiment(get("ablation"), settings, silent)
    row = result["rows"]["malonaldehyde"]["no-clip"]
    assert row["diverged"] == "the loss is not a finite number in epoch 2"
    assert json.dumps(plain(result))
    assert get("ablation").tables(result)[0].rows == [["no-clip", "–", "–", "diverged", "–", "–", "–"]]


def test_the_summary_compares_with_the_spread_of_seeds():
    def rows(scale: float, **others: float) -> dict:
        def row(group, force):
            return {
                "group": group, "force_mae": scale * force, "energy_mae": 1.0, "training_force_mae": 0.5,
                "parameters": 1000, "frames": 10, "returns": 0,
            }  # fmt: skip

        found = {f"seed-{k}": row("baseline", f) for k, f in enumerate((0.98, 1.0, 1.02))}
        return {**found, **{name: row("settings", value) for name, value in others.items()}}

    aspirin = rows(0.4, wide=0.9, narrow=1.3, other=1.03, mixed=1.2, lost=1.0)
    malonaldehyde = rows(0.2, wide=0.8, narrow=1.1, other=1.01, mixed=0.9)
    malonaldehyde["lost"] = {"group": "settings", "diverged": "why"}
    result = {"settings": {"stand_in": False}, "rows": {"malonaldehyde": malonaldehyde, "aspirin": aspirin}}
    text = compared(result)
    assert "differ by 2.0% and 2.0%" in text
    assert "**Worse:** narrow (1.10, 1.30)." in text
    assert "**Better:** wide (0.80, 0.90)." in text
    assert "**Not clearly different:** other (1.01, 1.03), mixed (0.90, 1.20)." in text
    assert "**Diverged:** lost (malonaldehyde)." in text
    table = errors_table(result, "aspirin")
    assert table.rows[0] == [
        "baseline", "1,000", "1.000 ± 0.000", "0.400 ± 0.008", "0.500 ± 0.000", "1.00 ± 0.02", "0",
    ]  # fmt: skip
    assert table.rows[1] == ["wide", "1,000", "1.000", "0.360", "0.500", "0.90", "0"]
    assert compared({"rows": {"aspirin": {}}}) == "Not run yet."
