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

from typing import Any

import torch
from torch import Tensor

from fernn.groups import SE2
from fernn.ops._launch import device_of, index_dtype, operator
from fernn.ops.warp_pool import _kernels

MOST = 5  # pixels of a moved image that read one pixel
_CHANNELS, _LINE = 128, 256
_TILE = 4, 4, 4  # rows, columns, warps


def motion(element: Tensor, group: SE2) -> Tensor:
    """Elements [..., 3] as the kernels read them, float32 [..., 5]: a rigid motion and a turn."""
    cos, sin, rows, columns = group.rigid(element).unbind(-1)
    steps = (element[..., 0] * (group.order / 360.0)).round() % group.order
    return torch.stack([cos, sin, rows, columns, steps.to(cos)], -1).float()


def warp_pool(h: Tensor, element: Tensor, group: SE2) -> Tensor:
    """As the reference; the result is channels-last."""
    pooled: Tensor = _pool(h, motion(element, group), group.order)[0]
    return pooled.permute(0, 3, 1, 2)


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


@operator("fernn::warp_pool")
def _pool(h: Tensor, motions: Tensor, order: int) -> tuple[Tensor, Tensor]:
    pooled, arg = _outputs(h, motions, order)
    fill(h, motions, order, pooled, arg)
    return pooled, arg


@_pool.register_fake
def _outputs(h: Tensor, motions: Tensor, order: int) -> tuple[Tensor, Tensor]:
    batch, velocities, channels, height, width = h.shape
    shape = (batch, height, width, channels)
    index = index_dtype(velocities)
    return h.new_empty(shape), h.new_empty(shape, dtype=index)


@operator("fernn::warp_pool_backward")
def _pool_backward(grad: Tensor, arg: Tensor, motions: Tensor, order: int) -> Tensor:
    grad_h: Tensor = _gradient(grad, arg, motions, order)
    batch, velocities, height, width, channels = grad_h.shape
    grid, options = plan(batch * velocities, height, width, channels)
    with device_of(grad):
        _kernels.pool_backward_kernel[grid](
            grad.contiguous(), arg, motions, *readers(motions, height, width), grad_h,
            velocities, height, width, channels, ORDER=order, MOST=MOST, **options,
        )  # fmt: skip
    return grad_h


@_pool_backward.register_fake
def _gradient(grad: Tensor, arg: Tensor, motions: Tensor, order: int) -> Tensor:
    return grad.new_empty(grad.shape[0], len(motions), *grad.shape[1:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1], inputs[1])
    ctx.order = inputs[2]


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor, None, None]:
    arg, motions = ctx.saved_tensors
    grad_h: Tensor = _pool_backward(grad, arg, motions, ctx.order)
    return grad_h.permute(0, 1, 4, 2, 3), None, None


_pool.register_autograd(_backward, setup_context=_setup_context)
