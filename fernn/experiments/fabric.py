"""Lightning Fabric, and what its ranks do together."""

from collections.abc import Callable
from typing import TypeVar

from lightning.fabric import Fabric
from lightning.fabric.plugins import DoublePrecision, MixedPrecision, Precision

__all__ = ["DoublePrecision", "Fabric", "MixedPrecision", "Precision", "of_the_first"]

T = TypeVar("T")


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
