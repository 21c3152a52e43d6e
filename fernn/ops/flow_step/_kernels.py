"""Triton kernels of the step: halo, forward, backward. `triton.py` has the memory plan.

Pointers are p_, blocks of a program b_, program ids i_, offsets o_, strides and shifts s_. B, V and
K count samples, velocities and channels; a program owns BP pixels and BK channels of one sample.
s_nb and s_nv count images: states, halo buffers and bits hold samples or velocities outermost.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton compiles these bodies; they are not Python that a type checker can read.

import triton
import triton.language as tl

from fernn.ops._launch import program, wrap


@triton.jit
def _store_halo(
    p_image, b_value, b_y, b_x, b_k, b_mask, m_k, H, W, K, RY: tl.constexpr, RX: tl.constexpr
):
    """Write values [BP, BK] of pixels (b_y, b_x) to a haloed image, and again where they wrap."""
    row = (W + 2 * RX) * K
    y = b_y + RY
    x = b_x + RX
    m_y = b_mask & ((b_y < RY) | (b_y >= H - RY))
    m_x = b_mask & ((b_x < RX) | (b_x >= W - RX))
    y_dup = tl.where(b_y < RY, y + H, y - H)
    x_dup = tl.where(b_x < RX, x + W, x - W)
    b_k = b_k[None, :]
    tl.store(p_image + (y * row + x * K)[:, None] + b_k, b_value, mask=b_mask[:, None] & m_k)
    tl.store(p_image + (y * row + x_dup * K)[:, None] + b_k, b_value, mask=m_x[:, None] & m_k)
    if RY > 0:
        tl.store(p_image + (y_dup * row + x * K)[:, None] + b_k, b_value, mask=m_y[:, None] & m_k)
        tl.store(
            p_image + (y_dup * row + x_dup * K)[:, None] + b_k,
            b_value,
            mask=(m_x & m_y)[:, None] & m_k,
        )


@triton.jit
def halo_kernel(
    p_h, p_halo, H, W, K,
    RY: tl.constexpr, RX: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A state [N, H, W, K] → its halo buffer [N, H + 2RY, W + 2RX, K]."""
    i_n, i_p, i_k = program(H * W, BP)
    b_p = i_p * BP + tl.arange(0, BP)
    b_k = i_k * BK + tl.arange(0, BK)
    b_mask, m_k = b_p < H * W, (b_k < K)[None, :]
    b_value = tl.load(
        p_h + i_n * H * W * K + (b_p * K)[:, None] + b_k[None, :], mask=b_mask[:, None] & m_k
    )
    p_image = p_halo + i_n * (H + 2 * RY) * (W + 2 * RX) * K
    _store_halo(p_image, b_value, b_p // W, b_p % W, b_k, b_mask, m_k, H, W, K, RY, RX)


@triton.jit
def forward_kernel(
    p_conv, p_drive, p_move, p_at, p_to, p_h, p_halo, p_bits, p_pool, p_arg,
    V, H, W, K, s_nb, s_nv, s_cb, s_cv, s_db, s_dv, s_dk, s_dy, s_dx,
    RY: tl.constexpr, RX: tl.constexpr, ACT: tl.constexpr, LIFTED: tl.constexpr,
    AHEAD: tl.constexpr, HALO: tl.constexpr, BITS: tl.constexpr, POOL: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One program: all ν of BP pixels of the readout, BK channels. See the memory plan.

    AHEAD says that the readout is not where the drive is: p_to and p_at differ.
    """
    i_b, i_p, i_k = program(H * W, BP)
    b_p = i_p * BP + tl.arange(0, BP)  # [BP], pixels of the readout
    b_k = i_k * BK + tl.arange(0, BK)  # [BK]
    b_mask, m_k = b_p < H * W, (b_k < K)[None, :]
    mask = b_mask[:, None] & m_k
    b_y, b_x = b_p // W, b_p % W
    p_drive += i_b * s_db
    if not AHEAD and not LIFTED:
        o_drive = (b_y * s_dy + b_x * s_dx)[:, None] + (b_k * s_dk)[None, :]
        b_drive = tl.load(p_drive + o_drive, mask=mask, other=0.0).to(tl.float32)
    if POOL:
        b_best = tl.full((BP, BK), float("-inf"), tl.float32)
        b_arg = tl.zeros((BP, BK), tl.int32)
    for i_v in tl.range(V, num_stages=3):  # later slices are under way
        h_y = wrap(b_y - tl.load(p_to + 2 * i_v), H)
        h_x = wrap(b_x - tl.load(p_to + 2 * i_v + 1), W)
        if AHEAD or LIFTED:
            d_y = wrap(h_y + tl.load(p_at + 2 * i_v), H)
            d_x = wrap(h_x + tl.load(p_at + 2 * i_v + 1), W)
            o_drive = (d_y * s_dy + d_x * s_dx)[:, None] + (b_k * s_dk)[None, :]
            p_slice = p_drive + tl.cast(i_v, tl.int64) * s_dv
            b_drive = tl.load(p_slice + o_drive, mask=mask, other=0.0).to(tl.float32)
        c_y = wrap(h_y - tl.load(p_move + 2 * i_v), H)
        c_x = wrap(h_x - tl.load(p_move + 2 * i_v + 1), W)
        p_slice = p_conv + i_b * s_cb + tl.cast(i_v, tl.int64) * s_cv
        o_conv = ((c_y * W + c_x) * K)[:, None] + b_k[None, :]
        b_h = tl.load(p_slice + o_conv, mask=mask, other=0.0).to(tl.float32) + b_drive  # [BP, BK]
        if ACT == 0:
            b_h = tl.where(b_h <= 0, 0.0, b_h)  # keeps NaN
        if ACT == 1:
            b_e = tl.exp(-2 * tl.abs(b_h))
            b_t = (1 - b_e) / (1 + b_e)
            b_h = tl.where(b_h < 0, -b_t, b_t)
        i_n = i_b * s_nb + i_v * s_nv
        b_o = b_h.to(p_h.dtype.element_ty)
        o_h = (h_y * W + h_x)[:, None]
        tl.store(p_h + i_n * H * W * K + o_h * K + b_k[None, :], b_o, mask=mask)
        if HALO:
            p_image = p_halo + i_n * (H + 2 * RY) * (W + 2 * RX) * K
            _store_halo(p_image, b_o, h_y, h_x, b_k, b_mask, m_k, H, W, K, RY, RX)
        if BITS:
            KB = (K + 7) // 8
            b_on = tl.reshape(((b_o > 0) & mask).to(tl.int32), (BP, BK // 8, 8))
            b_byte = tl.sum(b_on << tl.arange(0, 8)[None, None, :], 2)  # [BP, BK / 8]
            b_kb = i_k * (BK // 8) + tl.arange(0, BK // 8)[None, :]
            p_byte = p_bits + i_n * H * W * KB + o_h * KB + b_kb
            tl.store(p_byte, b_byte.to(tl.uint8), mask=b_mask[:, None] & (b_kb < KB))
        if POOL:
            b_h = b_o.to(tl.float32)
            b_take = (b_h > b_best) | (b_h != b_h)
            b_best = tl.where(b_take, b_h, b_best)
            b_arg = tl.where(b_take, i_v, b_arg)
    if POOL:
        o_pool = i_b * H * W * K + (b_p * K)[:, None] + b_k[None, :]
        tl.store(p_pool + o_pool, b_best.to(p_pool.dtype.element_ty), mask=mask)
        tl.store(p_arg + o_pool, b_arg.to(p_arg.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(
    p_grad, p_pool, p_arg, p_to, p_out, p_move, p_at, p_halo, p_grad_drive, V, H, W, K, s_nb, s_nv,
    RY: tl.constexpr, RX: tl.constexpr, ACT: tl.constexpr, LIFTED: tl.constexpr,
    AHEAD: tl.constexpr, GRAD: tl.constexpr, POOL: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One program: all ν of BP pixels of the drive, BK channels. p_out is the bits or the state."""
    i_b, i_p, i_k = program(H * W, BP)
    b_p = i_p * BP + tl.arange(0, BP)  # [BP], pixels of the drive
    b_k = i_k * BK + tl.arange(0, BK)  # [BK]
    b_mask, m_k = b_p < H * W, (b_k < K)[None, :]
    mask = b_mask[:, None] & m_k
    b_y, b_x = b_p // W, b_p % W
    o_p = (b_p * K)[:, None] + b_k[None, :]
    b_sum = tl.zeros((BP, BK), tl.float32)
    if POOL and not AHEAD:
        b_arg = tl.load(p_arg + i_b * H * W * K + o_p, mask=mask, other=0).to(tl.int32)
        b_pool = tl.load(p_pool + i_b * H * W * K + o_p, mask=mask, other=0.0).to(tl.float32)
    for i_v in range(V):
        h_y = wrap(b_y - tl.load(p_at + 2 * i_v), H)
        h_x = wrap(b_x - tl.load(p_at + 2 * i_v + 1), W)
        i_n = i_b * s_nb + i_v * s_nv
        b_h = h_y * W + h_x
        o_h = i_n * H * W * K + (b_h * K)[:, None] + b_k[None, :]
        if GRAD:
            b_g = tl.load(p_grad + o_h, mask=mask, other=0.0).to(tl.float32)
        else:
            b_g = tl.zeros((BP, BK), tl.float32)
        if POOL:
            if AHEAD:
                t_y = wrap(h_y + tl.load(p_to + 2 * i_v), H)
                t_x = wrap(h_x + tl.load(p_to + 2 * i_v + 1), W)
                o_t = i_b * H * W * K + ((t_y * W + t_x) * K)[:, None] + b_k[None, :]
                b_arg = tl.load(p_arg + o_t, mask=mask, other=0).to(tl.int32)
                b_pool = tl.load(p_pool + o_t, mask=mask, other=0.0).to(tl.float32)
            b_g += tl.where(b_arg == i_v, b_pool, 0.0)
        if ACT == 0:
            KB = (K + 7) // 8
            b_kb = i_k * (BK // 8) + tl.arange(0, BK // 8)[None, :]
            p_byte = p_out + i_n * H * W * KB + (b_h * KB)[:, None] + b_kb
            b_byte = tl.load(p_byte, mask=b_mask[:, None] & (b_kb < KB), other=0).to(tl.int32)
            b_on = (b_byte[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1
            b_g = tl.where(tl.reshape(b_on, (BP, BK)) != 0, b_g, 0.0)
        if ACT == 1:
            b_t = tl.load(p_out + o_h, mask=mask, other=0.0).to(tl.float32)
            b_g *= 1 - b_t * b_t
        if LIFTED:
            p_slice = p_grad_drive + (i_b * V + i_v) * H * W * K
            tl.store(p_slice + o_p, b_g.to(p_grad_drive.dtype.element_ty), mask=mask)
        else:
            b_sum += b_g
        p_image = p_halo + i_n * (H + 2 * RY) * (W + 2 * RX) * K
        c_y = wrap(h_y - tl.load(p_move + 2 * i_v), H)
        c_x = wrap(h_x - tl.load(p_move + 2 * i_v + 1), W)
        b_o = b_g.to(p_halo.dtype.element_ty)
        _store_halo(p_image, b_o, c_y, c_x, b_k, b_mask, m_k, H, W, K, RY, RX)
    if not LIFTED:
        p_slice = p_grad_drive + i_b * H * W * K
        tl.store(p_slice + o_p, b_sum.to(p_grad_drive.dtype.element_ty), mask=mask)
