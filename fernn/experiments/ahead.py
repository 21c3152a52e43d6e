"""Working ahead of a GPU: it is never waited for, so that it never waits.

Whatever a step tells is read while later steps run, and the next batch is made on a stream of its
own meanwhile.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from fernn.data import Batch

STEPS = 2
"""How many steps a GPU has waiting while the numbers of an earlier one are read."""


class Told:
    """A few numbers on their way from the device: `read` waits for them, and for nothing later."""

    def __init__(self, values: Tensor) -> None:
        self._values = values.to("cpu", non_blocking=True)
        self._there = torch.cuda.Event() if values.is_cuda else None
        if self._there is not None:
            self._there.record()

    def read(self) -> list[float]:
        if self._there is not None:
            self._there.synchronize()
        return [float(value) for value in self._values.tolist()]


def made_aside(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """The batches, each made while the device works on the one before.

    Making one waits for the device where it copies from the CPU; on a stream of its own it waits
    for that copy alone.
    """
    if device.type != "cuda":
        yield from batches
        return
    aside = torch.cuda.Stream(device)
    while True:
        with torch.cuda.stream(aside):
            batch = next(batches, None)
        if batch is None:
            return
        here = torch.cuda.current_stream(device)
        here.wait_stream(aside)
        for tensor in batch:
            tensor.record_stream(here)
        yield batch
