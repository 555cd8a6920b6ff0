"""Compiles native_code/ with the machine's C++ compiler, once, and keeps the library in the cache.

Such code can use all instructions of the processor. Without a compiler, plain torch is used.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from geomatt.cache import cache_directory

CODE = Path(__file__).with_name("native_code")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-pthread", "-Wno-psabi")
OWN = ("-march=native",)  # all instructions of this processor
# Not linked to an OpenMP library: its functions are resolved in torch's, which already has threads.
OPENMP = ("-fopenmp",)
TIMEOUT = 120.0  # seconds; it takes four


def _variants() -> list[tuple[str, ...]]:
    """Ways to compile, the best first: not every compiler knows all of them."""
    return [(*FLAGS, *OWN, *OPENMP), (*FLAGS, *OWN), FLAGS]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled code, or None if it is not available."""
    compiler = _compiler()
    if compiler is None:
        return None
    problem: Exception | None = None
    try:
        targets = [(flags, _target(compiler, flags)) for flags in _variants()]
        # Variants compiled before come first: those that failed then would fail again.
        for flags, target in sorted(targets, key=lambda pair: not pair[1].is_file()):
            try:
                return _load(compiler, flags, target)
            except (OSError, subprocess.SubprocessError) as error:
                problem = problem or error
    except (OSError, subprocess.SubprocessError) as error:
        problem = error
    lines = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()
    warnings.warn(
        "geomatt could not compile its fast code for this processor and goes on without it, slower: "
        f"{lines[0] if lines else repr(problem)}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def to_be_compiled() -> bool:
    """True if `library` has to compile first."""
    compiler = _compiler()
    try:
        return compiler is not None and not any(_target(compiler, f).is_file() for f in _variants())
    except (OSError, subprocess.SubprocessError):
        return False


def _compiler() -> tuple[str, ...] | None:
    """A C++ compiler: that of the environment variable CXX, or the usual names."""
    if sys.platform == "win32":  # its compilers do not align vectors, and long has 32 bits
        return None
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        first, *others = shlex.split(name)
        if found := shutil.which(first):
            return (found, *others)
    return None


def _load(compiler: tuple[str, ...], flags: tuple[str, ...], target: Path) -> ctypes.CDLL:
    if target.is_file():
        with suppress(OSError):
            return ctypes.CDLL(str(target))
    _compile(compiler, flags, target)  # for the first time, or because the file is damaged
    return ctypes.CDLL(str(target))


def _target(compiler: tuple[str, ...], flags: tuple[str, ...]) -> Path:
    """Path of the library, with a hash of all it depends on: machines of several kinds may share a cache."""
    sources = [path.read_bytes() for path in sorted(CODE.glob("*.[ch]pp"))]
    system = (platform.system(), platform.machine(), *platform.libc_ver(), _processor())
    version = (*flags, _run([*compiler, "--version"]), *system)
    key = hashlib.sha256(b"\n".join([*sources, *(word.encode() for word in version)])).hexdigest()[:20]
    return cache_directory() / "native" / f"{key}.so"


def _processor() -> str:
    """Instruction sets of the processor, where the system lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _compile(compiler: tuple[str, ...], flags: tuple[str, ...], target: Path) -> None:
    """Compile into a temporary file and rename it: other processes may compile at the same time."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        code, made = Path(folder) / "native.o", Path(folder) / target.name
        _run([*compiler, *flags, "-c", str(CODE / "native.cpp"), "-o", str(code)])
        _run([*compiler, "-shared", "-pthread", str(code), "-o", str(made)])
        made.replace(target)


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=True, timeout=TIMEOUT
    )
    return done.stdout
