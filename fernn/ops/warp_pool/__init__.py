"""`warp_pool`: move every slice by a rigid motion and take the maximum over velocities."""

from torch import Tensor

from fernn import _check
from fernn.groups import SE2
from fernn.ops import _backend
from fernn.ops.warp_pool import reference

__all__ = ["BACKENDS", "warp_pool"]

BACKENDS = ("auto", "reference", "triton")


def warp_pool(h: Tensor, element: Tensor, group: SE2, *, backend: str = "auto") -> Tensor:
    """max_ν g(ν)·h(ν) with g(ν) an element of `group`, which also permutes orientations.

    Shapes: h [B, V, K·order, H, W], element [V, 3] → [B, K·order, H, W]. "triton" reads h once and
    keeps the index of the maximum alone; it needs float32, float16 or bfloat16, a CUDA device and
    Triton. `backend="auto"` takes it where it can and "reference" elsewhere.
    """
    _check.choice("backend", backend, BACKENDS)
    if element.shape != (h.shape[1], 3):
        raise ValueError(
            f"`element` must be [V, 3] = {(h.shape[1], 3)} for h {tuple(h.shape)}, "
            f"got shape {tuple(element.shape)}."
        )
    if not _backend.runs(backend, _backend.obstacle(h, element[:, 1:])):
        return reference.warp_pool(h, element, group)
    from fernn.ops.warp_pool import triton  # Triton is imported by those who use it alone

    return triton.warp_pool(h, element, group)
