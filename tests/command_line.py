"""The command line in tests: inside the process of the test, or as a process that can be killed.

Processes are forked from one that has imported torch and geomatt, since these imports take longer than most
of what is tested. Each has its own environment, signals and output. The command `python -m geomatt` itself is
tested in `test_cli_use.py`.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner, Result

from geomatt.cli import app, main

OUTPUT = ("stdout", "stderr")
PRELOADED = ["torch", "geomatt.cli", "geomatt.training.members", "geomatt.drawing", "matplotlib.figure"]


class Answer(NamedTuple):
    """Exit status and output of a command."""

    status: int
    stdout: str
    stderr: str


def geomatt(*words: object) -> Answer:
    """`geomatt WORDS` in this process, with the messages that a user sees."""
    out, err, status, before = io.StringIO(), io.StringIO(), 0, sys.argv
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)  # printed, as they are outside of tests
        try:
            sys.argv = ["geomatt", *map(str, words)]
            main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        finally:
            sys.argv = before
    assert "Traceback" not in err.getvalue()
    return Answer(status, out.getvalue(), err.getvalue())


def invoke(*words: object) -> Result:
    """`geomatt WORDS` in this process; a user's mistake comes as the exception it is."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def start_forkserver() -> Any:
    """Starts processes in which torch and geomatt are imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    return context


class Process:
    """The command line, or another function of its words, in a process of its own; used as `Popen`."""

    def __init__(
        self,
        *words: object,
        run: Callable[..., object] | None = None,
        environment: Mapping[str, str] | None = None,
        file_size: int | None = None,
    ) -> None:
        self.stdout = self.stderr = ""  # read when it has ended
        self._folder = Path(tempfile.mkdtemp())
        surroundings = ({**os.environ, **(environment or {})}, os.getcwd(), file_size)
        given = (run, [str(word) for word in words], self._folder, *surroundings)
        self._process = start_forkserver().Process(target=_child, args=given)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float = 120.0) -> int:
        self._process.join(timeout)
        status = self.poll()
        assert status is not None, f"still running after {timeout:g} s"
        if self._folder.exists():
            self.stdout, self.stderr = ((self._folder / name).read_text() for name in OUTPUT)
            shutil.rmtree(self._folder)
        return status

    def wait_until(self, condition: Callable[[], object], timeout: float = 120.0) -> None:
        """Wait for a condition that the running process fulfils."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.poll() is None, self.wait() or self.stderr
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def check(self) -> str:
        """Standard output of a process that must succeed."""
        assert self.wait() == 0, self.stderr
        return self.stdout

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()


def _child(
    run: Callable[..., object] | None,
    words: list[str],
    output: Path,
    environment: dict[str, str],
    folder: str,
    file_size: int | None,
) -> None:
    for number, name in enumerate(OUTPUT, start=1):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    if run is not None:
        run(*words)
    else:
        sys.argv = ["geomatt", *words]
        main()
