"""The commands that simulate, through their command line."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import invoke

from geomatt import GeomAttError
from geomatt.cli.console import count, duration
from geomatt.cli.generated import with_flags
from geomatt.cli.md import alarms_in_words
from geomatt.data import read
from geomatt.locks import file_lock
from geomatt.model import load, save

pytest.importorskip("ase")

MODEL = "md17/ethanol:fast"
ETHANOL = """9

C -0.75 0.02 0.0
C 0.58 -0.70 0.02
O 1.64 0.25 -0.04
H -0.85 0.66 0.88
H -0.84 0.65 -0.89
H -1.57 -0.71 0.0
H 0.67 -1.33 0.91
H 0.67 -1.36 -0.85
H 2.47 -0.23 -0.02
"""
ACETAMIDE = """9

O 0.425 1.327 0.008
C 0.077 0.150 -0.004
N 0.986 -0.879 -0.049
C -1.371 -0.289 0.000
H 0.708 -1.824 0.170
H -1.997 0.585 -0.175
H -1.561 -1.039 -0.772
H -1.632 -0.723 0.970
H 1.953 -0.632 0.112
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder to work in, with a molecule."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ethanol.xyz").write_text(ETHANOL)
    return tmp_path


def run(*arguments: object, code: int | None = 0) -> str:
    result = invoke(*arguments)
    assert code is None or result.exit_code == code, result.output
    return re.sub(r"\s+", " ", result.output)


def test_md_and_more_of_it(place):
    text = run("md", MODEL, "ethanol.xyz", "--time", 0.04, "--replicas", 2, "--seed", 3)
    for expected in (
        "steps/s",
        "ns/day",
        "drift",
        "highest",
        "changed",
        "acted",
        "complete",
    ):
        assert expected in text, expected
    assert "--resume --time 0.08" in text
    folder = place / "ethanol_md"
    found = json.loads((folder / "md.json").read_text())
    assert [r["seed"] for r in found["replicas"]] == [3, 4]
    assert found["model"] == MODEL
    assert len(read(folder / "trajectory_1.extxyz", energy_unit="eV")) == 5
    run("md", "--out", "ethanol_md", "--resume", "--time", 0.08, "--report")
    page = Path("ethanol_md/report.html").read_text(encoding="utf-8")
    assert "The trajectory and its attention" in page
    assert '"kind": "explorer"' in page
    assert len(read(folder / "trajectory_1.extxyz", energy_unit="eV")) == 9
    assert (folder / "md.png").stat().st_size > 1000
    with pytest.raises(GeomAttError, match="holds a simulation") as error:
        run("md", MODEL, "ethanol.xyz")
    assert "--resume" in with_flags(str(error.value))
    with pytest.raises(GeomAttError, match=r"started with `temperature` = 300.*Leave it out"):
        run("md", "--out", "ethanol_md", "--resume", "--temperature", 400)
    with pytest.raises(GeomAttError, match="Give a model and a structure"):
        run("md")
    with pytest.raises(GeomAttError, match="--out"):
        run("md", "--resume")


def test_a_large_drift_is_a_warning():
    row = {"failure": "", "survived_ps": 2.0, "bonds_changed": [], "alarms": {}, "wall_pairs": []}
    for drift, warned in ((-3.0, 1), (0.01, 0), (float("nan"), 0)):
        rows = [{**row, "drift_meV_per_atom_ps": drift}]
        report = SimpleNamespace(
            outcome=SimpleNamespace(rows=lambda rows=rows: rows), settings=SimpleNamespace(replicas=1)
        )
        assert len(alarms_in_words(report)) == warned


@pytest.mark.filterwarnings("ignore:This model failed in long dynamics")
def test_md_that_fails_says_so(place):
    text = run("md", MODEL, "ethanol.xyz", "--time", 0.2, "--temperature", 30000, "--no-walls", code=1)
    assert "stopped" in text
    assert "to_label.extxyz" in text
    assert len(read(place / "ethanol_md" / "to_label.extxyz")) >= 1


def test_relax_refuses_structures_before_it_starts(place, monkeypatch):
    lines = ETHANOL.splitlines()
    lines[5] = lines[6].replace("-0.89", "-0.88")
    (place / "two.xyz").write_text(ETHANOL + "\n".join(lines) + "\n")
    monkeypatch.setattr("geomatt.cli.relax.relax_one", lambda *_: pytest.fail("relaxed"))
    with pytest.raises(GeomAttError, match="structure 1 has overlapping atoms: H3 and H4"):
        run("relax", MODEL, "two.xyz", "--all")


def test_a_single_atom_relaxes_and_does_not_vibrate(place, monkeypatch):
    (place / "atom.xyz").write_text("1\n\nC 0 0 0\n")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        text = run("relax", MODEL, "atom.xyz")
    assert {str(w.message)[:26] for w in told} == {"This model was trained on "}
    assert "geomatt vibrations" not in text
    monkeypatch.setattr("geomatt.cli.vibrations.relax_one", lambda *_: pytest.fail("relaxed"))
    with pytest.raises(GeomAttError, match="single atom"):
        run("vibrations", MODEL, "atom.xyz")


def test_a_warning_of_md_names_options(place):
    far = [f"{z} {2 * float(x)} {2 * float(y)} {2 * float(w)}" for z, x, y, w in
           (line.split() for line in ETHANOL.splitlines()[2:])]  # fmt: skip
    (place / "far.xyz").write_text("\n".join(["9", "", *far]) + "\n")
    text = run("md", MODEL, "far.xyz", "--time", 0.01, code=None)
    assert "is the unit of its positions, --length-unit, right?" in text


def test_a_time_that_never_ends_is_refused():
    with pytest.raises(GeomAttError, match=r"more than 1e\+15 steps"):
        run("md", MODEL, "ethanol.xyz", "--time", 1e300)


def test_durations_and_counts_in_words():
    assert [duration(s) for s in (5, 65, 7260, 86400 * 5000)] == [
        "5 s",
        "1 min 05 s",
        "2 h 01 min",
        "5,000 days",
    ]
    assert [count(n, "structure") for n in (0, 1, 2)] == ["0 structures", "1 structure", "2 structures"]


def test_vibrations_refuse_a_cell_before_they_relax(place, monkeypatch):
    lines = ETHANOL.splitlines()
    lines[1] = 'Lattice="9 0 0 0 9 0 0 0 9" pbc="T T T"'
    (place / "cell.xyz").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr("geomatt.cli.vibrations.relax_one", lambda *_: pytest.fail("relaxed"))
    with pytest.raises(GeomAttError, match="molecules only"):
        run("vibrations", MODEL, "cell.xyz")


@pytest.mark.filterwarnings("ignore:This model was trained on")
def test_a_relaxation_that_runs_away_says_so(place):
    """Acetamide, which the model of uracil does not know; without bounds it falls without end."""
    (place / "acetamide.xyz").write_text(ACETAMIDE)
    free = str(save(load("md17/uracil:pair").members[0].without_bounds(), place / "free.safetensors"))
    text = run("relax", free, "acetamide.xyz", code=1)
    assert "stopped" in text
    assert "the relaxation ran away and was stopped at step 24" in text
    assert "geomatt auto acetamide.xyz" in text
    assert "geomatt md " not in text
    folder = place / "acetamide_relax"
    (found,) = json.loads((folder / "relax.json").read_text())["structures"]
    assert "in 25 structures in a row" in found["failure"]
    assert not found["converged"]
    assert 'failure="a force' in (folder / "relaxed.extxyz").read_text()
    with pytest.raises(GeomAttError, match="No vibrations were computed: the relaxation ran away"):
        run("vibrations", free, "acetamide.xyz")
    scanned = run(
        "scan",
        free,
        "acetamide.xyz",
        "--torsion",
        "0,1,2,4",
        "--points",
        2,
        "--relaxed",
        code=1,
    )
    assert "of 2 of 2 points led to no result" in scanned
    assert "in a row" in json.loads((place / "acetamide_scan" / "scan.json").read_text())["failures"][0]


def test_relax_vibrations_and_scan(place):
    text = run("relax", MODEL, "ethanol.xyz", "--fmax", 0.02)
    assert "yes" in text
    assert f"geomatt vibrations {MODEL}" in text
    relaxed = place / "ethanol_relax" / "relaxed.extxyz"
    assert len(read(place / "ethanol_relax" / "path.extxyz", energy_unit="eV")) > 3
    assert json.loads((place / "ethanol_relax" / "relax.json").read_text())["structures"][0]["converged"]
    with file_lock(place / "ethanol_relax" / ".lock"), pytest.raises(GeomAttError, match="in use by process"):
        run("relax", MODEL, "ethanol.xyz")
    assert "no " in run(
        "relax", MODEL, "ethanol.xyz", "--steps", 1, "--optimiser", "fire", "--out", "b", code=1
    )

    text = run("vibrations", MODEL, relaxed, "--out", "vib", "--fmax", 0.01)
    assert "Zero-point energy: 2.1" in text
    assert len(list((place / "vib" / "modes").glob("mode_*.extxyz"))) == 21
    assert len(json.loads((place / "vib" / "vibrations.json").read_text())["wavenumbers_cm-1"]) == 21
    text = run("vibrations", MODEL, "ethanol.xyz", "--no-relax", "--out", "vib2")
    assert "not a stationary point" in text

    text = run(
        "scan", MODEL, relaxed, "--torsion", "0,1,2,8", "--points", 5, "--out", "scan",
        "--reference", "ase.calculators.lj:LennardJones", "--reference-option", "sigma=0.9",
    )  # fmt: skip
    assert "Rigid scan of torsion C0–C1–O2–H8, kcal/mol" in text
    assert "RMS difference" in text
    first = json.loads((place / "scan" / "scan.json").read_text())
    assert len(first["references"][0]["energies_eV"]) == 5
    text = run(
        "scan", MODEL, relaxed, "--torsion", "0,1,2,8", "--points", 3, "--from", -170, "--to", 170,
        "--unit", "eV", "--reference", "scan/scan.extxyz", "--energy-unit", "eV",
    )  # fmt: skip
    assert "Against scan/scan.extxyz" in text
    with pytest.raises(GeomAttError, match="--torsion"):
        run("scan", MODEL, relaxed)
    with pytest.raises(GeomAttError, match="nor xtb"):
        run("scan", MODEL, relaxed, "--distance", "0,1", "--reference", "nothing")
