"""The pool on a GPU: one pass over the lifted state.

Memory plan. A program owns a few pixels and channels of the pooled image and meets every ν there:
it reads slice ν where ψ(ν) moves it from and keeps the maximum and its index in registers. Nothing
lifted is written; the index, one byte for up to 256 velocities, is all that the backward pass
keeps. The backward kernel visits the same points and writes the gradient of every slice once, the
pooled gradient where that slice won and zero elsewhere. Strides are arguments, so a state is read
in the layout that it has; gradients are channels-last. 1-D signals are images of one row.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fernn.ops._launch import device_of, index_dtype, operator, plan, program, reduce_shift, wrap


@triton.jit
def _forward_kernel(
    p_h, p_shift, p_pool, p_arg, V, H, W, K, s_hb, s_hv, s_hk, s_hy, s_hx,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h [B, V, K, H, W] in any layout → its maximum and the index of it, [B, H, W, K]."""
    i_b, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)  # [BP], pixels of the pooled image
    b_k = i_k * BK + tl.arange(0, BK)  # [BK]
    mask = (b_q < H * W)[:, None] & (b_k < K)[None, :]
    b_y, b_x = b_q // W, b_q % W
    o_k = (b_k.to(tl.int64) * s_hk)[None, :]
    b_best = tl.full((BP, BK), float("-inf"), tl.float32)
    b_arg = tl.zeros((BP, BK), tl.int32)
    for i_v in range(V):
        s_y, s_x = tl.load(p_shift + 2 * i_v), tl.load(p_shift + 2 * i_v + 1)
        h_y, h_x = wrap(b_y - s_y, H).to(tl.int64), wrap(b_x - s_x, W).to(tl.int64)
        p_slice = p_h + i_b * s_hb + tl.cast(i_v, tl.int64) * s_hv
        p_point = p_slice + (h_y * s_hy + h_x * s_hx)[:, None] + o_k
        b_h = tl.load(p_point, mask=mask, other=0.0).to(tl.float32)  # [BP, BK]
        b_take = (b_h > b_best) | (b_h != b_h)  # NaN wins
        b_best = tl.where(b_take, b_h, b_best)
        b_arg = tl.where(b_take, i_v, b_arg)
    o_pool = i_b * H * W * K + (b_q * K)[:, None] + b_k[None, :]
    tl.store(p_pool + o_pool, b_best.to(p_pool.dtype.element_ty), mask=mask)
    tl.store(p_arg + o_pool, b_arg.to(p_arg.dtype.element_ty), mask=mask)


@triton.jit
def _backward_kernel(
    p_grad, p_arg, p_shift, p_grad_h, V, H, W, K, BP: tl.constexpr, BK: tl.constexpr
):
    """The pooled gradient [B, H, W, K] → that of every slice, [B, V, H, W, K]."""
    i_b, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)
    b_k = i_k * BK + tl.arange(0, BK)
    mask = (b_q < H * W)[:, None] & (b_k < K)[None, :]
    b_y, b_x = b_q // W, b_q % W
    o_pool = i_b * H * W * K + (b_q * K)[:, None] + b_k[None, :]
    b_grad = tl.load(p_grad + o_pool, mask=mask, other=0.0)  # [BP, BK]
    b_arg = tl.load(p_arg + o_pool, mask=mask, other=0).to(tl.int32)
    for i_v in range(V):
        s_y, s_x = tl.load(p_shift + 2 * i_v), tl.load(p_shift + 2 * i_v + 1)
        o_h = ((wrap(b_y - s_y, H) * W + wrap(b_x - s_x, W)) * K)[:, None] + b_k[None, :]
        p_slice = p_grad_h + (i_b * V + i_v) * H * W * K
        tl.store(p_slice + o_h, tl.where(b_arg == i_v, b_grad, 0.0), mask=mask)


@triton.jit
def _winners_kernel(p_arg, p_shift, p_bits, B, V, H, W, K, BP: tl.constexpr, BK: tl.constexpr):
    """The index of the maximum [B, H, W, K] → one bit for each value of a state [V, B, H, W, K]."""
    i_b, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)
    b_k = i_k * BK + tl.arange(0, BK)
    mask = (b_q < H * W)[:, None] & (b_k < K)[None, :]
    b_y, b_x = b_q // W, b_q % W
    b_arg = tl.load(p_arg + (i_b * H * W + b_q)[:, None] * K + b_k[None, :], mask=mask, other=0)
    b_arg = tl.reshape(b_arg.to(tl.int32), (BP, BK // 8, 8))
    KB = (K + 7) // 8
    b_kb = i_k * (BK // 8) + tl.arange(0, BK // 8)[None, :]
    m_kb = (b_q < H * W)[:, None] & (b_kb < KB)
    for i_v in range(V):
        s_y, s_x = tl.load(p_shift + 2 * i_v), tl.load(p_shift + 2 * i_v + 1)
        o_h = wrap(b_y - s_y, H) * W + wrap(b_x - s_x, W)
        b_won = (b_arg == i_v).to(tl.int32) << tl.arange(0, 8)[None, None, :]
        p_slice = p_bits + (i_v * tl.cast(B, tl.int64) + i_b) * H * W * KB
        tl.store(p_slice + (o_h * KB)[:, None] + b_kb, tl.sum(b_won, 2).to(tl.uint8), mask=m_kb)


def flow_pool(h: Tensor, shift: Tensor) -> Tensor:
    """As the reference, h [B, V, K, *X] in one or two dimensions; the result is channels-last."""
    image = h if h.ndim == 5 else h.unsqueeze(3)
    pooled: Tensor = _pool(image, reduce_shift(shift, image.shape[3:]))[0]
    pooled = pooled.permute(0, 3, 1, 2)
    return pooled if h.ndim == 5 else pooled.squeeze(2)


def fill(h: Tensor, shift: Tensor, pooled: Tensor, arg: Tensor) -> None:
    """Write the maximum of h [B, V, K, H, W] and its index, [B, H, W, K]."""
    batch, velocities, channels, height, width = h.shape
    grid, options = plan(batch, height, width, channels, velocities)
    with device_of(h):
        _forward_kernel[grid](
            h, shift, pooled, arg, velocities, height, width, channels, *h.stride(), **options
        )


def winners(arg: Tensor, shift: Tensor, bits: Tensor) -> Tensor:
    """Fill bits [V, B, H, W, K/8], one for each value of a state: whether it was the maximum."""
    velocities, batch, height, width, _ = bits.shape
    grid, options = plan(batch, height, width, arg.shape[-1], velocities, maximum=False)
    with device_of(arg):
        _winners_kernel[grid](
            arg, shift, bits, batch, velocities, height, width, arg.shape[-1], **options
        )
    return bits


@operator("fernn::flow_pool")
def _pool(h: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    pooled, arg = _outputs(h, shift)
    fill(h, shift, pooled, arg)
    return pooled, arg


@_pool.register_fake
def _outputs(h: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    batch, velocities, channels, height, width = h.shape
    shape = (batch, height, width, channels)
    index = index_dtype(velocities)
    return h.new_empty(shape), h.new_empty(shape, dtype=index)


@operator("fernn::flow_pool_backward")
def _pool_backward(grad: Tensor, arg: Tensor, shift: Tensor) -> Tensor:
    grad_h: Tensor = _gradient(grad, arg, shift)
    batch, height, width, channels = grad.shape
    grid, options = plan(batch, height, width, channels, len(shift))
    with device_of(grad):
        _backward_kernel[grid](
            grad.contiguous(), arg, shift, grad_h, len(shift), height, width, channels, **options
        )
    return grad_h


@_pool_backward.register_fake
def _gradient(grad: Tensor, arg: Tensor, shift: Tensor) -> Tensor:
    return grad.new_empty(grad.shape[0], len(shift), *grad.shape[1:])


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1], inputs[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor, None]:
    arg, shift = ctx.saved_tensors
    grad_h: Tensor = _pool_backward(grad, arg, shift)
    return grad_h.permute(0, 1, 4, 2, 3), None


_pool.register_autograd(_backward, setup_context=_setup_context)
