"""Timings as ratios against other packages in the same run, and in relation to what the machine can do."""

from geomatt.bench.report import BenchReport, read_result
from geomatt.bench.run import SUITES, run_bench
from geomatt.bench.settings import BenchSettings

__all__ = ["SUITES", "BenchReport", "BenchSettings", "read_result", "run_bench"]
