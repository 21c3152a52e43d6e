"""`flow_mix`: a step of the recurrence with velocities that mix, for Hopper's matrix units.

Its definition is `fernn.nn.FlowConv`, the flow's transport and σ, which run wherever this does not.
"""

import torch
from torch import Tensor

from fernn.ops import _backend

__all__ = ["flow_mix", "obstacle"]

_WIDTHS = (64, 128)
_HALF = (torch.float16, torch.bfloat16)


def flow_mix(
    h: Tensor, kernel: Tensor, neighbours: Tensor, drive: Tensor, shift: Tensor, activation: str
) -> Tensor:
    """h_{t+1}(ν) = σ(ψ_1(ν)·Σ_γ [h_t(γ) ⋆ W(γ − ν)] + drive_t) with ψ_1(ν) a roll by shift[ν].

    Shapes: h [B, V or 1, C, H, W], kernel [K, C, M, 3, 3] for M differences, drive [B, 1, K, H, W],
    shift [V, 2] → [B, V, K, H, W]. One slice of h stands for all of them, and its gradient is that
    of all. `neighbours` [V, M] is the γ at each difference from ν, V where there is none. Only
    where there is no `obstacle`.
    """
    from fernn.ops.flow_mix import triton  # Triton is imported by those who use it alone

    return triton.flow_mix(h, kernel, neighbours, drive, shift, activation)


def obstacle(drive: Tensor, kernel: Tensor) -> str | None:
    """Why `flow_mix` cannot run in the precision of `drive`, or None where it can."""
    if drive.shape[1] != 1:
        return f"it mixes under a drive that all ν share, got one of {drive.shape[1]} slices."
    sizes = tuple(kernel.shape[3:])
    if sizes != (3, 3):
        return f"it mixes by kernels of 3×3 taps, got {'×'.join(map(str, sizes))}."
    target, source = kernel.shape[:2]
    if target != source or target not in _WIDTHS:
        return f"it mixes states of 64 or 128 channels, got {source} to {target}."
    dtype = _backend.low_dtype(drive)
    if dtype not in _HALF:
        return f"it mixes in float16 or bfloat16, got {dtype}."
    general = _backend.obstacle(drive, drive.new_empty(0, 2), radius=1)
    if general is not None:
        return general
    if torch.version.hip is not None:  # some of AMD's devices count as 9.0 too
        return "it mixes on NVIDIA's devices, got one of AMD's."
    capability = torch.cuda.get_device_capability(drive.device)
    if capability != (9, 0):
        return (
            f"it mixes on a device of compute capability 9.0, got {'.'.join(map(str, capability))}."
        )
    return None
