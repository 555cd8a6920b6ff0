"""The explorer in a real browser: what a person does, and what they see."""

from __future__ import annotations

import csv
import html
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import Visit
from conftest import small_network

from geomatt import Committee, Potential, Structure
from geomatt.analysis import distances
from geomatt.data.public.embedded import ethanol
from geomatt.model import Normalisation, new_network
from geomatt.pages import Page, explain

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


# The mean difference of two pictures, given as addresses of data.
DIFFERENCE = """async (pictures) => {
  const [a, b] = await Promise.all(pictures.map(async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height).data;
  }));
  return a.reduce((sum, value, k) => sum + Math.abs(value - b[k]), 0) / a.length;
}"""


def potential(seed: int) -> Potential:
    return Potential(small_network(seed, orders=(2, 3)), Normalisation(-150.0, 0.5), {"report_unit": "eV"})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Three frames of ethanol and a committee of two small networks."""
    frames = [Structure(s.numbers, s.positions, info={"name": EVIL}) for s in ethanol()[:3]]
    page = explain(
        Committee([potential(0), potential(1)]),
        frames,
        name=EVIL,
        untrained=1,
        effects=40,
        off=[[(0, 1), (0, 3)]],
    )
    return page.save(tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def visit(chromium, file):
    page = chromium.new_page(viewport={"width": 1300, "height": 1000}, accept_downloads=True)
    made = Visit(page, file)
    page.wait_for_selector(".explorer[data-ready]")
    yield made
    made.check()
    page.close()


def control(visit: Visit, name: str):
    return visit.page.locator(f".choices [name={name}]")


def choose(visit: Visit, name: str, option: str) -> None:
    control(visit, name).select_option(label=option)
    visit.page.wait_for_timeout(50)


def slide(visit: Visit, name: str, value: float) -> None:
    control(visit, name).evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", value
    )
    visit.page.wait_for_timeout(50)


def lines(visit: Visit) -> int:
    return int(re.search(r"\((\d+) lines\)", visit.page.locator(".choices").inner_text()).group(1))


def reading(visit: Visit) -> str:
    return visit.page.locator(".reading").inner_text()


def cell_of(visit: Visit, i: int, j: int, atoms: int = 9) -> tuple[float, float]:
    """Where a cell of the attention matrix is on the screen."""
    box = visit.page.locator(".matrix").first.bounding_box()
    size = (box["width"] - 25) / atoms
    return box["x"] + 24 + (j + 0.5) * size, box["y"] + 24 + (i + 0.5) * size


def test_names_of_the_file_are_text(visit):
    assert EVIL in visit.page.locator("h1").inner_text()
    assert EVIL[:60] in visit.page.locator(".choices").inner_text()
    assert visit.page.locator("img").count() == 0


def test_layer_stream_and_member_change_the_matrix(visit):
    seen = [visit.pixels(".matrix")]
    for name, option in (("layer", "layer 2"), ("stream", "order 3"), ("member", "member 2")):
        choose(visit, name, option)
        seen.append(visit.changed(".matrix", seen[-1]))
    assert len(set(seen)) == 4
    assert "k=3 layer 2" in visit.page.locator("figcaption").first.inner_text()


def test_pointing_at_a_cell_shows_the_pair(visit):
    before = visit.pixels(".view")
    visit.page.mouse.move(*cell_of(visit, 0, 2))
    assert visit.changed(".view", before) != before
    distance = np.linalg.norm(ethanol()[0].positions[0] - ethanol()[0].positions[2])
    assert f"C0–O2: distance {distance:.3f} Å" in reading(visit)
    visit.page.mouse.move(5, 5)
    assert visit.shows(".view", before)


def test_a_threshold_hides_lines(visit):
    slide(visit, "threshold", 0.0)
    assert lines(visit) == 36
    many = visit.pixels(".view")
    slide(visit, "threshold", 1.0)
    assert lines(visit) <= 1
    assert visit.changed(".view", many) != many


def test_switching_a_pair_off_changes_the_energy(visit):
    visit.page.mouse.click(*cell_of(visit, 0, 1))
    visit.page.mouse.move(5, 5)
    assert "→" not in reading(visit)
    before = visit.pixels(".view")
    visit.page.get_by_role("button", name="Switch this pair off").click()
    intact, changed = re.findall(r"−?\d+\.\d{3}(?= eV)", reading(visit).split("energy")[1])[:2]
    assert intact != changed
    assert visit.changed(".view", before) != before  # arrows
    visit.page.get_by_role("button", name="Switch the pair on again").click()
    assert "→" not in reading(visit)


def change(visit: Visit) -> float:
    """The change of the energy that is shown."""
    return float(re.search(r"change (\S+)", reading(visit)).group(1).replace("−", "-"))


def test_sets_of_pairs_are_switched_off(visit):
    before = visit.pixels(".view"), visit.pixels(".matrix")
    row = visit.page.locator("section:has-text('Sets of pairs') tbody tr", has_text="all covalent bonds")
    row.click()
    visit.page.wait_for_timeout(50)
    assert "with all covalent bonds off" in reading(visit)
    assert before[0] != visit.changed(".view", before[0])
    assert before[1] != visit.changed(".matrix", before[1])  # crossed out
    visit.page.get_by_role("button", name="Switch all on again").click()
    visit.page.mouse.move(5, 5)
    assert visit.shows(".view", before[0])
    assert visit.shows(".matrix", before[1])


def test_a_set_of_pairs_chosen_by_the_user(visit):
    single = []
    for j in (1, 4, 3):
        visit.page.mouse.click(*cell_of(visit, 0, j))
        visit.page.get_by_role("button", name="Switch this pair off").click()
        single.append(change(visit))
        visit.page.get_by_role("button", name="Add it to a set").click()
    visit.page.get_by_role("button", name="Switch the set off (3)").click()
    assert "--off 0-1,0-4,0-3" in reading(visit)  # not computed: the sum, and how to get it
    assert change(visit) == pytest.approx(sum(single), rel=0.02)
    visit.page.mouse.click(*cell_of(visit, 0, 4))
    visit.page.get_by_role("button", name="Take it out of the set").click()
    visit.page.get_by_role("button", name="Switch the set off (2)").click()
    assert "estimate" not in reading(visit)  # this set is in the page
    visit.page.get_by_role("button", name="Empty the set").click()
    assert "→" not in reading(visit)
    visit.page.keyboard.down("Shift")
    for j in (1, 2):
        visit.page.mouse.click(*cell_of(visit, 0, j))
    visit.page.keyboard.up("Shift")
    assert "set: C0–C1, C0–O2" in reading(visit)
    visit.page.mouse.move(5, 5)
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_timeout(50)
    assert "Point at a cell" in reading(visit)


def test_an_atom_shows_its_row(visit):
    slide(visit, "threshold", 0.0)
    visit.page.locator(".chart rect").last.click()  # the bar of an atom
    visit.page.wait_for_timeout(50)
    assert lines(visit) == 8
    assert "lines of this atom only" in reading(visit)


def test_paths_and_rankings_choose(visit):
    choose(visit, "stream", "order 3")
    before = visit.pixels(".view")
    visit.page.locator("section:has-text('Largest paths') tbody tr").first.click()
    assert visit.changed(".view", before) != before
    visit.page.locator("section:has-text('Strongest pairs') tbody tr").nth(1).click()
    assert visit.page.locator("tr.chosen").count() >= 1


def test_frames_play(visit):
    before = visit.pixels(".view")
    slide(visit, "frame", 2)
    assert "frame 3 of 3" in visit.page.locator(".choices").inner_text()
    assert visit.changed(".view", before) != before
    visit.page.get_by_role("button", name="Play").click()
    visit.page.wait_for_selector(".choices:has-text('frame 2 of 3')")
    visit.page.get_by_role("button", name="Stop").click()


def test_keyboard(visit):
    visit.page.locator(".matrix").first.focus()
    visit.page.keyboard.press("ArrowRight")
    visit.page.wait_for_timeout(50)
    assert "C0–C1" in reading(visit)
    before = visit.pixels(".view")
    visit.page.locator(".view").focus()
    visit.page.keyboard.press("ArrowLeft")
    assert visit.changed(".view", before) != before


def test_downloads(visit, tmp_path):
    got = {}
    for option in control(visit, "save").locator("option").all_inner_texts()[1:]:
        with visit.page.expect_download() as waiting:
            choose(visit, "save", option)
        saved = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved)
        got[option] = saved
    first, *_, table, sets, archive = got.values()
    names = [row["set"] for row in csv.DictReader(io.StringIO(sets.read_text()))]
    assert names[:2] == ["C0–C1, C0–H3", "all covalent bonds"]
    assert first.read_bytes().startswith(b"\x89PNG")
    assert "<line" in got["picture of the molecule (SVG)"].read_text()
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(rows) == 36
    with np.load(archive) as stored:
        arrays = dict(stored)
    assert arrays["alpha"].shape == (4, 9, 9)
    np.testing.assert_allclose(arrays["positions"], ethanol()[0].positions, atol=1e-5)
    assert float(rows[0]["attention_ij"]) == pytest.approx(arrays["alpha"][0, 0, 1], rel=1e-4)


def test_charts_and_tables_are_saved(visit, tmp_path):
    for title, kind in (("α against distance", "SVG"), ("Does attention find bonds?", "CSV")):
        with visit.page.expect_download() as waiting:
            visit.page.get_by_role("button", name=f"Save {title} as {kind}").click()
        saved = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(saved)
        if kind == "SVG":
            chart = ElementTree.parse(saved).getroot()
            assert chart.tag.endswith("}svg")
            assert "var(" not in saved.read_text()
        else:
            rows = list(csv.reader(io.StringIO(saved.read_text())))
            assert rows[0][:2] == ["average precision", "covalent bonds"]
            assert rows[-1][0] == "1 / distance"
            assert float(rows[-1][1]) > 0.9


def test_a_notebook_displays_it(chromium, file, tmp_path):
    source = html.escape(file.read_text(encoding="utf-8"))
    shown = Page("<x>", blocks=[{"kind": "text", "text": "hello"}])._repr_html_()
    cell = (
        f"<!doctype html><body>{shown}<iframe srcdoc=\"{source}\" style='width:100%;height:900px'></iframe>"
    )
    notebook = tmp_path / "notebook.html"
    notebook.write_text(cell, encoding="utf-8")
    page = chromium.new_page(viewport={"width": 1300, "height": 1000})
    made = Visit(page, notebook)
    page.frame_locator("iframe >> nth=1").locator(".explorer[data-ready]").wait_for()
    assert page.frame_locator("iframe >> nth=0").locator("main").inner_text() == "hello"
    assert made.problems == []
    assert [url for url in made.requests if not url.startswith(("about:", "blob:"))] == made.requests[:1]
    page.close()


def test_cells_and_networks_with_rounds(chromium, tmp_path):
    settings = {"channels": 8, "rounds": 2, "functions": 8, "radius": 4.0}
    network = new_network("pair-states", settings, (1, 8))
    cell = np.array([[4.0, 0, 0], [3.6, 3.0, 0], [0.5, 1.0, 5.0]])  # so skewed that rounding is not enough
    positions = np.array([[0.1, 0.2, 0.3], [0.9, 0.4, 0.2], [6.4, 2.6, 3.9], [3.3, 0.4, 1.9]])
    box = Structure(np.array([8, 1, 1, 8]), positions, cell=cell, pbc=(True, True, True))
    page = explain(Potential(network, Normalisation(0.0, 1.0)), box, untrained=0).save(tmp_path / "box.html")
    tab = chromium.new_page(viewport={"width": 1300, "height": 1000})
    made = Visit(tab, page)
    tab.wait_for_selector(".explorer[data-ready]")
    apart = distances(box)
    labels = ["O0", "H1", "H2", "O3"]
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        tab.mouse.move(*cell_of(made, i, j, 4))
        assert f"{labels[i]}–{labels[j]}: distance {apart[i, j]:.3f} Å" in reading(made)
    choose(made, "layer", "round 2")
    assert "round 2" in tab.locator("figcaption").first.inner_text()
    tab.mouse.click(*cell_of(made, 0, 1, 4))
    tab.get_by_role("button", name="Switch this pair off").click()
    assert "→" in reading(made)
    assert "all its images" in tab.locator("section:has-text('Sets of pairs')").inner_text()
    made.check()
    tab.close()


def test_frames_are_drawn_on_each_other(chromium, tmp_path):
    first = ethanol()[0]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = Structure(first.numbers, first.positions @ (turn * np.sign(np.linalg.det(turn))).T)
    page = explain(potential(0), [first, turned], untrained=0, effects=0).save(tmp_path / "page.html")
    tab = chromium.new_page(viewport={"width": 900, "height": 900})
    made = Visit(tab, page)
    tab.wait_for_selector(".explorer[data-ready]")
    pictures = []
    for frame in (0, 1):
        slide(made, "frame", frame)
        pictures.append(made.pixels(".view"))
    assert tab.evaluate(DIFFERENCE, pictures) < 0.5  # of 255, on average
    made.check()
    tab.close()


def test_narrow_windows_and_dark_mode(chromium, file):
    page = chromium.new_page(viewport={"width": 360, "height": 740}, color_scheme="dark")
    made = Visit(page, file)
    page.wait_for_selector(".explorer[data-ready]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 29)"
    page.get_by_role("button", name="Light / dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    made.check()
    page.close()
