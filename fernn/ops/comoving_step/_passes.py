"""What the co-moving step and the decoder are made of: launches of their kernels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fernn.ops._launch import device_of
from fernn.ops.comoving_step import _kernels
from fernn.ops.warp_pool.triton import MOST, readers

_PIXELS, _LEAST, _PROGRAMS = (
    64,
    16,
    16,
)  # a program's pixels, a product's rows, programs a processor
_TILE, _TILE_POOLED = (4, 8, 1), (4, 4, 3)  # rows, columns, loads in flight; the README has times


def columns_of(inner: Tensor) -> Tensor:
    """U [K, c, k, k] → [taps, K], filled up to a whole block of the matrix units."""
    taps = inner.flatten(1).T
    return F.pad(taps, (0, 0, 0, _filled(len(taps)) - len(taps)))


def add_and_rectify(
    conv: Tensor | None, frames: Tensor | None, add: Tensor, out: Tensor, bits: Tensor, side: int
) -> None:
    """Fill `out` [N, H, W, K] and `bits`: ReLU of a convolution plus U ⋆ f, or plus a bias.

    `conv` may be `out` itself, or hold one image for several in a row; empty `bits` are not wanted.
    """
    images, height, width, channels = out.shape
    block, tiles = _block(channels), -(-height * width // _PIXELS)
    with device_of(out):
        _kernels.forward_kernel[(images * tiles, -(-channels // block))](
            out if conv is None else conv, out if frames is None else frames, add, out, bits,
            height, width, channels, 1 if frames is None else frames.shape[-3],
            1 if conv is None else images // len(conv),
            CONV=conv is not None, SIDE=side, BT=len(add) if side else _LEAST,
            BITS=bits.numel() > 0, BP=_PIXELS, BK=block, num_warps=4,
        )  # fmt: skip


def rectified_gradient(
    grad: Tensor | None,
    columns: Tensor | None,
    readout: tuple[Tensor, Tensor, Tensor, int] | None,
    bits: Tensor,
    frames: Tensor | None,
    out: Tensor,
    side: int,
) -> Tensor:
    """Fill `out` [N, H, W, K] with G and return the gradient of what was added: [taps, K] or [K].

    `grad` is the gradient of h, or with `columns` that of an image of which h is convolved with
    them. `readout` is its gradient, the index of the maximum, the motions and the order.
    """
    images, height, width, channels = out.shape
    grad_pool, arg, motions, order = (out, bits, bits, 1) if readout is None else readout
    table = (bits, bits) if readout is None else readers(motions, height, width)
    rows, across, stages = _TILE if readout is None else _TILE_POOLED
    block, tiles = _block(channels), images * -(-height // rows) * -(-width // across)
    programs = min(tiles, _PROGRAMS * _multiprocessors(out))
    image = frames if columns is None else grad  # whose taps are gathered, if any
    few = 1 if image is None else image.shape[-3]
    many = _filled(few * side * side)
    shape = (programs, channels) if frames is None else (programs, many, channels)
    total = out.new_empty(shape, dtype=torch.float32)
    with device_of(out):
        _kernels.backward_kernel[(programs, -(-channels // block))](
            out if grad is None else grad, out if columns is None else columns,
            grad_pool, arg, motions, *table, bits, out if frames is None else frames, out, total,
            tiles, 1 if readout is None else len(motions), height, width, channels, few,
            GRAD=0 if grad is None else (1 if columns is None else 2), GSIDE=side,
            POOL=readout is not None, ORDER=order, MOST=MOST, SIDE=0 if frames is None else side,
            BT=many, TY=rows, TX=across, BK=block, num_warps=4, num_stages=stages,
        )  # fmt: skip
    return total.sum(0)


def taps(image: Tensor, side: int, columns: int) -> Tensor:
    """What lies under a kernel of side×side at every pixel of [N, C, H, W]: [N·H·W, columns]."""
    count, channels, height, width = image.shape
    out = image.new_empty(count * height * width, columns)
    with device_of(image):
        _kernels.taps_kernel[(count * -(-height * width // _PIXELS), 1)](
            image, out, height, width, channels, SIDE=side, BT=columns, BP=_PIXELS, num_warps=4
        )
    return out


def _filled(taps: int) -> int:
    """So many taps as a whole block of the matrix units."""
    return max(_LEAST, 1 << (taps - 1).bit_length())


def _block(channels: int) -> int:
    return min(128, max(_LEAST, 1 << (channels - 1).bit_length()))


def _multiprocessors(x: Tensor) -> int:
    """Of the device; a few in the interpreter."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
