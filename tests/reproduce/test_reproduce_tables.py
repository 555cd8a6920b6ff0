"""Tables 1, 2 and 3 in the smallest setting: planning, deadline, restarts, tables."""

import json
import signal
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scripts_path import load_script
from typer.testing import CliRunner

from geomatt.cli import app
from geomatt.data import ethanol, random_split, write
from geomatt.errors import GeomAttError
from geomatt.model import load
from geomatt.reproduce import ExperimentSettings, get, md17, run_experiment, silent
from geomatt.reproduce.inputs import MD17
from geomatt.reproduce.md17 import Md17Size, Md17Study, Member, groups
from geomatt.reproduce.published import GEOMATT, cell, left_table, means, no_worse, published
from geomatt.reproduce.report import blocks, update_page
from geomatt.reproduce.table2_pair import PairTransferStudy, pair_table
from geomatt.training.run import Run

ROOT = Path(__file__).parents[2]
SMALL = {"features": 8, "overlap_features": 16, "spacing": 0.5, "layers": 1}
EPOCHS = {"paper": 2, "fast": 2, "schnet-all": 1, "transfer": 1, "pair-transfer": 1}
TINY = Md17Size(10, 2, EPOCHS, 4, overhead=1e9, network=SMALL, seeds=2)
TRANSFERRED = ("aspirin", "benzene", "naphthalene", "toluene")
needs_schnet = pytest.mark.skipif(find_spec("torch_geometric") is None, reason="needs PyTorch Geometric")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The quick setting, even smaller, on the embedded ethanol data."""
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setattr(md17, "QUICK", TINY)
    schnet = {"features": 8, "filters": 8, "interactions": 1, "gaussians": 10, "cutoff": 10.0}
    monkeypatch.setattr(md17, "SCHNET", {**md17.SCHNET, "network": schnet})
    return ExperimentSettings(quick=True, out=tmp_path / "out")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder like MD17 with the molecules of table 2, each of which is ethanol."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "md17").mkdir()
    for molecule in TRANSFERRED:
        write(ethanol()[:20], folder / "md17" / f"md17_{molecule}.npz")
    return folder


def test_members_of_similar_size_are_trained_together():
    atoms = [21, 12, 9, 9, 18, 16, 15, 12]
    assert groups(atoms, 0.0) == [[2, 3], [1, 7], [6], [5], [4], [0]]
    assert groups(atoms, 1e9) == [[2, 3, 1, 7, 6, 5, 4, 0]]
    assert groups(atoms, 500.0) != groups(atoms, 0.0)
    assert groups([], 1.0) == []


def test_published_numbers_are_complete():
    assert all(set(row) == {*MD17, "mean"} for row in GEOMATT.values())
    assert np.round(np.mean([means(GEOMATT["2,3,4"][m]) for m in MD17], 0), 2).tolist() == [0.35, 1.06]
    ours = [{"energy_mae": 0.254, "force_mae": 0.99}]
    assert no_worse([(ours, published(0.25, 0.98))]) == (1, 2)
    assert no_worse([(ours, published(None, 0.98))]) == (0, 1)
    assert cell(ours) == "0.25 / 0.99"
    assert cell([{"e": 1.0}, {"e": 2.0}], "e") == "1.50 ± 0.50"
    assert cell(published(None, 0.5), "energy_mae") == cell([]) == "–"


def test_what_is_left_is_run_by_commands_of_the_same_kind():
    result = {
        "experiment": "table1",
        "quick": False,
        "settings": {"stand_in": False},
        "missing": {"paper": 2, "fast": 0, "a b": 1},
    }

    def shown(*args, **options):
        return [row[1:] for row in left_table({**result, **options.pop("of", {})}, *args, **options).rows]

    command = "geomatt reproduce table1 --part"
    assert shown() == [
        ["2", f"{command} paper --device cuda --data DIR"],
        ["1", f"{command} a --part b --device cuda --data DIR"],
    ]
    assert shown({"x": 3}, gpu=False) == [["3", f"{command} x --data DIR"]]
    assert shown({"x": 3}, of={"quick": True}) == [["3", f"{command} x --quick --data DIR"]]
    embedded = {"quick": True, "settings": {"stand_in": True}}
    assert shown({"x": 3}, of=embedded) == [["3", f"{command} x --quick"]]
    assert shown({}) == [["0", "all has been run"]]


def test_table1_uses_embedded_data_and_says_so(tiny):
    table1 = get("table1")
    result = run_experiment(table1, tiny, silent)
    assert result["settings"]["stand_in"]
    assert "used instead" in table1.summary(result)
    assert [fold["fold"] for fold in result["rows"]["paper"]["ethanol"]] == [0, 1]
    if find_spec("torch_geometric") is None:
        assert result["missing"] == {"schnet-all": 1, "schnet-seeds": 1}
    else:
        assert result["missing"] == {}
        assert [model["seed"] for model in result["rows"]["schnet-all"]["ethanol"]] == [0, 1]
    assert [model["draw"] for model in result["rows"]["draws"]["ethanol"]] == [1]
    tables = {table.name: table for table in table1.tables(result)}
    assert list(tables) == [
        "table1-energy", "table1-forces", "weighting", "zero", "draws", "times", "ranges", "left",
    ]  # fmt: skip
    assert "4 frames that were not trained" in tables["table1-energy"].note
    assert tables["table1-energy"].rows[0][1] == tables["weighting"].rows[0][1] == "–"  # nothing published
    # Errors are those that training leaves; models have a fitted zero, as those of `geomatt train`.
    for recipe in ("paper", "fast"):
        left, fitted = result["rows"][recipe]["ethanol"][0], result["fitted_zero"][recipe]["ethanol"]
        assert left["force_mae"] == pytest.approx(fitted["force_mae"], rel=1e-6)
        assert left["energy_mae"] != pytest.approx(fitted["energy_mae"], rel=1e-3)
        file = Member("ethanol", recipe=recipe).model_file
        kept = load(tiny.work("md17") / "models" / file)
        assert kept.record["test"]["energy_mae"] == pytest.approx(fitted["energy_mae"], rel=1e-4)
    assert "GTX 1080" not in tables["times"].note
    assert not any("†" in text for text in (*tables["times"].rows[0], tables["times"].note))
    made = {**result["pieces"]}
    for name in ("234-fast-fold1-ethanol", "234-paper-fold0-ethanol-draw1"):  # draws are not in this table
        made[name] = {**made[name], "hardware": "a GPU"}
    times = {table.name: table for table in table1.tables({**result, "pieces": made})}["times"]
    assert ["†" in cell for cell in times.rows[0]] == [False, False, True, False]
    assert f"on {result['hardware'][0]}; †: with models trained on a GPU. " in times.note
    assert tables["ranges"].rows[0][1] == "9"
    assert ["own ethanol data" in table.note for table in tables.values()] == [True] * 7 + [False]
    options = ["--quick", "--part", "paper", "--out", str(tiny.out)]
    shown = CliRunner().invoke(app, ["reproduce", "table1", *options]).output
    assert "MD17 was not found: the package's own ethanol data" in " ".join(shown.split())
    assert "**" not in shown
    started = time.monotonic()
    assert run_experiment(table1, tiny, silent)["rows"] == result["rows"]
    assert time.monotonic() - started < 2.0
    with pytest.raises(GeomAttError, match="geomatt data get"):
        run_experiment(table1, ExperimentSettings(out=tiny.out), silent)


@needs_schnet
def test_schnet_is_trained_by_the_one_trainer_and_resumed_bit_by_bit(tiny, monkeypatch):
    size, member = replace(TINY, epochs={"schnet-all": 4}), Member("ethanol", recipe="schnet-all")
    settings = Md17Study(tiny, silent, md17.FULL).config(member)
    assert (settings.model, settings.epochs, settings.batch) == ("schnet", 500, 10)
    assert (settings.learning_rate, settings.schedule, settings.final) == (1e-3, "cosine", 0.0)
    assert (settings.ema_decay, settings.weighting, settings.rho) == (0.999, "paper", 0.01)
    whole = Md17Study(tiny, silent, size)
    whole.train([member])
    (expected,) = whole.results([member]).values()
    cut = Md17Study(replace(tiny, out=tiny.out / "cut"), silent, size)
    add_steps = Run.add_steps

    def interrupted(self, end, sums):
        add_steps(self, end, sums)
        if self.counters.epoch == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Run, "add_steps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cut.train([member])
    monkeypatch.setattr(Run, "add_steps", add_steps)
    assert cut.results([member]) == {}
    cut.train([member])
    (resumed,) = cut.results([member]).values()
    assert resumed["epochs"] == 4
    assert {**resumed, "seconds": 0.0} == {**expected, "seconds": 0.0}
    assert not list(cut.settings.out.rglob("checkpoint.safetensors"))


def test_a_run_stopped_at_the_deadline_continues(tiny):
    size = replace(TINY, epochs={"paper": 5})
    whole = Md17Study(tiny, silent, size)
    whole.train([Member("ethanol")])
    (expected,) = whole.results([Member("ethanol")]).values()
    settings = replace(tiny, out=tiny.out / "cut")
    study = Md17Study(settings, silent, size)

    def late(description, total):
        object.__setattr__(settings, "deadline", time.monotonic() - 1.0)
        return silent(description, total)

    study.progress = late
    study.train([Member("ethanol"), Member("ethanol", 1)])
    assert study.results([Member("ethanol")]) == {}
    assert list(settings.out.rglob("checkpoint.safetensors"))
    study.train([Member("ethanol")])  # after the deadline: nothing happens
    assert study.results([Member("ethanol")]) == {}
    object.__setattr__(settings, "deadline", None)
    study.progress = silent
    study.train([Member("ethanol"), Member("ethanol", 1)])
    first, _ = study.results([Member("ethanol"), Member("ethanol", 1)]).values()
    assert first["energy_mae"] == pytest.approx(expected["energy_mae"], rel=1e-5)
    assert not list(settings.out.rglob("checkpoint.safetensors"))
    record = study.model("ethanol").record
    assert record["test"]["force_mae"] == first["force_mae"]
    assert "CC0" in record["licence"]


@pytest.mark.filterwarnings("ignore:The transferred model is not clearly better")
@pytest.mark.filterwarnings("ignore:The base never saw")
def test_tables_2_and_3_share_models_and_fill_their_pages(tiny, data):
    settings = ExperimentSettings(quick=True, out=tiny.out, data=data, parts=("234", "222"))
    table3 = get("table3")
    third = run_experiment(table3, settings, silent)
    assert set(third["rows"]["2,3,4"]) == set(TRANSFERRED)
    assert third["rows"]["2,3,3"] == {}
    assert "table3 --part 233 --quick --data DIR |" in table3.tables(third)[-1].markdown()
    assert not any("own ethanol data" in table.note for table in table3.tables(third))
    assert "25,856" in table3.tables(third)[1].markdown()
    assert third["rows"]["2,2,2"]["toluene"]["parameters"] > 0
    table2 = get("table2")
    second = run_experiment(table2, ExperimentSettings(quick=True, out=tiny.out, data=data), silent)
    assert [row["target"] for row in second["rows"]] == ["benzene", "toluene", "naphthalene", "benzene"]
    for row in second["rows"]:
        assert row["scratch"] == third["rows"]["2,3,4"][row["target"]]
        assert row["transfer"]["force_mae"] != row["untouched"]["force_mae"]
        assert [model["seed"] for model in row["seeds"]] == [0, 1]
        assert row["seeds"][0]["force_mae"] == row["transfer"]["force_mae"]
        # Seeds differ in the weights of the frozen features, and in the order of the data.
        for kind in ("untrained", "seeds"):
            assert len({model["force_mae"] for model in row[kind]}) == 2
    # Every molecule here is ethanol: models of hydrocarbons do not know oxygen.
    assert second["missing"] == {"pair": 2}
    pair = [row["pair"] for row in second["rows"]]
    assert [row["transfer"] is None for row in pair] == [False, False, True, True]
    assert all(row["untrained"]["frames"] == 4 and row["scratch"] is None for row in pair)
    shown = {table.name: table for table in table2.tables(second)}["table2-pair"]
    assert shown.rows[2][1:3] == ["–", "–"]
    assert shown.rows[0][1] == cell([pair[0]["transfer"]], digits=3)
    assert str(data) not in str(second)
    page = "<!-- begin:table2 -->\n<!-- end:table2 -->\n<!-- begin:summary -->\n<!-- end:summary -->\n"
    assert "aspirin → benzene" in update_page(page, blocks(table2, second))


def test_only_the_molecules_that_are_there_are_trained(tiny, data, tmp_path):
    (tmp_path / "md17").mkdir()
    for molecule in ("aspirin", "toluene"):
        (tmp_path / "md17" / f"md17_{molecule}.npz").symlink_to(data / "md17" / f"md17_{molecule}.npz")
    settings = ExperimentSettings(quick=True, out=tiny.out, data=tmp_path, parts=("fast", "toluene"))
    result = run_experiment(get("table1"), settings, silent)
    assert result["molecules"] == ["aspirin", "toluene"]
    assert set(result["rows"]["fast"]) == {"toluene"}
    assert result["rows"]["paper"] == {}
    with pytest.warns(UserWarning, match="md17/benzene, .* are left out"), \
            pytest.warns(UserWarning, match="All frames of the file are used"):  # fmt: skip
        Md17Study(replace(settings, quick=False), silent, TINY)


def test_unknown_experiment_or_part_is_refused(tmp_path):
    runner = CliRunner()
    assert isinstance(runner.invoke(app, ["reproduce"]).exception, GeomAttError)
    wrong = runner.invoke(app, ["reproduce", "table1", "--part", "x", "--out", str(tmp_path)])
    assert "Its parts are: paper" in str(wrong.exception)


@pytest.mark.parametrize("table", ["table1", "table2", "table3"])
def test_committed_results_hold_every_model(table):
    result = json.loads((ROOT / "results" / f"{table}.json").read_text())
    restored = {member.name for member, value in load_script("restore_results").members(result) if value}
    others = ("untouched-", "pair-scratch-", "zero-")
    expected = {name for name in result["pieces"] if not name.startswith(others)}
    # The base of a transfer is a model of table 1.
    assert restored == expected - ({"234-paper-fold0-aspirin"} if table == "table2" else set())


def test_pair_states_are_transferred_on_the_frames_of_the_shipped_models(tiny, tmp_path):
    """The quick run of a molecule with a shipped model; full settings ask for the split of pair states."""
    settings = replace(tiny, parts=("pair", "ethanol"))
    found = run_experiment(get("table2"), settings, silent)
    (row,) = found["rows"]
    assert ["own ethanol data" in table.note for table in get("table2").tables(found)] == [True, True, False]
    for stand_in, shown in (
        (True, False),
        (False, True),
    ):  # energies of another method: a number without sense
        about = {**found, "settings": {**found["settings"], "stand_in": stand_in}}
        table = pair_table(about, {"ethanol": row["pair"]})
        assert ("from scratch" in table.columns) == shown
        assert ("trained on 950 + 50 frames" in table.note) == shown
    assert row["pair"]["transfer"]["parameters"] > 10_000  # size S
    assert row["pair"]["scratch"]["frames"] == 4
    assert row["pair"]["untrained"] is None
    study = PairTransferStudy(tiny, silent, md17.FULL)
    ours, theirs = study.split(Member("ethanol")), random_split(2000, 950, 50, seed=0)
    for role in ("train", "validation", "test"):
        assert np.array_equal(getattr(ours, role), getattr(theirs, role))
    script = load_script("restore_results")
    result = run_experiment(get("table2"), replace(settings, deadline=0.0), silent)
    restored = PairTransferStudy(replace(tiny, out=tmp_path / "again"), silent)
    assert script.restore(restored, result) == 1
    assert restored.scratch("ethanol") == row["pair"]["scratch"]
    assert restored.find(Member("ethanol", base="ethanol", recipe="pair")) == row["pair"]["transfer"]


def test_restored_results_are_the_committed_ones(real_data, tmp_path):
    script = load_script("restore_results")
    settings = ExperimentSettings(data=real_data, out=tmp_path, deadline=0.0)
    studies = Md17Study(settings, silent), PairTransferStudy(settings, silent)
    for table in ("table1", "table2", "table3"):
        committed = json.loads((ROOT / "results" / f"{table}.json").read_text())
        for study in studies[: 2 if table == "table2" else 1]:
            script.restore(study, committed)
        restored = run_experiment(get(table), settings, silent)
        assert {**restored, "settings": 0} == {**committed, "settings": 0}
