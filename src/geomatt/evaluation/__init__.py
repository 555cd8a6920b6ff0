"""Errors of a model on data, and parity plots."""

from geomatt.evaluation.evaluate_model import evaluate
from geomatt.evaluation.plots import calibration_plot, parity_plot
from geomatt.evaluation.predictions import write_predictions
from geomatt.evaluation.result import ErrorSummary, EvaluationResult

__all__ = [
    "ErrorSummary",
    "EvaluationResult",
    "calibration_plot",
    "evaluate",
    "parity_plot",
    "write_predictions",
]
