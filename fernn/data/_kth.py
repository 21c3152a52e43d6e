"""KTH actions: turns the official videos and the official list of ranges into an archive.

Source: C. Schüldt, I. Laptev and B. Caputo, "Recognizing human actions: a local SVM approach", ICPR
2004; <https://www.csc.kth.se/cvap/actions/>. 25 people, 6 actions, 599 videos of 160×120 at 25 fps.

One clip is one listed range, whole: every frame of it, so that a dataset may take any window.
A frame is grey, 32×32, the whole picture averaged over equal areas (5 by 3.75 pixels), and the
video's luma range 16..235 stretched to 0..255, as a player shows it. All in integers, rounded once.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fernn.data._archive import ClipArchive
from fernn.data._errors import DataError
from fernn.data._files import Progress, reason, silent
from fernn.data._kth_summary import KTHSummary, LeftOut
from fernn.data._sequences import ACTIONS, LIST_NAME, Sequences, read_sequences

MIN_FRAMES = 32  # the window that training takes from a range
WIDTH, HEIGHT = 160, 120
SIZE = 32
_BATCH = 256  # frames reduced at a time; bounds memory on a long video


def split_of(person: int) -> str:
    """People 1–16 train, 17–20 validate, 21–25 test."""
    return "train" if person <= 16 else "val" if person <= 20 else "test"


def prepare_kth(
    source: str | os.PathLike[str], out: str | os.PathLike[str], progress: Progress | None = None
) -> KTHSummary:
    """Writes the archive `out` from the folder `source`, and says what it left out.

    `source` holds `00sequences.txt` and the videos, beside it or in one folder for each action. A
    video that is absent, truncated or foreign, and a range that is too short or beyond the end of
    its video, is left out and named in the summary. `out` is written whole at the end or not at
    all.
    """
    _import_av()
    progress = progress or silent
    source, out = Path(source), Path(out)
    videos = read_sequences(source / LIST_NAME)
    _check_target(out)
    clips: list[tuple[Sequences, int, NDArray[np.uint8]]] = []
    left_out = [LeftOut("unlisted", name, "") for name in _unlisted(source, videos)]
    for done, video in enumerate(videos):
        progress(done, len(videos), video.name)
        for first, item in _prepare_video(source, video):
            if isinstance(item, LeftOut):
                left_out.append(item)
            else:
                clips.append((video, first, item))
    progress(len(videos), len(videos), "writing")
    summary = _summary(out, videos, clips, left_out)
    if not clips:
        raise DataError(f"`source` {source} gives no clip, so nothing was written.\n{summary}")
    _archive(clips).save(out)
    return summary


def find_video(source: Path, video: Sequences) -> Path | None:
    """The file of a video in `source`, beside the list or in the folder of its action."""
    for path in (source / video.file_name, source / video.action / video.file_name):
        if path.is_file():
            return path
    return None


def area_average(frames: NDArray[np.uint8], height: int, width: int) -> NDArray[np.int64]:
    """[T, H, W] → [T, height, width], each the sum over an equal area, times height·width.

    Dividing by H·W gives the mean. A pixel on the border of two areas counts by its share in each.
    """
    rows = _overlap(frames.shape[1], height)
    columns = _overlap(frames.shape[2], width)
    # Integers below 2**53 in float64: exact in any order, and BLAS does the work.
    return (rows @ frames.astype(np.float64) @ columns.T).astype(np.int64)


def _overlap(pixels: int, areas: int) -> NDArray[np.float64]:
    """Share of each pixel in each area, [areas, pixels], in units of 1/areas of a pixel."""
    area, pixel = np.arange(areas)[:, None] * pixels, np.arange(pixels)[None] * areas
    shared = np.minimum(area + pixels, pixel + areas) - np.maximum(area, pixel)
    return shared.clip(0).astype(np.float64)


def _grey(luma: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pixels = luma.shape[1] * luma.shape[2]
    above_black = area_average(luma, SIZE, SIZE) - 16 * pixels
    grey: NDArray[np.int64] = (2 * 255 * above_black + 219 * pixels) // (
        2 * 219 * pixels
    )  # rounds half up
    return np.clip(grey, 0, 255).astype(np.uint8)


def _prepare_video(
    source: Path, video: Sequences
) -> Iterator[tuple[int, NDArray[np.uint8] | LeftOut]]:
    """The clips of one video by first frame, or why there are none."""
    if not video.ranges:
        yield 0, LeftOut("missing", video.name, "")
        return
    try:
        path = find_video(source, video)
        if path is None:
            yield 0, LeftOut("absent", video.name, "")
            return
        frames = _decode(path, max(last for _, last in video.ranges))
    except (DataError, OSError) as error:
        yield 0, LeftOut("damaged", video.name, reason(error))
        return
    for first, last in video.ranges:
        if last - first + 1 < MIN_FRAMES:
            yield first, LeftOut("short", video.name, f"{first}-{last}")
        elif last > len(frames):
            yield first, LeftOut("beyond", video.name, f"{first}-{last} of {len(frames)} frames")
        else:
            yield first, frames[first - 1 : last]


def _decode(path: Path, count: int) -> NDArray[np.uint8]:
    """The first `count` frames of a video, or all if it is shorter, grey uint8 [T, SIZE, SIZE]."""
    _check_whole(path)
    av = _import_av()
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise DataError("foreign: no video inside")
            pictures = islice(container.decode(video=0), count)
            parts = [_grey(np.stack(batch)) for batch in _batches(map(_luma, pictures))]
    except av.FFmpegError as error:
        raise DataError(f"cannot be decoded: {reason(error)}") from error
    return np.concatenate(parts) if parts else np.empty((0, SIZE, SIZE), dtype=np.uint8)


def _check_whole(path: Path) -> None:
    # Decoders forgive a lost end, and may invent the last picture; the container knows its size.
    with path.open("rb") as file:
        header = file.read(12)
    if len(header) < 12 or header[:4] != b"RIFF" or header[8:] != b"AVI ":
        raise DataError("foreign: not an AVI file")
    promised, found = 8 + struct.unpack("<I", header[4:8])[0], path.stat().st_size
    if found < promised:
        raise DataError(f"truncated: {found} of the {promised} bytes that its header promises")


def _luma(picture: Any) -> NDArray[np.uint8]:
    if picture.format.name != "yuv420p" or (picture.width, picture.height) != (WIDTH, HEIGHT):
        raise DataError(
            f"foreign: {picture.format.name} {picture.width}x{picture.height}, KTH is yuv420p "
            f"{WIDTH}x{HEIGHT}"
        )
    plane = picture.planes[0]
    rows = np.frombuffer(plane, dtype=np.uint8).reshape(-1, plane.line_size)
    return rows[:HEIGHT, :WIDTH].copy()


def _batches(pictures: Iterable[NDArray[np.uint8]]) -> Iterator[list[NDArray[np.uint8]]]:
    iterator = iter(pictures)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _archive(clips: list[tuple[Sequences, int, NDArray[np.uint8]]]) -> ClipArchive:
    videos = [video for video, _, _ in clips]
    return ClipArchive(
        name="kth",
        classes=ACTIONS,
        frames=torch.from_numpy(np.concatenate([frames for _, _, frames in clips])),
        length=torch.tensor([len(frames) for _, _, frames in clips]),
        label=torch.tensor([ACTIONS.index(video.action) for video in videos]),
        subject=torch.tensor([video.person for video in videos]),
        start=torch.tensor([first for _, first, _ in clips]),
        clip=tuple(video.name for video in videos),
        split=tuple(split_of(video.person) for video in videos),
    )


def _summary(
    out: Path,
    videos: tuple[Sequences, ...],
    clips: list[tuple[Sequences, int, NDArray[np.uint8]]],
    left_out: list[LeftOut],
) -> KTHSummary:
    splits = [split_of(video.person) for video, _, _ in clips]
    return KTHSummary(
        out=out,
        clips=len(clips),
        frames=sum(len(frames) for _, _, frames in clips),
        videos=len({video.name for video, _, _ in clips}),
        splits=tuple((split, splits.count(split)) for split in ("train", "val", "test")),
        listed_videos=sum(bool(video.ranges) for video in videos),
        listed_ranges=sum(len(video.ranges) for video in videos),
        left_out=tuple(left_out),
    )


def _unlisted(source: Path, videos: tuple[Sequences, ...]) -> list[str]:
    """Files that look like videos but that no line of the list asks for."""
    listed = {video.file_name for video in videos if video.ranges}
    folders = (source, *(source / action for action in ACTIONS))
    found = (path for folder in folders for path in folder.glob("*.avi"))
    return sorted(path.relative_to(source).as_posix() for path in found if path.name not in listed)


def _check_target(out: Path) -> None:
    # Before minutes of decoding, not after.
    if out.is_dir() or not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise DataError(f"`out` must be a file in a folder that can be written to, got {out}.")


def _import_av() -> Any:
    try:
        import av
    except ImportError as error:
        raise ImportError(
            "`prepare_kth` needs PyAV, which is not installed; run `pip install fernn[kth]`."
        ) from error
    return av
