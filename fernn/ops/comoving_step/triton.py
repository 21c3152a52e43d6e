"""The step in co-moving frames on a GPU: cuDNN convolutions, and one kernel for all around them.

Memory plan. A state is stored once, channels-last, [B, V, H, W, K]; it never moves and its border
is zero, so cuDNN pads as it reads and no halo is kept. One kernel turns a convolution's output into
the next state in place: it adds U ⋆ f, computed from the frame's taps in registers, and writes the
state and one bit per value that says where ReLU was active. The drive of all ν, as large as a
state, never goes to memory. The readout is a second kernel, `warp_pool`. The backward kernel adds
the readout's share of the gradient to the state's, collected by the transposed warp, applies the
bits, writes G, and sums the taps times G, which is the gradient of U. cuDNN does the rest: the
gradients of h and of W from G. What is kept for the backward pass is the states, the bits and the
index of the maximum. Sums are in float32, addresses in int64.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fernn.ops._launch import device_of
from fernn.ops.comoving_step import _kernels
from fernn.ops.warp_pool.triton import MOST, fill, plan, readers

_LAST = torch.channels_last
_PIXELS, _LEAST = 64, 16  # pixels of a program; the fewest rows or columns of a product
_TILE, _TILE_POOLED, _PROGRAMS = (4, 8, 4), (4, 4, 4), 16  # tiles; programs a multiprocessor


class Packed(NamedTuple):
    """W [K, C, k, k] and U [K, c, k, k] as the steps read them; a loop over steps packs once.

    `kernel` and `columns`, U as [taps, K], are what gradients reach; the others are their copies in
    the precision and layout of the states.
    """

    kernel: Tensor
    weight: Tensor
    adjoint: Tensor
    columns: Tensor
    low_columns: Tensor


def adjoint_of(weight: Tensor) -> Tensor:
    """What the gradient is convolved with: the kernel flipped, with its channels exchanged."""
    return weight.transpose(0, 1).flip(2, 3).contiguous(memory_format=_LAST)


def pack(kernel: Tensor, inner: Tensor, dtype: torch.dtype) -> Packed:
    columns = columns_of(inner)
    weight = kernel.detach().to(dtype).contiguous(memory_format=_LAST)
    return Packed(
        kernel, weight, adjoint_of(weight), columns, columns.detach().to(dtype).contiguous()
    )


def columns_of(inner: Tensor) -> Tensor:
    """U [K, c, k, k] → [taps, K], filled up to a whole block of the matrix units."""
    taps = inner.flatten(1).T
    fill_up = max(_LEAST, 1 << (len(taps) - 1).bit_length()) - len(taps)
    return F.pad(taps, (0, 0, 0, fill_up))


def step(
    h: Tensor | None, packed: Packed, frames: Tensor, motions: Tensor | None, order: int = 1
) -> tuple[Tensor, Tensor | None]:
    """The next state, and max_ν ψ(ν)·k_{t+1}(ν) where `motions` [V, 5] say how slices are read.

    Shapes: h [B, V or 1, H, W, C], frames [B, V, c, H, W] contiguous in the precision of the states
    → [B, V, H, W, K], [B, H, W, K]. One slice of h stands for all ν. No h: the first step.
    """
    pool = motions is not None
    if motions is None:
        motions = frames.new_empty(frames.shape[1], 5, dtype=torch.float32)
    out, _, pooled, _ = _advance(h, *packed, frames, motions, order, pool)
    return out, pooled if pool else None


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
    rows, across, warps = _TILE if readout is None else _TILE_POOLED
    _, options = plan(images, height, width, channels, (rows, across, warps))
    options["BK"] = block = _block(channels)
    options["num_stages"] = 1 if readout is None else 3
    tiles = images * -(-height // rows) * -(-width // across)
    programs = min(tiles, _PROGRAMS * _multiprocessors(out))
    image = grad if columns is not None else frames
    taps = _taps(frames if columns is None else grad, columns, side)
    total = out.new_empty(programs, *((taps,) if frames is not None else ()), channels)
    total = torch.empty_like(total, dtype=torch.float32)
    with device_of(out):
        _kernels.backward_kernel[(programs, -(-channels // block))](
            out if grad is None else grad, out if columns is None else columns,
            grad_pool, arg, motions, *table, bits, out if frames is None else frames, out, total,
            tiles, 1 if readout is None else len(motions), height, width, channels,
            1 if image is None else image.shape[-3],
            GRAD=0 if grad is None else (1 if columns is None else 2), GSIDE=side,
            POOL=readout is not None, ORDER=order, MOST=MOST,
            SIDE=0 if frames is None else side, BT=taps,
            **options,
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


def _taps(image: Tensor | None, columns: Tensor | None, side: int) -> int:
    if columns is not None:
        return len(columns)
    if image is None:
        return _LEAST
    return max(_LEAST, 1 << (image.shape[-3] * side * side - 1).bit_length())


def _block(channels: int) -> int:
    return min(128, max(_LEAST, 1 << (channels - 1).bit_length()))


def _multiprocessors(x: Tensor) -> int:
    """Of the device; a few in the interpreter."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1


def images(x: Tensor) -> Tensor:
    """[..., H, W, C] → [N, C, H, W] in place, channels-last."""
    return x.flatten(0, -4).permute(0, 3, 1, 2)


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """[N, H, W, C] → [N, H, W, K], zero outside."""
    return torch.conv2d(images(x), weight, padding=weight.shape[-1] // 2).permute(0, 2, 3, 1)


def correlate(g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a weight [K, C, k, k] between x [N, H, W, C] and G [N, H, W, K]: float32."""
    ones, half, none = [1, 1], [weight.shape[-1] // 2] * 2, [0, 0]
    gradient: Tensor = torch.ops.aten.convolution_backward(
        images(g), images(x), weight, None, ones, half, ones, False, none, 1, [False, True, False]
    )[1]
    return gradient.to(torch.float32, memory_format=_LAST)


@torch.library.custom_op("fernn::comoving_advance", mutates_args=())
def _advance(
    h: Tensor | None,
    kernel: Tensor,
    weight: Tensor,
    adjoint: Tensor,
    columns: Tensor,
    low_columns: Tensor,
    frames: Tensor,
    motions: Tensor,
    order: int,
    pool: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, bits, pooled, arg = _outputs(weight, frames, pool)
    conv = None if h is None else convolve(h.flatten(0, 1), weight).contiguous()
    if conv is not None and h is not None and h.shape[1] == frames.shape[1]:
        out = conv.reshape(out.shape)  # the state takes the place of the convolution
    frames, side = frames.contiguous(), weight.shape[-1]
    add_and_rectify(conv, frames, low_columns, out.flatten(0, 1), bits, side)
    if pool:
        fill(out.permute(0, 1, 4, 2, 3), motions, order, pooled, arg)
    return out, bits, pooled, arg


def _outputs(weight: Tensor, frames: Tensor, pool: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (batch, velocities, _, *canvas), channels = frames.shape, len(weight)
    readout = (batch, *canvas, channels) if pool else (0,)
    index = torch.uint8 if velocities <= 256 else torch.int32
    return (
        weight.new_empty(batch, velocities, *canvas, channels),
        weight.new_empty(batch, velocities, *canvas, -(-channels // 8), dtype=torch.uint8),
        weight.new_empty(readout),
        weight.new_empty(readout, dtype=index),
    )


@_advance.register_fake
def _(
    h: Tensor | None,
    kernel: Tensor,
    weight: Tensor,
    adjoint: Tensor,
    columns: Tensor,
    low_columns: Tensor,
    frames: Tensor,
    motions: Tensor,
    order: int,
    pool: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _outputs(weight, frames, pool)


@torch.library.custom_op("fernn::comoving_advance_backward", mutates_args=())
def _advance_backward(
    grad: Tensor | None,
    grad_pool: Tensor | None,
    h: Tensor | None,
    weight: Tensor,
    adjoint: Tensor,
    bits: Tensor,
    arg: Tensor,
    frames: Tensor,
    motions: Tensor,
    order: int,
    taps: int,
    need_h: bool,
    need_kernel: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_h, grad_kernel, _ = _gradients(h, weight, taps, need_h, need_kernel)
    g = weight.new_empty(*bits.shape[:-1], len(weight))
    grad_columns = rectified_gradient(
        None if grad is None else grad.contiguous(),
        None,
        None if grad_pool is None else (grad_pool.contiguous(), arg, motions, order),
        bits,
        frames.contiguous(),
        g.flatten(0, 1),
        weight.shape[-1],
    )
    if h is not None and (need_h or need_kernel):
        if h.shape[1] < g.shape[1]:  # one slice of h fed every ν, so it collects from every ν
            g = g.sum(1, keepdim=True)
        if need_h:
            grad_h = convolve(g.flatten(0, 1), adjoint).reshape(h.shape)
        if need_kernel:
            grad_kernel = correlate(g.flatten(0, 1), h.flatten(0, 1), weight)
    return grad_h, grad_kernel, grad_columns


@_advance_backward.register_fake
def _(
    grad: Tensor | None,
    grad_pool: Tensor | None,
    h: Tensor | None,
    weight: Tensor,
    adjoint: Tensor,
    bits: Tensor,
    arg: Tensor,
    frames: Tensor,
    motions: Tensor,
    order: int,
    taps: int,
    need_h: bool,
    need_kernel: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients(h, weight, taps, need_h, need_kernel)


def _gradients(
    h: Tensor | None, weight: Tensor, taps: int, need_h: bool, need_kernel: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        weight.new_empty(h.shape if h is not None and need_h else (0,)),
        torch.empty_like(weight, dtype=torch.float32)
        if h is not None and need_kernel
        else weight.new_empty(0),
        weight.new_empty(taps, len(weight), dtype=torch.float32),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    h, kernel, weight, adjoint, columns, _, frames, motions, order, _ = inputs
    _, bits, _, arg = output
    ctx.mark_non_differentiable(bits, arg)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(h, weight, adjoint, bits, arg, frames, motions)
    ctx.order, ctx.taps = order, len(columns)
    ctx.dtypes = kernel.dtype, columns.dtype


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    h, weight, adjoint, bits, arg, frames, motions = ctx.saved_tensors
    need_h, need_kernel, _, _, need_columns, *_ = ctx.needs_input_grad
    need_h, need_kernel = need_h and h is not None, need_kernel and h is not None
    grad_h, grad_kernel, grad_columns = _advance_backward(
        grads[0], grads[2], h, weight, adjoint, bits, arg, frames, motions, ctx.order, ctx.taps,
        need_h, need_kernel,
    )  # fmt: skip
    return (
        grad_h if need_h else None,
        grad_kernel.to(ctx.dtypes[0]) if need_kernel else None,
        None,
        None,
        grad_columns.to(ctx.dtypes[1]) if need_columns else None,
        *(None,) * 5,
    )


_advance.register_autograd(_backward, setup_context=_setup_context)
