"""`flow_mix`: a step of the recurrence with velocities that mix, for Hopper's matrix units.

Its definition is `fernn.nn.FlowConv`, the flow's transport and σ, which run wherever this does not.
"""

import torch
from torch import Tensor

from fernn.ops._backend import obstacle

__all__ = ["fits", "flow_mix"]

_WIDTHS = (64, 128)
_HALF = (torch.float16, torch.bfloat16)


def flow_mix(
    h: Tensor, kernel: Tensor, neighbours: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> Tensor:
    """h_{t+1}(ν) = σ(ψ_1(ν)·Σ_γ [h_t(γ) ⋆ W(γ − ν)] + drive_t) with ψ_1(ν) a roll by shift[ν].

    Shapes: h [B, V, C, H, W], kernel [K, C, M, 3, 3] for M differences, drive [B, 1, K, H, W],
    shift [V, 2] → [B, V, K, H, W]. `neighbours` [V, M] is the γ at each difference from ν, V where
    there is none. Only where `fits` says so.
    """
    from fernn.ops.flow_mix import triton  # Triton is imported by those who use it alone

    return triton.flow_mix(h, kernel, neighbours, drive, shift, activation)


def fits(h: Tensor, kernel: Tensor) -> bool:
    """Whether `flow_mix` can run: half precision, 3×3 taps, 64 or 128 channels, capability 9.0."""
    autocast = torch.is_autocast_enabled(h.device.type)
    dtype = torch.get_autocast_dtype(h.device.type) if autocast else h.dtype
    return (
        dtype in _HALF
        and tuple(kernel.shape[:2]) in [(width, width) for width in _WIDTHS]
        and tuple(kernel.shape[3:]) == (3, 3)
        and h.is_cuda
        and obstacle(h, h.new_empty(0, 2), radius=1) is None
        and torch.cuda.get_device_capability(h.device) == (9, 0)
    )
