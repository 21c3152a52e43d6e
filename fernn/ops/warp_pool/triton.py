"""The warped readout on a GPU: one pass over the lifted state.

Memory plan. A program owns a tile of pixels and some channels of the pooled image and meets every ν
there: it reads slice ν at the four pixels around the place that g(ν) moves from, weighs them, and
keeps the maximum and its index in registers. Nothing moved is written; the index, one byte for up
to 256 velocities, is all that the backward pass keeps. That pass gathers too: a pixel of slice ν
collects from the pixels of the readout that have read it, at most five, by the weights with which
they did, where ν won; which they are is a small table for all images and channels. So gradients are
written once, without atomics, and are the same on every run. Weights and sums are in float32.
Strides are arguments, so a state is read in the layout that it has; gradients are channels-last.
"""

import torch
from torch import Tensor

from fernn.groups import SE2
from fernn.ops._launch import device_of, operator
from fernn.ops.warp_pool import _kernels

MOST = 5  # pixels of a moved image that read one pixel
_CHANNELS, _LINE = 128, 256
_TILE = 4, 4, 4  # rows, columns, warps


def motion(element: Tensor, group: SE2) -> Tensor:
    """Elements [..., 3] as the kernels read them, float32 [..., 5]: a rigid motion and a turn."""
    cos, sin, rows, columns = group.rigid(element).unbind(-1)
    steps = (element[..., 0] * (group.order / 360.0)).round() % group.order
    return torch.stack([cos, sin, rows, columns, steps.to(cos)], -1).float()


@operator("fernn::warp")
def warp(frames: Tensor, motions: Tensor, dtype: torch.dtype) -> Tensor:
    """Frames [B, T, C, H, W] moved by motions [T, V, 5]: [T, B, V, C, H, W]; not differentiable."""
    out: Tensor = _warped(frames, motions, dtype)
    many, batch, velocities, channels, height, width = out.shape
    grid = (many * batch * velocities * channels * -(-height * width // _LINE),)
    with device_of(frames):
        _kernels.warp_kernel[grid](
            frames, motions, out, batch, velocities, channels, height, width,
            *frames.stride(), BP=_LINE, num_warps=4,
        )  # fmt: skip
    return out


@warp.register_fake
def _warped(frames: Tensor, motions: Tensor, dtype: torch.dtype) -> Tensor:
    batch, many, *image = frames.shape
    return frames.new_empty(many, batch, motions.shape[1], *image, dtype=dtype)


def fill(h: Tensor, motions: Tensor, order: int, pooled: Tensor, arg: Tensor) -> None:
    """Write the maximum of the moved slices of h [B, V, K, H, W] and its index, [B, H, W, K]."""
    batch, velocities, channels, height, width = h.shape
    grid, options = plan(batch, height, width, channels)
    with device_of(h):
        _kernels.pool_kernel[grid](
            h, motions, pooled, arg, velocities, height, width, channels, *h.stride(),
            ORDER=order, **options,
        )  # fmt: skip


def readers(motions: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Which pixels of images moved by motions [V, 5] read a pixel, and by which weights."""
    shape = (len(motions), MOST, height * width)
    place, weight = motions.new_empty(shape, dtype=torch.int32), motions.new_empty(shape)
    with device_of(motions):
        _kernels.readers_kernel[(-(-height * width // _LINE), len(motions))](
            motions, place, weight, height, width, MOST=MOST, BP=_LINE, num_warps=4
        )
    return place, weight


def plan(
    images: int, height: int, width: int, channels: int
) -> tuple[tuple[int, int], dict[str, int]]:
    """Programs that cover images by tiles of pixels and by channels; the README has the times."""
    rows, columns, warps = _TILE
    block = min(_CHANNELS, max(8, 1 << (channels - 1).bit_length()))
    tiles = -(-height // rows) * -(-width // columns)
    options = {"TY": rows, "TX": columns, "BK": block, "num_warps": warps}
    return (images * tiles, -(-channels // block)), options
