"""Pages: their numbers are those of the package, and they are safe and small."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
from browser import Visit
from conftest import small_network
from tiny_network import Tiny, TinyConfig
from typer.testing import CliRunner

from geomatt import Committee, GeomAttError, Potential, Structure, attention, explain, intervene, save
from geomatt.analysis import hydrogen_bonds
from geomatt.cli import app
from geomatt.data import collate, write
from geomatt.data.public.embedded import ethanol
from geomatt.model import Normalisation, new_network
from geomatt.pages.explorer import explorer_block
from geomatt.pages.figures import write_figures
from geomatt.pages.page import Page, quantised
from geomatt.pages.pair_sets import usual_sets
from geomatt.pages.structures import common_turns, good_view

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a49444154789c6360000000020001"
    "48afa4710000000049454e44ae426082"
)


def potential(seed=0, **changes) -> Potential:
    return Potential(small_network(seed, orders=(2, 3), **changes), Normalisation(-150.0, 0.5))


@pytest.fixture(scope="module")
def frames() -> list[Structure]:
    return list(ethanol()[:3])


@pytest.fixture(scope="module")
def made(frames):
    return explorer_block(
        Committee([potential(0), potential(1)]), frames, effects=80, untrained=1, off=[[(1, 0), (2, 8)]]
    )


def test_attention_of_the_page_is_that_of_the_model(made, frames):
    block, arrays = made
    assert block["members"] == ["mean of the members", "member 1", "member 2"]
    scales = arrays["scales"].reshape(3, 4, 3)
    for member, model in enumerate((Committee([potential(0), potential(1)]), potential(0), potential(1))):
        for r, record in enumerate(attention(model, frames[2])):
            stored = arrays[f"attention-{member}-{r}"].reshape(3, 9, 9)[2] * scales[member, r, 2]
            np.testing.assert_allclose(stored, record.matrix, atol=1e-4 * np.abs(record.matrix).max())
    assert [r["label"] for r in block["records"]] == [r.label for r in attention(potential(), frames[0])]


def test_effects_are_interventions(made, frames):
    block, arrays = made
    shown = block["effects"]["frames"]
    assert shown == [0, 2]  # two frames of 36 pairs fit 80
    model = Committee([potential(0), potential(1)])
    first, last = arrays["effectOffsets"][2:]
    ends, labels = arrays["effectPairOffsets"], block["effects"]["labels"]
    sets = {labels.get(e, e): arrays["effectPairs"][ends[e] : ends[e + 1]] for e in range(first, last)}
    names = [name for name in sets if isinstance(name, str)]
    assert names[:2] == ["C0–C1, O2–H8", "all covalent bonds"]
    assert names[-9:] == [f"all pairs of {s}{k}" for k, s in enumerate("CCOHHHHHH")]
    assert {len(pairs) for name, pairs in sets.items() if name not in names} == {1}
    assert len(sets) - len(names) == 36
    for name in ("C0–C1, O2–H8", "all pairs beyond 3 Å", "all pairs of O2", first + 7):
        number = first + list(sets).index(name)
        found = intervene(model, frames[2], sets[name].tolist())
        assert arrays["effectEnergy"][number] == pytest.approx(found.energy, rel=1e-4)
        forces = arrays["effectForces"].reshape(-1, 9, 3)[number] * arrays["effectScale"][number]
        np.testing.assert_allclose(forces, found.forces, atol=1e-4 * np.abs(found.forces).max())


def test_atomic_energies_and_constant_add_up(made):
    block, arrays = made
    total = arrays["atomic"].reshape(3, 9).sum(1) - 150.0
    np.testing.assert_allclose(total, [f["energy"] for f in block["frames"]], rtol=1e-6)


def test_curve_of_order_2_meets_the_pairs(frames):
    block, _ = explorer_block(potential(), frames[:1], effects=0, untrained=0)
    assert {line["record"] for line in block["curves"]["lines"]} == {0, 1}  # order 2 only
    (line,) = [line for line in block["curves"]["lines"] if line["record"] == 0]
    assert line["label"] == "all elements"
    matrix = attention(potential(), frames[0])[0].matrix
    i, j = np.triu_indices(9, 1)
    apart = np.linalg.norm(frames[0].positions[i] - frames[0].positions[j], axis=-1)
    curve = np.interp(apart, block["curves"]["distance"], line["alpha"])
    np.testing.assert_allclose(matrix[i, j], curve, atol=0.03 * np.abs(matrix).max())
    assert not block["effects"]["computed"]


def test_paths_add_up_to_the_coefficient(frames):
    network = small_network(orders=(3, 4))
    batch = collate(frames[:1], torch.float64)
    with torch.no_grad():
        for record in network.attention(batch):
            paths = network.paths(batch, record, [(0, 5), (5, 0)], 10_000)
            assert paths.atoms.shape == (2, 9 ** (record.order - 2), record.order)
            assert paths.values[0].sum() == pytest.approx(float(record.matrix[0, 0, 5]))
            assert paths.atoms[1, :, 0].eq(5).all()


def test_paths_of_a_network_with_rounds_are_its_product(frames):
    network = new_network("pair-states", {"channels": 8, "rounds": 2, "functions": 8}, (1, 6, 8))
    batch = collate(frames[:1], torch.float32)
    with torch.no_grad():
        record = network.attention(batch)[1]
        paths = network.paths(batch, record, [(0, 5)], 3)
        _, second = network.run(batch)
    size = (second.a[0, 0] * second.b[0, :, 5]).norm(dim=-1) / 3.0  # s = 9^(−1/2)
    best = size.argsort(descending=True)[:3]
    assert paths.atoms[0, :, 1].tolist() == best.tolist()
    torch.testing.assert_close(paths.values[0], size[best])


def test_hydrogen_bonds():
    water = np.array([[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])

    def two(*shift):
        return Structure(np.array([8, 1, 1] * 2), np.concatenate([water, water + np.array(shift)]))

    pair = two(2.85, 0, 0)
    assert np.argwhere(np.triu(hydrogen_bonds(pair))).tolist() == [[1, 3]]  # O–H···O, 1.89 Å
    assert not hydrogen_bonds(two(4.0, 0, 0)).any()
    assert not hydrogen_bonds(two(0.96, 2.2, 0))[1, 3]  # bent


def test_periodic_structures_have_a_cell_and_bonds_across_it():
    network = new_network("pair-states", {"channels": 8, "rounds": 1, "functions": 8, "radius": 3.0}, (1, 8))
    positions = np.array([[0.1, 1, 1], [7.2, 1, 1], [0.3, 1.9, 1], [5.4, 1, 1]])  # H of index 1 is next to O
    box = Structure(np.array([8, 1, 1, 8]), positions, cell=8 * np.eye(3), pbc=(True, True, True))
    model = Potential(network, Normalisation(0.0, 1.0))
    block, arrays = explorer_block(model, [box], untrained=0)
    assert block["frames"][0]["cell"] == (8 * np.eye(3)).ravel().tolist()
    assert arrays["bonds"].tolist() == [[0, 1], [0, 2]]
    assert arrays["hydrogenBonds"].tolist() == [[1, 3]]
    assert "all its images" in block["effects"]["note"]
    labels = block["effects"]["labels"]
    (number,) = [e for e, label in labels.items() if label == "all pairs between molecules"]
    start, end = arrays["effectPairOffsets"][number : number + 2]
    off = arrays["effectPairs"][start:end].tolist()
    assert off == [[0, 3], [1, 3], [2, 3]]
    expected = intervene(model, box, off)
    assert arrays["effectEnergy"][number] == pytest.approx(expected.energy, rel=1e-4)
    assert arrays["turns"].reshape(3, 3).tolist() == np.eye(3).tolist()


def test_frames_are_aligned(frames):
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    first = frames[0]
    moved = Structure(first.numbers, first.positions @ turn.T + 3.0)
    other = Structure(first.numbers[:4], first.positions[:4])
    turns = common_turns([first, moved, other]).reshape(3, 3, 3)
    np.testing.assert_allclose(turns[0], np.eye(3), atol=1e-6)
    np.testing.assert_allclose(turns[1], turn.T, atol=1e-6)
    base, own = (np.reshape(good_view(s), (3, 3)) for s in (first, other))
    np.testing.assert_allclose(base @ turns[2], own, atol=1e-6)


def test_sets_between_several_molecules():
    water = np.array([[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    three = Structure(
        np.array([8, 1, 1] * 3),
        np.concatenate([water + np.array([shift, 0, 0]) for shift in (0.0, 3.0, 6.0)]),
    )
    sets = {each.label: each.pairs for each in usual_sets(three)}
    assert len(sets["all pairs between molecules"]) == 27
    assert sets["pairs of molecules 1 (H2O) and 3 (H2O)"].tolist() == [
        [i, j] for i in range(3) for j in (6, 7, 8)
    ]
    assert len(sets["all pairs beyond 5 Å"]) < 9


def test_a_page_is_complete_and_escaped():
    evil = "</script><script>alert(1)</script>"
    page = Page(evil, evil, [{"kind": "text", "text": evil}], {"x": np.arange(3, dtype=np.uint16)}).render()
    assert "<script>alert" not in page
    content = re.search(r'id="page">(.*?)</script>', page, re.DOTALL).group(1)
    assert json.loads(content)["blocks"][0]["text"] == evil
    stored = re.search(r'id="array:x" data-type="uint16">(.*?)</script>', page).group(1)
    assert np.frombuffer(zlib.decompress(base64.b64decode(stored)), np.uint16).tolist() == [0, 1, 2]
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert page.count("<iframe") == 0
    assert Page("t")._repr_html_().startswith("<iframe srcdoc=")


def test_blocks_of_the_report_of_experiments(chromium, tmp_path):
    picture = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    blocks = [
        {"kind": "contents", "headings": ["One", "Two"]},
        {"kind": "heading", "text": "One"},
        {"kind": "prose", "text": "Some **bold** words <b>\n\nA list:\n- `first`\n- second"},
        {"kind": "table", "title": "T", "header": ["a"], "rows": [["1"], ["2"]], "strong": [1], "note": "n"},
        {"kind": "figures", "items": [{"source": picture, "caption": "A pixel"}]},
        {"kind": "heading", "text": "Two"},
    ]
    page = chromium.new_page()
    visit = Visit(page, Page("t", "s", blocks).save(tmp_path / "page.html"))
    assert page.locator("main strong").inner_text() == "bold"
    assert page.locator("main b").count() == 0
    assert page.locator("li code").inner_text() == "first"
    assert page.locator("tr.strong").inner_text() == "2"
    assert page.locator("img").evaluate("(image) => image.naturalWidth") == 1
    page.get_by_role("button", name="Two").click()
    visit.requests = [url for url in visit.requests if not url.startswith("data:")]
    visit.check()
    page.close()


def test_quantised():
    values = np.array([-2.0, 0.5, 1e-9])
    numbers, scale = quantised(values)
    np.testing.assert_allclose(numbers * scale, values, atol=2.0 / 32767)
    assert quantised(np.zeros(2))[1] == 0.0


def test_a_network_without_switch_or_paths(frames):
    torch.manual_seed(0)
    tiny = Potential(Tiny(TinyConfig((1, 6, 8))), Normalisation(0.0, 1.0))
    block, _ = explorer_block(tiny, frames[:2], untrained=0)
    assert "cannot be switched off" in block["effects"]["note"]
    assert block["paths"] == []
    assert block["records"][0]["layerLabel"] == "pairs"


def test_messages(frames, tmp_path):
    with pytest.raises(GeomAttError, match="no structure"):
        explain(potential(), [])
    with pytest.raises(GeomAttError, match="at least 1"):
        explain(potential(), frames, frames=0)
    for pairs in ([(0, 9)], [(1, 1)], []):
        with pytest.raises(GeomAttError, match="two different atoms out of 0 to 8"):
            explain(potential(), frames, off=[pairs])
    with pytest.raises(GeomAttError, match="the name of a page"):
        Page("t").save(tmp_path / "page.png")


def test_figures(frames, tmp_path):
    few = Structure(frames[0].numbers[:3], frames[0].positions[:3])
    made = write_figures(attention(potential(), few), few, tmp_path / "new" / "folder", formats=["svg"])
    assert [path.name for path in made] == ["attention.svg", "molecule.svg"]
    assert all(path.read_text().startswith("<?xml") for path in made)


def test_command(tmp_path):
    save(potential(), tmp_path / "model.safetensors")
    write(ethanol()[:5], tmp_path / "frames.extxyz")
    model, data, out = (str(tmp_path / name) for name in ("model.safetensors", "frames.extxyz", "page.html"))
    options = ["--frames", "2", "--effects", "3", "--untrained", "0", "--npz", str(tmp_path / "alpha.npz")]
    wrong = CliRunner().invoke(app, ["explain", model, data, "-o", out, "--off", "0,1"])
    assert isinstance(wrong.exception, GeomAttError)
    assert "Write them like 0-1,2-5" in str(wrong.exception)
    options += ["--off", "0-1, 8-2"]
    result = CliRunner().invoke(app, ["explain", model, data, "-o", out, *options])
    assert result.exit_code == 0, result.output
    assert "2 of 5 structures are shown" in result.output
    assert (tmp_path / "page.html").stat().st_size < 200_000
    assert (
        "C0–C1, O2–H8"
        in json.loads(
            re.search(r'id="page">(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL).group(1)
        )["blocks"][-1]["effects"]["labels"].values()
    )
    with np.load(tmp_path / "alpha.npz") as stored:
        assert stored["alpha"].shape == (4, 9, 9)
