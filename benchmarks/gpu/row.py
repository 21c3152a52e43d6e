"""One row of the benchmark: a model in two forms, timed beside each other.

A training step is forward, loss, backward and Adam. The published form runs in float32 with TF32
convolutions and under bfloat16 autocast; ours under bfloat16 autocast, launched by Python and
replayed as a CUDA graph. A row has a ratio only where both forms are one function by `guard.py` and
the published form reaches 90 % of the rate known for it on this device, where one is known; the
reasons stand in the record otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.gpu import guard
from benchmarks.gpu.timing import Step, graphed, launched, measure, precision

REACHED = 0.9


@dataclass(frozen=True)
class Row:
    """What is timed. `sample` gives inputs and targets for a batch size, on the GPU."""

    ours: Callable[[], nn.Module]
    published: Callable[[nn.Module], nn.Module]  # the same function, with a copy of the weights
    sample: Callable[[int], tuple[Tensor, Tensor]]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    flops: float  # the arithmetic of one training sequence
    needs: str  # the operator that must have run
    batch: int = 128
    published_batch: int = 128
    known: tuple[float | None, float | None] = (None, None)  # TF32, autocast: on an H200
    same: Callable[[nn.Module], nn.Module] | None = None  # the same function, if not `published`
    rival: str | None = None  # the row whose published form this one is compared with, if another
    runs: int = 12
    published_runs: int = 8
    checked: int = 16  # sequences on which the forms are compared


def run(row: Row, rate: float, done: dict[str, dict]) -> dict[str, object]:
    """Time a row; `rate` is the matmul's FLOP/s, `done` the rows before it."""
    torch.manual_seed(0)
    ours = row.ours()
    published = row.published(ours)
    record = guard.check(row, published, ours) | {
        "flops_per_sequence": row.flops,
        "known": done[row.rival]["known"] if row.rival else list(row.known),
    }
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=True):
        for form, autocast in (("published_tf32", False), ("published_autocast", True)):
            record[form] = (
                done[row.rival][form]
                if row.rival
                else timed(
                    row,
                    published,
                    row.published_batch,
                    autocast,
                    graph=False,
                    runs=row.published_runs,
                )
            )
    del published
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
        record["ours_python"] = timed(row, ours, row.batch, True, graph=False, runs=row.runs)
        record["kernels"] = launched(training_step(row, ours, row.batch, True))
        record["ours_graph"] = timed(row, ours, row.batch, True, graph=True, runs=row.runs)
    return record | {"rival": row.rival} | verdict(record, row.needs, rate)


def training_step(row: Row, model: nn.Module, batch: int, autocast: bool, parts: int = 1) -> Step:
    given, target = row.sample(batch)
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True, capturable=True)

    def step() -> Tensor:
        adam.zero_grad(set_to_none=True)
        loss = backward(row, model, given, target, autocast, parts)
        adam.step()
        return loss

    return step


def backward(
    row: Row, model: nn.Module, given: Tensor, target: Tensor, autocast: bool, parts: int
) -> Tensor:
    """The loss of a batch, its gradient added up over equal parts."""
    losses = []
    for some, wanted in zip(given.chunk(parts), target.chunk(parts), strict=True):
        with precision(autocast, given.device.type):
            loss = row.loss(model, some, wanted)
        loss.backward(torch.full_like(loss, 1 / parts))
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def timed(
    row: Row,
    model: nn.Module,
    batch: int,
    autocast: bool,
    graph: bool,
    runs: int,
    parts: int = 1,
) -> dict[str, object]:
    def make() -> Step:
        step = training_step(row, model, batch, autocast, parts)
        return graphed(step) if graph else step

    return measure(make, batch, runs)


def verdict(record: dict, needs: str, rate: float) -> dict[str, object]:
    """Ratios, the fraction of the floor, and why there is no ratio where there is none.

    What is known of the published form is known of it in every row that is compared with it.
    """
    speed = {
        form: record[form]["sequences_per_second"]
        for form in ("published_tf32", "published_autocast", "ours_python", "ours_graph")
    }
    refusals = guard.refusals(record, needs)
    for form, bar in zip(("published_tf32", "published_autocast"), record["known"], strict=True):
        if bar is not None and speed[form] < REACHED * bar:
            refusals.append(f"{form} reaches {speed[form]:.1f} of {bar} sequences/s")
    floor = rate / record["flops_per_sequence"]
    ours = max(speed["ours_python"], speed["ours_graph"])
    result: dict[str, object] = {
        "floor_sequences_per_second": floor,
        "fraction_of_floor": ours / floor,
        "refusals": refusals,
    }
    if not refusals:
        result["times_published_tf32"] = ours / speed["published_tf32"]
        result["times_published_autocast"] = ours / speed["published_autocast"]
    return result
