"""`geomatt data` through the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import Answer, geomatt

from geomatt.data import ethanol, read, write


def run(*words: object) -> Answer:
    return geomatt("data", *words)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    np.savez(
        path, my_z=[8, 1, 1], R=rng.normal(size=(5, 3, 3)), E=rng.normal(size=5), F=rng.normal(size=(5, 3, 3))
    )
    return path


def test_notes_name_options_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "spin.xyz"
    file.write_text("1\nspin=1 energy=-13.6\nH 0 0 0\n")
    done = run("info", file, "--energy-unit", "eV", "--length-unit", "Ang")
    assert done.status == 0, done.stderr
    assert "give --key multiplicity=spin" in flat(done.stdout)


def test_info() -> None:
    result = run("info", "embedded/ethanol")
    assert result.status == 0, result.stderr
    text = flat(result.stdout)
    for expected in ("structures 2,000", "atoms 9", "formula C2H6O", "elements H C O", "kcal/mol"):
        assert expected in text
    assert "read from the file" in text
    assert "Nothing about the labels looks wrong" in text
    assert "not compared" not in result.stderr


def test_info_of_few_frames_says_what_was_not_checked(tmp_path: Path) -> None:
    few = tmp_path / "few.npz"
    write(ethanol()[:20], few)
    result = run("info", few)
    assert "Nothing about the labels looks wrong" in result.stdout
    assert "Energies were not compared with forces" in flat(result.stderr)


def test_info_needs_units_and_keys(file: Path) -> None:
    result = run("info", file)
    assert result.status == 1
    assert "numbers=NAME" in flat(result.stderr)
    result = run("info", file, "--key", "numbers=my_z")
    assert "does not state its energy unit" in flat(result.stderr)
    options = ("--key", "numbers=my_z", "--energy-unit", "eV", "--length-unit", "Ang")
    result = run("info", file, *options)
    assert result.status == 0
    assert "Warning: The forces of" in flat(result.stdout)
    assert "is not of the form" in flat(run("info", file, "--key", "numbers").stderr)


def test_convert_there_and_back(tmp_path: Path, file: Path) -> None:
    middle, end = tmp_path / "middle[bold].extxyz", tmp_path / "end.npz"
    options = ("--key", "numbers=my_z", "--energy-unit", "Hartree", "--length-unit", "Bohr")
    result = run("convert", file, middle, *options)
    assert result.status == 0, result.stderr
    assert result.stdout.strip() == str(middle)
    assert "Hartree and Bohr (given)" in result.stderr
    assert run("convert", middle, end).status == 0
    start, stop = read(file, energy_unit="Hartree", length_unit="Bohr", keys={"numbers": "my_z"}), read(end)
    assert stop.energies == pytest.approx(start.energies, rel=1e-12)
    assert np.allclose(stop.forces, start.forces, atol=1e-7)  # type: ignore[arg-type]
    result = run("convert", end, tmp_path / "no" / "where.npz")
    assert result.status == 1
    assert "no directory" in flat(result.stderr)


def test_force_unit(tmp_path: Path, file: Path) -> None:
    options = ("--key", "numbers=my_z", "--energy-unit", "eV", "--length-unit", "Ang")
    result = run("info", file, *options, "--force-unit", "kcal/mol/Ang")
    assert "forces in file kcal/mol/Ang (given)" in flat(result.stdout)
    end = tmp_path / "end.npz"
    result = run("convert", file, end, *options, "--force-unit", "kcal/mol/Ang")
    assert "forces in kcal/mol/Ang (given)" in flat(result.stderr)
    with np.load(file) as old, np.load(end) as new:
        assert np.allclose(new["F"], old["F"] * 0.0433641)


def test_convert_does_not_overwrite_its_input(tmp_path: Path, file: Path) -> None:
    before = file.read_bytes()
    link = tmp_path / "link.npz"
    link.symlink_to(file)
    options = ("--key", "numbers=my_z", "--energy-unit", "eV", "--length-unit", "Ang")
    for target in (file, link, tmp_path / "." / "data.npz"):
        result = run("convert", file, target, *options)
        assert result.status == 1
        assert "is the file to be read" in flat(result.stderr)
    assert file.read_bytes() == before
    assert link.is_symlink()


def test_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from geomatt.data.public.embedded import __file__ as embedded

    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path / "cache"))
    result = run("get", "md17/ethanol", "--from", Path(embedded).with_name("ethanol.npz"))
    assert result.status == 0, result.stderr
    assert Path(result.stdout.strip()).is_file()
    assert "copied" in result.stderr
    assert "already there" in run("get", "md17/ethanol").stderr
    assert "md17/ethanol (fetched)" in flat(run("get").stdout)
    assert "structures 2,000" in flat(run("info", "md17/ethanol").stdout)
    result = run("get", "md17/aspirin", "--from", Path(embedded).with_name("ethanol.npz"))
    assert result.status == 1
    assert "contains C2H6O with 9 atoms, but md17/aspirin is C9H8O4" in flat(result.stderr)
    result = run("get", "md17/nothing")
    assert result.status == 1
    assert "Known are" in result.stderr


def test_get_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOMATT_CACHE", str(tmp_path))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    result = run("get", "md17/ethanol")
    assert result.status == 1
    text = flat(result.stderr)
    assert "http://www.quantum-machine.org/gdml/data/npz/md17_ethanol.npz" in text
    assert str(tmp_path / "md17" / "md17_ethanol.npz") in text


@pytest.mark.parametrize("command", ["get", "info", "convert"])
def test_help_has_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.status == 0
    assert f"geomatt data {command}" in flat(result.stdout)
    assert "Example:" in result.stdout
