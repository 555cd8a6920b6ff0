"""Compiles C++ code with the machine's compiler, once, and keeps the library in the cache.

Such code can use all instructions of the processor. Without a compiler, plain torch is used. Code is a folder
with native.cpp and its headers; the headers in include/ are shared.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from geomatt.cache import cache_directory
from geomatt.locks import LockedError, file_lock

INCLUDE = Path(__file__).with_name("include")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-pthread", "-Wno-psabi")
OWN = ("-march=native",)  # all instructions of this processor
# Not linked to an OpenMP library: its functions are resolved in torch's, which already has threads.
OPENMP = ("-fopenmp",)
TIMEOUT = 120.0  # seconds; it takes four
DAY = 86400.0
KEPT = 90 * DAY  # seconds for which code that is not used stays in the cache


def _variants() -> list[tuple[str, ...]]:
    """Ways to compile, the best first: not every compiler knows all of them."""
    return [(*FLAGS, *OWN, *OPENMP), (*FLAGS, *OWN), FLAGS]


@lru_cache
def library(code: Path) -> ctypes.CDLL | None:
    """The compiled code of a folder, or None if it is not available."""
    import torch  # noqa: F401 - the functions of OpenMP are found in it

    found = compiler()
    if found is None:
        return None
    problem: Exception | None = None
    try:
        targets = [(flags, _target(found, flags, code)) for flags in _variants()]
        # Variants compiled before come first: those that failed then would fail again.
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


def compiler_in_words() -> str:
    """The compiler and its version, in words."""
    found = compiler()
    if found is None:
        return "none found (install g++ or clang++, or set CXX)"
    try:
        return f"{' '.join(found)}: {_run([*found, '--version']).splitlines()[0]}"
    except (OSError, subprocess.SubprocessError, IndexError):
        return f"{' '.join(found)}, which does not run"


def compiler() -> tuple[str, ...] | None:
    """A C++ compiler: that of the environment variable CXX, or the usual names."""
    if sys.platform == "win32":  # its compilers do not align vectors, and long has 32 bits
        return None
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        first, *others = shlex.split(name)
        if found := shutil.which(first):
            return (found, *others)
    return None


def _load(by: tuple[str, ...], flags: tuple[str, ...], code: Path, target: Path) -> ctypes.CDLL:
    _require_own_folder(target.parent)
    with suppress(OSError):
        return _open(target)
    try:
        # Of many processes that start at once, one compiles and the others wait for it.
        with file_lock(target.with_suffix(".lock"), wait=2 * TIMEOUT):
            with suppress(OSError):
                return _open(target)
            _compile(by, flags, code, target)  # for the first time, or because the file is damaged
            _remove_old(target.parent)
    except LockedError as error:
        raise OSError(f"{error} has been compiling for minutes; try again") from None
    return _open(target)


def _open(target: Path) -> ctypes.CDLL:
    """Load a compiled file; code that others could have written is not run."""
    _require_own(target)
    if time.time() - target.stat().st_mtime > DAY:
        with suppress(OSError):
            os.utime(target)  # still in use, see `_remove_old`
    return ctypes.CDLL(str(target))


def _require_own_folder(folder: Path) -> None:
    """Make the folder for compiled code, and raise an error if others could put files into it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_own(folder)


def _require_own(path: Path) -> None:
    """Raise an error for a file or folder that another user owns or may write to."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(f"{path} is a link, and code in it is not run; remove it")
    if found.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user, and code in it is not run; remove it")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} can be written by other users, and code in it is not run; remove it")


def _remove_old(folder: Path) -> None:
    """Remove code that was not used for months, and what interrupted compilations left."""
    for path in folder.iterdir():
        with suppress(OSError):
            age = time.time() - path.lstat().st_mtime
            if (path.suffix == ".so" and age > KEPT) or (path.suffix == ".lock" and age > DAY):
                path.unlink()
            elif path.is_dir() and not path.is_symlink() and age > DAY:
                shutil.rmtree(path)


def _target(by: tuple[str, ...], flags: tuple[str, ...], code: Path) -> Path:
    """Path of the library, with a hash of all it depends on: machines of several kinds may share a cache."""
    files = [*sorted(code.glob("*.[ch]pp")), *sorted(INCLUDE.glob("*.hpp"))]
    system = (platform.system(), platform.machine(), *platform.libc_ver(), _processor())
    version = (*flags, _run([*by, "--version"]), *system)
    parts = [*(path.read_bytes() for path in files), *(word.encode() for word in version)]
    key = hashlib.sha256(b"\n".join(parts)).hexdigest()[:20]
    return cache_directory() / "native" / f"{key}.so"


def _processor() -> str:
    """Instruction sets of the processor, where the system lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def object_command(by: tuple[str, ...], flags: tuple[str, ...], code: Path, made: Path) -> list[str]:
    """The command that compiles, without linking."""
    return [*by, *flags, f"-I{INCLUDE}", "-c", str(code / "native.cpp"), "-o", str(made)]


def _compile(by: tuple[str, ...], flags: tuple[str, ...], code: Path, target: Path) -> None:
    """Compile into a temporary file and rename it: other processes may compile at the same time."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        unlinked, made = Path(folder) / "native.o", Path(folder) / target.name
        _run(object_command(by, flags, code, unlinked))
        _run([*by, "-shared", "-pthread", str(unlinked), "-o", str(made)])
        made.chmod(0o755)  # whatever the umask: others must not write to it
        made.replace(target)


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=True, timeout=TIMEOUT
    )
    return done.stdout
