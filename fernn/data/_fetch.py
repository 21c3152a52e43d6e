"""Downloads the datasets that the package does not hold: the whole of MNIST, and KTH."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fernn._files import part_pattern
from fernn.data import _digits
from fernn.data._digits import IdxFile
from fernn.data._download import download
from fernn.data._errors import DataError
from fernn.data._files import Progress, reason, silent
from fernn.data._kth import find_video
from fernn.data._lock import folder_lock
from fernn.data._sequences import (
    ACTIONS,
    LIST_NAME,
    OFFICIAL_RANGES,
    OFFICIAL_VIDEOS,
    Sequences,
    read_sequences,
)
from fernn.data._unpack import check_zip, unpack

MIRRORS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "kth": ("https://www.csc.kth.se/cvap/actions/",),
}
_MNIST_BYTES = 2**26
_LIST_BYTES = 2**20
_ZIP_BYTES = 2**30  # the largest has 0.25 GB
_UNPACKED_BYTES = 2**31
_STAGING = ".fernn-unpack-"


def fetch(
    name: str,
    root: str | os.PathLike[str],
    progress: Progress | None = None,
    mirrors: Sequence[str] | None = None,
) -> Path:
    """Downloads `"mnist"` or `"kth"` into the folder `root`, which is made if need be; returns it.

    Files that are there already and right are kept, so a fetch that was broken off goes on where it
    stopped. Each file appears whole or not at all, and of several processes that fetch into one
    folder one downloads while the others wait. `mirrors` are the addresses to try instead of the
    public ones. MNIST is verified byte for byte; of KTH, which has no official checksums, the zip
    files' own and the official list of videos.
    """
    if name not in MIRRORS:
        raise DataError(f"`name` must be one of {', '.join(MIRRORS)}, got {name!r}.")
    root, report = Path(root), progress or silent
    bases = [base.rstrip("/") + "/" for base in (mirrors or MIRRORS[name])]
    fetch_files = _fetch_mnist if name == "mnist" else _fetch_kth
    try:
        root.mkdir(parents=True, exist_ok=True)
        with folder_lock(root, lambda: report(0, 0, f"waiting for another fetch into {root}")):
            fetch_files(root, bases, report)
    except OSError as error:
        raise DataError(f"`root` {root} cannot be written to: {reason(error)}.") from error
    return root


def _fetch_mnist(root: Path, bases: list[str], progress: Progress) -> None:
    for file in _digits.OFFICIAL:
        verify = partial(_verify_digits, file)
        plain = root / file.name
        if _is_right(plain, verify):
            continue
        if plain.exists():  # and is wrong: it would go before the file that is downloaded
            raise DataError(f"{plain} is not the official file; remove it and fetch again.")
        if not _is_right(root / f"{file.name}.gz", verify):
            _get(root, f"{file.name}.gz", bases, verify, _MNIST_BYTES, progress)


def _verify_digits(file: IdxFile, path: Path) -> None:
    file.read(path)


def _is_right(path: Path, verify: Callable[[Path], None]) -> bool:
    try:
        verify(path)
    except DataError:
        return False
    return True


def _fetch_kth(root: Path, bases: list[str], progress: Progress) -> None:
    for left in root.glob(f"{_STAGING}*"):
        shutil.rmtree(left)
    if not _is_right(root / LIST_NAME, _verify_list):
        _get(root, LIST_NAME, bases, _verify_list, _LIST_BYTES, progress)
    videos = read_sequences(root / LIST_NAME)
    for action in ACTIONS:
        wanted = [video for video in videos if video.action == action and video.ranges]
        if all(find_video(root, video) for video in wanted):
            continue
        archive = root / f"{action}.zip"
        given = archive.is_file()
        if not given:
            _get(root, archive.name, bases, _verify_zip, _ZIP_BYTES, progress)
        try:
            _place(archive, root, action, wanted, progress)
        finally:
            if not given:
                archive.unlink()


def _verify_zip(path: Path) -> None:
    check_zip(path, _UNPACKED_BYTES)


def _verify_list(path: Path) -> None:
    videos = [video for video in read_sequences(path) if video.ranges]
    ranges = sum(len(video.ranges) for video in videos)
    if (len(videos), ranges) != (OFFICIAL_VIDEOS, OFFICIAL_RANGES):
        raise DataError(
            f"{LIST_NAME} lists {ranges} ranges of {len(videos)} videos, expected "
            f"{OFFICIAL_RANGES} of {OFFICIAL_VIDEOS}."
        )


def _place(
    archive: Path, root: Path, action: str, wanted: list[Sequences], progress: Progress
) -> None:
    """Moves the videos of one action out of its zip file into `root/action`, all or none."""
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=root) as staging:
        unpacked = unpack(archive, Path(staging), _UNPACKED_BYTES, progress)
        found = {path.name: path for path in unpacked}
        absent = [video.file_name for video in wanted if video.file_name not in found]
        if absent:
            raise DataError(
                f"{action}.zip lacks {len(absent)} of {len(wanted)} videos, {absent[0]} the first; "
                "download it again."
            )
        (root / action).mkdir(exist_ok=True)
        for video in wanted:
            os.replace(found[video.file_name], root / action / video.file_name)


def _get(
    root: Path,
    name: str,
    bases: list[str],
    check: Callable[[Path], None],
    max_bytes: int,
    progress: Progress,
) -> None:
    for left in root.glob(part_pattern(name)):
        left.unlink()
    download([base + name for base in bases], root / name, check, max_bytes, progress)
