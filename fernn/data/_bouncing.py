"""Bouncing MNIST: two digits in boxes that bounce off the walls and off each other.

One item: two MNIST digits, each inside its tight box, which starts beside the other box with a
velocity drawn uniformly from V. The canvas is 28 rows by 48 columns with a grey border of one
pixel; each box is drawn white, one pixel wide, around the pixels of its digit. It is the drawn box
that bounces, so that a collision can be seen as the contact of two lines. Source and licence are
those of the digits; an epoch has as many sequences as the pool has digits.
"""

import os

import torch
from torch import Tensor

from fernn import _check
from fernn.data._collisions import bounce, clock
from fernn.data._pool import DIGIT_SIZE, canvases, check_canvas, load_pool
from fernn.data._random import Stream, integers
from fernn.data._videos import Batch, Videos, grey_levels
from fernn.flows import Translation

BORDER, BOX = 0.5, 1.0  # the grey of the canvas's edge, the white of a digit's box
_FINEST = 1 << 40  # parts of a frame; places are counted in them, in 64 bits


class BouncingMNIST(Videos):
    """Two digits of equal mass in elastic collision; positions are whole pixels in every frame.

    Frames [B, T, 1, H, W]; velocities [B, T, 2, 2], for each frame and digit the pixels a frame
    with which it moves on from there; labels [B, 2].

    The boxes start side by side, left and right at random: uniform over all such places.

    >>> data = BouncingMNIST(Translation(radius=2), "test")
    >>> frames, velocities, labels = data.batch([0, 1, 2], epoch=0)
    >>> frames.shape, velocities.shape, labels.shape
    (torch.Size([3, 20, 1, 28, 48]), torch.Size([3, 20, 2, 2]), torch.Size([3, 2]))
    """

    def __init__(
        self,
        flow: Translation,
        split: str,
        *,
        root: str | os.PathLike[str] | None = None,
        canvas: tuple[int, int] = (28, 48),
        length: int = 20,
        size: int | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(split, seed=seed, device=device)
        if not isinstance(flow, Translation) or flow.group.dim != 2 or flow.closed:
            raise ValueError(
                f"`flow` must be a Translation of images, not closed on a torus, got {flow!r}."
            )
        self.flow, self.length = flow, _check.count("length", length, least=1)
        self.canvas = check_canvas(canvas)
        self._durations = clock(flow.velocities)
        if sum(self._durations) > _FINEST:
            raise ValueError(
                f"`flow` must be slower, got {flow!r}: times of collision are fractions of a frame "
                "too fine to count. Use velocities up to 10 pixels a frame."
            )
        self._pool = load_pool(root, split, self.device)
        self.source = self._pool.source
        self._size = len(self._pool) if size is None else _check.count("size", size, least=1)
        self._levels = grey_levels(self.device)
        self._corner, self._extent = tight_boxes(self._pool.images.cpu())
        rows, columns = self._extent.amax(0).tolist()
        # One pixel to spare in each direction, else a box between two walls has nowhere to go.
        if self.canvas[0] < rows + 3 or self.canvas[1] < 2 * columns + 3:
            raise ValueError(
                f"`canvas` must have at least {rows + 3} rows and {2 * columns + 3} columns, so "
                f"that two boxes and the border fit side by side, got {self.canvas}."
            )

    def __repr__(self) -> str:
        return (
            f"BouncingMNIST({self.flow!r}, {self.split!r}, canvas={self.canvas}, "
            f"length={self.length}, size={len(self)}, seed={self.seed})"
        )

    def _make(self, indices: Tensor, epoch: int) -> Batch:
        chosen, start, velocity = self._draw(indices, epoch)
        room = (self.canvas[0] - 2, self.canvas[1] - 2)
        # A few numbers a sequence in many small steps: the CPU's work, whatever the device.
        places, velocities = bounce(
            start, velocity, self._extent[chosen], room, self.length, self._durations
        )
        shape = (len(indices), self.length, *self.canvas)
        frames = torch.empty(shape, dtype=torch.float32, device=self.device)
        for part in self._parts(len(indices), frames[0].numel()):
            frames[part] = self._render(chosen[part], places[part] + 1)
        labels = self._pool.labels[chosen.to(self.device)]
        return Batch(frames[:, :, None], velocities.to(self.device), labels)

    def _draw(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Which digits [B, 2], where their boxes start in the room and how they move [B, 2, 2]."""
        chosen = integers(self._words(indices, Stream.DIGIT, 2, epoch), len(self._pool))
        table = self.flow.velocities
        velocity = table[integers(self._words(indices, Stream.VELOCITY, 2, epoch), len(table))]
        height, width = self._extent[chosen].unbind(-1)
        place = self._words(indices, Stream.START, 5, epoch)
        rows = integers(place[:, :2], self.canvas[0] - 2 - height + 1)
        left, right = _shares(place[:, 2], place[:, 3], self.canvas[1] - 2 - width.sum(-1))
        first = integers(place[:, 4:], 2)  # which digit is on the left
        columns = torch.where(
            first == torch.arange(2), left[:, None], right[:, None] + width.flip(-1)
        )
        return chosen, torch.stack([rows, columns], -1), velocity

    def _render(self, chosen: Tensor, places: Tensor) -> Tensor:
        """Digits [B, 2] with their boxes at places [B, T, 2, 2] on the canvas: [B, T, H, W]."""
        middle = torch.tensor([(size - DIGIT_SIZE) // 2 for size in self.canvas])
        # From the middle of the canvas to its corner, so that the box begins at (0, 0).
        home = 1 - middle - self._corner[chosen]
        digits = canvases(self._pool, chosen.to(self.device), self.canvas, self._levels)
        extent = self._extent[chosen].to(self.device)
        sprites = self.flow.act(digits, home) + BOX * _outline(extent, self.canvas)
        moved = self.flow.act(sprites[:, None], places)
        frames = moved[:, :, 0] + moved[:, :, 1]
        for edge in (frames[..., :1, :], frames[..., -1:, :], frames[..., :1], frames[..., -1:]):
            edge.fill_(BORDER)
        return frames


def tight_boxes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Where the ink of each image begins, and the size of the box drawn around it.

    Shapes: uint8 [N, H, W] → first row and column of ink [N, 2], rows and columns of box [N, 2].
    """
    ink = images > 0
    spans = []
    for line in (ink.any(2).int(), ink.any(1).int()):
        first = line.argmax(1)
        spans.append((first, line.shape[1] - line.flip(1).argmax(1) - first + 2))
    return torch.stack([s[0] for s in spans], -1), torch.stack([s[1] for s in spans], -1)


def _shares(a: Tensor, b: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Two ordered numbers 0 ≤ i ≤ j ≤ free, uniform over all such pairs, from two words.

    The rectangle of free + 1 by free + 2 covers the triangle of pairs exactly twice.
    """
    i, j = integers(a, free + 1), integers(b, free + 2)
    return torch.minimum(i, j), torch.where(j > i, j - 1, i)


def _outline(extent: Tensor, canvas: tuple[int, int]) -> Tensor:
    """Rectangles from the corner of the canvas, one pixel wide: [*S, 2] → float32 [*S, H, W]."""
    rows = torch.arange(canvas[0], device=extent.device)[:, None]
    columns = torch.arange(canvas[1], device=extent.device)
    height, width = (e[..., None, None] for e in extent.unbind(-1))
    edge = (rows == 0) | (rows == height - 1) | (columns == 0) | (columns == width - 1)
    return (edge & (rows < height) & (columns < width)).float()
