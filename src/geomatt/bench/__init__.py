"""Timings as ratios against peers of the same run, and how far each is from what the machine can do."""

from geomatt.bench.result import Bench
from geomatt.bench.run import SUITES, run_bench
from geomatt.bench.settings import Settings

__all__ = ["SUITES", "Bench", "Settings", "run_bench"]
