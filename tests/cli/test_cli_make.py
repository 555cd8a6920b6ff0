"""`geomatt sample` and `geomatt label` as a user calls them."""

from __future__ import annotations

import errno
import json
from contextlib import nullcontext
from pathlib import Path

import ase.io
import pytest
from ase.build import molecule
from command_line import invoke

from geomatt.cli import main
from geomatt.cli.generated import with_flags
from geomatt.data import read
from geomatt.data.make import Workers, open_workers
from geomatt.errors import GeomAttError

TOY = ["--calculator", "toy_calculators:Springs"]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Starting another process takes most of the time."""

    def opened(workers=1, dask=None):
        return nullcontext(Workers()) if (workers, dask) == (1, None) else open_workers(workers, dask)

    monkeypatch.setattr("geomatt.data.make.open_workers", opened)


@pytest.fixture
def water(tmp_path):
    ase.io.write(tmp_path / "water.xyz", molecule("H2O"))
    return tmp_path / "water.xyz"


def test_sample_then_label(water, tmp_path):
    out = tmp_path / "water.npz"
    answer = invoke("sample", water, "--out", out, *TOY, "--frames", 6, "--walkers", 2, "--equilibrate", 0,
                    "--temperature", "300,600", "--argument", "fails=7")  # fmt: skip
    assert "labelled frames" in answer.output
    assert "geomatt train" in answer.output
    assert json.loads(out.with_suffix(".json").read_text())["made_by"]["method"]["arguments"] == {"fails": 7}
    labelled = tmp_path / "labelled.extxyz"
    answer = invoke("label", out, "--out", labelled, *TOY)
    assert "6 structures labelled" in answer.output
    assert abs(read(labelled).energies - read(out).energies).max() < 1e-12


def test_smiles(tmp_path):
    out = tmp_path / "water.extxyz"
    invoke("sample", "O", "--out", out, *TOY, "--frames", 2, "--walkers", 1, "--equilibrate", 0)
    assert len(read(out)) == 2


def test_messages_name_options(water, tmp_path):
    with pytest.raises(GeomAttError, match="`temperature`") as error:
        invoke("sample", water, "--out", tmp_path / "x.npz", "--temperature", "-5")
    assert "--temperature must be positive" in with_flags(str(error.value))
    for arguments, message in [
        (["--temperature", "hot"], "numbers such as 300,1000"),
        (["--argument", "accuracy"], "not of the form accuracy=0.1"),
        (["--out", tmp_path / "x.csv"], "must end in"),
        (["--dask", "nowhere"], "neither local:N"),
        (["--calculator", "nothing:here"], "cannot be imported"),
    ]:
        with pytest.raises(GeomAttError, match=message):
            invoke("sample", water, "--out", tmp_path / "x.npz", *TOY, *arguments)
    with pytest.raises(GeomAttError, match="neither a file nor a valid SMILES"):
        invoke("sample", "ethanol!", "--out", tmp_path / "x.npz")
    assert "--calculator x" in with_flags("`calculator` x")
    assert "--argument" in with_flags("`arguments`")


def test_disk_that_fills_up_while_another_library_writes(monkeypatch, capsys):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device", "run/dynamics.traj")

    monkeypatch.setattr("geomatt.cli.app", full)
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "Cannot write run/dynamics.traj: No space left" in capsys.readouterr().err
    monkeypatch.setattr("geomatt.cli.app", Path("no/such/file").read_text)  # a mistake of the program
    with pytest.raises(FileNotFoundError):
        main()
