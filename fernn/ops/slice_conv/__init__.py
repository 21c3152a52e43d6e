"""`slice_conv`: every slice of a lifted state convolved with a scalar kernel of its own."""

from torch import Tensor

from fernn import _check
from fernn.ops import _backend
from fernn.ops.flow_step import BACKENDS
from fernn.ops.slice_conv import reference

__all__ = ["obstacle", "slice_conv"]

_WIDEST = 64  # pixels of a row that are multiplied at once


def slice_conv(h: Tensor, weight: Tensor, *, backend: str = "auto") -> Tensor:
    """κ_ν ⋆ h(ν) on the torus, κ_ν = weight[ν] shared by all channels.

    Shapes: h [B, V, K, H, W], weight [V, k, k] with odd k → [B, V, K, H, W]. "triton" multiplies
    rows with matrices: it takes what `flow_step` takes, in rows of at most 64 pixels, and has first
    gradients alone. "reference" and "lean" are one grouped convolution. "auto" takes "triton" where
    it can run.
    """
    _check.choice("backend", backend, BACKENDS)
    _check_shapes(h, weight)
    if not _backend.runs(backend, obstacle(h)):
        return reference.slice_conv(h, weight)
    from fernn.ops.slice_conv import triton  # Triton is imported by those who use it alone

    return triton.slice_conv(h, weight)


def obstacle(h: Tensor) -> str | None:
    """Why Triton cannot take slices of h [B, V, K, H, W], or None where it can."""
    if h.shape[-1] > _WIDEST:
        return f"it convolves slices in rows of at most {_WIDEST} pixels, got {h.shape[-1]}."
    return _backend.obstacle(h, h.new_empty(0, 2))


def _check_shapes(h: Tensor, weight: Tensor) -> None:
    size = _check.odd("weight", weight.shape[-1])
    if h.ndim != 5 or weight.shape != (h.shape[1], size, size):
        raise ValueError(
            "`weight` must be [V, k, k] for h [B, V, K, H, W], "
            f"got shape {tuple(weight.shape)} for h {tuple(h.shape)}."
        )
