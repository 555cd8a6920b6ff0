"""Where work is done: in this process, in several on this machine, or on a Dask cluster.

Work is given as pure functions. When a worker dies, what it was doing is done again by another, and nothing
else is lost.
"""

from __future__ import annotations

import concurrent.futures as futures
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from geomatt.errors import GeomAttError

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MOST_DEATHS = 5  # of workers in a row, without a result between
_TICK = 1.0  # seconds
_PATIENCE = 10.0  # seconds to wait for a scheduler or a result
KEPT = "Everything finished so far is kept, and the same command continues."


Task = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of a module, and its arguments
# A chain of tasks: the generator yields one, and is sent its result before it yields the next.
Job = Generator[Task, Any, None]


def single(function: Callable[..., Any], *arguments: Any) -> Job:
    """A job of one task, whose result is not needed."""
    yield function, arguments


class Workers:
    """Runs tasks in this process."""

    slots = 1  # tasks submitted at once
    seconds = 1.0  # a task should take

    def submit(self, function: Callable[..., Any], *arguments: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def recover(self, error: BaseException) -> bool:
        """True if the task should be submitted again after this error."""
        return False

    def wait_longer(self) -> None:
        """Called when nothing was finished for a while."""

    def run(self, jobs: Iterable[Job], tick: Callable[[], None] | None = None) -> None:
        """Do all jobs, several at once; `tick` is called now and then while they run."""
        waiting: deque[tuple[Job, Task | None]] = deque((job, None) for job in jobs)
        running: dict[futures.Future[Any], tuple[Job, Task]] = {}
        deaths = 0
        try:
            while waiting or running:
                while waiting and len(running) < self.slots:
                    job, task = waiting.popleft()
                    if (task := task or next(job, None)) is not None:
                        running[self.submit(task[0], *task[1])] = job, task
                pause = _PATIENCE if tick is None else _TICK
                done, _ = futures.wait(running, pause, return_when=futures.FIRST_COMPLETED)
                if tick is not None:
                    tick()
                if running and not done:
                    self.wait_longer()
                # Results first: an error ends the run, and would lose them.
                for future in sorted(done, key=lambda f: _error(f) is not None):
                    job, task = running.pop(future)
                    error = _error(future)
                    if error is None:
                        deaths = 0
                        with suppress(StopIteration):
                            waiting.append((job, job.send(future.result())))
                    elif isinstance(error, GeomAttError) or not self.recover(error):
                        raise error
                    else:
                        deaths += 1
                        if deaths > _MOST_DEATHS * max(1, len(running)):
                            raise GeomAttError(
                                f"Processes died again and again, perhaps for lack of memory. {KEPT} "
                                "Use fewer `workers`; in a script of your own, start them below "
                                '`if __name__ == "__main__":`.'
                            )
                        waiting.append((job, task))
        finally:
            for future in running:
                future.cancel()


def _error(future: futures.Future[Any]) -> BaseException | None:
    """Why a task that is over has no result; a cancelled one would raise the error."""
    return futures.CancelledError() if future.cancelled() else future.exception()


class Processes(Workers):
    """Runs tasks in processes on this machine."""

    seconds = 2.0

    def __init__(self, count: int) -> None:
        self.slots = count
        self._pool: futures.ProcessPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> futures.Future[Any]:
        for _ in range(2):
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = futures.ProcessPoolExecutor(self.slots, context, _begin)
            try:
                return self._pool.submit(function, *arguments)
            except futures.BrokenExecutor:  # a process died a moment ago
                self.close()
        raise GeomAttError("Processes cannot be started on this machine. Use one of `workers`.")

    def recover(self, error: BaseException) -> bool:
        return isinstance(error, futures.BrokenExecutor)

    def close(self) -> None:
        """End the processes; training that is under way saves and stops."""
        if self._pool is not None:
            running = list((getattr(self._pool, "_processes", None) or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            self._pool = None


class DaskWorkers(Workers):
    """Runs tasks on the workers of a Dask scheduler, which repeats those of workers that died."""

    seconds = 5.0
    slots = 1_000_000  # the scheduler has the queue: workers may come later

    def __init__(self, client: Any) -> None:
        self.client = client
        self._executor = client.get_executor(pure=False)
        self._warned = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> futures.Future[Any]:
        submitted: futures.Future[Any] = self._executor.submit(function, *arguments)
        return submitted

    def wait_longer(self) -> None:
        if not self._warned and not self.client.scheduler_info()["workers"]:
            self._warned = True
            warnings.warn("No Dask worker has joined the scheduler yet: waiting.", stacklevel=2)

    def recover(self, error: BaseException) -> bool:
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            raise GeomAttError(
                f"Several Dask workers died at the same task, perhaps for lack of memory. {KEPT} Give the "
                "workers more memory."
            ) from error
        if isinstance(error, futures.CancelledError | OSError):
            raise GeomAttError(f"The connection to the Dask scheduler was lost. {KEPT}") from error
        if isinstance(error, ModuleNotFoundError):
            raise GeomAttError(
                f"A Dask worker has no module {error.name}. Install geomatt and the method there, too."
            ) from error
        return False


@contextmanager
def open_workers(workers: int = 1, dask: str | None = None) -> Iterator[Workers]:
    """Workers for a while: `workers` processes on this machine, or those of Dask.

    `dask` is local:N for N processes on this machine, or the address of a scheduler such as
    tcp://10.0.0.1:8786. Each computes with one thread, and so never in a process that has loaded torch: its
    threads are those of the methods, too.
    """
    if workers < 1:
        raise GeomAttError(f"`workers` must be at least 1, not {workers}.")
    if dask is not None and workers > 1:
        raise GeomAttError("`workers` and `dask` are two ways to spread work: leave one of them out.")
    with _one_thread():
        if dask is not None:
            with _dask_client(dask) as client:
                yield DaskWorkers(client)
        elif workers == 1 and "torch" not in sys.modules:
            yield Workers()
        else:
            pool = Processes(workers)
            try:
                yield pool
            finally:
                pool.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for libraries and processes started from now on, unless the user has decided."""
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise GeomAttError("Dask is missing. Install it with: pip install 'geomatt[dask]'") from None
    local = re.fullmatch(r"local:(\d+)", address)
    if local and int(local[1]) > 0:
        with (
            LocalCluster(
                n_workers=int(local[1]),
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=logging.ERROR,  # workers that end slowly are no news
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    if local or not re.fullmatch(r"[a-z]+://\S+", address):
        raise GeomAttError(
            f"`dask` {address!r} is neither local:N, such as local:4, nor the address of a scheduler, "
            "such as tcp://10.0.0.1:8786."
        )
    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        raise GeomAttError(
            f"The Dask scheduler at {address} cannot be reached ({str(error) or type(error).__name__}). "
            "Start it with: dask scheduler"
        ) from error
    with client:
        yield client


def _begin() -> None:
    """Of a new process: Ctrl-C ends the main process, which ends the others; so does its death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
