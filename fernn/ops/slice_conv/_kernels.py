"""Triton kernels of `slice_conv`: rows of pixels times matrices, and the gradient of these.

`triton.py` has the memory plan. Pointers are p_, blocks of a program b_, program ids i_, offsets
o_, masks m_. A row of a product stands for a row of the image, or a row of taps, and a column.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton compiles these bodies; they are not Python that a type checker can read.

import triton
import triton.language as tl


@triton.jit
def conv_kernel(
    p_h, p_matrix, p_out, V, H, W, K,
    SIZE: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """h [B, V, H, W, K], matrices [V, SIZE, BX, BX] → BY rows of one image, [BY·BX, BK]."""
    i_0, tiles = tl.program_id(0), tl.cdiv(H, BY)
    i_n, i_y = (i_0 // tiles).to(tl.int64), i_0 % tiles * BY
    b_p = tl.arange(0, BY * BX)
    b_y, b_x = b_p // BX, b_p % BX
    b_s = tl.arange(0, BX)  # columns that are read
    b_k = tl.program_id(1) * BK + tl.arange(0, BK)
    o_h = (b_s * K)[:, None] + b_k[None, :]
    m_k = (b_k < K)[None, :]
    m_h = (b_s < W)[:, None] & m_k
    p_image, p_slice = p_h + i_n * H * W * K, p_matrix + i_n % V * (SIZE * BX * BX)
    b_sum = tl.zeros((BY * BX, BK), tl.float32)
    for i_r in tl.range(BY + SIZE - 1, num_stages=STAGES):
        row = (i_y + i_r + SIZE * H - SIZE // 2) % H
        b_d = i_r - b_y  # which row of taps meets it, if one does
        o_c = ((b_d * BX + b_x) * BX)[:, None] + b_s[None, :]
        b_c = tl.load(p_slice + o_c, mask=((b_d >= 0) & (b_d < SIZE))[:, None], other=0.0)
        b_h = tl.load(p_image + row * W * K + o_h, mask=m_h, other=0.0)
        b_sum = tl.dot(b_c, b_h, b_sum, input_precision=PRECISION)
    o_out = ((i_y + b_y) * W + b_x)[:, None] * K + b_k[None, :]
    m_out = ((i_y + b_y < H) & (b_x < W))[:, None] & m_k
    tl.store(p_out + i_n * H * W * K + o_out, b_sum.to(p_out.dtype.element_ty), mask=m_out)


@triton.jit
def weight_kernel(
    p_grad, p_h, p_out, ROWS, CHUNK, V, H, W, K,
    SIZE: tl.constexpr, BD: tl.constexpr, BX: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Σ g(y − d + r, x) h(y, x') of a chunk of the B·H rows, for BD rows d of taps of one ν.

    Both are [B, V, H, W, K]; a sum is over channels too → [V, chunks, SIZE, BX, BX] in float32.
    """
    i_v, i_c = tl.program_id(0), tl.program_id(1)
    b_p = tl.arange(0, BD * BX)
    b_d, b_x = tl.program_id(2) * BD + b_p // BX, b_p % BX
    b_s = tl.arange(0, BX)
    slabs, rows = tl.cdiv(K, BK), tl.minimum(CHUNK, ROWS - i_c * CHUNK)
    m_g, m_h = (b_d < SIZE) & (b_x < W), b_s < W
    b_sum = tl.zeros((BD * BX, BX), tl.float32)
    tl.assume(rows * slabs > 0)  # else every product waits for the one before it
    for i_s in tl.range(rows * slabs, num_stages=STAGES):
        i_r = i_c * CHUNK + i_s // slabs
        y, o_image = i_r % H, (i_r // H * V + i_v).to(tl.int64) * H * W * K
        b_k = i_s % slabs * BK + tl.arange(0, BK)
        m_k = (b_k < K)[None, :]
        b_y = (y + SIZE * H - b_d + SIZE // 2) % H
        o_g = ((b_y * W + b_x) * K)[:, None] + b_k[None, :]
        o_h = ((y * W + b_s) * K)[:, None] + b_k[None, :]
        b_g = tl.load(p_grad + o_image + o_g, mask=m_g[:, None] & m_k, other=0.0)
        b_h = tl.load(p_h + o_image + o_h, mask=m_h[:, None] & m_k, other=0.0)
        b_sum = tl.dot(b_g, tl.trans(b_h), b_sum, input_precision=PRECISION)
    p_chunk = p_out + (i_v * tl.num_programs(1) + i_c).to(tl.int64) * (SIZE * BX * BX)
    o_out = ((b_d * BX + b_x) * BX)[:, None] + b_s[None, :]
    tl.store(p_chunk + o_out, b_sum, mask=(b_d < SIZE)[:, None])
