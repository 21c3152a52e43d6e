"""`gru_step`: one step of a convolutional GRU on a torus.

Its definition is `fernn.nn.ConvGRU.step` in plain torch, which runs wherever this does not.
"""

import torch
from torch import Tensor

from fernn.ops import _backend

__all__ = ["gru_step", "obstacle"]

_TAPS = 64  # values of a frame that one value of the state may depend on


def gru_step(frame: Tensor, h: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
    """h ← h + z∘(tanh(U f + W(r∘h)) − h), gates r and z by convolution of f and h.

    Shapes: frame [N, C, H, W], h [N, K, H, W], gates [2K, C + K, k, k] for r and z, candidate
    [K, C + K, k, k] → [N, K, H, W] in the precision of autocast, channels-last. Every step
    rounds the state to it, where plain torch keeps its sum in float32. Only where there is no
    `obstacle`.
    """
    from fernn.ops.gru_step import triton  # Triton is imported by those who use it alone

    return triton.gru_step(frame, h, gates, candidate)


def obstacle(frame: Tensor, candidate: Tensor) -> str | None:
    """Why `gru_step` cannot run on a frame, or None where it can."""
    channels, both, size = candidate.shape[:3]
    if frame.ndim != 4:
        return f"it takes images, got signals of {frame.ndim - 2} axes."
    if channels % _backend.ALIGNED:
        return f"it takes a multiple of {_backend.ALIGNED} channels, got {channels}."
    taps = (both - channels) * size * size
    if taps > _TAPS:
        return f"it takes frames of at most {_TAPS} values under a kernel, got {taps}."
    if frame.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to its frames, and these ask for one."
    return _backend.obstacle(frame[:, None], frame.new_empty(0, 2), radius=size // 2)
