"""A step of ReLU in the co-moving frame, forward and back, by the kernels that suit the device.

States, halo buffers and bits are [V, B, H, W, K] here, velocities outermost: all samples of one ν
meet the drive at the same shift, so that a box of them is one request to the memory engine.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fernn.ops.flow_pool.triton import fill
from fernn.ops.flow_step._cudnn import convolve
from fernn.ops.flow_step._step import Frame, Pool, backward, forward

try:
    from fernn.ops.flow_step import _hopper
except (ImportError, AttributeError):  # Gluon is an experimental part of Triton: names drift
    _hopper = None  # type: ignore[assignment]  # a module, or none


def positions(shift: Tensor, times: int, canvas: Sequence[int]) -> Tensor:
    """How far slice ν has gone at every time: [S, V, 2], int32."""
    gone = torch.arange(times, device=shift.device)[:, None, None] * shift
    return torch.stack([gone[..., axis] % size for axis, size in enumerate(canvas)], -1).int()


def advance(
    halo: Tensor,
    weight: Tensor,
    patches: Tensor,
    columns: Tensor,
    at: Tensor,
    h: Tensor,
    new: Tensor,
    bits: Tensor,
    pool: Pool | None = None,
) -> None:
    """h = ReLU(W ⋆ h_t + drive), its halo buffer, its bits, and its maximum over ν.

    The drive is patches [B, H, W, P] times columns [K, P]: a bias, where they are ones.
    """
    if _hopper is not None and _hopper.fits(halo, weight, patches, new):
        _hopper.advance(halo, weight, patches, columns, at, h, new, bits)
        if pool is not None:
            fill(h.permute(1, 0, 4, 2, 3), at if pool.to is None else pool.to, *pool[:2])
        return
    drive = (patches @ columns.T).permute(0, 3, 1, 2)[:, None]
    conv, h, new, bits = (x.transpose(0, 1) for x in (convolve(halo, weight), h, new, bits))
    forward(conv, drive, Frame(torch.zeros_like(at), at), "relu", h, new, bits, pool)


def retreat(
    halo: Tensor | None,
    adjoint: Tensor,
    pool: Pool | None,
    bits: Tensor,
    at: Tensor,
    patches: Tensor,
    new: Tensor,
) -> Tensor:
    """Fill G of one state from that of the next; return the gradient of the drive's columns.

    `halo` is the next state's G, None for the last state.
    """
    if halo is not None and _hopper is not None and _hopper.fits(halo, adjoint, patches, new):
        return _hopper.retreat(halo, adjoint, pool, bits, at, patches, new)
    grad = None if halo is None else convolve(halo, adjoint).transpose(0, 1)
    summed = new.new_empty(new.shape[1], 1, *bits.shape[2:4], new.shape[4])
    frame = Frame(torch.zeros_like(at), at)
    backward(grad, pool, bits.transpose(0, 1), frame, "relu", new.transpose(0, 1), summed)
    return summed.flatten(0, 3).T @ patches.flatten(0, -2)
