"""Flowing MNIST: digits that move with a flow, each at its own constant velocity.

One item: `digits` MNIST digits drawn from the pool of the split, each from a random start and with
a velocity drawn uniformly from V, added and clamped to [0, 1]. Source and licence are those of the
digits; an epoch has as many sequences as the pool has digits.
"""

import os

import torch
from torch import Tensor

from fernn import _check
from fernn.data._pool import canvases, check_canvas, load_pool
from fernn.data._random import Stream, integers, uniform
from fernn.data._videos import Batch, Videos, grey_levels
from fernn.flows import Flow, Rotation, Translation


class FlowingMNIST(Videos):
    """Digits that translate on a torus, or rotate about the centre.

    Frames [B, T, 1, H, W], velocities [B, digits, d] as the flow counts them, labels [B, digits].

    Under `Translation` the start is uniform on the torus and the canvas 28×28 unless told; under
    `Rotation` the start angle is uniform in [0°, 360°) and the canvas 40×40. Digits and starts do
    not depend on V: to see the same sequences at one given velocity, as an evaluation per velocity
    needs, make the dataset again with `Translation(velocities=[ν])`.

    Training redraws everything in each epoch; evaluate with one fixed epoch, such as 0. A
    DataLoader stays at one epoch: make it from `data.at(epoch)`, or use `data.batches`. Sequences
    of translations are the same to the bit on every device, those of rotations to 1e-5.

    >>> data = FlowingMNIST(Translation(radius=2), "test")
    >>> frames, velocities, labels = data.batch([0, 1, 2], epoch=0)
    >>> frames.shape, velocities.shape, labels.shape
    (torch.Size([3, 20, 1, 28, 28]), torch.Size([3, 2, 2]), torch.Size([3, 2]))
    """

    def __init__(
        self,
        flow: Flow,
        split: str,
        *,
        root: str | os.PathLike[str] | None = None,
        digits: int = 2,
        canvas: tuple[int, int] | None = None,
        length: int = 20,
        size: int | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(split, seed=seed, device=device)
        if not isinstance(flow, Translation | Rotation) or flow.group.dim != 2:
            raise ValueError(
                "`flow` must be a Translation of images or a Rotation, because the start of a "
                f"digit is drawn from its group, got {flow!r}."
            )
        self.flow = flow
        self.digits = _check.count("digits", digits, least=1)
        self.length = _check.count("length", length, least=1)
        if canvas is None:
            canvas = (28, 28) if isinstance(flow, Translation) else (40, 40)
        self.canvas = check_canvas(canvas)
        flow.check_canvas(torch.empty(self.canvas))
        self._pool = load_pool(root, split, self.device)
        self.source = self._pool.source
        self._size = len(self._pool) if size is None else _check.count("size", size, least=1)
        self._levels = grey_levels(self.device)

    def __repr__(self) -> str:
        return (
            f"FlowingMNIST({self.flow!r}, {self.split!r}, digits={self.digits}, "
            f"canvas={self.canvas}, length={self.length}, size={len(self)}, seed={self.seed})"
        )

    def _make(self, indices: Tensor, epoch: int) -> Batch:
        chosen, start, velocities = self._draw(indices, epoch)
        time = torch.arange(self.length)
        # ψ_t(ν)·ψ_1(start) = ψ_1(start + tν), since velocities commute: one interpolation, not two.
        way = start[:, :, None] + velocities.to(start.dtype)[:, :, None] * time[:, None]
        chosen = chosen.to(self.device)
        shape = (len(indices), self.length, *self.canvas)
        frames = torch.zeros(shape, dtype=torch.float32, device=self.device)
        # Interpolation needs some eight times the memory of a shift.
        work = frames[0].numel() * (1 if isinstance(self.flow, Translation) else 8)
        for part in self._parts(len(indices), work):
            self._render(chosen[part], way[part], frames[part])
        labels = self._pool.labels[chosen]
        return Batch(frames[:, :, None], velocities.to(self.device), labels)

    def _draw(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Which digits [B, digits], where they start and how they move [B, digits, d]."""
        chosen = integers(self._words(indices, Stream.DIGIT, self.digits, epoch), len(self._pool))
        table = self.flow.velocities
        drawn = self._words(indices, Stream.VELOCITY, self.digits, epoch)
        velocity = table[integers(drawn, len(table))]
        place = self._words(indices, Stream.START, self.digits * table.shape[-1], epoch)
        place = place.unflatten(1, (self.digits, -1))
        if isinstance(self.flow, Translation):
            return chosen, integers(place, torch.tensor(self.canvas)), velocity
        return chosen, uniform(place) * 360.0, velocity

    def _render(self, chosen: Tensor, way: Tensor, frames: Tensor) -> None:
        """Digits [b, digits] along ways [b, digits, T, d], added into frames [b, T, H, W]."""
        placed = canvases(self._pool, chosen, self.canvas, self._levels)
        # Digit after digit, so that the order of the sum is the same on every device.
        for digit in range(self.digits):
            frames += self.flow.act(placed[:, digit, None], way[:, digit])
        frames.clamp_(0, 1)
