"""Fixtures and helpers of all tests."""

import os
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from geomatt.model.geometric_attention.config import GeometricAttentionConfig
from geomatt.model.geometric_attention.cpu.engine import CODE as GEOMETRIC_ATTENTION
from geomatt.model.geometric_attention.network import GeometricAttention
from geomatt.model.native.library import library
from geomatt.model.pair_states.cpu.engine import CODE as PAIR_STATES
from geomatt.training import run as training_run
from geomatt.training.history_plot import plot_history

if not torch.cuda.is_available():  # read when Triton is first imported: its kernels then run on the CPU
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("geomatt", deadline=None, derandomize=True, max_examples=15)
settings.load_profile("geomatt")


@pytest.fixture(scope="session", autouse=True)
def no_loss_pictures():
    """Training runs draw no loss curves, which would take longer than the runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_run, "plot_history", lambda *_: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_code():
    """C++ code is loaded before a test chooses another cache, for which it would be compiled again."""
    library(GEOMETRIC_ATTENTION)
    library(PAIR_STATES)


@pytest.fixture
def loss_pictures(monkeypatch):
    """For tests in which training runs draw their loss curves."""
    monkeypatch.setattr(training_run, "plot_history", plot_history)


@pytest.fixture(scope="session")
def triton_interpreter():
    """Triton's interpreter without its int(array), which fails with newer numpy."""
    if torch.cuda.is_available():
        yield
        return
    from triton.runtime import interpreter

    scope = interpreter._LangPatchScope
    original = scope.set_attr

    def set_attr(self, owner, name, value):
        original(self, owner, name, (lambda t: int(t.handle.data.item())) if name == "__index__" else value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope, "set_attr", set_attr)
        yield


@pytest.fixture(scope="session")
def chromium():
    """A real browser, started once."""
    from browser import browser

    with browser() as started:
        yield started


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory of real data sets; tests that need it are skipped without."""
    path = os.environ.get("GEOMATT_DATA")
    if not path or not Path(path).is_dir():
        pytest.skip("set GEOMATT_DATA to a directory with md17/, rmd17/ ... to run this test")
    return Path(path)


@pytest.fixture(scope="session")
def cluster():
    """A Dask cluster of two processes."""
    distributed = pytest.importorskip("distributed")
    import dask
    from command_line import start_forkserver

    start_forkserver()
    with (
        warnings.catch_warnings(),
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
    ):
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as started:
            yield started


def small_config(**changes) -> GeometricAttentionConfig:
    """A model small enough for tests."""
    return GeometricAttentionConfig(
        **{"elements": (1, 6, 8), "layers": 2, "features": 8, "overlap_features": 16, **changes}
    )


def small_network(seed: int = 0, dtype: torch.dtype = torch.float64, **changes) -> GeometricAttention:
    """A network with random weights, scaled up so that all orders of attention matter."""
    torch.manual_seed(seed)
    network = GeometricAttention(small_config(**changes)).to(dtype)
    with torch.no_grad():
        for overlap in network.overlaps:
            overlap.Q.mul_(4.0)
            overlap.K.mul_(4.0)
    return network


def random_atoms(n: int, seed: int = 0, spread: float = 1.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Atomic numbers (n,) of H, C, O and positions (n, 3)."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (n,), generator=generator)]
    return numbers, spread * torch.randn(n, 3, generator=generator, dtype=torch.float64)
