"""Triton kernels around the two convolutions of a GRU. `triton.py` has the memory plan.

Names are those of `flow_step/_kernels.py`. A drive U ⋆ f is formed in registers: the taps of the
frame, [BP, BT], times the columns of U, [BT, 3K], in the order of r, z and the candidate.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from fernn.ops._launch import program
from fernn.ops._taps import torus_taps
from fernn.ops.flow_step._kernels import _store_halo


@triton.jit
def _tanh(b_x):
    b_e = tl.exp(-2 * tl.abs(b_x))
    b_t = (1 - b_e) / (1 + b_e)
    return tl.where(b_x < 0, -b_t, b_t)


@triton.jit
def _driven(p_conv, o_conv, mask, b_taps, b_u):
    """A convolution of h, read, with that of the frame, multiplied: [BP, BK]."""
    b_drive = tl.dot(b_taps, b_u, input_precision="ieee")
    return b_drive + tl.load(p_conv + o_conv, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _column(p_inner, i_part, b_k, K, BT: tl.constexpr):
    """The columns of r, z or the candidate, [BT, BK]."""
    p_column = p_inner + (tl.arange(0, BT) * 3 * K)[:, None] + (i_part * K + b_k)[None, :]
    return tl.load(p_column, mask=(b_k < K)[None, :], other=0.0)


@triton.jit
def _store_sum(p_sum, b_sum, i_0, i_part, b_k, K, BT: tl.constexpr):
    """One program's share of the gradient of U, to p_sum [programs, BT, 3K]."""
    o_sum = (i_0 * BT + tl.arange(0, BT))[:, None] * 3 * K + (i_part * K + b_k)[None, :]
    tl.store(p_sum + o_sum, b_sum, mask=(b_k < K)[None, :])


@triton.jit
def reset_kernel(
    p_frame, p_inner, p_gates, p_h, p_halo, H, W, K, C,
    SIDE: tl.constexpr, BT: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """r∘h with its halo, [N, H + 2r, W + 2r, K]."""
    i_n, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)  # pixels of image i_n
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask, m_k = b_q < H * W, (b_k < K)[None, :]
    mask, b_y, b_x = b_mask[:, None] & m_k, b_q // W, b_q % W
    R: tl.constexpr = SIDE // 2
    b_taps = torus_taps(p_frame + i_n * C * H * W, b_y, b_x, b_mask, H, W, C, SIDE, BT)
    b_taps = b_taps.to(p_h.dtype.element_ty)
    o_pixel = i_n * H * W + b_q
    o_gates = (o_pixel * 2 * K)[:, None] + b_k[None, :]
    b_r = tl.sigmoid(_driven(p_gates, o_gates, mask, b_taps, _column(p_inner, 0, b_k, K, BT)))
    b_h = tl.load(p_h + (o_pixel * K)[:, None] + b_k[None, :], mask=mask, other=0.0)
    b_o = (b_r * b_h.to(tl.float32)).to(p_halo.dtype.element_ty)
    p_image = p_halo + i_n * (H + 2 * R) * (W + 2 * R) * K
    _store_halo(p_image, b_o, b_y, b_x, b_k, b_mask, m_k, H, W, K, R, R)


@triton.jit
def blend_kernel(
    p_frame, p_inner, p_gates, p_candidate, p_h, p_out, H, W, K, C,
    SIDE: tl.constexpr, BT: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h + z∘(c − h), [N, H, W, K]."""
    i_n, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask = b_q < H * W
    mask = b_mask[:, None] & (b_k < K)[None, :]
    b_taps = torus_taps(p_frame + i_n * C * H * W, b_q // W, b_q % W, b_mask, H, W, C, SIDE, BT)
    b_taps = b_taps.to(p_h.dtype.element_ty)
    o_pixel = i_n * H * W + b_q
    o_gates = (o_pixel * 2 * K + K)[:, None] + b_k[None, :]
    o_h = (o_pixel * K)[:, None] + b_k[None, :]
    b_z = tl.sigmoid(_driven(p_gates, o_gates, mask, b_taps, _column(p_inner, 1, b_k, K, BT)))
    b_c = _tanh(_driven(p_candidate, o_h, mask, b_taps, _column(p_inner, 2, b_k, K, BT)))
    b_h = tl.load(p_h + o_h, mask=mask, other=0.0).to(tl.float32)
    tl.store(p_out + o_h, (b_h + b_z * (b_c - b_h)).to(p_out.dtype.element_ty), mask=mask)


@triton.jit
def blend_backward_kernel(
    p_grad, p_frame, p_inner, p_gates, p_candidate, p_h,
    p_halo_gates, p_halo_candidate, p_rest, p_sum, TILES, H, W, K, C,
    SIDE: tl.constexpr, BT: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """What reaches z and the candidate before σ, with halos; and h beside them, p_rest."""
    i_0 = tl.program_id(0)
    b_k = tl.program_id(1) * BK + tl.arange(0, BK)
    m_k, tiles = (b_k < K)[None, :], tl.cdiv(H * W, BP)
    R: tl.constexpr = SIDE // 2
    b_u_z, b_u_c = _column(p_inner, 1, b_k, K, BT), _column(p_inner, 2, b_k, K, BT)
    b_sum_z, b_sum_c = tl.zeros((BT, BK), tl.float32), tl.zeros((BT, BK), tl.float32)
    for i_t in range(i_0, TILES, tl.num_programs(0)):
        i_n = (i_t // tiles).to(tl.int64)
        b_q = i_t % tiles * BP + tl.arange(0, BP)
        b_mask = b_q < H * W
        mask, b_y, b_x = b_mask[:, None] & m_k, b_q // W, b_q % W
        b_taps = torus_taps(p_frame + i_n * C * H * W, b_y, b_x, b_mask, H, W, C, SIDE, BT)
        b_taps = b_taps.to(p_h.dtype.element_ty)
        o_pixel = i_n * H * W + b_q
        o_gates = (o_pixel * 2 * K + K)[:, None] + b_k[None, :]
        o_h = (o_pixel * K)[:, None] + b_k[None, :]
        b_z = tl.sigmoid(_driven(p_gates, o_gates, mask, b_taps, b_u_z))
        b_c = _tanh(_driven(p_candidate, o_h, mask, b_taps, b_u_c))
        b_h = tl.load(p_h + o_h, mask=mask, other=0.0).to(tl.float32)
        b_g = tl.load(p_grad + o_h, mask=mask, other=0.0).to(tl.float32)
        tl.store(p_rest + o_h, (b_g * (1 - b_z)).to(p_rest.dtype.element_ty), mask=mask)
        b_g_z = (b_g * (b_c - b_h) * b_z * (1 - b_z)).to(p_h.dtype.element_ty)
        b_g_c = (b_g * b_z * (1 - b_c * b_c)).to(p_h.dtype.element_ty)
        haloed = i_n * (H + 2 * R) * (W + 2 * R) * K
        p_image = p_halo_gates + 2 * haloed
        _store_halo(p_image, b_g_z, b_y, b_x, K + b_k, b_mask, m_k, H, W, 2 * K, R, R)
        p_image = p_halo_candidate + haloed
        _store_halo(p_image, b_g_c, b_y, b_x, b_k, b_mask, m_k, H, W, K, R, R)
        b_sum_z += tl.dot(tl.trans(b_taps), b_g_z, input_precision="ieee")
        b_sum_c += tl.dot(tl.trans(b_taps), b_g_c, input_precision="ieee")
    _store_sum(p_sum, b_sum_z, i_0, 1, b_k, K, BT)
    _store_sum(p_sum, b_sum_c, i_0, 2, b_k, K, BT)


@triton.jit
def reset_backward_kernel(
    p_grad, p_frame, p_inner, p_gates, p_h, p_halo_gates, p_rest, p_reset, p_sum,
    TILES, H, W, K, C,
    SIDE: tl.constexpr, BT: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """From the gradient of r∘h: what reaches r before σ, with its halo, and h; and r∘h again."""
    i_0 = tl.program_id(0)
    b_k = tl.program_id(1) * BK + tl.arange(0, BK)
    m_k, tiles = (b_k < K)[None, :], tl.cdiv(H * W, BP)
    R: tl.constexpr = SIDE // 2
    b_u_r = _column(p_inner, 0, b_k, K, BT)
    b_sum_r = tl.zeros((BT, BK), tl.float32)
    for i_t in range(i_0, TILES, tl.num_programs(0)):
        i_n = (i_t // tiles).to(tl.int64)
        b_q = i_t % tiles * BP + tl.arange(0, BP)
        b_mask = b_q < H * W
        mask, b_y, b_x = b_mask[:, None] & m_k, b_q // W, b_q % W
        b_taps = torus_taps(p_frame + i_n * C * H * W, b_y, b_x, b_mask, H, W, C, SIDE, BT)
        b_taps = b_taps.to(p_h.dtype.element_ty)
        o_pixel = i_n * H * W + b_q
        o_gates = (o_pixel * 2 * K)[:, None] + b_k[None, :]
        o_h = (o_pixel * K)[:, None] + b_k[None, :]
        b_r = tl.sigmoid(_driven(p_gates, o_gates, mask, b_taps, b_u_r))
        b_h = tl.load(p_h + o_h, mask=mask, other=0.0).to(tl.float32)
        b_g = tl.load(p_grad + o_h, mask=mask, other=0.0).to(tl.float32)
        b_rest = tl.load(p_rest + o_h, mask=mask, other=0.0).to(tl.float32) + b_g * b_r
        tl.store(p_rest + o_h, b_rest.to(p_rest.dtype.element_ty), mask=mask)
        tl.store(p_reset + o_h, (b_r * b_h).to(p_reset.dtype.element_ty), mask=mask)
        b_g_r = (b_g * b_h * b_r * (1 - b_r)).to(p_h.dtype.element_ty)
        p_image = p_halo_gates + i_n * (H + 2 * R) * (W + 2 * R) * 2 * K
        _store_halo(p_image, b_g_r, b_y, b_x, b_k, b_mask, m_k, H, W, 2 * K, R, R)
        b_sum_r += tl.dot(tl.trans(b_taps), b_g_r, input_precision="ieee")
    _store_sum(p_sum, b_sum_r, i_0, 0, b_k, K, BT)
