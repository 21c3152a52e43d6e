"""One step of the recurrence in frames that move with each velocity, and who may take it."""

import torch
from torch import Tensor

from fernn.ops import _backend

__all__ = ["choose"]

_TAPS = 128  # values of a frame that one value of the drive may depend on


def choose(backend: str, video: Tensor, kernel_size: int, channels: int) -> str:
    """Which backend runs the recurrence on a video, by the rule of `flow_step`.

    "triton" has the kernels here; "reference" and "lean" are both plain torch, and called "plain".
    """
    if backend not in ("auto", "triton"):
        return "plain"
    obstacle = _backend.obstacle(video, video.new_empty(1, 2))
    taps = video.shape[2] * kernel_size**2
    if obstacle is None and taps > _TAPS:
        obstacle = f"it takes inputs of at most {_TAPS} values under a kernel, got {taps}."
    if obstacle is None and video.requires_grad and torch.is_grad_enabled():
        obstacle = "it gives no gradient to its input frames, and these ask for one."
    fits = _backend.runs(backend, obstacle)
    aligned = channels % _backend.ALIGNED == 0
    return "triton" if fits and (aligned or backend == "triton") else "plain"
