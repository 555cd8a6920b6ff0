"""Model files: exact round trips, upgrades, and an error message for every kind of bad file."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Process
from conftest import small_network
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save_file

import geomatt
from geomatt import Committee, GeomAttError, Potential, Structure, load, save
from geomatt.model import Normalisation, files, new_network
from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.memory import weight_bytes

CONFIG = GeometricAttentionConfig(
    elements=(1, 6, 8), orders=(2, 3), layers=2, features=8, overlap_features=16, gamma=8.0, d_max=3.0,
    spacing=0.25,
)  # fmt: skip
RECORD = {"seed": 3, "split": {"train": [0, 2], "val": [1]}, "data_hash": "abc", "lr": 1e-3, "note": "ä"}


def make(dtype=torch.float32, seed=0, **config) -> Potential:
    torch.manual_seed(seed)
    network = GeometricAttention(GeometricAttentionConfig(**(CONFIG.to_dict() | config))).to(dtype)
    return Potential(network, Normalisation(-4214.123456789012, 0.18, {6: -1.5}), dict(RECORD))


def molecule(n=5, seed=0) -> Structure:
    rng = np.random.default_rng(seed)
    return Structure(rng.choice([1, 6, 8], n), rng.normal(size=(n, 3)) * 1.5)


def rewrite(path: Path, change) -> None:
    """Change header and tensors of a model file."""
    tensors = load_tensors(path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["geomatt"])
    change(header, tensors)
    save_file(tensors, path, {"geomatt": json.dumps(header)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_round_trip_is_exact(tmp_path, dtype, bias):
    potential = make(dtype, bias=bias)
    save(potential, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert isinstance(again, Potential)
    assert again.dtype == dtype
    assert again.network.config == potential.network.config
    assert again.normalisation == potential.normalisation
    assert again.record == RECORD
    before, after = (p.predict([molecule()], attention=True)[0] for p in (potential, again))
    assert before.energy == after.energy
    assert np.array_equal(before.forces, after.forces)
    assert files.fingerprint(potential) == files.fingerprint(again)


def test_precision_can_be_chosen(tmp_path):
    save(make(), tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors", dtype="float64").dtype == torch.float64
    assert load(tmp_path / "m.safetensors", dtype=torch.float64).dtype == torch.float64
    with pytest.raises(GeomAttError, match="precision"):
        load(tmp_path / "m.safetensors", dtype="float16")
    with pytest.raises(GeomAttError, match="device"):
        load(tmp_path / "m.safetensors", device="toaster")
    if not torch.cuda.is_available():
        with pytest.raises(GeomAttError, match="No CUDA"):
            load(tmp_path / "m.safetensors", device="cuda")


def test_header_contains_all_metadata(tmp_path):
    save(make(), tmp_path / "m.safetensors")
    header, _ = files.read_contents((tmp_path / "m.safetensors").read_bytes(), tmp_path / "m.safetensors")
    assert header["format"] == files.FORMAT
    assert header["version"] == geomatt.__version__
    assert header["units"] == {"energy": "eV", "length": "Ang"}
    assert header["elements"] == [1, 6, 8]
    assert header["dtype"] == "float32"


def test_record_accepts_numpy_and_refuses_other_types(tmp_path):
    potential = make()
    potential.record = {"indices": np.arange(3), "mae": np.float64(0.5), "path": Path("a")}
    save(potential, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").record == {"indices": [0, 1, 2], "mae": 0.5, "path": "a"}
    potential.record = {"object": object()}
    with pytest.raises(TypeError, match="record"):
        save(potential, tmp_path / "m.safetensors")


def test_loading_leaves_random_numbers_alone(tmp_path):
    save(make(), tmp_path / "m.safetensors")
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load(tmp_path / "m.safetensors")
    assert torch.equal(torch.rand(1), expected)


def test_files_with_retired_settings_load(tmp_path, monkeypatch):
    """A file that names a setting of an earlier version, with the value that changes nothing."""
    network = new_network("pair", {"channels": 4, "rounds": 1, "functions": 4}, (1, 8))
    kept = type(network.config).to_dict
    monkeypatch.setattr(type(network.config), "to_dict", lambda self: {**kept(self), "symmetric": False})
    save(Potential(network, Normalisation()), tmp_path / "model.safetensors")
    monkeypatch.undo()
    assert load(tmp_path / "model.safetensors").network.config == network.config
    stored = {"model": "pair", "network": {"channels": 4, "symmetric": False}}
    assert "symmetric" not in geomatt.resolve({}, stored).network
    with pytest.raises(GeomAttError, match="unknown settings: symmetric"):
        geomatt.resolve({}, {"model": "pair", "network": {"symmetric": True}})


def test_fingerprint_of_a_shipped_model_stays_with_new_settings():
    """Runs that were begun, and results, are tied to a model by its fingerprint."""
    shipped = files.load("md17/ethanol:pair-s").members[0].without_bounds()
    found = "771c0eb61423107da063a79d91870af9f94970472134b6872067b2a56e182efa"
    assert files.fingerprint(shipped) == found


def test_fingerprint_sees_weights_and_normalisation():
    potential = make()
    first = files.fingerprint(potential)
    assert files.fingerprint(make(seed=1)) != first
    potential.normalisation = Normalisation(1.0)
    assert files.fingerprint(potential) != first
    assert files.fingerprint(Committee([make(), make(seed=1)])) != first


def test_directories(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(GeomAttError, match="neither"):
        load(run)
    for k in (0, 1, 2, 10):
        save(make(seed=k), run / f"member_{k}" / "model.safetensors")
    committee = load(run)
    assert isinstance(committee, Committee)
    assert files.fingerprint(committee.members[3]) == files.fingerprint(make(seed=10))
    prediction = committee.predict([molecule()])[0]
    assert prediction.energy_spread > 0
    (run / "member_3").mkdir()
    with pytest.raises(GeomAttError, match=r"member_3 .*`resume`"):
        load(run)
    save(make(seed=7), run / "model.safetensors")
    assert isinstance(load(run), Potential)


def set_header(**values):
    return lambda header, tensors: header.update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_header(format=9, version="9.9"), "format 9, written by geomatt 9.9.*pip install --upgrade"),
        (set_header(format="x"), "does not say which format"),
        (set_header(kind="other"), "kind 'other'"),
        (set_header(dtype="int8"), "damaged description"),
        (set_header(normalisation={}), "damaged description"),
        (lambda h, t: h.pop("record"), "damaged description"),
        (lambda h, t: h["config"].update(surprise=1), "damaged description"),
        (lambda h, t: t.pop("W"), "lacks W"),
        (lambda h, t: t.update(extra=torch.zeros(1)), "unknown extra"),
        (lambda h, t: t.update(W=torch.zeros(2)), r"W has shape \(2,\)"),
        (lambda h, t: t.update(W=t["W"].double()), "W is torch.float64"),
    ],
)
def test_inconsistent_files_are_refused(tmp_path, change, message):
    path = tmp_path / "m.safetensors"
    save(make(), path)
    rewrite(path, change)
    with pytest.raises(GeomAttError, match=message):
        load(path)


def test_older_formats_are_upgraded(tmp_path, monkeypatch):
    """A file of format 0, invented here, had the mean under another name."""

    def upgrade(header, tensors):
        header["normalisation"]["shift"] = header["normalisation"].pop("mean")
        return header, tensors

    path = tmp_path / "m.safetensors"
    save(make(), path)

    def age(header, tensors):
        header["format"] = 0
        header["normalisation"]["mean"] = header["normalisation"].pop("shift")

    rewrite(path, age)
    monkeypatch.setitem(files.UPGRADES, 0, upgrade)
    assert load(path).normalisation.shift == make().normalisation.shift


def test_every_truncation_is_a_clear_error(tmp_path):
    path = tmp_path / "m.safetensors"
    save(make(), path)
    content = path.read_bytes()
    for length in (0, 1, 8, 9, 100, 2000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(GeomAttError, match="truncated"):
            load(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"x": torch.zeros(3)}, path)
    with pytest.raises(GeomAttError, match="not a geomatt model"):
        load(path)
    save_file({"x": torch.zeros(3)}, path, {"geomatt": "{"})
    with pytest.raises(GeomAttError, match="damaged description"):
        load(path)
    save_file({"x": torch.zeros(3)}, path, {"geomatt": "[]"})
    with pytest.raises(GeomAttError, match="damaged description"):
        load(path)
    torch.save({"x": torch.zeros(3)}, tmp_path / "m.pt")
    path.write_text("just some text, longer than nine")
    (tmp_path / "bad.safetensors").write_bytes((9).to_bytes(8, "little") + b"{not json" + b"0" * 20)
    for foreign in (tmp_path / "m.pt", path, tmp_path / "bad.safetensors"):
        with pytest.raises(GeomAttError, match="not a safetensors file"):
            load(foreign)


def test_missing_files_and_names(tmp_path):
    with pytest.raises(GeomAttError, match=r"There is no model file .*RUN/model\.safetensors"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(GeomAttError, match="No model of that name ships"):
        load("md17/caffeine")
    with pytest.raises(
        GeomAttError, match=r"The nearest are md17/ethanol:pair-s, .*`geomatt models` lists all"
    ):
        load("md17/ethanol:pair-x")


def test_unwritable_output(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(GeomAttError, match="Cannot write"):
        save(make(), tmp_path / "file" / "m.safetensors")
    with pytest.raises(GeomAttError, match="directory"):
        save(make(), tmp_path)
    with pytest.raises(GeomAttError, match="committee"):
        save(Committee([make()]), tmp_path / "m.safetensors")

    save(make(), tmp_path / "m.safetensors")
    before = (tmp_path / "m.safetensors").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GeomAttError, match="free some space"):
        save(make(seed=1), tmp_path / "m.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "m.safetensors"]


def test_import_needs_neither_ase_nor_torch():
    """`import geomatt` is quick, and everything but the calculator works without ASE."""
    code = (
        "import sys; sys.modules['ase'] = None\n"
        "import geomatt\n"
        "assert 'torch' not in sys.modules\n"
        "geomatt.load, geomatt.save, geomatt.Potential, geomatt.attention, geomatt.evaluate\n"
        "try: geomatt.GeomAttCalculator\n"
        "except geomatt.GeomAttError as error: assert 'pip install ase' in str(error)\n"
        "else: raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def make_small_networks() -> None:
    before = set(sys.modules)
    for kind in ("geomatt", "pair"):
        network = new_network(kind, {}, (1, 6, 8))
        size = sum(w.numel() * w.element_size() for w in network.parameters())
        assert weight_bytes(type(network), network.config, torch.float32) == size
    assert "torch._dynamo" not in set(sys.modules) - before


def test_small_networks_are_made_without_the_slow_imports_of_torch():
    Process(run=make_small_networks).check()


def test_weights_of_large_networks_are_counted_and_not_allocated():
    config = GeometricAttentionConfig((1, 6, 8), features=10_000)
    assert weight_bytes(GeometricAttention, config, torch.float32) > 5e9


def test_unknown_names():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = geomatt.nonsense
    assert set(geomatt.__all__) <= set(dir(geomatt))


def test_weights_that_are_not_numbers_are_refused(tmp_path):
    potential = Potential(small_network(), Normalisation())
    with torch.no_grad():
        potential.network.W[0, 0, 0, 0] = torch.nan
    path = save(potential, tmp_path / "nan.safetensors")
    with pytest.raises(GeomAttError, match="not finite"):
        load(path)


def test_descriptions_of_huge_networks_and_files_that_never_end(tmp_path):
    path = tmp_path / "m.safetensors"
    save(make(), path)
    rewrite(path, lambda header, _: header["config"].update(features=10_000))
    with pytest.raises(GeomAttError, match=r"needs .* MB of weights"):
        load(path)
    with pytest.raises(GeomAttError, match="not a regular file"):
        load("/dev/zero")
    large = tmp_path / "large.bin"
    with open(large, "wb") as stream:
        stream.truncate(2**40)  # a sparse file that does not fit into memory
    with pytest.raises(GeomAttError, match="not a safetensors file"):
        load(large)
