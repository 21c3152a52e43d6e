"""Slices convolved on a GPU as products of rows with matrices, for the matrix units.

Memory plan. States are channels-last, [B, V, H, W, K]. A row d of κ_ν acts on a row of pixels as a
circulant matrix C_d, of W by W and filled up with zeros to a power of two, so that
out(y) = Σ_d C_d h(y + d − r). A program owns as many rows of one image as fill the matrix units and
reads those and the r above and below once, where the torus has them: nothing is padded, and a state
is read and written once but for these. The gradient of h is the same product with κ_ν flipped. The
gradient of C_d is Σ g(y) h(y + d − r)ᵀ over channels, rows and samples: a program sums a chunk of
the rows of one ν for all d, in float32, chunks are added in one order, and the diagonals of the sum
are the gradients of the taps. What is kept is h and κ.

The zeros of a matrix are multiplied as well, so a NaN spreads to the rows of its program.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fernn._constant import Constant
from fernn.ops._backend import low_dtype
from fernn.ops._launch import device_of, operator
from fernn.ops.slice_conv._kernels import conv_kernel, weight_kernel

_PROGRAMS = 800  # six for each multiprocessor of an H200
_TAPS = 256  # rows of a product in the gradient of the matrices


def slice_conv(h: Tensor, weight: Tensor) -> Tensor:
    """As the reference; the result is channels-last."""
    state = h.to(low_dtype(h)).permute(0, 1, 3, 4, 2).contiguous()
    out: Tensor = _conv(state, weight)
    return out.permute(0, 1, 4, 2, 3)


@operator("fernn::slice_conv")
def _conv(h: Tensor, weight: Tensor) -> Tensor:
    """h [B, V, H, W, K], weight [V, k, k] → as h."""
    return _product(h, weight)


@_conv.register_fake
def _(h: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(h)


@operator("fernn::slice_conv_backward")
def _conv_backward(grad: Tensor, h: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return _product(grad, weight.flip(1, 2)), _taps(grad, h, weight.shape[-1])


@_conv_backward.register_fake
def _(grad: Tensor, h: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(h), weight.new_empty(weight.shape, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    h, weight = ctx.saved_tensors
    grad_h, grad_weight = _conv_backward(grad.contiguous(), h, weight)
    return grad_h, grad_weight.to(weight.dtype)


_conv.register_autograd(_backward, setup_context=_setup_context)


def _product(h: Tensor, weight: Tensor) -> Tensor:
    """κ_ν ⋆ h(ν), by matrices of the rows of κ_ν."""
    out = torch.empty_like(h)
    batch, velocities, height, width, channels = h.shape
    side, (rows, block, precision) = _side(width), _blocks(h)
    rows = min(max(1, rows // side), _power(height))
    hits = _hits(weight.shape[-1], width).on(h.device)
    matrices = (weight.float().flatten(0, 1) @ hits).to(h.dtype)
    grid = batch * velocities * -(-height // rows), -(-channels // block)
    with device_of(h):
        conv_kernel[grid](
            h, matrices, out, velocities, height, width, channels,
            SIZE=weight.shape[-1], BY=rows, BX=side, BK=block, PRECISION=precision, STAGES=3,
            num_warps=8 if rows * side * block > 8192 else 4,
        )  # fmt: skip
    return out


def _taps(grad: Tensor, h: Tensor, size: int) -> Tensor:
    """Σ g(y, x) h(y + d − r, x + e − r) over samples, pixels and channels: [V, k, k]."""
    batch, velocities, height, width, channels = h.shape
    side, (_, block, precision) = _side(width), _blocks(h)
    taps = min(_power(size), _TAPS // side)
    groups = -(-size // taps)
    chunk = max(1, -(-batch * height * velocities * groups // _PROGRAMS))
    chunks = -(-batch * height // chunk)
    sums = h.new_empty(velocities, chunks, size, side * side, dtype=torch.float32)
    with device_of(h):
        weight_kernel[velocities, chunks, groups](
            grad, h, sums, batch * height, chunk, velocities, height, width, channels,
            SIZE=size, BD=taps, BX=side, BK=max(16, block // 2), PRECISION=precision, STAGES=2,
            num_warps=8 if taps * side > 64 else 4,
        )  # fmt: skip
    return sums.sum(1) @ _hits(size, width).on(h.device).T


def _side(width: int) -> int:
    """The side of a matrix for rows of so many pixels."""
    return max(16, _power(width))


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


def _blocks(h: Tensor) -> tuple[int, int, str]:
    """Pixels and channels of a product, and its precision: float32 has half of the room."""
    half = h.dtype != torch.float32
    pixels, widest = (128, 128) if half else (64, 64)
    ieee = not half and not torch.backends.cudnn.allow_tf32
    block = min(widest, max(16, _power(h.shape[-1])))
    return pixels, block, "ieee" if ieee else "tf32"


@cache
def _hits(size: int, width: int) -> Constant:
    """Where tap e stands in the matrix of its row, [k, side²]: x' = x + e − r on the torus."""
    side = _side(width)
    with torch.device("cpu"):  # whatever device the one who asks first builds on
        x, tap = torch.arange(width), torch.arange(size)[:, None]
        hits = torch.zeros(size, side, side, dtype=torch.float32)
        hits[tap, x, (x + tap - size // 2) % width] = 1.0
    return Constant(hits.flatten(1))
