"""Several models in one run, and models carried over to new data."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from training_toy import TINY, mixture, molecule, tiny_config

from geomatt.data import dimer, ethanol, random_split
from geomatt.errors import GeomAttError
from geomatt.model import Committee, Normalisation, Potential, load
from geomatt.model.domain import Domain
from geomatt.training import train, train_members
from geomatt.training.config import TrainConfig, read_settings, resolve
from geomatt.training.dataset import check_tests, make_splits
from geomatt.training.members import spread, stored_settings
from geomatt.training.start import base_settings, fresh_network, load_base
from geomatt.training.transfer import hardly_better, never_seen

SPLIT = random_split(40, 20, 10, 5)


class Stop(Exception):
    pass


def test_members_differ_and_form_a_committee(tmp_path):
    config = tiny_config(members=3, epochs=2)
    seen = []
    results = train_members(
        molecule(), make_splits(config, 40), config, tmp_path / "run", callback=seen.append
    )
    assert [r.folder.name for r in results] == ["member_0", "member_1", "member_2"]
    assert {(p.member, p.members) for p in seen} == {(0, 3), (1, 3), (2, 3)}
    committee = load(tmp_path / "run")
    assert isinstance(committee, Committee)
    first, second = (m.network.state_dict()["W"] for m in committee.members[:2])
    assert not torch.equal(first, second)
    mean, deviation = spread(results, "force_mae")
    assert mean > deviation > 0
    # A member's own configuration repeats it.
    again = TrainConfig.from_dict(read_settings(tmp_path / "run/member_1/config.toml"))
    (result,) = train_members(molecule(), make_splits(again, 40), again, tmp_path / "one")
    assert torch.equal(result.potential.network.state_dict()["W"], second)


def test_folds_validate_on_disjoint_parts(tmp_path):
    config = tiny_config(folds=3, epochs=1)
    results = train_members(molecule(), make_splits(config, 40), config, tmp_path / "run")
    parts = [set(r.potential.record["split"]["validation"].split(",")) for r in results]
    assert len(parts) == 3
    assert all(len(r.potential.record["trained_frames"]) == 30 for r in results)
    assert TrainConfig.from_dict(read_settings(tmp_path / "run/config.toml")) == config


def test_members_resume_where_they_stopped(tmp_path):
    config = tiny_config(members=2, epochs=3)
    splits = make_splits(config, 40)
    whole = train_members(molecule(), splits, config, tmp_path / "whole")

    def stop_in_second(progress):
        if progress.member == 1 and progress.epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        train_members(
            molecule(), splits, config, tmp_path / "cut", callback=stop_in_second, checkpoint_every=0
        )
    with pytest.raises(GeomAttError, match="`resume`"):
        train_members(molecule(), splits, config, tmp_path / "cut")
    cut = train_members(molecule(), splits, config, tmp_path / "cut", resume=True)
    assert [r.already_finished for r in cut] == [True, False]
    for one, other in zip(whole, cut, strict=True):
        states = one.potential.network.state_dict(), other.potential.network.state_dict()
        assert all(torch.equal(states[0][n], states[1][n]) for n in states[0])


@pytest.fixture(scope="module")
def base_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("base") / "run"
    train(molecule(), SPLIT, tiny_config(epochs=2), out)
    return out


def trained_names(base, result) -> set[str]:
    before, after = base.network.state_dict(), result.potential.network.state_dict()
    return {n.split(".")[0] for n in before if not torch.equal(before[n], after[n])}


@pytest.mark.filterwarnings("ignore:The transferred model", "ignore:The base never saw")
@pytest.mark.parametrize(
    ("unfreeze", "expected"),
    [
        ((), {"hidden", "output"}),
        (("embedding",), {"hidden", "output", "embedding"}),
        (("overlaps",), {"hidden", "output", "overlaps"}),
        (("all",), {"hidden", "output", "overlaps", "embedding", "W", "b"}),
    ],
)
def test_transfer_trains_the_readout_and_what_is_unfrozen(tmp_path, base_run, unfreeze, expected):
    base = load_base(base_run)
    data = molecule(40, (8, 1, 1))
    config = tiny_config(epochs=2, base=str(base_run), unfreeze=unfreeze, **base_settings(base))
    result = train(data, SPLIT, config, tmp_path / "run", base=base)
    assert trained_names(base, result) == expected
    assert result.potential.elements == base.elements
    assert result.potential.normalisation != base.normalisation
    again = train(data, SPLIT, config, tmp_path / "run", base=base, resume=True)
    assert again.already_finished


def test_transfer_refuses_what_it_cannot_do(tmp_path, base_run):
    base = load_base(base_run)
    nitrogen = molecule(40, (7, 1, 1))
    with pytest.raises(GeomAttError, match="N, which the base model never saw"):
        check_tests(nitrogen, [SPLIT], base)  # before the data is said to lack it
    with pytest.raises(GeomAttError, match="N, which the base model never saw"):
        train(nitrogen, SPLIT, tiny_config(base=str(base_run)), tmp_path / "run", base=base)
    with pytest.raises(GeomAttError, match="Unknown part"):
        train(molecule(), SPLIT, tiny_config(unfreeze=("head",)), tmp_path / "run", base=base)
    with pytest.raises(GeomAttError, match="not those of the base"):
        train(molecule(), SPLIT, tiny_config(features=16), tmp_path / "run", base=base)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore:The transferred model", "ignore:The base never saw")
def test_transfer_to_a_mixture(tmp_path, base_run):
    base = load_base(base_run)
    result = train(mixture(), SPLIT, tiny_config(epochs=1), tmp_path / "run", base=base)
    assert TINY["features"] == result.potential.network.config.features
    assert set(result.potential.normalisation.reference) == {1, 6, 8}


def test_transfer_says_what_the_base_never_saw_and_whether_it_paid(tmp_path):
    known = Potential(
        fresh_network(tiny_config(), (1, 6, 8), 0), Normalisation(), {}, Domain.measure(ethanol())
    )
    assert never_seen(known, ethanol()[:100]) is None
    assert re.match(
        "The base never saw .*C–N one bond apart.*more kinds.*pays", never_seen(known, dimer()[:5])
    )
    water = molecule(40, (8, 1, 1))
    zero = float(np.abs(water.forces).mean())
    assert hardly_better(0.4 * zero, water) is None
    assert f"{zero:.3g} eV/Å" in hardly_better(0.6 * zero, water)
    config = tiny_config(train=None, val=None, epochs=1)
    base = train(water, SPLIT, config, tmp_path / "base").potential
    with pytest.warns(UserWarning, match="not clearly better than no forces"):
        train(water, SPLIT, config, tmp_path / "moved", base=base)


def test_members_are_extended_together(tmp_path):
    config = tiny_config(epochs=1, members=2)
    splits = make_splits(config, 40)
    train_members(molecule(), splits, config, tmp_path / "run")
    longer = resolve({"epochs": 3}, stored_settings(tmp_path / "run"))
    assert longer.members == 2
    results = train_members(molecule(), splits, longer, tmp_path / "run", resume=True)
    assert [r.epochs for r in results] == [3, 3]
    again = resolve({}, stored_settings(tmp_path / "run"))
    assert again == longer
    assert all(
        r.already_finished for r in train_members(molecule(), splits, again, tmp_path / "run", resume=True)
    )


def test_base_is_one_model(tmp_path):
    """Of several members one must be chosen; a run with a single member has one model."""
    for count in (1, 2):
        config = tiny_config(members=count, epochs=1)
        train_members(molecule(), [SPLIT] * count, config, tmp_path / str(count))
    with pytest.raises(GeomAttError, match="Name one of them: "):
        load_base(tmp_path / "2")
    assert isinstance(load_base(tmp_path / "1"), Potential)
