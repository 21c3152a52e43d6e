"""Triton kernels of warped readouts: images moved for every ν, and their maximum.

Names are those of `flow_step/_kernels.py`. A row of the motion table is what `motion` makes of a
group element: cosine, sine, rows, columns, orientations to turn by.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def pixels(i_p, H, W, TY: tl.constexpr, TX: tl.constexpr):
    """Rows, columns and mask of tile number i_p of an image, [TY·TX] each."""
    across = tl.cdiv(W, TX)
    b_r = tl.arange(0, TY * TX)
    b_y, b_x = i_p // across * TY + b_r // TX, i_p % across * TX + b_r % TX
    return b_y, b_x, (b_y < H) & (b_x < W)


@triton.jit
def source(p_motion, b_y, b_x, H, W):
    """Where pixels (b_y, b_x) of the moved image are read from."""
    cos, sin = tl.load(p_motion), tl.load(p_motion + 1)
    c_y, c_x = (H - 1) * 0.5, (W - 1) * 0.5
    d_y = b_y - c_y - tl.load(p_motion + 2)
    d_x = b_x - c_x - tl.load(p_motion + 3)
    return c_y + d_y * cos + d_x * sin, c_x + d_x * cos - d_y * sin


@triton.jit
def turn(b_k, steps, ORDER: tl.constexpr):
    """Channels b_k turned by 0 ≤ steps < ORDER orientations, which run fastest."""
    b_r = b_k % ORDER + steps
    return b_k // ORDER * ORDER + tl.where(b_r >= ORDER, b_r - ORDER, b_r)


@triton.jit
def sample(p_image, s_y, s_x, b_y, b_x, mask, b_k, s_k, H, W):
    """An image read bilinearly at places (b_y, b_x), zero outside: [BP, BK] in float32."""
    b_y0, b_x0 = tl.floor(b_y), tl.floor(b_x)
    f_y, f_x = b_y - b_y0, b_x - b_x0
    i_y, i_x = b_y0.to(tl.int32), b_x0.to(tl.int32)
    o_k = (b_k.to(tl.int64) * s_k)[None, :]
    b_out = tl.zeros((b_y.shape[0], b_k.shape[0]), tl.float32)
    for j in tl.static_range(4):
        c_y, c_x = i_y + j // 2, i_x + j % 2
        inside = (c_y >= 0) & (c_y < H) & (c_x >= 0) & (c_x < W)
        w_y = f_y if j // 2 == 1 else 1 - f_y
        w_x = f_x if j % 2 == 1 else 1 - f_x
        b_w = w_y * w_x
        p_point = p_image + (c_y.to(tl.int64) * s_y + c_x.to(tl.int64) * s_x)[:, None] + o_k
        # A corner of no weight is not read, so that nothing but the pixel itself counts there.
        b_value = tl.load(p_point, mask=mask & (inside & (b_w > 0))[:, None], other=0.0)
        b_out += b_w[:, None] * b_value.to(tl.float32)
    return b_out


@triton.jit
def readers_kernel(p_motion, p_place, p_weight, H, W, MOST: tl.constexpr, BP: tl.constexpr):
    """Which pixels of a moved image read a pixel, and by which weights: both [V, MOST, H·W].

    They lie within √2 of where the pixel is moved to, so three by three are asked; those that read
    it lie inside a square of side two, which holds no more than five. Spare slots weigh nothing.
    """
    i_v = tl.program_id(1)
    p_motion += 5 * i_v
    b_p = tl.program_id(0) * BP + tl.arange(0, BP)
    b_mask = b_p < H * W
    b_y, b_x = b_p // W, b_p % W
    cos, sin = tl.load(p_motion), tl.load(p_motion + 1)
    c_y, c_x = (H - 1) * 0.5, (W - 1) * 0.5
    d_y, d_x = b_y - c_y, b_x - c_x
    q_y = c_y + tl.load(p_motion + 2) + d_y * cos - d_x * sin
    q_x = c_x + tl.load(p_motion + 3) + d_y * sin + d_x * cos
    q_y, q_x = tl.floor(q_y + 0.5).to(tl.int32), tl.floor(q_x + 0.5).to(tl.int32)
    o_v = i_v * MOST * H * W + b_p
    b_slot = tl.zeros((BP,), tl.int32)
    for j in tl.static_range(9):
        t_y, t_x = q_y + (j // 3 - 1), q_x + (j % 3 - 1)
        f_y, f_x = source(p_motion, t_y, t_x, H, W)
        b_w = tl.maximum(1 - tl.abs(f_y - b_y), 0.0) * tl.maximum(1 - tl.abs(f_x - b_x), 0.0)
        b_on = (b_w > 1e-6) & (t_y >= 0) & (t_y < H) & (t_x >= 0) & (t_x < W)  # rounding is less
        b_on = b_on & (b_slot < MOST) & b_mask
        tl.store(p_place + o_v + b_slot * (H * W), t_y * W + t_x, mask=b_on)
        tl.store(p_weight + o_v + b_slot * (H * W), b_w, mask=b_on)
        b_slot += b_on.to(tl.int32)
    for j in tl.static_range(MOST):
        b_spare = b_mask & (b_slot <= j)
        tl.store(p_place + o_v + j * (H * W), tl.zeros((BP,), tl.int32), mask=b_spare)
        tl.store(p_weight + o_v + j * (H * W), tl.zeros((BP,), tl.float32), mask=b_spare)


@triton.jit
def collect(
    p_grad, p_arg, p_motion, p_place, p_weight, i_v, b_p, b_mask, b_k, m_k, HW, K,
    ORDER: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """The share of pixels b_p of slice i_v in a pooled gradient [H·W, K]: [BP, BK].

    The transpose of `sample` where slice i_v won: each pixel of the readout that has read b_p gives
    by the weight with which it did. Masks are the same along channels, so that loads stay whole.
    """
    b_kq = b_k
    if ORDER > 1:
        b_kq = turn(b_k, tl.load(p_motion + 5 * i_v + 4).to(tl.int32), ORDER)
    b_sum = tl.zeros((b_p.shape[0], b_k.shape[0]), tl.float32)
    for j in tl.static_range(MOST):
        o_slot = (i_v * MOST + j) * HW + b_p
        b_w = tl.load(p_weight + o_slot, mask=b_mask, other=0.0)
        b_q = tl.load(p_place + o_slot, mask=b_mask, other=0)
        o_q = (b_q * K)[:, None] + b_kq[None, :]
        m_q = (b_w > 0)[:, None] & m_k[None, :]
        b_arg = tl.load(p_arg + o_q, mask=m_q, other=0)
        b_grad = tl.load(p_grad + o_q, mask=m_q, other=0.0).to(tl.float32)
        b_won = b_arg == i_v.to(p_arg.dtype.element_ty)
        b_sum += b_w[:, None] * tl.where(b_won, b_grad, 0.0)
    return b_sum


@triton.jit
def warp_kernel(p_x, p_motion, p_out, B, V, C, H, W, s_b, s_t, s_c, s_y, s_x, BP: tl.constexpr):
    """Frames [B, T, C, H, W] in any layout → each moved for every ν, [T, B, V, C, H, W].

    p_motion is [T, V, 5]: frame t is moved for ν by row (t, ν).
    """
    i_0, tiles = tl.program_id(0), tl.cdiv(H * W, BP)
    i_m = (i_0 // tiles).to(tl.int64)  # image of the output
    b_p = i_0 % tiles * BP + tl.arange(0, BP)
    i_c, i_v, i_b, i_t = i_m % C, i_m // C % V, i_m // C // V % B, i_m // C // V // B
    b_y, b_x = source(p_motion + (i_t * V + i_v) * 5, b_p // W, b_p % W, H, W)
    p_image = p_x + i_b * s_b + i_t * s_t + i_c * s_c
    mask = (b_p < H * W)[:, None]
    b_out = sample(p_image, s_y, s_x, b_y, b_x, mask, tl.arange(0, 1), 0, H, W)
    p_place = p_out + i_m * H * W + b_p[:, None]
    tl.store(p_place, b_out.to(p_out.dtype.element_ty), mask=mask)


@triton.jit
def pool_kernel(
    p_h, p_motion, p_pool, p_arg, V, H, W, K, s_hb, s_hv, s_hk, s_hy, s_hx,
    ORDER: tl.constexpr, TY: tl.constexpr, TX: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h [B, V, K, H, W] in any layout → the maximum of its moved slices and its index."""
    i_0, tiles = tl.program_id(0), tl.cdiv(H, TY) * tl.cdiv(W, TX)
    i_b = (i_0 // tiles).to(tl.int64)
    b_y, b_x, b_mask = pixels(i_0 % tiles, H, W, TY, TX)
    b_k = tl.program_id(1) * BK + tl.arange(0, BK)
    mask = b_mask[:, None] & (b_k < K)[None, :]
    b_best = tl.full((TY * TX, BK), float("-inf"), tl.float32)
    b_arg = tl.zeros((TY * TX, BK), tl.int32)
    for i_v in range(V):
        p_m = p_motion + 5 * i_v
        f_y, f_x = source(p_m, b_y, b_x, H, W)
        b_from = b_k
        if ORDER > 1:
            b_from = turn(b_k, (ORDER - tl.load(p_m + 4).to(tl.int32)) % ORDER, ORDER)
        p_slice = p_h + i_b * s_hb + tl.cast(i_v, tl.int64) * s_hv
        b_h = sample(p_slice, s_hy, s_hx, f_y, f_x, mask, b_from, s_hk, H, W)
        b_take = (b_h > b_best) | (b_h != b_h)  # NaN wins
        b_best = tl.where(b_take, b_h, b_best)
        b_arg = tl.where(b_take, i_v, b_arg)
    o_pool = i_b * H * W * K + ((b_y * W + b_x) * K)[:, None] + b_k[None, :]
    tl.store(p_pool + o_pool, b_best.to(p_pool.dtype.element_ty), mask=mask)
    tl.store(p_arg + o_pool, b_arg.to(p_arg.dtype.element_ty), mask=mask)
