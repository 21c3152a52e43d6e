"""Files that are either whole or not there."""

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

    The move is atomic because both are in one folder; a reader sees the old file or the new one.
    The file is not made by `tempfile`, whose private permissions the result would inherit.
    """
    part = path.with_name(part_pattern(path.name).replace("*", secrets.token_hex(4)))
    try:
        with part.open("xb"):
            pass
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
