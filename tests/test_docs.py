"""The documentation: its tutorials run as they stand, its commands and options exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from geomatt.cli import app

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
OTHERS = ("start.md", "explorer.md", "simulation.md")
PAGES = [*TUTORIALS, *(ROOT / "docs" / name for name in OTHERS), ROOT / "README.md"]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    code = blocks(path, "python")
    assert code
    for block in code:
        exec(compile(block, f"{path.name}", "exec"), names)
    assert capsys.readouterr().out.strip()


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
