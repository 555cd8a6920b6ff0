"""Marks of tests that run Triton kernels, on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import importlib.util

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
runs_kernels = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, inside the interpreter
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton"),
    pytest.mark.usefixtures("triton_interpreter"),
]
