"""The frame of `geomatt reproduce`: pieces, result files, tables, pages, report, data."""

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from geomatt.drawing import SERIES
from geomatt.errors import GeomAttError
from geomatt.reproduce import NAMES, Experiment, ExperimentSettings, draw_figures, get, run_experiment, silent
from geomatt.reproduce.docs import refreshed
from geomatt.reproduce.frame import Drawing, Pieces, read_json, same_inputs, write_json
from geomatt.reproduce.inputs import described, find_file, load_data
from geomatt.reproduce.report import Section, blocks, report_page, update_page, write_report
from geomatt.reproduce.table import ResultTable


class Toy(Experiment):
    name, title, description = "toy", "A toy", "Squares, which the paper < does not claim."
    calls = 0

    def run(self, settings, progress):
        pieces = Pieces(settings, self.name)

        def compute():
            Toy.calls += 1
            return {"square": np.float64(3.0) ** 2, "list": np.arange(2)}

        with progress("squares", 1) as advance:
            value = pieces.get("a/b", {"base": 3}, compute)
            advance(1)
        return {"settings": {"base": 3}, "data": {}, "value": value, "pieces": pieces.made}

    def tables(self, result):
        return [ResultTable("toy-table", "Squares", ["x", "x²"], [["3", f"{result['value']['square']:g}"]])]

    def drawings(self, result):
        from geomatt.drawing import new_figure

        return [Drawing("toy", "A caption", lambda: new_figure(1, 1))]

    def summary(self, result):
        return f"**The square** is `{result['value']['square']:g}`, of |x| [3]."


def test_settings_added_later_do_not_invalidate_pieces():
    stored = {"settings": {"epochs": 3, "network": {"width": 8}}, "data": "abc"}
    assert same_inputs(stored, stored)
    assert same_inputs(stored, {**stored, "settings": {**stored["settings"], "val_data": [], "drop": False}})
    assert not same_inputs(stored, {**stored, "settings": {**stored["settings"], "val_data": ["a.npz"]}})
    assert not same_inputs(stored, {**stored, "settings": {"epochs": 4, "network": {"width": 8}}})
    assert not same_inputs({**stored, "more": 0}, stored)
    assert not same_inputs(None, stored)


def test_pieces_are_computed_once_and_again_when_their_inputs_change(tmp_path):
    Toy.calls = 0
    settings = ExperimentSettings(out=tmp_path)
    first = run_experiment(Toy(), settings, silent)
    second = run_experiment(Toy(), settings, silent)
    assert Toy.calls == 1
    assert first == second == read_json(settings.result_file("toy"))
    assert first["value"] == {"square": 9.0, "list": [0, 1]}
    assert {"commits", "hardware", "seconds", "quick", "seed"} <= set(first)
    run_experiment(Toy(), ExperimentSettings(out=tmp_path, seed=1), silent)
    quick = run_experiment(Toy(), ExperimentSettings(out=tmp_path, quick=True), silent)
    assert Toy.calls == 3
    assert quick["quick"]
    assert settings.result_file("toy") != ExperimentSettings(out=tmp_path, quick=True).result_file("toy")


def test_a_damaged_or_impossible_result_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(GeomAttError, match="Delete it"):
        read_json(tmp_path / "x.json")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "y.json", {"value": float("nan")})
    assert not (tmp_path / "y.json").exists()


def test_tables_as_markdown_and_in_the_terminal():
    table = ResultTable("t", "T", ["a", "b|c"], [["x", "1"], ["<y>", "2"]], "In eV.", strong=frozenset({1}))
    assert table.markdown().splitlines()[:2] == ["| a | b\\|c |", "| --- | ---: |"]
    assert "| **<y>** | **2** |" in table.markdown()
    assert table.markdown().endswith("\n\nIn eV.")
    assert table.rich().row_count == 2


def test_blocks_of_a_page_are_replaced_and_nothing_else():
    page = "# T\nwords\n<!-- begin:a -->\nold\n<!-- end:a -->\nmore\n<!-- begin:b -->\n<!-- end:b -->\n"
    new = update_page(page, {"a": "A", "b": "B"})
    assert (
        new == "# T\nwords\n<!-- begin:a -->\nA\n<!-- end:a -->\nmore\n<!-- begin:b -->\nB\n<!-- end:b -->\n"
    )
    assert update_page(new, {"a": "A", "b": "B"}) == new
    with pytest.raises(GeomAttError, match="'b'"):
        update_page(page, {"a": "A"})
    with pytest.raises(GeomAttError, match="partner"):
        update_page("<!-- begin:a -->\n", {"a": "A"})


# What is left of linear red, green and blue for each kind of colour blindness (Machado et al. 2009).
SEEN = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("kind", SEEN)
def test_series_differ_for_colour_blind_readers(kind):
    sRGB = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in SERIES])
    linear = np.where(sRGB <= 0.04045, sRGB / 12.92, ((sRGB + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(SEEN[kind]).T, 0.0, 1.0)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    f = np.cbrt(seen @ to_xyz.T / [0.9505, 1.0, 1.089])  # CIELAB; none of the colours is near black
    lab = np.column_stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])])
    differences = np.linalg.norm(lab[:, None] - lab, axis=-1)[np.triu_indices(len(SERIES), 1)]
    assert differences.min() > 20.0  # 2 can just be seen side by side


def test_the_report_holds_every_section(tmp_path):
    toy, settings = Toy(), ExperimentSettings(out=tmp_path, quick=True)
    result = run_experiment(toy, settings, silent)
    figures = draw_figures(toy, result, settings.figures("toy"))
    sections = [Section(toy, result, figures), Section(toy, None, missing="no data")]
    markdown, page = write_report(sections, tmp_path)
    text, document = markdown.read_text(), page.read_text()
    for part in (
        "A toy",
        "| 3 | 9 |",
        "figures/toy-quick/toy.png",
        "no data",
        "Quick setting",
        "**The square** is `9`",
    ):
        assert part in text
    for part in ("\\u003c does not", "data:image/png;base64,", "no data", "Quick setting"):
        assert part in document
    kinds = [block["kind"] for block in report_page(sections).blocks]
    assert kinds == [
        "contents", "heading", "prose", "text", "prose", "table", "figures", "prose",
        "heading", "prose", "text",
    ]  # fmt: skip
    assert set(blocks(toy, result)) == {"toy-table", "summary", "made"}
    assert blocks(toy, result, figures)["figures"] == "![A caption](figures/toy.png)"


@pytest.mark.parametrize("name", NAMES)
def test_committed_pages_are_up_to_date(name):
    root = Path(__file__).parents[2]
    page = root / "docs" / "experiments" / f"{name}.md"
    if not (root / "results" / f"{name}.json").is_file():
        pytest.skip("no committed result yet")
    text = page.read_text(encoding="utf-8")
    assert text == refreshed(root, name), "run: python -m geomatt.reproduce.docs"
    for figure in re.findall(r"\(figures/(.*?)\)", text):
        assert 0 < (page.parent / "figures" / figure).stat().st_size < 300_000


def test_data_come_from_the_folder_or_the_cache(tmp_path, monkeypatch):
    from geomatt.data import ethanol, write

    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "md17").mkdir()
    frames = ethanol()[:3]
    write(frames, tmp_path / "md17" / "md17_ethanol.npz")
    settings = ExperimentSettings(data=tmp_path)
    with pytest.warns(UserWarning, match="5902 of the 5902 frames of md17/ethanol"):
        found = load_data(settings, "md17/ethanol")
    assert described(found)["file"] == "md17_ethanol.npz"
    assert str(tmp_path) not in str(described(found))
    with pytest.raises(GeomAttError, match="geomatt data get md17/benzene"):
        find_file(tmp_path, "md17/benzene")
    with pytest.raises(GeomAttError, match="geomatt data get md17/aspirin"):
        load_data(ExperimentSettings(), "md17/aspirin")
    with pytest.raises(GeomAttError, match="`data`"):
        load_data(ExperimentSettings(), "gfn2/cg-cg")


def test_registered_experiments_are_complete():
    for name in NAMES:
        experiment = get(name)
        assert experiment.name == name
        assert experiment.title
        assert experiment.description
    with pytest.raises(GeomAttError, match="Choose from"):
        get("table9")


def test_the_command_shows_writes_and_reports(tmp_path, monkeypatch):
    from geomatt.cli import app

    monkeypatch.setattr("geomatt.cli.reproduce.NAMES", ["toy"])
    monkeypatch.setattr("geomatt.reproduce.get", lambda name: Toy())
    runner = CliRunner()
    for name in ("toy", "all"):
        options = ["--quick", "--out", str(tmp_path / "out"), "--figures", str(tmp_path / "vector")]
        answer = runner.invoke(app, ["reproduce", name, *options])
        assert answer.exit_code == 0, answer.output
        assert "Squares" in answer.output
        assert "\nThe square is 9, of |x| [3].\n" in answer.output
    assert Path(tmp_path / "out" / "report.html").is_file()
    assert Path(tmp_path / "out" / "toy-quick.json").is_file()
    assert sorted(path.name for path in (tmp_path / "vector").iterdir()) == ["toy.pdf", "toy.svg"]


def test_the_command_goes_on_when_one_experiment_lacks_its_data(tmp_path, monkeypatch):
    from geomatt.cli import app

    class Lacking(Toy):
        def run(self, settings, progress):
            raise GeomAttError("get the data first")

    monkeypatch.setattr("geomatt.cli.reproduce.NAMES", ["lacking", "toy"])
    monkeypatch.setattr("geomatt.reproduce.get", lambda name: Lacking() if name == "lacking" else Toy())
    answer = CliRunner().invoke(app, ["reproduce", "all", "--out", str(tmp_path)])
    assert answer.exit_code == 1
    assert "get the data first" in (tmp_path / "report.md").read_text()
    assert "Squares" in answer.output
