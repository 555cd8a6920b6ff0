"""C++ code compiled with the machine's own compiler, once, and kept in the cache.

Code made here may use all that this processor can do, which code shipped in a package could not. Where there
is no compiler, all runs as well in plain torch. Code is a folder with native.cpp and its headers; those in
include/ are for all.
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

INCLUDE = Path(__file__).with_name("include")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-pthread", "-Wno-psabi")
OWN = ("-march=native",)  # all that this processor can do
# Left out when linking: the functions of OpenMP are to be found in torch, with the threads it has already.
OPENMP = ("-fopenmp",)
TIMEOUT = 120.0  # seconds; it takes four


def _variants() -> list[tuple[str, ...]]:
    """Ways to compile, the best first: not every compiler knows all of them."""
    return [(*FLAGS, *OWN, *OPENMP), (*FLAGS, *OWN), FLAGS]


@lru_cache
def library(code: Path) -> ctypes.CDLL | None:
    """The code of a folder, compiled, or None if that is not possible."""
    found = compiler()
    if found is None:
        return None
    problem: Exception | None = None
    try:
        targets = [(flags, _target(found, flags, code)) for flags in _variants()]
        # What was made before comes first: what failed then would fail again.
        for flags, target in sorted(targets, key=lambda pair: not pair[1].is_file()):
            try:
                return _load(found, flags, code, target)
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


def to_be_compiled(code: Path) -> bool:
    """True if `library` has to compile first."""
    found = compiler()
    try:
        return found is not None and not any(_target(found, f, code).is_file() for f in _variants())
    except (OSError, subprocess.SubprocessError):
        return False


def compiler() -> tuple[str, ...] | None:
    """A C++ compiler: that of the environment variable CXX, or the usual names."""
    if sys.platform == "win32":  # where compilers do not align vectors, and long is short
        return None
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        first, *others = shlex.split(name)
        if found := shutil.which(first):
            return (found, *others)
    return None


def _load(by: tuple[str, ...], flags: tuple[str, ...], code: Path, target: Path) -> ctypes.CDLL:
    if target.is_file():
        with suppress(OSError):
            return ctypes.CDLL(str(target))
    _compile(by, flags, code, target)  # for the first time, or because the file is damaged
    return ctypes.CDLL(str(target))


def _target(by: tuple[str, ...], flags: tuple[str, ...], code: Path) -> Path:
    """Named after all it depends on: a home folder may be shared by machines that are not alike."""
    files = [*sorted(code.glob("*.[ch]pp")), *sorted(INCLUDE.glob("*.hpp"))]
    system = (platform.system(), platform.machine(), *platform.libc_ver(), _processor())
    told = (*flags, _run([*by, "--version"]), *system)
    parts = [*(path.read_bytes() for path in files), *(word.encode() for word in told)]
    key = hashlib.sha256(b"\n".join(parts)).hexdigest()[:20]
    return cache_directory() / "native" / f"{key}.so"


def _processor() -> str:
    """What the processor can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def object_command(by: tuple[str, ...], flags: tuple[str, ...], code: Path, made: Path) -> list[str]:
    """The command that compiles, without linking."""
    return [*by, *flags, f"-I{INCLUDE}", "-c", str(code / "native.cpp"), "-o", str(made)]


def _compile(by: tuple[str, ...], flags: tuple[str, ...], code: Path, target: Path) -> None:
    """Compile next to the target and move it there when it is whole: others may be at it, too."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        unlinked, made = Path(folder) / "native.o", Path(folder) / target.name
        _run(object_command(by, flags, code, unlinked))
        _run([*by, "-shared", "-pthread", str(unlinked), "-o", str(made)])
        made.replace(target)


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=True, timeout=TIMEOUT
    )
    return done.stdout
