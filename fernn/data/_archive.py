"""One archive format for labelled clips of any length: an .npz file without pickled objects.

| key | type | what |
|---|---|---|
| frames | uint8 [N, T, H, W] or [F, H, W] | N clips of T frames each, or all clips end to end |
| length | int64 [N] | frames of each clip; only, and always, with frames [F, H, W] |
| label | int64 [N] | index into classes |
| subject | int64 [N] | who acts; nobody is in two splits |
| clip | text [N] | name of the source recording |
| start | int64 [N] | first frame, in the source's own numbering |
| split | text [N] | train, val or test |
| classes | text [K] | names of the classes |
| name | text [] | name of the dataset; without it, that of the file |
"""

import hashlib
import os
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fernn._files import written_whole
from fernn.data._errors import DataError
from fernn.data._files import reason
from fernn.data._npz import Array, read_npz

SPLITS = ("train", "val", "test")
_REQUIRED = ("frames", "label", "subject", "clip", "start", "split", "classes")
_OPTIONAL = ("length", "name")
_NUMBERS = ("label", "subject", "start", "length")


@dataclass(frozen=True, eq=False)
class ClipArchive:
    """Labelled clips; clip i is `archive[i]`, uint8 [length[i], H, W].

    The frames of all clips lie end to end in one tensor, so that a batch is one gather:
    `frames[offset[clips][:, None] + steps]`.
    """

    name: str
    classes: tuple[str, ...]
    frames: Tensor = field(repr=False)  # uint8 [F, H, W]
    length: Tensor = field(repr=False)  # this and the following int64 [N]
    label: Tensor = field(repr=False)
    subject: Tensor = field(repr=False)
    start: Tensor = field(repr=False)
    clip: tuple[str, ...] = field(repr=False)
    split: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> Tensor:
        first = int(self.offset[index])
        return self.frames[first : first + int(self.length[index])]

    @cached_property
    def offset(self) -> Tensor:
        """Position in `frames` of the first frame of each clip, int64 [N]."""
        return self.length.cumsum(0) - self.length

    @cached_property
    def sha256(self) -> str:
        """Of everything that a model learns from or is measured by, whatever the file is called."""
        digest = hashlib.sha256(repr((self.frames.shape, self.classes, self.split)).encode())
        for part in (self.frames, self.length, self.label):
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()

    def indices(self, split: str) -> Tensor:
        """The clips of one split, in the order of the archive, int64 [n]."""
        if split not in SPLITS:
            raise DataError(f"`split` must be one of {', '.join(SPLITS)}, got {split!r}.")
        chosen = [i for i, s in enumerate(self.split) if s == split]
        return torch.tensor(chosen, dtype=torch.int64, device="cpu")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ClipArchive":
        """Reads and checks an archive; whatever is wrong with it is a `DataError` that names it."""
        path = Path(path)
        arrays = read_npz(path)
        try:
            return cls._from_arrays(path.stem, arrays)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    @classmethod
    def _from_arrays(cls, stem: str, arrays: dict[str, Array]) -> "ClipArchive":
        absent = [key for key in _REQUIRED if key not in arrays]
        unknown = sorted(set(arrays) - {*_REQUIRED, *_OPTIONAL})
        if absent or unknown:
            raise DataError(
                f"`keys` must be {', '.join(_REQUIRED)} and may be {', '.join(_OPTIONAL)}; "
                f"absent {absent}, unknown {unknown}."
            )
        frames = arrays["frames"]
        if frames.ndim not in (3, 4) or (frames.ndim == 3) != ("length" in arrays):
            raise DataError(
                "`frames` must be [N, T, H, W] without a `length`, or [F, H, W] with one; got "
                f"{list(frames.shape)} {'with' if 'length' in arrays else 'without'} `length`."
            )
        if frames.ndim == 4:
            clips, steps = frames.shape[:2]
            arrays = arrays | {"length": np.full(clips, steps, dtype=np.int64)}
        if frames.dtype != np.uint8:
            raise DataError(f"`frames` must be uint8, got {frames.dtype}.")
        if "name" in arrays:
            name = _text("name", arrays["name"], 0)[0]
        else:  # a file's name alone makes no KTH of it
            name = stem if stem != "kth" else "unnamed clips"
        return cls(
            name=name,
            classes=_text("classes", arrays["classes"], 1),
            frames=torch.from_numpy(frames.reshape(-1, *frames.shape[-2:])),
            clip=_text("clip", arrays["clip"], 1),
            split=_text("split", arrays["split"], 1),
            **{key: _numbers(key, arrays[key]) for key in _NUMBERS},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the archive; `path` is replaced at once at the end, or left as it was."""
        path = Path(path)
        arrays = {key: getattr(self, key).numpy() for key in _NUMBERS}
        arrays["frames"] = self.frames.numpy()
        if bool((self.length == self.length[0]).all()):
            steps = int(arrays.pop("length")[0])
            arrays["frames"] = arrays["frames"].reshape(-1, steps, *self.frames.shape[1:])
        for key in ("clip", "split", "classes", "name"):
            arrays[key] = np.array(getattr(self, key), dtype=np.str_)
        try:
            with written_whole(path) as part, part.open("wb") as file:
                np.savez_compressed(file, **arrays)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {reason(error)}.") from error


def _text(key: str, array: Array, dims: int) -> tuple[str, ...]:
    if array.dtype.kind != "U" or array.ndim != dims:
        raise DataError(
            f"`{key}` must be text of {dims} dimensions, got {array.dtype} {list(array.shape)}."
        )
    # NumPy does not check the characters of a file, and fails without grace when they are read.
    codes = array.reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    if (codes > sys.maxunicode).any():
        raise DataError(f"`{key}` must be text, got characters that do not exist.")
    return tuple(cast("list[str]", array.reshape(-1).tolist()))


def _numbers(key: str, array: Array) -> Tensor:
    if array.dtype != np.int64 or array.ndim != 1:
        raise DataError(f"`{key}` must be int64 [N], got {array.dtype} {list(array.shape)}.")
    return torch.from_numpy(array)


def _check_tensor(key: str, value: object, dtype: torch.dtype, layout: str) -> None:
    got = type(value).__name__
    if isinstance(value, Tensor):
        if value.dtype == dtype and value.ndim == len(layout.split(",")):
            return
        got = f"{value.dtype} {list(value.shape)}"
    raise DataError(f"`{key}` must be a tensor, {dtype} {layout}, got {got}.")


def _check(archive: ClipArchive) -> None:
    _check_tensor("frames", archive.frames, torch.uint8, "[F, H, W]")
    for key in _NUMBERS:
        _check_tensor(key, getattr(archive, key), torch.int64, "[N]")
    clips, classes, frames = len(archive.label), len(archive.classes), archive.frames
    if clips < 1 or classes < 1:
        raise DataError(f"`label` and `classes` must not be empty, got {clips} and {classes}.")
    for key in ("label", "subject", "start", "length", "clip", "split"):
        if len(getattr(archive, key)) != clips:
            raise DataError(
                f"`{key}` must have one entry for each of the {clips} labels, got "
                f"{len(getattr(archive, key))}."
            )
    if len(set(archive.classes)) != classes:
        raise DataError(f"`classes` must differ from each other, got {list(archive.classes)}.")
    low, high = int(archive.label.min()), int(archive.label.max())
    if low < 0 or high >= classes:
        raise DataError(
            f"`label` must be in 0 to {classes - 1}, one of the classes, got {low} to {high}."
        )
    # The second comparison keeps the sum from overflowing.
    shortest, longest = int(archive.length.min()), int(archive.length.max())
    if shortest < 1 or longest > len(frames) or int(archive.length.sum()) != len(frames):
        raise DataError(
            f"`length` must be positive and add up to the {len(frames)} frames, got {shortest} to "
            f"{longest}, {sum(archive.length.tolist())} together."
        )
    unknown = sorted(set(archive.split) - set(SPLITS))
    if unknown:
        raise DataError(f"`split` must be one of {', '.join(SPLITS)}, got {unknown[:5]}.")
    home: dict[int, str] = {}
    for subject, split in zip(archive.subject.tolist(), archive.split, strict=True):
        if home.setdefault(subject, split) != split:
            raise DataError(
                f"`subject` must be in one split alone, got subject {subject} in both "
                f"{home[subject]} and {split}."
            )
