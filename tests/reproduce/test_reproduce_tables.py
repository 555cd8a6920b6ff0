"""Tables 1, 2 and 3 in the smallest setting: planning, budget, restarts, packs, tables."""

import signal
import time
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from geomatt.training.trainer import Run
from typer.testing import CliRunner

from geomatt.cli import app
from geomatt.data.io.readers import write
from geomatt.data.public.embedded import ethanol
from geomatt.errors import GeomAttError
from geomatt.reproduce import Settings, get, md17, run_experiment, schnet, silent
from geomatt.reproduce.inputs import MD17
from geomatt.reproduce.md17 import Bench, Member, Scale, groups
from geomatt.reproduce.packing import pack_results, unpack_results
from geomatt.reproduce.published import GEOMATT, no_worse, spread
from geomatt.reproduce.report import blocks, update_page

SMALL = {"features": 8, "overlap_features": 16, "spacing": 0.5, "layers": 1}
TINY = Scale(10, 2, {"paper": 2, "fast": 2, "transfer": 1}, 4, overhead=1e9, model=SMALL)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The quick setting made tinier, on the embedded ethanol data."""
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setattr(md17, "QUICK", TINY)
    monkeypatch.setattr(Run, "plot", lambda self: None)  # takes most of the time
    monkeypatch.setattr(schnet, "QUICK_EPOCHS", 1)
    monkeypatch.setattr(
        schnet, "SETTINGS", {**schnet.SETTINGS, "features": 8, "filters": 8, "interactions": 1}
    )
    return Settings(quick=True, out=tmp_path / "out")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder that looks like MD17; every molecule is ethanol, which the experiments cannot know."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "md17").mkdir()
    for molecule in MD17:
        write(ethanol()[:20], folder / "md17" / f"md17_{molecule}.npz")
    return folder


def test_members_of_like_size_share_a_program():
    atoms = [21, 12, 9, 9, 18, 16, 15, 12]
    assert groups(atoms, 0.0) == [[2, 3], [1, 7], [6], [5], [4], [0]]
    assert groups(atoms, 1e9) == [[2, 3, 1, 7, 6, 5, 4, 0]]
    assert groups(atoms, 500.0) != groups(atoms, 0.0)
    assert groups([], 1.0) == []


def test_published_numbers_are_complete():
    assert all(set(row) == set(MD17) for row in GEOMATT.values())
    assert np.round(np.mean(list(GEOMATT["2,3,4"].values()), 0), 2).tolist() == [0.35, 1.06]
    assert no_worse((0.254, 0.99), (0.25, 0.98)) == 1
    assert spread([{"e": 1.0}, {"e": 2.0}], "e") == "1.50 ± 0.50"


def test_table1_stands_in_for_missing_data_and_says_so(tiny):
    table1 = get("table1")
    result = run_experiment(table1, tiny, silent)
    assert result["settings"]["stand_in"]
    assert "stand in" in table1.summary(result)
    assert [fold["fold"] for fold in result["rows"]["paper"]["ethanol"]] == [0, 1]
    if find_spec("torch_geometric") is None:
        assert result["missing"] == {"schnet": 1}
    else:
        assert result["missing"] == {}
        assert result["schnet"]["ethanol"]["epochs"] == 1
    names = [table.name for table in table1.tables(result)]
    assert names == ["table1-energy", "table1-forces", "weighting", "left"]
    started = time.monotonic()
    assert run_experiment(table1, tiny, silent)["rows"] == result["rows"]
    assert time.monotonic() - started < 1.0
    with pytest.raises(GeomAttError, match="geomatt data get"):
        run_experiment(table1, Settings(out=tiny.out), silent)


@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="needs PyTorch Geometric")
def test_schnet_stopped_by_ctrl_c_goes_on_as_if_it_had_not_been(tiny, monkeypatch):
    monkeypatch.setattr(schnet, "QUICK_EPOCHS", 4)
    whole = schnet.run_schnet(Bench(tiny, silent, TINY), train=True)["ethanol"]
    bench = Bench(Settings(quick=True, out=tiny.out / "cut"), silent, TINY)
    do_epoch = schnet.SchNetRun.do_epoch

    def interrupted(self):
        do_epoch(self)
        if self.epoch == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(schnet.SchNetRun, "do_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        schnet.run_schnet(bench, train=True)
    monkeypatch.setattr(schnet.SchNetRun, "do_epoch", do_epoch)
    assert schnet.run_schnet(bench, train=False) == {}
    resumed = schnet.run_schnet(bench, train=True)["ethanol"]
    assert resumed["epochs"] == 4
    assert {**resumed, "seconds": 0.0} == {**whole, "seconds": 0.0}
    assert not list(bench.settings.out.rglob("checkpoint.safetensors"))


def test_a_spent_budget_leaves_a_run_that_goes_on(tiny):
    scale = replace(TINY, epochs={"paper": 5})
    whole = Bench(tiny, silent, scale)
    whole.train([Member("ethanol")])
    (expected,) = whole.results([Member("ethanol")]).values()
    settings = Settings(quick=True, out=tiny.out / "cut")
    bench = Bench(settings, silent, scale)

    def spend(description, total):
        object.__setattr__(settings, "deadline", time.monotonic() - 1.0)
        return silent(description, total)

    bench.progress = spend
    bench.train([Member("ethanol"), Member("ethanol", 1)])
    assert bench.results([Member("ethanol")]) == {}
    assert list(settings.out.rglob("checkpoint.safetensors"))
    bench.train([Member("ethanol")])  # the budget is spent: nothing happens
    assert bench.results([Member("ethanol")]) == {}
    object.__setattr__(settings, "deadline", None)
    bench.progress = silent
    bench.train([Member("ethanol"), Member("ethanol", 1)])
    first, _ = bench.results([Member("ethanol"), Member("ethanol", 1)]).values()
    assert first["energy_mae"] == pytest.approx(expected["energy_mae"], rel=1e-5)
    assert not list(settings.out.rglob("checkpoint.safetensors"))
    record = bench.model(Member("ethanol")).record
    assert record["test"]["energy_mae"] == first["energy_mae"]
    assert "CC0" in record["licence"]


def test_tables_2_and_3_share_models_and_fill_their_pages(tiny, data):
    settings = Settings(quick=True, out=tiny.out, data_dir=data, parts=("234", "222"))
    table3 = get("table3")
    third = run_experiment(table3, settings, silent)
    assert len(third["rows"]["2,3,4"]) == len(MD17)
    assert third["rows"]["2,3,3"] == {}
    assert "table3 --part 233" in table3.tables(third)[1].markdown()
    assert third["rows"]["2,2,2"]["ethanol"]["parameters"] > 0
    table2 = get("table2")
    second = run_experiment(table2, Settings(quick=True, out=tiny.out, data_dir=data), silent)
    assert [row["target"] for row in second["rows"]] == ["benzene", "toluene", "naphthalene", "benzene"]
    for row in second["rows"]:
        assert row["scratch"] == third["rows"]["2,3,4"][row["target"]]
        assert row["transfer"]["force_mae"] != row["untouched"]["force_mae"]
    assert str(data) not in str(second)
    page = "<!-- begin:table2 -->\n<!-- end:table2 -->\n<!-- begin:summary -->\n<!-- end:summary -->\n"
    assert "aspirin → benzene" in update_page(page, blocks(table2, second))


def test_results_travel_in_packs(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    for name in ("pieces/md17/a.json", "models/md17/b.safetensors", "work/md17/c/checkpoint.safetensors"):
        (there / name).parent.mkdir(parents=True)
        (there / name).write_bytes(b"x" * (9 * 2**20 if name.startswith("models") else 10))
    (there / "work/md17/c/history.csv").write_text("stays")
    (there / "models/md17/d.safetensors").write_bytes(b"y" * 9 * 2**20)
    volumes = pack_results(there, tmp_path / "pack")
    assert [v.name for v in volumes] == ["pack-1.tar", "pack-2.tar"]
    assert pack_results(there, tmp_path / "again") == []
    assert sum(unpack_results(volume, here) for volume in volumes) == 4
    assert (here / "models/md17/d.safetensors").read_bytes()[:1] == b"y"
    assert pack_results(here, tmp_path / "back") == []
    answer = CliRunner().invoke(
        app, ["reproduce", "--out", str(there), "--unpack", str(volumes[0]), "--pack", str(tmp_path / "p")]
    )
    assert answer.exit_code == 0
    (tmp_path / "bad.tar").write_bytes(b"no")
    with pytest.raises(GeomAttError, match="cannot be unpacked"):
        unpack_results(tmp_path / "bad.tar", here)


def test_a_pack_with_foreign_files_is_refused(tmp_path):
    import tarfile

    (tmp_path / "x.py").write_text("evil")
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        archive.add(tmp_path / "x.py", "work/x.py")
    with pytest.raises(GeomAttError, match="not a pack"):
        unpack_results(tmp_path / "p.tar", tmp_path / "out")


def test_the_command_wants_a_known_name_and_part(tmp_path):
    runner = CliRunner()
    assert isinstance(runner.invoke(app, ["reproduce"]).exception, GeomAttError)
    wrong = runner.invoke(app, ["reproduce", "table1", "--part", "x", "--out", str(tmp_path)])
    assert "Its parts are: paper" in str(wrong.exception)
