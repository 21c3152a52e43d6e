"""Unpacks a zip file that nobody vouches for."""

import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fernn.data._errors import DataError
from fernn.data._files import ZIP_ERRORS, ZIP_METHODS, Progress, reason

MAX_ENTRIES = 10_000


def unpack(archive: Path, target: Path, max_bytes: int, progress: Progress) -> list[Path]:
    """Unpacks `archive` into the empty folder `target`; returns the files.

    Every entry is checked before the first is written: none may leave the folder, be anything but a
    plain file or folder, or be there twice, and all together may not exceed `max_bytes`. Reading an
    entry stops at the size that was checked, and its checksum is verified.
    """
    paths = []
    with _opened(archive, max_bytes) as file:
        entries = [entry for entry in file.infolist() if not entry.is_dir()]
        for done, entry in enumerate(entries, start=1):
            path = target / entry.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            with file.open(entry) as source, path.open("xb") as copy:
                shutil.copyfileobj(source, copy)
            paths.append(path)
            progress(done, len(entries), f"unpacking {archive.name}")
    return paths


def check_zip(archive: Path, max_bytes: int) -> None:
    """Raises unless `archive` could be unpacked: the same checks, and every checksum."""
    with _opened(archive, max_bytes) as file:
        if (damaged := file.testzip()) is not None:
            raise zipfile.BadZipFile(f"bad checksum of {damaged}")


@contextmanager
def _opened(archive: Path, max_bytes: int) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as file:
            _check_entries(archive, file.infolist(), max_bytes)
            yield file
    except DataError:
        raise
    except ZIP_ERRORS as error:
        raise DataError(
            f"{archive} is a truncated or damaged zip file ({reason(error)}); download it again."
        ) from error
    except OSError as error:
        raise DataError(f"{archive} cannot be unpacked: {reason(error)}.") from error


def _check_entries(archive: Path, entries: list[zipfile.ZipInfo], max_bytes: int) -> None:
    if len(entries) > MAX_ENTRIES:
        raise DataError(f"{archive} has {len(entries)} entries, expected at most {MAX_ENTRIES}.")
    total = sum(entry.file_size for entry in entries)
    if total > max_bytes:
        raise DataError(f"{archive} unpacks to {total} bytes, expected at most {max_bytes}.")
    seen: set[str] = set()
    for entry in entries:
        if problem := _problem(entry, seen):
            raise DataError(
                f"{archive} has an entry {entry.filename!r} that {problem}; nothing was unpacked: "
                "download it again from a source that you trust."
            )
        seen.add(entry.filename.casefold())


def _problem(entry: zipfile.ZipInfo, seen: set[str]) -> str | None:
    name = entry.orig_filename
    parts = PurePosixPath(name).parts
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in name:
        return "leads out of its folder"
    if not name.isprintable():
        return "hides a part of its name"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    if entry.flag_bits & 0x1 or entry.compress_type not in ZIP_METHODS:
        return "is encrypted or packed by another method than deflate"
    if entry.filename.casefold() in seen:
        return "is there twice"
    return None
