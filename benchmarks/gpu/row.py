"""One row of the benchmark: a model in two forms, timed beside each other.

A training step is forward, loss, backward and Adam. The published form runs in float32 with TF32
convolutions and under bfloat16 autocast; ours under bfloat16 autocast, launched by Python and
replayed as a CUDA graph. A row has a ratio only where both forms give one loss on the same weights
and batch, in float32 and as timed, and the published form reaches 90 % of the rate known for it on
this device; the reasons stand in the record otherwise.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.timing import Step, graphed, measure, precision

REACHED = 0.9
SAME = {"float32": 1e-4, "as timed": 2e-2}  # relative difference of the two losses


@dataclass(frozen=True)
class Row:
    """What is timed. `sample` gives inputs and targets for a batch size, on the GPU."""

    ours: Callable[[], nn.Module]
    published: Callable[[nn.Module], nn.Module]  # the same function, with a copy of the weights
    sample: Callable[[int], tuple[Tensor, Tensor]]
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    flops: float  # the arithmetic of one training sequence
    batch: int = 128
    published_batch: int = 128
    known: tuple[float | None, float | None] = (None, None)  # TF32, autocast: on an H200
    same: Callable[[nn.Module], nn.Module] | None = None  # whose loss counts, if not `published`'s
    rival: str | None = None  # the row whose published form this one is compared with, if another
    published_runs: int = 8
    checked: int = 16  # sequences on which the losses are compared


def run(row: Row, rate: float, done: dict[str, dict]) -> dict[str, object]:
    """Time a row; `rate` is the matmul's FLOP/s, `done` the rows before it."""
    torch.manual_seed(0)
    ours = row.ours()
    published = row.published(ours)
    record: dict[str, object] = {
        "losses": _losses(row, row.same(ours) if row.same else published, ours),
        "flops_per_sequence": row.flops,
        "operators": operators(row, ours),  # the backend that really ran
    }
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=True):
        for form, autocast in (("published_tf32", False), ("published_autocast", True)):
            record[form] = (
                done[row.rival][form]
                if row.rival
                else _timed(
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
        record["ours_python"] = _timed(row, ours, row.batch, True, graph=False, runs=12)
        record["ours_graph"] = _timed(row, ours, row.batch, True, graph=True, runs=12)
    return record | {"rival": row.rival} | verdict(record, row.known, rate)


def training_step(row: Row, model: nn.Module, batch: int, autocast: bool) -> Step:
    given, target = row.sample(batch)
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True, capturable=True)

    def step() -> Tensor:
        adam.zero_grad(set_to_none=True)
        with precision(autocast):
            loss = row.loss(model, given, target)
        loss.backward()
        adam.step()
        return loss

    return step


def _timed(
    row: Row, model: nn.Module, batch: int, autocast: bool, graph: bool, runs: int
) -> dict[str, object]:
    def make() -> Step:
        step = training_step(row, model, batch, autocast)
        return graphed(step) if graph else step

    return measure(make, batch, runs)


def _losses(row: Row, published: nn.Module, ours: nn.Module) -> dict[str, list[float]]:
    given, target = row.sample(row.checked)

    def loss_of(model: nn.Module, autocast: bool) -> float:
        with torch.no_grad(), precision(autocast):
            return row.loss(model, given, target).item()

    losses = {}
    for label, autocast in (("float32", False), ("as timed", True)):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=autocast, benchmark=False):
            losses[label] = [loss_of(published, False), loss_of(ours, autocast)]
    return losses


class Operators(TorchDispatchMode):
    """Which of the library's operators ran, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fernn":
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operators(row: Row, model: nn.Module) -> dict[str, int]:
    given, target = row.sample(1)
    with torch.no_grad(), precision(True), Operators() as ran:
        row.loss(model, given, target)
    return dict(ran.calls)


def verdict(
    record: dict[str, object], known: tuple[float | None, float | None], rate: float
) -> dict[str, object]:
    """Ratios, the fraction of the floor, and why there is no ratio where there is none."""
    speed = {
        form: record[form]["sequences_per_second"]
        for form in ("published_tf32", "published_autocast", "ours_python", "ours_graph")
    }
    refusals = [] if record["operators"] else ["the Triton operators did not run"]
    for label, (theirs, mine) in record["losses"].items():
        if not abs(mine - theirs) <= SAME[label] * abs(theirs):
            refusals.append(f"losses differ in {label}: {theirs} and {mine}")
    for form, bar in zip(("published_tf32", "published_autocast"), known, strict=True):
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
