"""Splits: sizes, seeds, blocks, folds, files, and invalid input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomatt.data import Split, blocked_split, fold_splits, random_split, split_from_files
from geomatt.errors import GeomAttError

KINDS = st.sampled_from(["random", "blocked"])
SIZES = st.tuples(st.integers(1, 60), st.integers(0, 30), st.one_of(st.none(), st.integers(0, 30)))


@given(sizes=SIZES, extra=st.integers(0, 100), seed=st.integers(0, 99), kind=KINDS)
def test_sizes_are_as_requested_and_sets_are_disjoint(
    sizes: tuple[int, int, int | None], extra: int, seed: int, kind: str
) -> None:
    train, validation, test = sizes
    n = train + validation + (test or 0) + extra
    make = random_split if kind == "random" else blocked_split
    split = make(n, train, validation, test, seed=seed)
    assert len(split.train) == train
    assert len(split.validation) == validation
    assert len(split.test) == (n - train - validation if test is None else test)
    together = np.concatenate([split.train, split.validation, split.test])
    assert len(np.unique(together)) == len(together)
    assert split.check(n) is split
    assert split.train.dtype == np.int64
    again = make(n, train, validation, test, seed=seed)
    assert again.to_dict() == split.to_dict()
    stored = Split.from_dict(json.loads(json.dumps(split.to_dict())))
    for role in ("train", "validation", "test"):
        assert np.array_equal(getattr(stored, role), getattr(split, role))
    assert (stored.kind, stored.seed) == (kind, seed)


def test_blocks_are_contiguous() -> None:
    split = blocked_split(2000, 800, 200, seed=3)
    for indices in (split.train, split.validation, split.test):
        assert np.count_nonzero(np.diff(indices) != 1) <= 10
    assert len(split.to_dict()["test"]) < 150
    spread = blocked_split(2000, 800, 200, 100, seed=3)
    assert np.isin(spread.test, split.test).all()
    assert not np.array_equal(blocked_split(2000, 800, 200, seed=4).train, split.train)


@pytest.mark.parametrize("kind", ["random", "blocked"])
def test_five_folds(kind: str) -> None:
    splits = fold_splits(5902, 1000, 5, seed=1, kind=kind)
    assert [(len(s.train), len(s.validation), len(s.test)) for s in splits] == [(800, 200, 4902)] * 5
    points = np.sort(np.concatenate([s.validation for s in splits]))
    assert len(np.unique(points)) == 1000
    for split in splits:
        assert np.array_equal(np.sort(np.concatenate([split.train, split.validation])), points)
        assert np.array_equal(split.test, splits[0].test)
        if kind == "blocked":
            assert np.count_nonzero(np.diff(split.validation) != 1) <= 3


@pytest.mark.parametrize("make", [random_split, blocked_split])
def test_impossible_sizes(make) -> None:  # type: ignore[no-untyped-def]
    for sizes, word in (
        ((10, -1, 2, None), "negative"),
        ((10, 2, -1, None), "negative"),
        ((10, 2, 2, -5), "negative"),
        ((10, 0, 2, None), "train size is 0"),
        ((10, 8, 3, None), "ask for 11"),
        ((10, 5, 3, 3), r"\+ test ask for 11"),
    ):
        with pytest.raises(GeomAttError, match=word):
            make(*sizes, seed=0)


def test_impossible_folds() -> None:
    with pytest.raises(GeomAttError, match="at least 2"):
        fold_splits(10, 5, 1)
    with pytest.raises(GeomAttError, match="cannot be divided"):
        fold_splits(10, 3, 5)
    with pytest.raises(GeomAttError, match="ask for 11"):
        fold_splits(10, 11, 5)
    with pytest.raises(GeomAttError, match="Unknown kind"):
        fold_splits(10, 5, 5, kind="sorted")
    with pytest.raises(GeomAttError, match="at least one block"):
        blocked_split(10, 5, 5, blocks=0)


def test_split_from_files(tmp_path: Path) -> None:
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("3\n1\n2\n")
    test.write_text("7, 5")
    split = split_from_files(train, test=test, n=8)
    assert split.train.tolist() == [1, 2, 3]
    assert split.test.tolist() == [5, 7]
    assert split.kind == "files"
    with pytest.raises(GeomAttError, match="contain 7, but the data has 7"):
        split_from_files(train, test=test, n=7)
    for text, word in (
        ("1 1", "more than once"),
        ("-1", "count from 0"),
        ("1.5", "'1.5'"),
        ("99999999999999999999", "row numbers"),
        ("", "is empty"),
        ("5", "both train and test"),
    ):
        train.write_text(text)
        with pytest.raises(GeomAttError, match=word):
            split_from_files(train, test=test, n=8)
    with pytest.raises(GeomAttError, match="Cannot read"):
        split_from_files(tmp_path / "absent.csv", n=8)


def test_invalid_stored_splits() -> None:
    for stored in ({}, {"train": "a", "validation": "", "test": "", "kind": "random", "seed": 0}):
        with pytest.raises(GeomAttError, match="not a stored split"):
            Split.from_dict(stored)
    with pytest.raises(GeomAttError, match="not integers"):
        Split(np.array([0.5]), np.array([]), np.array([]), "random")


def test_official_rmd17_splits(real_data: Path) -> None:
    folder = real_data / "rmd17" / "splits"
    for train in sorted(folder.glob("*_train_*.csv")):
        test = train.with_name(train.name.replace("train", "test"))
        split = split_from_files(train, test=test, n=5902)
        assert (len(split.train), len(split.test)) == (1000, 1000)
