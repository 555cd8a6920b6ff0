"""The README: its examples run, its commands and links exist, its figures match the result file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ase
import ase.io
import torch
import typer
from command_line import Process
from conftest import small_network

from geomatt import Potential, save
from geomatt.cli import app
from geomatt.model import Normalisation

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_example_runs(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    network = small_network(dtype=torch.float32)
    save(Potential(network, Normalisation(-100.0, 1.0)), tmp_path / "runs/mine/model.safetensors")
    ase.io.write(tmp_path / "molecule.xyz", ase.Atoms("OH2", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "('k=2 layer 1', (3, 3))" in capsys.readouterr().out


def test_commands_exist():
    commands = set(
        re.findall(r"geomatt (\w[\w-]*)", "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)))
    )
    assert commands
    assert commands <= set(typer.main.get_command(app).commands)


def test_demo_figures_match_the_result_file():
    from scripts_path import load_script

    update = load_script("update_readme")
    result = json.loads((ROOT / "results/demo.json").read_text(encoding="utf-8"))
    assert update.with_demo(README, result) == README


def test_links_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_demo_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("geomatt-demo", "geomatt-demo-2"):  # a second demo leaves the first alone
        printed = Process("demo", "--epochs", "1", "--md-steps", "5").check()
        assert "forces MAE" in printed
        assert "next" in printed
        for file in ("model.safetensors", "attention.png", "molecule.png", "parity.png", "demo.json"):
            assert (tmp_path / name / file).stat().st_size > 0
