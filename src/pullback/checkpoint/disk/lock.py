"""One user per folder: a lock that the system takes back from a process that is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os

from pullback.checkpoint.storage import StorageError

__all__ = ["FolderLock", "make_folder"]

_NAME = "lock"


def make_folder(name: str, path: str) -> None:
    """Make a folder and those above it.

    Args:
        name: The argument that the user gave it as.
        path: The folder.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise StorageError(
            error.errno,
            f"`{name}`: expected a folder that can be made and written, got {path!r}:"
            f" {error.strerror}. Pass another one.",
        ) from error


class FolderLock:
    """Hold a folder until `release`, or the end of the process.

    Args:
        name: The argument that the user gave it as.
        path: The folder; it exists.

    Raises:
        StorageError: Someone else holds it, or it cannot be written.
    """

    def __init__(self, name: str, path: str) -> None:
        self._path = os.path.join(path, _NAME)
        try:
            self._file = self._acquire()
        except BlockingIOError as error:
            raise StorageError(
                f"`{name}`: expected a folder that nobody uses, but {path!r} is in use by"
                f" {_holder(self._path)}. Give each loop a folder of its own."
            ) from error
        except OSError as error:
            raise StorageError(
                error.errno,
                f"`{name}`: expected a folder that can be written, got {path!r}:"
                f" {error.strerror}. Pass another one.",
            ) from error

    def _acquire(self) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
            # The last holder may have removed the file between our two calls.
            if os.fstat(file).st_nlink:
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
                return file
            os.close(file)

    def release(self) -> None:
        """Let others use the folder."""
        with contextlib.suppress(OSError):
            os.remove(self._path)
        os.close(self._file)


def _holder(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            number = file.read()
    except OSError:
        number = ""
    if number == str(os.getpid()):
        return "this process"
    return f"process {number}" if number else "another process"
