"""The step in co-moving frames on a GPU: cuDNN convolutions, and one kernel for all around them.

Memory plan. A state is stored once, channels-last, [B, V, H, W, K]; it never moves and its border
is zero, so cuDNN pads as it reads and no halo is kept. One kernel turns a convolution's output into
the next state in place: it adds U ⋆ f, computed from the frame's taps in registers, and writes the
state and one bit per value that says where ReLU was active. The drive of all ν, as large as a
state, never goes to memory. The readout is a kernel of `warp_pool`. The backward kernel adds
the readout's share of the gradient to the state's, collected by the transposed warp, applies the
bits, writes G, and sums the taps times G, which is the gradient of U. cuDNN does the rest: the
gradients of h and of W from G. What is kept for the backward pass is the states, the bits and the
index of the maximum. Sums are in float32, addresses in int64.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fernn.ops._launch import index_dtype, operator
from fernn.ops.comoving_step._passes import add_and_rectify, columns_of, rectified_gradient
from fernn.ops.flow_step._cudnn import LAST, adjoint_of, convolve, correlate, kernel_of
from fernn.ops.flow_step._step import empty_bits
from fernn.ops.warp_pool.triton import fill


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


def pack(kernel: Tensor, inner: Tensor, dtype: torch.dtype) -> Packed:
    columns = columns_of(inner)
    weight, low = kernel_of(kernel.detach(), dtype), columns.detach().to(dtype).contiguous()
    return Packed(kernel, weight, adjoint_of(weight, dtype), columns, low)


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


@operator("fernn::comoving_advance")
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
    conv = None if h is None else convolve(h.flatten(0, 1), weight, weight.shape[-1] // 2)
    whole = h is not None and h.shape[1] == frames.shape[1]
    # The state takes the place of the convolution.
    out, bits, pooled, arg = _outputs(weight, frames, pool, conv if whole else None)
    frames, side = frames.contiguous(), weight.shape[-1]
    add_and_rectify(conv, frames, low_columns, out.flatten(0, 1), bits, side)
    if pool:
        fill(out.permute(0, 1, 4, 2, 3), motions, order, pooled, arg)
    return out, bits, pooled, arg


def _outputs(
    weight: Tensor, frames: Tensor, pool: bool, conv: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (batch, velocities, _, *canvas), channels = frames.shape, len(weight)
    readout = (batch, *canvas, channels) if pool else (0,)
    index = index_dtype(velocities)
    shape = batch, velocities, *canvas, channels
    state = weight.new_empty(shape) if conv is None else conv.reshape(shape)
    return (
        state,
        empty_bits(state),
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


@operator("fernn::comoving_advance_backward")
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
        half = weight.shape[-1] // 2
        if h.shape[1] < g.shape[1]:  # one slice of h fed every ν, so it collects from every ν
            g = g.sum(1, keepdim=True)
        if need_h:
            grad_h = convolve(g, adjoint, half)
        if need_kernel:
            grad_kernel = correlate(g, h, weight, half).to(torch.float32, memory_format=LAST)
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
