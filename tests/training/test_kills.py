"""Kills at random moments: `scripts/kill_test.py` does 20 of them."""

from __future__ import annotations

import pytest
from command_line import Process
from scripts_path import load_script


@pytest.mark.parametrize("members", [0, 2])
def test_killed_runs_resume_bit_by_bit(tmp_path, members):
    assert load_script("kill_test").kill_test(tmp_path, 1, members, epochs=30, start=Process) == 0
