"""One process at a time in a folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fernn.data._errors import DataError

LOCK_NAME = ".fernn-fetch.lock"


@contextmanager
def folder_lock(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds `folder` for this process; calls `waiting` once if another one holds it, then waits.

    The kernel's lock and not the file is what counts, and it dies with its process: a lock file
    that a killed process left behind stops nobody.
    """
    try:
        import fcntl
    except ImportError as error:
        raise DataError(
            "`fetch` needs the file locks of a POSIX system; download by hand here."
        ) from error
    path = folder / LOCK_NAME
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_at(lock, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(lock)


def _is_at(lock: int, path: Path) -> bool:
    # The last holder removes the file, so the lock may be on one that nobody else can find.
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
