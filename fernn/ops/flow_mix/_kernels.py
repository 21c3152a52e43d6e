"""Triton kernels of V-mixing: the convolution over velocities and pixels, and its weight gradient.

`triton.py` has the memory plan. Pointers are p_, tensor descriptors d_, blocks of a program b_,
program ids i_, offsets o_. A tile is TN samples of TS×TS pixels of one slice, fetched as one box.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton compiles these bodies; they are not Python that a type checker can read.

import triton
import triton.language as tl


@triton.jit
def mix_kernel(
    d_halo, d_weight, d_out, p_terms, TILES, AREA, ACROSS,
    C: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BM: tl.constexpr,
    TN: tl.constexpr, TS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Halo buffers [B, V, H + 2, W + 2, C] → [B, V, H, W, K]: one program a tile of one ν.

    A row of p_terms is ν, the number of its terms, and M·slice + difference for each of them. The
    row waits in registers: a load inside of the loop would halve how far ahead boxes are fetched.
    """
    BP: tl.constexpr = TN * TS * TS
    SLABS: tl.constexpr = C // BC
    STEPS: tl.constexpr = 9 * SLABS  # of one term
    i_0 = tl.program_id(0)
    p_row, i_t = p_terms + i_0 // TILES * (2 + M), i_0 % TILES
    i_b, i_y, i_x = i_t // AREA * TN, i_t % AREA // ACROSS * TS, i_t % ACROSS * TS
    b_m = tl.arange(0, BM)
    b_term = tl.load(p_row + 2 + b_m, mask=b_m < M, other=0)
    i_v, steps = tl.load(p_row), tl.load(p_row + 1) * STEPS
    tl.assume(steps > 0)  # else every product waits for the one before it
    b_sum = tl.zeros((K, BP), tl.float32)
    for i_s in range(steps):
        term = tl.sum(tl.where(b_m == i_s // STEPS, b_term, 0))
        tap, slab = i_s % STEPS // SLABS, i_s % SLABS * BC
        b_h = d_halo.load([i_b, term // M, i_y + tap // 3, i_x + tap % 3, slab])
        b_w = d_weight.load([0, (term % M * 9 + tap) * C + slab])
        b_sum = tl.dot(b_w, tl.trans(b_h.reshape(BP, BC)), b_sum)  # [K, BP]
    b_out = tl.trans(b_sum.to(d_out.dtype)).reshape(TN, 1, TS, TS, K)
    d_out.store([i_b, i_v, i_y, i_x, 0], b_out)


@triton.jit
def weight_kernel(
    d_h, d_halo, p_neighbours, p_out, V, TILES, AREA, ACROSS,
    C: tl.constexpr, K: tl.constexpr, M: tl.constexpr, TN: tl.constexpr, TS: tl.constexpr,
):  # fmt: skip
    """Σ_q h(γ, q) G(ν, q − τ) of one ν, one difference γ − ν and the three τ of a row.

    States [B, V, H, W, C] and gradients with a halo, [B, V, H + 2, W + 2, K] → [V, M, 3, 3, C, K]
    in float32, untouched for a γ that V does not hold.
    """
    BP: tl.constexpr = TN * TS * TS
    i_0 = tl.program_id(0)
    i_v, i_row = i_0 // (3 * M), i_0 % 3
    other = tl.load(p_neighbours + i_0 // 3).to(tl.int32)
    if other >= V:
        return
    tl.assume(TILES > 0)
    b_0 = tl.zeros((C, K), tl.float32)
    b_1 = tl.zeros((C, K), tl.float32)
    b_2 = tl.zeros((C, K), tl.float32)
    for i_t in range(TILES):
        i_b, y, x = i_t // AREA * TN, i_t % AREA // ACROSS * TS, i_t % ACROSS * TS
        b_h = tl.trans(d_h.load([i_b, other, y, x, 0]).reshape(BP, C))
        y += 2 - i_row
        b_0 = tl.dot(b_h, d_halo.load([i_b, i_v, y, x + 2, 0]).reshape(BP, K), b_0)
        b_1 = tl.dot(b_h, d_halo.load([i_b, i_v, y, x + 1, 0]).reshape(BP, K), b_1)
        b_2 = tl.dot(b_h, d_halo.load([i_b, i_v, y, x, 0]).reshape(BP, K), b_2)
    o_ck = tl.arange(0, C)[:, None] * K + tl.arange(0, K)[None, :]
    p_tap = p_out + i_0.to(tl.int64) * 3 * C * K + o_ck
    tl.store(p_tap, b_0)
    tl.store(p_tap + C * K, b_1)
    tl.store(p_tap + 2 * C * K, b_2)
