"""Triton kernels around zero-padded convolutions: what is added, ReLU, and their gradients.

Names are those of `flow_step/_kernels.py`. What is added is a bias or U ⋆ f for an image f of few
channels: then the values of f under the kernel, its taps, are gathered as a block [BP, BT] and
multiplied with the columns of U, [BT, K], on the matrix units.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from fernn.ops._launch import program
from fernn.ops.warp_pool._kernels import collect, pixels


@triton.jit
def taps_of(p_frame, i_n, b_y, b_x, b_mask, H, W, C, SIDE: tl.constexpr, BT: tl.constexpr):
    """What lies under a kernel of SIDE×SIDE at pixels of image i_n of [N, C, H, W]: [BP, BT]."""
    b_t = tl.arange(0, BT)
    b_c = b_t // (SIDE * SIDE)
    y = b_y[:, None] + (b_t // SIDE % SIDE - SIDE // 2)[None, :]
    x = b_x[:, None] + (b_t % SIDE - SIDE // 2)[None, :]
    inside = (y >= 0) & (y < H) & (x >= 0) & (x < W) & b_mask[:, None] & (b_c < C)[None, :]
    o_tap = (b_c * H * W)[None, :] + y * W + x
    return tl.load(p_frame + i_n * C * H * W + o_tap, mask=inside, other=0.0)


@triton.jit
def taps_kernel(p_frame, p_taps, H, W, C, SIDE: tl.constexpr, BT: tl.constexpr, BP: tl.constexpr):
    """Images [N, C, H, W] → their taps, [N, H·W, BT]."""
    i_n, i_p, _ = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)
    b_mask = b_q < H * W
    b_taps = taps_of(p_frame, i_n, b_q // W, b_q % W, b_mask, H, W, C, SIDE, BT)
    o_tap = i_n * (H * W) * BT + (b_q * BT)[:, None] + tl.arange(0, BT)[None, :]
    tl.store(p_taps + o_tap, b_taps, mask=b_mask[:, None])


@triton.jit
def forward_kernel(
    p_conv, p_frame, p_add, p_out, p_bits, H, W, K, C, SHARE,
    CONV: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr,
    BITS: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """ReLU(conv + what is added), [N, H, W, K], and its bits; SIDE 0 adds a bias p_add [K].

    An image of the convolution stands for SHARE images in a row.
    """
    i_n, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)  # pixels of image i_n
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask, m_k = b_q < H * W, b_k < K
    mask = b_mask[:, None] & m_k[None, :]
    o_q = (b_q * K)[:, None] + b_k[None, :]
    if SIDE > 0:
        b_taps = taps_of(p_frame, i_n, b_q // W, b_q % W, b_mask, H, W, C, SIDE, BT)
        p_column = p_add + (tl.arange(0, BT) * K)[:, None] + b_k[None, :]
        b_u = tl.load(p_column, mask=m_k[None, :], other=0.0)
        b_h = tl.dot(b_taps, b_u, input_precision="ieee")
    else:
        b_h = tl.zeros((BP, BK), tl.float32)
        b_h += tl.load(p_add + b_k, mask=m_k, other=0.0).to(tl.float32)[None, :]
    if CONV:
        p_image = p_conv + i_n // SHARE * (H * W) * K
        b_h += tl.load(p_image + o_q, mask=mask, other=0.0).to(tl.float32)
    b_o = tl.where(b_h <= 0, 0.0, b_h).to(p_out.dtype.element_ty)  # keeps NaN
    tl.store(p_out + i_n * (H * W) * K + o_q, b_o, mask=mask)
    if BITS:
        KB = (K + 7) // 8
        b_on = tl.reshape(((b_o > 0) & mask).to(tl.int32), (BP, BK // 8, 8))
        b_byte = tl.sum(b_on << tl.arange(0, 8)[None, None, :], 2).to(tl.uint8)
        b_kb = i_k * (BK // 8) + tl.arange(0, BK // 8)[None, :]
        p_byte = p_bits + i_n * (H * W) * KB + (b_q * KB)[:, None] + b_kb
        tl.store(p_byte, b_byte, mask=b_mask[:, None] & (b_kb < KB))


@triton.jit
def backward_kernel(
    p_grad, p_columns, p_grad_pool, p_arg, p_motion, p_place, p_weight, p_bits, p_frame,
    p_out, p_sum, TILES, V, H, W, K, C,
    GRAD: tl.constexpr, GSIDE: tl.constexpr, POOL: tl.constexpr, ORDER: tl.constexpr,
    MOST: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr,
    TY: tl.constexpr, TX: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """G = [h > 0]·(gradient of h + the readout's share), [N, H, W, K], and the addend's gradient.

    GRAD: 0 no gradient of h, 1 a tensor [N, H, W, K], 2 the taps of an image [N, C, H, W] times
    p_columns [BT, K]. SIDE > 0 sums taps of p_frame times G to p_sum [programs, BT, K], SIDE 0 sums
    G alone to p_sum [programs, K]; a program walks over many tiles, so these are short.
    """
    i_0 = tl.program_id(0)
    b_k = tl.program_id(1) * BK + tl.arange(0, BK)
    m_k = b_k < K
    tiles = tl.cdiv(H, TY) * tl.cdiv(W, TX)
    b_t = tl.arange(0, BT)
    KB = (K + 7) // 8
    b_kb = tl.program_id(1) * (BK // 8) + tl.arange(0, BK // 8)[None, :]
    b_sum = tl.zeros((BT, BK) if SIDE > 0 else (BK,), tl.float32)
    if GRAD == 2:
        p_column = p_columns + (b_t * K)[:, None] + b_k[None, :]
        b_u = tl.load(p_column, mask=m_k[None, :], other=0.0)
    for i_t in range(i_0, TILES, tl.num_programs(0)):
        i_n = (i_t // tiles).to(tl.int64)
        b_y, b_x, b_mask = pixels(i_t % tiles, H, W, TY, TX)
        mask = b_mask[:, None] & m_k[None, :]
        b_q = b_y * W + b_x
        o_h = i_n * (H * W) * K + (b_q * K)[:, None] + b_k[None, :]
        p_byte = p_bits + i_n * (H * W) * KB + (b_q * KB)[:, None] + b_kb
        b_byte = tl.load(p_byte, mask=b_mask[:, None] & (b_kb < KB), other=0).to(tl.int32)
        b_on = (b_byte[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1
        b_on = tl.reshape(b_on, (TY * TX, BK)) != 0
        if GRAD == 1:
            b_g = tl.load(p_grad + o_h, mask=mask, other=0.0).to(tl.float32)
        elif GRAD == 2:
            b_taps = taps_of(p_grad, i_n, b_y, b_x, b_mask, H, W, C, GSIDE, BT)
            b_g = tl.dot(b_taps, b_u, input_precision="ieee")
        else:
            b_g = tl.zeros((TY * TX, BK), tl.float32)
        if POOL:
            i_v = (i_n % V).to(tl.int32)
            o_b = i_n // V * (H * W) * K
            b_g += collect(
                p_grad_pool + o_b, p_arg + o_b, p_motion, p_place, p_weight, i_v,
                b_q, b_mask, b_k, m_k, H * W, K, ORDER, MOST,
            )  # fmt: skip
        b_o = tl.where(b_on, b_g, 0.0).to(p_out.dtype.element_ty)
        tl.store(p_out + o_h, b_o, mask=mask)
        if SIDE > 0:
            b_taps = taps_of(p_frame, i_n, b_y, b_x, b_mask, H, W, C, SIDE, BT)
            b_sum += tl.dot(tl.trans(b_taps), b_o, input_precision="ieee")
        else:
            b_sum += tl.sum(tl.where(mask, b_o.to(tl.float32), 0.0), 0)
    if SIDE > 0:
        p_row = p_sum + ((i_0 * BT + b_t) * K)[:, None] + b_k[None, :]
        tl.store(p_row, b_sum, mask=m_k[None, :])
    else:
        tl.store(p_sum + i_0 * K + b_k, b_sum, mask=m_k)
