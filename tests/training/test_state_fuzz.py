"""Damaged models, checkpoints, settings and restart files give a GeomAttError or a valid result."""

from __future__ import annotations

import sys

import pytest

if sys.platform != "linux":
    pytest.skip("limits of memory and the audit of files need Linux", allow_module_level=True)

from fuzzing import STATE, fuzz


def test_random_damage_to_files_of_runs() -> None:
    failures = [(name, case, problem) for name, case, _, problem in fuzz(STATE, 100) if problem is not None]
    assert not failures, f"{len(failures)} failures; the first: {failures[0]}"
