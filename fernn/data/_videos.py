"""What every dataset of moving pictures shares: batches by index, and an epoch in any order."""

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fernn import _check
from fernn.data._archive import SPLITS
from fernn.data._random import Stream, permutation, seeded, words

# Pixels that one call of `flow.act` makes: on a CPU its temporaries then stay in the cache, on a
# GPU they stay below some gigabytes.
_PIXELS = {"cpu": 1 << 18, "cuda": 1 << 26}
# Sequences of an epoch that are made at once: on a GPU the launches take as long for one as for
# hundreds, and a small model would wait for them.
_AT_ONCE = {"cpu": 1, "cuda": 512}


class Batch(NamedTuple):
    """Videos, how they moved, and what they show; one item is the same without the axis B."""

    frames: Tensor  # float32 [B, T, 1, H, W] in [0, 1]
    velocities: Tensor  # [B, ..., d], as the dataset says
    labels: Tensor  # int64 [B, ...], as the dataset says


class Videos(Dataset[Batch], ABC):
    """A dataset whose item i is a pure function of (seed, split, epoch, i).

    Order, batch size, rank, worker and device change nothing of it. `batch` makes many items at
    once on the dataset's device and is the fast way; indexing serves torch's DataLoader.
    """

    _size: int  # sequences in an epoch
    _epoch = 0  # which one indexing shows

    def __init__(self, split: str, *, seed: int, device: str | torch.device) -> None:
        _check.choice("split", split, SPLITS)
        self.split, self.seed, self.device = split, seeded(seed), torch.device(device)

    @abstractmethod
    def _make(self, indices: Tensor, epoch: int) -> Batch:
        """The items `indices`, an int64 tensor [B] on the CPU, made on the dataset's device."""

    def __len__(self) -> int:
        """The number of sequences in an epoch."""
        return self._size

    def __getitem__(self, index: int) -> Batch:
        """One item of the epoch that `at` chose, the first unless told."""
        made = self.batch([operator.index(index)], self._epoch)
        return Batch(*(tensor[0] for tensor in made))

    def at(self, epoch: int) -> Self:
        """The same dataset, indexed at another epoch: `DataLoader(dataset.at(epoch), ...)`."""
        other = copy.copy(self)
        other._epoch = _epoch(epoch)
        return other

    def batch(self, indices: Sequence[int] | Tensor, epoch: int) -> Batch:
        """The items `indices` of an epoch, in that order, on the dataset's device."""
        try:
            chosen = torch.as_tensor(indices, device="cpu")
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"`indices` must be a list of at least one whole number, got {indices!r}."
            ) from None
        counts = not (chosen.is_floating_point() or chosen.dtype == torch.bool)
        if chosen.ndim != 1 or len(chosen) == 0 or not counts:
            raise ValueError(
                "`indices` must be a list of at least one whole number, got "
                f"{chosen.dtype} of shape {tuple(chosen.shape)}."
            )
        low, high = int(chosen.min()), int(chosen.max())
        if low < 0 or high >= len(self):
            raise IndexError(
                f"`indices` must be in 0 to {len(self) - 1}, the sequences of {self.split!r}, "
                f"got {low if low < 0 else high}."
            )
        with torch.device("cpu"):  # where numbers are drawn, whatever torch's default is
            return self._make(chosen.long(), _epoch(epoch))

    def batches(
        self,
        batch_size: int,
        epoch: int,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
    ) -> Iterator[Batch]:
        """One epoch in batches, from batch number `start` on.

        The ranks take turns along the epoch, so that together batch k of all ranks holds the same
        items as batch k of one process whose batches are `world_size` times as large. Every item
        is seen once; with `drop_last` the incomplete end is left out, and then all ranks have
        equally many batches of equal size.
        """
        _check.count("batch_size", batch_size, least=1)
        _check.count("world_size", world_size, least=1)
        if _check.count("rank", rank, least=0) >= world_size:
            raise ValueError(f"`rank` must be below `world_size` {world_size}, got {rank}.")
        share = self._order(_epoch(epoch), shuffle)
        if drop_last:
            whole = batch_size * world_size
            share = share[: len(share) // whole * whole]
        if drop_last and not len(share):
            raise ValueError(
                f"`batch_size` must be at most {len(self) // world_size} with `drop_last`, the "
                f"sequences of {self.split!r} for each of {world_size} ranks, got {batch_size}."
            )
        share = share[rank::world_size]
        batches = -(-len(share) // batch_size)
        if _check.count("start", start, least=0) > batches:
            raise ValueError(
                f"`start` must be at most {batches}, the batches of this epoch, got {start}: "
                "resume with the batch size and world size that the position was counted in."
            )
        return self._made(share[start * batch_size :], batch_size, epoch)

    def _made(self, indices: Tensor, batch_size: int, epoch: int) -> Iterator[Batch]:
        """The items in batches, several of which may be made at once."""
        at_once = max(1, _AT_ONCE.get(self.device.type, 1) // batch_size)
        for many in indices.split(batch_size * at_once) if len(indices) else ():
            made = self.batch(many, epoch)
            for tensors in zip(*(tensor.split(batch_size) for tensor in made), strict=True):
                yield Batch(*tensors)

    def _order(self, epoch: int, shuffle: bool) -> Tensor:
        if not shuffle:
            return torch.arange(len(self), device="cpu")
        split = SPLITS.index(self.split)
        return permutation(self.seed, len(self), Stream.ORDER, split=split, epoch=epoch)

    def _words(self, indices: Tensor, stream: Stream, count: int, epoch: int) -> Tensor:
        """Random words for each item, int64 [B, count], on the CPU.

        They are few: the CPU draws them sooner than a GPU could be told to.
        """
        split = SPLITS.index(self.split)
        return words(self.seed, indices, stream, count, split=split, epoch=epoch)

    def _parts(self, batch: int, pixels: int) -> Iterator[slice]:
        """A batch in parts small enough to be made at once, at `pixels` for each item."""
        step = max(1, _PIXELS.get(self.device.type, _PIXELS["cpu"]) // pixels)
        return (slice(first, first + step) for first in range(0, batch, step))


def _epoch(epoch: object) -> int:
    value = _check.count("epoch", epoch, least=0)
    if value >> 32:
        raise ValueError(f"`epoch` must be below 2**32, got {value}.")
    return value


def grey_levels(device: torch.device) -> Tensor:
    """The 256 levels of a byte as float32 in [0, 1], [256].

    A table, because a division by 255 rounds differently on different devices.
    """
    return (torch.arange(256, dtype=torch.float32, device="cpu") / 255).to(device)
