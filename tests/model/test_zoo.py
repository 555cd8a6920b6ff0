"""Models that ship with the package: names, metadata and errors."""

import json
import re
import warnings

import pytest
from conftest import small_network
from typer.testing import CliRunner

import geomatt
from geomatt.cli import app
from geomatt.data import read
from geomatt.errors import GeomAttError
from geomatt.evaluation import evaluate
from geomatt.model import zoo
from geomatt.model.files import save
from geomatt.model.normalisation import Normalisation
from geomatt.model.potential import Potential
from geomatt.simulation import GeomAttCalculator

RECORD = {
    "test": {"energy_mae": 0.25, "force_mae": 0.98, "frames": 4902, "unit": "kcal/mol"},
    "data": {"name": "aspirin", "fingerprint": "0123456789abcdef"},
    "trained_frames": ["a", "b"],
    "licence": "CC0",
    "made_by": "geomatt reproduce table1",
    "epochs": 2000,
}


def test_records_of_shipped_models_name_their_version():
    assert all(model.record["geomatt"][0].isdigit() and "unknown" not in model.record["geomatt"]
               for model in zoo.shipped_models())  # fmt: skip


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "shipped_folder", lambda: tmp_path)
    return tmp_path


def ship(folder, name):
    potential = Potential(small_network(), Normalisation(-1.0, 2.0), dict(RECORD))
    return save(potential, _made(folder / f"{name}.safetensors"))


def _made(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_names_of_shipped_models_are_case_insensitive(shipped):
    paper, fast = ship(shipped, "md17/aspirin"), ship(shipped, "md17/aspirin-fast")
    assert [m.name for m in zoo.shipped_models()] == ["md17/aspirin", "md17/aspirin:fast"]
    assert zoo.find_shipped("md17/Aspirin") == zoo.find_shipped("md17/aspirin:paper") == paper
    assert zoo.find_shipped("md17/aspirin:fast") == fast
    for name in ("aspirin", "md17/", "md17/benzene", "../md17/aspirin", "md17/aspirin:x/../.."):
        assert zoo.find_shipped(name) is None
    assert geomatt.load("md17/aspirin:fast").record["licence"] == "CC0"


def test_user_file_takes_precedence_over_shipped_model(shipped, tmp_path, monkeypatch):
    ship(shipped, "md17/aspirin")
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.chdir(own)
    save(Potential(small_network(), Normalisation(), {"licence": "mine"}), _made(own / "md17" / "aspirin"))
    assert geomatt.load("md17/aspirin").record["licence"] == "mine"


def test_models_command_lists_metadata_of_the_files(shipped):
    runner = CliRunner()
    empty = runner.invoke(app, ["models"])
    assert empty.exit_code == 0
    assert "geomatt reproduce table1" in empty.output
    ship(shipped, "md17/aspirin")
    listed = runner.invoke(app, ["models"], env={"COLUMNS": "140"})
    assert re.search(r"md17/aspirin +0\.250 +0\.980 +2 +4902 +– +– *\n", listed.output)
    for part in ("CC0", "reproduce table1"):
        assert part in listed.output
    stored = json.loads(runner.invoke(app, ["models", "--json"]).output)
    assert stored["md17/aspirin"]["record"]["epochs"] == 2000


FAILED = {"intact": 3, "runs": 5, "ps": 300.0, "failed_at_ps": [20.5, 9.2]}
KEPT = {"intact": 5, "runs": 5, "ps": 300.0, "failed_at_ps": []}


def printed(*options):
    found = CliRunner().invoke(app, ["models", *options], env={"COLUMNS": "80"})
    assert found.exit_code == 0
    return found.output


def cells(line, output):
    """Of the rows of a table that begin with a name."""
    return [row.split()[1:] for row in output.splitlines() if row.startswith(f"{line} ")]


def test_unstable_models_warn_in_dynamics(shipped):
    ship(shipped, "md17/aspirin")
    path = shipped / zoo.STABILITY
    path.write_text(json.dumps({"md17/aspirin": {"free": FAILED}}))
    with pytest.warns(UserWarning, match=r"2 of 5 runs of 300 ps without walls fell apart, .* after 9.2 ps"):
        GeomAttCalculator("md17/aspirin")
    path.write_text(json.dumps({"md17/aspirin": {"free": FAILED, "walls": KEPT}}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GeomAttCalculator(geomatt.load("md17/aspirin"))  # with walls it stays intact


@pytest.mark.parametrize(
    ("tried", "shown"),
    [
        ({"free": FAILED}, "– 3/5 300"),
        ({"free": FAILED, "walls": KEPT}, "5/5 300 3/5 300"),
        ({"walls": {**KEPT, "wall_share": 0.2}}, "5/5 300 w –"),
        ({"bounded": None, "walls": KEPT, "free": FAILED}, "5/5* 300 3/5* 300"),
        ({"bounded": KEPT, "walls": FAILED}, "5/5 300 –"),
        ({"bounded": {**KEPT, "ps": 15.0}, "walls": FAILED}, "3/5* 300 –"),  # one failed later than that
        ({"bounded": {**KEPT, "ps": 30.0}, "walls": FAILED}, "5/5 30 –"),
    ],
)
def test_models_command_shows_runs_with_walls_and_without(shipped, tried, shown):
    ship(shipped, "md17/aspirin")
    (shipped / zoo.STABILITY).write_text(json.dumps({"md17/aspirin": tried}))
    assert " ".join(cells("md17/aspirin", printed())[0][4:]) == shown


def test_models_command_shows_every_condition(shipped):
    for name in ("md17/aspirin", "md17/aspirin-pair", "md17/ethanol"):
        ship(shipped, name)
    assert "No long dynamics were run" in printed("--stability")
    path = shipped / zoo.STABILITY
    moving = {"intact": 4, "runs": 5, "ps": 50.0, "drift_meV_per_atom_ps": 0.0008}
    walls = {**FAILED, "wall_share": 0.0556, "histogram_error": 0.033, "nve": moving}
    about = {
        "md17/aspirin": {"free": {**FAILED, "ps": 140.0}, "walls": KEPT},
        "md17/aspirin:pair": {"bounded": None, "walls": walls},
    }
    path.write_text(json.dumps(about))
    output = printed("--stability")
    assert cells("md17/aspirin", output) == [
        ["yes", "–", "5/5", "300", "–", "–", "–", "–"],
        ["no", "–", "3/5", "140", "9.2", "–", "–", "–"],
    ]
    row = ["yes", "no", "3/5", "300", "9.2", "5.56", "0.033", "0.0008", "f"]
    assert cells("md17/aspirin:pair", output) == [row]
    assert "Not run: md17/ethanol." in output
    assert "1 model not run yet as shipped, with walls and bounds." in " ".join(output.split())
    about["md17/aspirin:pair"]["bounded"] = {**walls, "nve": {**moving, "intact": 5}}
    path.write_text(json.dumps(about))
    output = printed("--stability")
    assert cells("md17/aspirin:pair", output) == [["yes", "yes", *row[2:-1]], row]
    assert "not run yet" not in output


@pytest.mark.parametrize("options", [[], ["--stability"]])
def test_tables_of_shipped_models_fit_80_columns(options):
    output = printed(*options)
    assert all(cells(model.name, output) for model in zoo.shipped_models())
    assert "…" not in output
    assert max(map(len, output.splitlines())) <= 80


def test_info_says_what_came_of_dynamics(shipped):
    ship(shipped, "md17/aspirin")
    (shipped / zoo.STABILITY).write_text(json.dumps({"md17/aspirin": {"bounded": None, "walls": FAILED}}))
    said = " ".join(CliRunner().invoke(app, ["info", "md17/aspirin"]).output.split())
    assert "2 of 5 runs of 300 ps with walls and without bounds fell apart, the first after 9.2 ps" in said
    assert "not run with walls and bounds" in said
    assert "failed_at_ps" not in said


def test_unknown_name_lists_shipped_models(shipped):
    with pytest.raises(GeomAttError, match="geomatt reproduce table1"):
        geomatt.load("md17/aspirin")
    ship(shipped, "md17/aspirin")
    with pytest.raises(GeomAttError, match="md17/aspirin"):
        geomatt.load("md17/benzene")
    (shipped / "md17" / "broken.safetensors").write_bytes(b"no")
    with pytest.raises(GeomAttError, match="Reinstall"):
        zoo.shipped_models()


def test_shipped_models_are_small_and_complete():
    models = zoo.shipped_models()
    assert len(models) == 32  # eight molecules; two recipes of the paper's model, two sizes of pair states
    assert sum(model.path.stat().st_size for model in models) < 60e6
    for model in models:
        assert model.header["dtype"] == "float32"
        assert {"test", "licence", "made_by", "data", "settings", "split"} <= set(model.record)
        assert "/" not in model.record["data"]["origin"].get("path", "")


@pytest.mark.parametrize("recipe", ["paper", "fast"])
def test_shipped_model_reaches_its_stated_errors(recipe, real_data):
    """Its test errors, from a GPU, on a CPU; the frames it was trained on are left out by themselves."""
    model = geomatt.load(f"md17/ethanol:{recipe}")
    found = evaluate(model, read(real_data / "md17" / "md17_ethanol.npz"), unit="kcal/mol", batch_size=64)
    said, overall = model.record["test"], found.to_dict()["overall"]
    assert len(found.data) == said["frames"]
    assert overall["energy_mae"] == pytest.approx(said["energy_mae"], rel=1e-3)
    assert overall["forces_mae"] == pytest.approx(said["force_mae"], rel=1e-3)
