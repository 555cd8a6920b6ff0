"""Settings: recipes, the configuration file, sizes, schedules."""

from __future__ import annotations

import itertools
import tomllib

import pytest

from geomatt.errors import GeomAttError
from geomatt.training.config import TrainConfig, read_settings, resolve
from geomatt.training.dataset import make_splits, resolve_sizes
from geomatt.training.recipes import learning_rates, recipes


def test_configuration_file_holds_every_setting(tmp_path):
    config = TrainConfig(
        data='odd "name"\\\n\x07é.npz',
        keys={"forces": "my forces"},
        reference={"1": -13.6},
        learning_rate=1e-5,
        unfreeze=("overlaps",),
        member=2,
        folds=3,
        model="geomatt",
        network={"orders": (2, 3, 5), "bias": False},
    )
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert TrainConfig.from_dict(read_settings(path)) == config
    assert resolve({}, read_settings(path)) == config
    written = tomllib.loads(config.to_toml())
    assert {n for n, v in config.to_dict().items() if v is not None} == set(written)


def test_unknown_setting_lists_the_known(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("epoch = 3\n")
    with pytest.raises(GeomAttError, match=r"unknown settings: epoch\. Known are: .*epochs"):
        read_settings(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 1.5", "epochs"),
        ("orders = [2, 'x']", "orders"),
        ("epochs = true", "epochs"),
        ("keys = 1", "keys"),
        ("epochs = ", "not valid TOML"),
    ],
)
def test_bad_values_are_named(tmp_path, text, message):
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(GeomAttError, match=message):
        read_settings(path)
    with pytest.raises(GeomAttError, match="no configuration file"):
        read_settings(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "settings",
    [
        {"train": -1}, {"train": 0}, {"val": 0}, {"epochs": 0}, {"batch": 0}, {"seed": -1}, {"folds": 1},
        {"folds": 2, "members": 2}, {"learning_rate": 0.0}, {"learning_rate": float("nan")},
        {"ema_decay": 1.0},
        {"schedule": "linear"}, {"split": "odd"}, {"weighting": "mine"}, {"dtype": "float16"}, {"rho": -1.0},
        {"member": 3}, {"train_indices": "a.txt"}, {"model": "geomatt", "orders": (1,)}, {"recipe": "slow"},
        {"device": "mps"}, {"model": "geomatt", "gamma": float("nan")}, {"model": "geomatt", "layers": 10**9},
        {"gamma": 20.0}, {"rounds": 10**9},
        {"model": "schnet", "cutoff": float("inf")},
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(settings):
    with pytest.raises(GeomAttError):
        resolve(settings)


def test_recipes():
    paper = resolve({"recipe": "paper"})
    assert (paper.epochs, paper.batch, paper.learning_rate, paper.schedule) == (2000, 10, 1e-4, "step")
    assert (paper.ema_decay, paper.patience) == (0.0, 0)
    assert resolve({}).recipe == "pair"
    assert resolve({"model": "geomatt"}).recipe == "fast"
    assert resolve({"recipe": "paper", "epochs": 7}).epochs == 7
    assert list(recipes()) == ["paper", "fast", "pair"]
    for name in recipes():
        assert resolve({"recipe": name}).recipe == name
    stored = resolve({"recipe": "paper", "epochs": 7}).to_dict()
    assert resolve({}, stored).epochs == 7


def test_schedules():
    step = resolve({"recipe": "paper"})
    assert learning_rates(step, 999, 2) == [1e-4, 1e-4]
    assert learning_rates(step, 1000, 1) == [pytest.approx(0.96e-4)]
    cosine = TrainConfig(schedule="cosine", learning_rate=1.0, epochs=100, warmup=10, final=0.0)
    rates = [r for e in range(100) for r in learning_rates(cosine, e, 3)]
    assert max(rates) == pytest.approx(1.0)
    assert rates[0] == pytest.approx(1 / 30)
    assert rates[-1] < 1e-3
    assert all(a >= b for a, b in itertools.pairwise(rates[30:]))


@pytest.mark.parametrize(
    ("given", "count", "expected"),
    [
        ({}, 5000, (800, 200, 1000)),
        ({}, 100, (72, 18, 10)),
        ({"train": 40}, 100, (40, 10, 50)),
        ({"train": 99}, 100, (99, 1, 0)),
        ({"val": 10}, 100, (40, 10, 50)),
        ({"train": 50, "val": 50}, 100, (50, 50, 0)),
        ({"folds": 10}, 5000, (900, 100, 1000)),
        ({"model": "pair"}, 5000, (950, 50, 1000)),
        ({"model": "pair"}, 100, (86, 4, 10)),
    ],
)
def test_sizes_left_open_are_filled_in(given, count, expected):
    config = resolve_sizes(resolve({"model": "geomatt", **given}), count)
    assert (config.train, config.val, config.test) == expected
    for split in make_splits(config, count):
        assert (len(split.train), len(split.validation), len(split.test)) == expected


@pytest.mark.parametrize(
    "given", [{"train": 90, "val": 11}, {"train": 60, "val": 20, "test": 21}, {"train": 100}, {"val": 100}]
)
def test_sizes_larger_than_the_data_are_refused(given):
    with pytest.raises(GeomAttError, match="100"):
        resolve_sizes(resolve(given), 100)


def test_settings_of_another_network_are_named():
    with pytest.raises(GeomAttError, match=r"orders: not a setting .* has channels"):
        resolve({"model": "pair", "orders": (2, 3)})
