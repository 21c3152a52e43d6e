"""`pixel_attention`: each pixel of the last frame attends to its own past.

Its definition is `fernn.nn.CausalAttention` in plain torch, which runs wherever this does not.
"""

import torch
from torch import Tensor

from fernn.ops import _backend

__all__ = ["obstacle", "pixel_attention"]

_TAPS, _MIXED = 64, 128  # values of a frame under a kernel, and as many for every head
_LEAST = 16  # to which a product fills them up


def pixel_attention(frames: Tensor, qkv: Tensor, heads: int, recency: bool) -> Tensor:
    """Σ_s softmax_s(q(x)·k_s(x)/√d − slope·(T − s)) v_s(x), q of the last frame.

    Shapes: frames [N, T, C, H, W], qkv [3K, C, k, k] → [N, K, H, W] in the precision of autocast,
    channels-last. The slope of head n is 2^{1−n} with `recency`, else zero. Only where there is no
    `obstacle`.
    """
    from fernn.ops.pixel_attention import triton  # Triton is imported by those who use it alone

    return triton.pixel_attention(frames, qkv, heads, recency)


def obstacle(frames: Tensor, qkv: Tensor, heads: int) -> str | None:
    """Why `pixel_attention` cannot run on frames, or None where it can."""
    if frames.ndim != 5:
        return f"it takes images, got signals of {frames.ndim - 3} axes."
    taps = qkv[0].numel()
    if taps > _TAPS or max(_LEAST, _power(taps)) * _power(heads) > _MIXED:
        return (
            f"it takes frames of at most {_TAPS} values under a kernel, and {_MIXED} for all "
            f"heads, got {taps} and {heads} heads."
        )
    if frames.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to its frames, and these ask for one."
    return _backend.obstacle(frames, frames.new_empty(0, 2), radius=qkv.shape[-1] // 2)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
