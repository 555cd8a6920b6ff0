"""The code in native_code/ compiled with the machine's own C++ compiler, once, and kept in the cache.

Code made here may use all that this processor can do, which code shipped in a package could not. Where there
is no compiler, all runs as well in plain torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

from geomatt.data.catalogue import cache_directory

CODE = Path(__file__).with_name("native_code")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-pthread")
# Left out when linking: the functions of OpenMP are to be found in torch, with the threads it has already.
OPENMP = ("-fopenmp",)
TIMEOUT = 120.0  # seconds; it takes four


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled code, or None where it cannot be had."""
    compiler = _compiler()
    if compiler is None:
        return None
    try:
        return _load(compiler, (*FLAGS, *OPENMP))
    except (OSError, subprocess.SubprocessError):
        pass  # another compiler, or a torch with other threads
    try:
        return _load(compiler, FLAGS)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        warnings.warn(
            "geomatt could not compile its fast code for this processor and goes on without it, at half the "
            f"speed: {lines[0] if lines else error!r}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _compiler() -> str | None:
    """A C++ compiler: that of the environment variable CXX, or the usual names."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def to_be_compiled() -> bool:
    """Whether `library` would take its time."""
    compiler = _compiler()
    try:
        return compiler is not None and not _target(compiler, (*FLAGS, *OPENMP)).is_file()
    except (OSError, subprocess.SubprocessError):
        return False


def _load(compiler: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    target = _target(compiler, flags)
    if not target.is_file():
        _compile(compiler, flags, target)
    return ctypes.CDLL(str(target))


def _target(compiler: str, flags: tuple[str, ...]) -> Path:
    """Named after all it depends on: a home folder may be shared by machines that are not alike."""
    told = _run([compiler, "--version"])
    sources = (path.read_text(encoding="utf-8") for path in sorted(CODE.iterdir()))
    parts = (*sources, *flags, told, platform.platform(), _processor())
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]
    return cache_directory() / "native" / f"{key}.so"


def _processor() -> str:
    """What the processor can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _compile(compiler: str, flags: tuple[str, ...], target: Path) -> None:
    """Compile next to the target and move it there when it is whole: others may be at it, too."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        code, made = Path(folder) / "native.o", Path(folder) / target.name
        _run([compiler, *flags, "-c", str(CODE / "native.cpp"), "-o", str(code)])
        _run([compiler, "-shared", "-pthread", str(code), "-o", str(made)])
        made.replace(target)


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT).stdout
