"""What reading and writing data files share: progress callbacks, zip errors, reasons."""

import struct
import zipfile
import zlib
from collections.abc import Callable

# progress(done, total, what): `total` is 0 where it is not known in advance.
Progress = Callable[[int, int, str], None]

ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# What `zipfile` raises on damaged files; its own error is only the first of them.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
)


def silent(done: int, total: int, what: str) -> None:
    """The progress callback of a caller who gave none."""


def reason(error: BaseException) -> str:
    """What went wrong, without the errno and the path that the message already has."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
