"""Moving camera: labelled clips of an archive, seen by a camera that drifts.

One item: 32 consecutive frames of one clip, every second of them kept, moved cyclically with a
velocity drawn from V in pixels a kept frame. Source and licence are those of the archive; an epoch
has as many sequences as the split has clips.
"""

import torch
from torch import Tensor

from fernn import _check
from fernn.data._archive import ClipArchive
from fernn.data._errors import DataError
from fernn.data._random import Stream, integers
from fernn.data._videos import Batch, Videos, grey_levels
from fernn.flows import Translation

WINDOW, STRIDE = 32, 2
LENGTH = WINDOW // STRIDE


class MovingClips(Videos):
    """Clips under a camera motion of constant velocity, or one that changes half way.

    Frames [B, 16, 1, H, W]; velocities [B, 1, 2], or [B, 2, 2] with `switch`, before and after
    frame 8; labels [B], indices into `classes`.

    A clip's velocity is a function of the seed and the clip, the same in every epoch; `redraw`
    draws it anew in each. Training takes a random window of the clip in each epoch and mirrors
    half of them, left and right; validation and test take the central window as it is. Evaluate at
    one fixed epoch, such as 0.

    >>> frames = torch.zeros(40, 32, 32, dtype=torch.uint8)
    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> numbers = (zero + 40, zero, zero, zero)
    >>> archive = ClipArchive("one", ("walk",), frames, *numbers, clip=("a",), split=("val",))
    >>> data = MovingClips(archive, Translation(radius=2), "val", switch=True)
    >>> [tuple(tensor.shape) for tensor in data.batch([0], epoch=0)]
    [(1, 16, 1, 32, 32), (1, 2, 2), (1,)]
    """

    def __init__(
        self,
        archive: ClipArchive,
        flow: Translation,
        split: str,
        *,
        redraw: bool = False,
        switch: bool = False,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(split, seed=seed, device=device)
        _check.kind("archive", archive, ClipArchive, "ClipArchive.load(path)")
        if not isinstance(flow, Translation) or flow.group.dim != 2:
            raise ValueError(f"`flow` must be a Translation of images, got {flow!r}.")
        flow.check_canvas(archive.frames)
        clips = archive.indices(split)
        if not len(clips):
            raise DataError(
                f"`split` must have clips in {archive.name!r}, got {split!r}, which has none."
            )
        lengths = archive.length[clips]
        short = int((lengths < WINDOW).sum())
        if short:
            raise DataError(
                f"`archive` must have clips of at least {WINDOW} frames, got {short} shorter ones "
                f"in {split!r} of {archive.name!r}. Leave them out when the archive is written."
            )
        self._size = len(clips)
        self.flow, self.redraw, self.switch = flow, redraw, switch
        self.name, self.classes = archive.name, archive.classes
        # Only this split's frames go to the device.
        self._frames = torch.cat([archive[int(clip)] for clip in clips]).to(self.device)
        self._lengths, self._offsets = lengths, lengths.cumsum(0) - lengths
        self._labels = archive.label[clips].to(self.device)
        self._levels = grey_levels(self.device)

    def __repr__(self) -> str:
        return (
            f"MovingClips({self.name!r}, {self.flow!r}, {self.split!r}, redraw={self.redraw}, "
            f"switch={self.switch}, size={len(self)}, seed={self.seed})"
        )

    def _make(self, indices: Tensor, epoch: int) -> Batch:
        first, mirrored, velocities = self._draw(indices, epoch)
        places = (first[:, None] + STRIDE * torch.arange(LENGTH)).to(self.device)
        shape = (len(indices), LENGTH, *self._frames.shape[1:])
        moved = torch.empty(shape, dtype=torch.float32, device=self.device)
        mirrored = mirrored.to(self.device)[:, None, None, None]
        way = _way(velocities)
        for part in self._parts(len(indices), moved[0].numel()):
            frames = self._levels[self._frames[places[part]].int()]
            frames = torch.where(mirrored[part], frames.flip(-1), frames)
            moved[part] = self.flow.act(frames, way[part])
        labels = self._labels[indices.to(self.device)]
        return Batch(moved[:, :, None], velocities.to(self.device), labels)

    def _draw(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """First frames [B], whether mirrored [B], velocities [B, 1 or 2, 2], on the CPU."""
        table = self.flow.velocities
        legs, drawn_at = 2 if self.switch else 1, epoch if self.redraw else 0
        drawn = self._words(indices, Stream.VELOCITY, legs, drawn_at)
        velocity = table[integers(drawn, len(table))]
        spare = self._lengths[indices] - WINDOW
        if self.split == "train":
            skipped = integers(self._words(indices, Stream.WINDOW, 1, epoch)[:, 0], spare + 1)
            mirrored = integers(self._words(indices, Stream.FLIP, 1, epoch)[:, 0], 2) == 1
        else:
            skipped, mirrored = spare // 2, torch.zeros_like(spare, dtype=torch.bool)
        return self._offsets[indices] + skipped, mirrored, velocity


def _way(velocities: Tensor) -> Tensor:
    """How far the camera has moved each frame: [B, 1 or 2, 2] → [B, 16, 2].

    The second velocity first shows in the step from frame 8 to frame 9.
    """
    time = torch.arange(LENGTH)[:, None]
    half = LENGTH // 2
    before = velocities[:, :1] * time.clamp(max=half)
    return before + velocities[:, -1:] * (time - half).clamp(min=0)
