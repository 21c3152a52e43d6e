"""Triton kernels of attention over time. `triton.py` has the memory plan.

Names are those of `flow_step/_kernels.py`; NH counts heads. Blocks are [BT, NH, BP], taps outermost
and pixels innermost: a thread then has all taps of a pixel and head, and sums over them by itself.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from fernn.ops._launch import program, wrap
from fernn.ops._taps import torus_taps


@triton.jit
def _places(b_q, H, W, C, SIDE: tl.constexpr, BT: tl.constexpr, NH: tl.constexpr, BP: tl.constexpr):
    """Where a frame [C, H, W] has the taps of pixels b_q, for every head, and whether it has."""
    b_t = tl.arange(0, BT)[:, None, None]
    b_p = tl.broadcast_to(b_q[None, None, :], (BT, NH, BP))
    y = wrap(b_p // W + (b_t // SIDE % SIDE - SIDE // 2), H)
    x = wrap(b_p % W + (b_t % SIDE - SIDE // 2), W)
    b_c = b_t // (SIDE * SIDE)
    return b_c * H * W + y * W + x, (b_p < H * W) & (b_c < C)


@triton.jit
def _query(b_now, p_scores, BT: tl.constexpr, NH: tl.constexpr, BP: tl.constexpr):
    """What the last frame asks of the taps of every frame: p_scores [BT·NH, BT] times its own."""
    o_row = (tl.arange(0, BT * NH) * BT)[:, None] + tl.arange(0, BT)[None, :]
    b_query = tl.dot(tl.load(p_scores + o_row), tl.trans(b_now), input_precision="ieee")
    return tl.reshape(b_query, (BT, NH, BP))


@triton.jit
def _scores(b_query, b_past, ago, RECENCY: tl.constexpr, NH: tl.constexpr):
    """Of taps that came `ago` frames before the last: [NH, BP]."""
    b_score = tl.sum(b_query * b_past, 0)
    if RECENCY:
        b_score -= tl.exp2(1.0 - tl.arange(0, NH).to(tl.float32))[:, None] * ago
    return b_score


@triton.jit
def _values(p_values, b_k, K, BM: tl.constexpr):
    """A block of columns [BM, BK] of [BM, K]."""
    p_column = p_values + (tl.arange(0, BM) * K)[:, None] + b_k[None, :]
    return tl.load(p_column, mask=(b_k < K)[None, :], other=0.0)


@triton.jit
def forward_kernel(
    p_frames, p_scores, p_values, p_out, p_log, T, H, W, K, C,
    RECENCY: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr, NH: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Frames [N, T, C, H, W] → what the last one sees of all, [N, H, W, K].

    p_log [N, NH, H, W] is the log of the softmax's sum.
    """
    i_n, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)  # pixels of image i_n
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask = b_q < H * W
    BM: tl.constexpr = BT * NH
    p_now = p_frames + (i_n * T + T - 1) * C * H * W
    b_now = torus_taps(p_now, b_q // W, b_q % W, b_mask, H, W, C, SIDE, BT)
    b_query = _query(b_now.to(p_out.dtype.element_ty), p_scores, BT, NH, BP)
    o_tap, m_tap = _places(b_q, H, W, C, SIDE, BT, NH, BP)
    b_top = tl.full((NH, BP), float("-inf"), tl.float32)
    b_sum = tl.zeros((NH, BP), tl.float32)
    b_mix = tl.zeros((BT, NH, BP), tl.float32)
    for i_s in range(T):
        p_past = p_frames + (i_n * T + i_s) * C * H * W
        b_past = tl.load(p_past + o_tap, mask=m_tap, other=0.0).to(tl.float32)
        b_score = _scores(b_query, b_past, T - 1 - i_s, RECENCY, NH)
        b_new = tl.maximum(b_top, b_score)
        b_scale, b_weight = tl.exp(b_top - b_new), tl.exp(b_score - b_new)
        b_sum = b_sum * b_scale + b_weight
        b_mix = b_mix * b_scale[None, :, :] + b_weight[None, :, :] * b_past
        b_top = b_new
    if i_k == 0:
        p_row = p_log + (i_n * NH + tl.arange(0, NH)[:, None]) * H * W + b_q[None, :]
        tl.store(p_row, b_top + tl.log(b_sum), mask=b_mask[None, :])
    b_mix = tl.reshape(b_mix / b_sum[None, :, :], (BM, BP)).to(p_out.dtype.element_ty)
    b_out = tl.dot(tl.trans(b_mix), _values(p_values, b_k, K, BM), input_precision="ieee")
    p_point = p_out + ((i_n * H * W + b_q) * K)[:, None] + b_k[None, :]
    mask = b_mask[:, None] & (b_k < K)[None, :]
    tl.store(p_point, b_out.to(p_out.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(
    p_grad, p_frames, p_scores, p_values, p_log, p_sum_scores, p_sum_values,
    TILES, T, H, W, K, C,
    RECENCY: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr, NH: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradients of both matrices, [programs, BM, BT] and [programs, BM, K].

    A block of channels has its own share of the first: what reaches w is linear in the gradient.
    """
    i_0, i_k = tl.program_id(0), tl.program_id(1)
    b_k = i_k * BK + tl.arange(0, BK)
    m_k, tiles = (b_k < K)[None, :], tl.cdiv(H * W, BP)
    BM: tl.constexpr = BT * NH
    b_m = tl.arange(0, BM)
    b_values = _values(p_values, b_k, K, BM)
    b_sum_scores = tl.zeros((BM, BT), tl.float32)
    b_sum_values = tl.zeros((BM, BK), tl.float32)
    for i_t in range(i_0, TILES, tl.num_programs(0)):
        i_n = (i_t // tiles).to(tl.int64)
        b_q = i_t % tiles * BP + tl.arange(0, BP)
        b_mask = b_q < H * W
        p_now = p_frames + (i_n * T + T - 1) * C * H * W
        b_now = torus_taps(p_now, b_q // W, b_q % W, b_mask, H, W, C, SIDE, BT)
        b_now = b_now.to(p_grad.dtype.element_ty)
        b_query = _query(b_now, p_scores, BT, NH, BP)
        o_tap, m_tap = _places(b_q, H, W, C, SIDE, BT, NH, BP)
        p_row = p_log + (i_n * NH + tl.arange(0, NH)[:, None]) * H * W + b_q[None, :]
        b_log = tl.load(p_row, mask=b_mask[None, :], other=0.0)
        p_point = p_grad + ((i_n * H * W + b_q) * K)[:, None] + b_k[None, :]
        b_g = tl.load(p_point, mask=b_mask[:, None] & m_k, other=0.0)
        b_g_mix = tl.dot(b_values, tl.trans(b_g), input_precision="ieee")
        b_g_mix = tl.reshape(b_g_mix, (BT, NH, BP))
        b_mix = tl.zeros((BT, NH, BP), tl.float32)
        b_g_query = tl.zeros((BT, NH, BP), tl.float32)
        for i_s in range(T):
            p_past = p_frames + (i_n * T + i_s) * C * H * W
            b_past = tl.load(p_past + o_tap, mask=m_tap, other=0.0).to(tl.float32)
            b_weight = tl.exp(_scores(b_query, b_past, T - 1 - i_s, RECENCY, NH) - b_log)
            b_share = b_weight * tl.sum(b_g_mix * b_past, 0)
            b_mix += b_weight[None, :, :] * b_past
            b_g_query += b_share[None, :, :] * b_past
        b_mean = tl.sum(b_g_mix * b_mix, 0)  # Σ_s w_s ∂L/∂w_s, which the softmax takes away
        b_g_query -= b_mean[None, :, :] * b_mix
        b_low = tl.reshape(b_mix, (BM, BP)).to(p_grad.dtype.element_ty)
        b_sum_values += tl.dot(b_low, b_g, input_precision="ieee")
        b_low = tl.reshape(b_g_query, (BM, BP)).to(p_grad.dtype.element_ty)
        b_sum_scores += tl.dot(b_low, b_now, input_precision="ieee")
    o_sum = ((i_0 * tl.num_programs(1) + i_k) * BM + b_m) * BT
    tl.store(p_sum_scores + o_sum[:, None] + tl.arange(0, BT)[None, :], b_sum_scores)
    p_sum = p_sum_values + ((i_0 * BM + b_m) * K)[:, None] + b_k[None, :]
    tl.store(p_sum, b_sum_values, mask=m_k)
