"""Lightning Fabric: how it is launched and computes, and what its ranks do together."""

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import DoublePrecision, MixedPrecision, Precision

from fernn import _check
from fernn.experiments.devices import resolved

__all__ = ["Fabric", "launched", "of_the_first", "tf32"]

T = TypeVar("T")


class _Double(DoublePrecision):
    """Float64 to the end: Lightning would turn what a model returns into float32."""

    def convert_output(self, data: Any) -> Any:
        return data


class _Mixed(MixedPrecision):
    """Autocast decides what is rounded; Lightning would round the grey levels of every frame."""

    def convert_input(self, data: Any) -> Any:
        return data


def launched(
    device: str, devices: int, nodes: int, precision: str, micro_batch: int | None
) -> Fabric:
    """Fabric, launched: from here on every rank runs the same code."""
    _check.count("devices", devices, least=1)
    _check.count("nodes", nodes, least=1)
    if micro_batch is not None:
        _check.count("micro_batch", micro_batch, least=1)
    device = resolved(device, devices, precision)
    with tf32(True):  # Lightning advises it at the launch; here `precision` decides
        fabric = Fabric(
            accelerator=device,
            devices=devices,
            num_nodes=nodes,
            strategy="ddp" if devices * nodes > 1 else "auto",
            plugins=_precision(precision, device),
        )
        fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """Leave the other processes in order: torn down by the interpreter's end, gloo may abort."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _precision(precision: str, device: str) -> Precision:
    if precision == "64-true":
        return _Double()
    if precision == "bf16-mixed":
        return _Mixed("bf16-mixed", device)
    if precision == "16-mixed":
        return _Mixed("16-mixed", device)
    return Precision()  # TF32 is a way to multiply float32, not a type of its own


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Multiply float32 with ten bits on a GPU, or with all of them: a setting of the process."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def of_the_first(fabric: Fabric, work: Callable[[], T]) -> T:
    """What `work` gives on the first rank, on every rank; what it raises there all of them raise.

    The first rank alone reads and writes a run's folder, and none may wait for one that gave up.
    """
    made: T | None = None
    error: Exception | None = None
    if fabric.is_global_zero:
        try:
            made = work()
        except (ValueError, OSError) as raised:
            error = raised
    made, error = fabric.broadcast((made, error))
    if error is not None:
        raise error
    return made  # type: ignore[return-value]  # of the first rank, which made one
