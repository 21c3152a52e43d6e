"""A step of ReLU in the co-moving frame, forward and back, by the kernels that suit the device."""

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

    The drive is patches [B, H, W, P] times columns [K, P]. One image of patches stands for all, at
    rest: a bias, where they are ones.
    """
    if _hopper is not None and _hopper.fits(halo, weight, columns, h):
        _hopper.advance(halo, weight, patches, columns, at, h, new, bits)
        if pool is not None:
            fill(h.permute(0, 1, 4, 2, 3), at if pool.to is None else pool.to, *pool[:2])
        return
    drive = (patches @ columns.T).permute(0, 3, 1, 2)[:, None]
    frame = Frame(torch.zeros_like(at), at)
    forward(convolve(halo, weight), drive, frame, "relu", h, new, bits, pool)


def retreat(
    halo: Tensor | None,
    adjoint: Tensor,
    pool: Pool | None,
    bits: Tensor,
    at: Tensor,
    patches: Tensor | None,
    new: Tensor,
) -> Tensor:
    """Fill G of one state from that of the next; return the gradient of U's columns, or the bias.

    `halo` is the next state's G, None for the last state. Without patches the drive was a bias.
    """
    grad = None if halo is None else convolve(halo, adjoint)
    summed = new.new_empty(len(new), 1, *bits.shape[2:4], new.shape[4])
    frame = Frame(torch.zeros_like(at), at)
    backward(grad, pool, bits, frame, "relu", new, summed)
    if patches is None:
        return summed.sum((0, 1, 2, 3), dtype=torch.float32)[:, None]
    return summed.flatten(0, 3).T @ patches.flatten(0, 1)
