"""Where the Triton backend can run: one rule for every op, and the reason where it cannot."""

from importlib.util import find_spec

import torch
from torch import Tensor

from fernn._forward import forward_mode

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_CAPABILITY = (8, 0)  # the oldest device with bfloat16 matrix units
ALIGNED = 8  # channels that the matrix units take at once
_INSTALLED = find_spec("triton") is not None  # found, not imported


def runs(backend: str, obstacle: str | None) -> bool:
    """Whether Triton takes over: "auto" asks that nothing be in its way, "triton" insists on it."""
    if backend == "triton" and obstacle is not None:
        raise ValueError(
            f'`backend` must not be "triton" here: {obstacle} With "auto" plain torch takes over.'
        )
    return backend in ("auto", "triton") and obstacle is None


def low_dtype(x: Tensor) -> torch.dtype:
    """The precision that x is computed in: that of autocast where it is on, else its own."""
    kind = x.device.type
    if kind == "meta" or x.dtype == torch.float64:  # counted with, without values; left as it is
        return x.dtype
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def obstacle(h: Tensor, shift: Tensor, radius: int = 0) -> str | None:
    """Why Triton cannot take h [B, V, K, *X] with a halo of `radius`, or None where it can."""
    if shift.shape[-1] > 2:
        return f"it takes one or two spatial axes, got {shift.shape[-1]}."
    sizes = tuple(h.shape[3:])
    if any(size < 2 * radius for size in sizes):
        return f"a halo of {radius} needs at least {2 * radius} pixels a side, got {sizes}."
    if forward_mode():  # an operator would drop the tangent without a word
        return "it has no forward-mode derivatives, and a dual level is open."
    if h.dtype not in _DTYPES:
        return f"it takes float32, float16 or bfloat16, got {h.dtype}."
    if h.device.type != "cuda":
        return f'it needs a CUDA device, got tensors on "{h.device.type}".'
    if torch.cuda.get_device_capability(h.device) < _CAPABILITY:
        return "it needs a CUDA device of compute capability 8.0 or newer."
    return None if _INSTALLED else "Triton is not installed; it comes with CUDA builds of torch."
