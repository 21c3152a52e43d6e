"""`flow_pool`: transport every slice to a common frame and take the maximum over velocities."""

from torch import Tensor

from fernn import _check
from fernn.ops import _backend
from fernn.ops.flow_pool import reference

__all__ = ["BACKENDS", "flow_pool"]

BACKENDS = ("auto", "reference", "triton")


def flow_pool(h: Tensor, shift: Tensor, *, backend: str = "auto") -> Tensor:
    """max_ν ψ(ν)·h(ν) with ψ(ν) a roll by shift[ν]; a zero shift pools h as it stands.

    Shapes: h [B, V, K, *X], shift [V, n] → [B, K, *X]. "triton" reads h once and keeps the index of
    the maximum alone; it needs one or two spatial axes, float32, float16 or bfloat16, a CUDA device
    and Triton. `backend="auto"` takes it where it can and "reference" elsewhere.
    """
    _check.choice("backend", backend, BACKENDS)
    _check.whole("shift", shift)
    if not _backend.runs(backend, _backend.obstacle(h, shift)):
        return reference.flow_pool(h, shift)
    from fernn.ops.flow_pool import triton  # Triton is imported by those who use it alone

    return triton.flow_pool(h, shift)
