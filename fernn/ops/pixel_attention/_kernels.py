"""Triton kernels of attention over time. `triton.py` has the memory plan.

Names are those of `flow_step/_kernels.py`. p_s are the taps of frame s at a pixel, [BP, BT]; NH
counts heads.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from fernn.ops._launch import program
from fernn.ops._taps import torus_taps


@triton.jit
def _scores(b_query, b_past, ago, RECENCY: tl.constexpr, NH: tl.constexpr):
    """Of taps [BP, BT] that came `ago` frames before the last: [BP, NH]."""
    b_score = tl.sum(b_query * b_past[:, None, :], 2)
    if RECENCY:
        b_score -= tl.exp2(1.0 - tl.arange(0, NH).to(tl.float32))[None, :] * ago
    return b_score


@triton.jit
def _recall(
    p_image, b_query, b_y, b_x, b_mask, T, H, W, C,
    RECENCY: tl.constexpr, NH: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Σ_s w_s p_s, [BP, NH, BT], with w the softmax of the scores, and the log of its sum."""
    b_top = tl.full((BP, NH), float("-inf"), tl.float32)
    b_sum = tl.zeros((BP, NH), tl.float32)
    b_mix = tl.zeros((BP, NH, BT), tl.float32)
    for i_s in range(T):
        p_past = p_image + i_s * C * H * W
        b_past = torus_taps(p_past, b_y, b_x, b_mask, H, W, C, SIDE, BT).to(tl.float32)
        b_score = _scores(b_query, b_past, T - 1 - i_s, RECENCY, NH)
        b_new = tl.maximum(b_top, b_score)
        b_scale, b_weight = tl.exp(b_top - b_new), tl.exp(b_score - b_new)
        b_sum = b_sum * b_scale + b_weight
        b_mix = b_mix * b_scale[:, :, None] + b_weight[:, :, None] * b_past[:, None, :]
        b_top = b_new
    return b_mix / b_sum[:, :, None], b_top + tl.log(b_sum)


@triton.jit
def _values(p_values, b_k, K, BM: tl.constexpr):
    """A block of columns [BM, BK] of [BM, K]."""
    p_column = p_values + (tl.arange(0, BM) * K)[:, None] + b_k[None, :]
    return tl.load(p_column, mask=(b_k < K)[None, :], other=0.0)


@triton.jit
def forward_kernel(
    p_frames, p_scores, p_values, p_out, T, H, W, K, C,
    RECENCY: tl.constexpr, NH: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Frames [N, T, C, H, W] → what the last one sees of all, [N, H, W, K]."""
    i_n, i_p, i_k = program(H * W, BP)
    b_q = i_p * BP + tl.arange(0, BP)  # pixels of image i_n
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask, b_y, b_x = b_q < H * W, b_q // W, b_q % W
    BM: tl.constexpr = NH * BT
    b_m = tl.arange(0, BM)[None, :]
    p_image = p_frames + i_n * T * C * H * W
    p_now = p_image + (T - 1) * C * H * W
    b_now = torus_taps(p_now, b_y, b_x, b_mask, H, W, C, SIDE, BT).to(p_out.dtype.element_ty)
    b_scores = tl.load(p_scores + (tl.arange(0, BT) * BM)[:, None] + b_m)
    b_query = tl.reshape(tl.dot(b_now, b_scores, input_precision="ieee"), (BP, NH, BT))
    b_mix, _ = _recall(p_image, b_query, b_y, b_x, b_mask, T, H, W, C, RECENCY, NH, SIDE, BT, BP)
    b_mix = tl.reshape(b_mix, (BP, BM)).to(p_out.dtype.element_ty)
    b_out = tl.dot(b_mix, _values(p_values, b_k, K, BM), input_precision="ieee")
    p_point = p_out + ((i_n * H * W + b_q) * K)[:, None] + b_k[None, :]
    mask = b_mask[:, None] & (b_k < K)[None, :]
    tl.store(p_point, b_out.to(p_out.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(
    p_grad, p_frames, p_scores, p_values, p_sum_scores, p_sum_values, TILES, T, H, W, K, C,
    RECENCY: tl.constexpr, NH: tl.constexpr, SIDE: tl.constexpr, BT: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gradients of both matrices, [programs, BT, BM] and [programs, BM, K].

    A block of channels has its own share of the first: what reaches w is linear in the gradient.
    """
    i_0, i_k = tl.program_id(0), tl.program_id(1)
    b_k = i_k * BK + tl.arange(0, BK)
    m_k, tiles = (b_k < K)[None, :], tl.cdiv(H * W, BP)
    BM: tl.constexpr = NH * BT
    b_t, b_m = tl.arange(0, BT)[:, None], tl.arange(0, BM)
    b_scores = tl.load(p_scores + b_t * BM + b_m[None, :])
    b_values = _values(p_values, b_k, K, BM)
    b_sum_scores = tl.zeros((BT, BM), tl.float32)
    b_sum_values = tl.zeros((BM, BK), tl.float32)
    for i_t in range(i_0, TILES, tl.num_programs(0)):
        i_n = (i_t // tiles).to(tl.int64)
        b_q = i_t % tiles * BP + tl.arange(0, BP)
        b_mask, b_y, b_x = b_q < H * W, b_q // W, b_q % W
        p_image = p_frames + i_n * T * C * H * W
        p_now = p_image + (T - 1) * C * H * W
        b_now = torus_taps(p_now, b_y, b_x, b_mask, H, W, C, SIDE, BT)
        b_now = b_now.to(p_grad.dtype.element_ty)
        b_query = tl.reshape(tl.dot(b_now, b_scores, input_precision="ieee"), (BP, NH, BT))
        b_mix, b_log = _recall(
            p_image, b_query, b_y, b_x, b_mask, T, H, W, C, RECENCY, NH, SIDE, BT, BP
        )
        p_point = p_grad + ((i_n * H * W + b_q) * K)[:, None] + b_k[None, :]
        b_g = tl.load(p_point, mask=b_mask[:, None] & m_k, other=0.0)
        b_low = tl.reshape(b_mix, (BP, BM)).to(p_grad.dtype.element_ty)
        b_sum_values += tl.dot(tl.trans(b_low), b_g, input_precision="ieee")
        b_g_mix = tl.dot(b_g, tl.trans(b_values), input_precision="ieee")
        b_g_mix = tl.reshape(b_g_mix, (BP, NH, BT))
        b_mean = tl.sum(b_g_mix * b_mix, 2)  # Σ_s w_s ∂L/∂w_s
        b_g_query = tl.zeros((BP, NH, BT), tl.float32)
        for i_s in range(T):
            p_past = p_image + i_s * C * H * W
            b_past = torus_taps(p_past, b_y, b_x, b_mask, H, W, C, SIDE, BT).to(tl.float32)
            b_weight = tl.exp(_scores(b_query, b_past, T - 1 - i_s, RECENCY, NH) - b_log)
            b_share = tl.sum(b_g_mix * b_past[:, None, :], 2) - b_mean
            b_g_query += (b_weight * b_share)[:, :, None] * b_past[:, None, :]
        b_g_query = tl.reshape(b_g_query, (BP, BM)).to(p_grad.dtype.element_ty)
        b_sum_scores += tl.dot(tl.trans(b_now), b_g_query, input_precision="ieee")
    i_sum = i_0 * tl.num_programs(1) + i_k
    tl.store(p_sum_scores + (i_sum * BT + b_t) * BM + b_m[None, :], b_sum_scores)
    p_sum = p_sum_values + ((i_0 * BM + b_m) * K)[:, None] + b_k[None, :]
    tl.store(p_sum, b_sum_values, mask=m_k)
