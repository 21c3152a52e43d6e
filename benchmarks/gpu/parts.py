"""A batch in parts whose gradients add up, as `fernn train --micro-batch` takes it: less memory.

FERNN-V^T_2 at the batch of its row, whole, in halves and in quarters, each step as a CUDA graph.
"""

import torch
from torch import Tensor, nn

from benchmarks.gpu.row import Row
from benchmarks.gpu.timing import Step, graphed, measure, precision
from benchmarks.gpu.translation import ROWS

NAME, PARTS = "FERNN-V^T_2", (1, 2, 4)


def run() -> dict[str, object]:
    row = ROWS[NAME]
    torch.manual_seed(0)
    model = row.ours()

    def timed(parts: int) -> dict[str, object]:
        return measure(lambda: graphed(training_step(row, model, parts)), row.batch, row.runs)

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
        points = [{"parts": parts, **timed(parts)} for parts in PARTS]
    return {"row": NAME, "points": points}


def training_step(row: Row, model: nn.Module, parts: int) -> Step:
    given, target = row.sample(row.batch)
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True, capturable=True)

    def step() -> Tensor:
        adam.zero_grad(set_to_none=True)
        loss = backward(row, model, given, target, parts)
        adam.step()
        return loss

    return step


def backward(row: Row, model: nn.Module, given: Tensor, target: Tensor, parts: int) -> Tensor:
    """The loss of a batch, its gradient added up over equal parts."""
    total = given.new_zeros(())
    for some, wanted in zip(given.chunk(parts), target.chunk(parts), strict=True):
        with precision(autocast=True, device=given.device.type):
            loss = row.loss(model, some, wanted) / parts
        loss.backward()
        total += loss.detach()
    return total
