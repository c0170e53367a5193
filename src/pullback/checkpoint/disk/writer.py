"""One thread that does jobs in the order in which they were given."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

__all__ = ["Writer"]

_Job: TypeAlias = tuple[Callable[[], Any], "Future[Any]"]

# One being written, and one waiting: more would only take memory.
_QUEUE_LENGTH = 2


class Writer:
    """Runs jobs one after the other in a thread of its own, which starts with the first.

    `submit` waits while too many jobs do. A job's exception is in its future; the thread goes on.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[_Job | None] = queue.Queue(_QUEUE_LENGTH)
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Queue a job.

        Raises:
            RuntimeError: The process is a fork of the one whose thread it is.
        """
        if self._process != os.getpid():
            raise RuntimeError(
                "`storage`: expected to be used in the process that made it, but this is a fork"
                " of that one. Make the storage after the fork."
            )
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._queue,), name="pullback-disk", daemon=True
            )
            self._thread.start()
        future: Future[Any] = Future()
        self._queue.put((job, future))
        return future

    def stop(self) -> None:
        """Return when all jobs are done and the thread has ended."""
        if self._thread is not None and self._process == os.getpid():
            self._queue.put(None)
            self._thread.join()
        self._thread = None


def _work(jobs: queue.Queue[_Job | None]) -> None:
    while (item := jobs.get()) is not None:
        job, future = item
        try:
            future.set_result(job())
        except BaseException as error:  # it is raised where the future is read
            future.set_exception(error)
        # A reference here would keep a snapshot in memory until the next job.
        del item, job, future
