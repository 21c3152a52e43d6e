"""Files that are either whole or not there."""

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def part_pattern(name: str) -> str:
    """The glob of the temporary files that `written_whole` makes for a file of this name."""
    return f".{name}.*.part"


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, moved onto it on success and removed on any error.

    The move is atomic because both are in one folder; a reader sees the old file or the new one,
    and so does whoever looks after a power cut. The file is not made by `tempfile`, whose private
    permissions the result would inherit. A link stays, and its file is written. Errors of the disk
    name `path`.
    """
    path = Path(os.path.realpath(path))
    part = path.with_name(part_pattern(path.name).replace("*", secrets.token_hex(4)))
    try:
        with part.open("xb"):
            pass
        yield part
        with part.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names none
    finally:
        part.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    """A move is a change of the folder, which the disk learns of later than of the file."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != errno.EINVAL:  # network file systems that do it by themselves
            raise
    finally:
        os.close(opened)
