"""A whole step in one kernel, for Hopper's matrix units and memory engine, in the co-moving frame.

Memory plan. A persistent program walks over tiles of 4×4 pixels of 16 images, four parties side by
side. One warp fetches each tap of a tile from the halo buffer as one box, [16, 4, 4, 64 channels],
and a slab of the weights, three boxes ahead. Two groups of four warps multiply them on the matrix
units, 64 output channels each, and leave their sums in shared memory. Two warps finish that tile
while the next one is multiplied: they add the drive, apply ReLU and write the bits, or, on the way
back, add the readout's gradient, apply the bits and contract the result with the patches; then the
memory engine stores the tile, and once more where the torus wraps, for what falls outside a buffer
it leaves out. The convolution's output never goes to memory, and its epilogue takes no time of its
own. Gluon, the language of this file, has no interpreter: these kernels are tested on a device.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    mma_v2,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from fernn.ops._launch import device_of
from fernn.ops.flow_step._step import Pool

_IMAGES, _SIDE, _SLAB, _STAGES, _PATCH, _CHANNELS = 16, 4, 64, 3, 16, 128
_REGISTERS = 160  # for every thread: then nothing spills, and no party has to lend to another


@gluon.jit
def _wrap(x, size):
    x = gl.where(x < 0, x + size, x)
    return gl.where(x >= size, x - size, x)

@gluon.jit
def _load(d_in, d_weight, b_in, b_w, full, empty, H, W, TILES, C: gl.constexpr, KX: gl.constexpr, TAPS: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr, BC: gl.constexpr, STAGES: gl.constexpr):
    SLABS: gl.constexpr = C // BC
    nx = gl.cdiv(W, TS)
    area = nx * gl.cdiv(H, TS)
    i = 0
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        i_n = i_t // area
        i_y = (i_t - i_n * area) // nx
        i_x = i_t - i_n * area - i_y * nx
        for i_s in range(TAPS * SLABS):
            slot = i % STAGES
            mbarrier.wait(empty.index(slot), (i // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), d_in.block_type.nbytes + d_weight.block_type.nbytes)
            tap = i_s // SLABS
            corner = [i_n * TN, i_y * TS + tap // KX, i_x * TS + tap % KX, i_s % SLABS * BC]
            tma.async_copy_global_to_shared(d_in, corner, full.index(slot), b_in.index(slot))
            tma.async_copy_global_to_shared(d_weight, [0, i_s * BC], full.index(slot), b_w.index(slot))
            i += 1

@gluon.jit
def _multiply(b_in, b_w, b_out, full, empty, ready, free, TILES, STEPS: gl.constexpr, BP: gl.constexpr, BC: gl.constexpr, STAGES: gl.constexpr, HALF: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BP, 16])
    tile: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    i, j = 0, 0
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        acc = gl.zeros((64, BP), gl.float32, layout)
        for i_s in range(STEPS):
            slot = i % STAGES
            mbarrier.wait(full.index(slot), i // STAGES & 1)
            a = b_w.index(slot).slice(HALF * 64, 64)
            b = b_in.index(slot)._reinterpret(gl.bfloat16, [BP, BC], tile).permute((1, 0))
            token = warpgroup_mma(a, b, acc, use_acc=i_s > 0, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))
            # the products before these are done
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=i_s > 0)
            i += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
        value = acc.to(gl.bfloat16)
        mbarrier.wait(free.index(HALF), (j & 1) ^ 1)
        b_out.index(HALF)._reinterpret(gl.bfloat16, [BP, 64], tile).permute((1, 0)).store(value)
        gl.thread_barrier()
        mbarrier.arrive(ready.index(HALF))
        j += 1

@gluon.jit
def _store_halo(d_halo, box, n, i_y, i_x, k, H, W, TS: gl.constexpr, RY: gl.constexpr, RX: gl.constexpr):
    y, x = i_y * TS + RY, i_x * TS + RX
    edge_y = (i_y == 0) | (i_y == gl.cdiv(H, TS) - 1)
    edge_x = (i_x == 0) | (i_x == gl.cdiv(W, TS) - 1)
    yy = gl.where(i_y == 0, y + H, y - H)
    xx = gl.where(i_x == 0, x + W, x - W)
    tma.async_copy_shared_to_global(d_halo, [n, y, x, k], box)
    if edge_y:
        tma.async_copy_shared_to_global(d_halo, [n, yy, x, k], box)
    if edge_x:
        tma.async_copy_shared_to_global(d_halo, [n, y, xx, k], box)
    if edge_x & edge_y:
        tma.async_copy_shared_to_global(d_halo, [n, yy, xx, k], box)

@gluon.jit
def _write(
    b_out, ready, free, d_out, d_halo, p_drive, p_at, p_bits, p_patch, p_to, p_pool, p_arg, p_part, N, V, H, W, TILES,
    s_b, s_v, s_y, s_x, K: gl.constexpr, P: gl.constexpr, RY: gl.constexpr, RX: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr, BACK: gl.constexpr, POOL: gl.constexpr):
    BP: gl.constexpr = TN * TS * TS
    ROWS: gl.constexpr = 32 if BACK else 64
    tile: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    box4: gl.constexpr = gl.NVMMASharedLayout(128, 16, 4)
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [2, 1], [1, 0])
    byte: gl.constexpr = gl.BlockedLayout([1, 1, 8], [4, 8, 1], [2, 1, 1], [2, 1, 0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [2, 1], [16, 8])
    left: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    right: gl.constexpr = gl.DotOperandLayout(1, mma, 2)
    nx = gl.cdiv(W, TS)
    area = nx * gl.cdiv(H, TS)
    j = 0
    if BACK:
        part_0 = gl.zeros((64, P), gl.float32, mma)
        part_1 = gl.zeros((64, P), gl.float32, mma)
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        i_n = i_t // area
        i_y = (i_t - i_n * area) // nx
        i_x = i_t - i_n * area - i_y * nx
        for half in gl.static_range(K // 64):
            mbarrier.wait(ready.index(half), j & 1)
            chunks = b_out.index(half)._reinterpret(gl.bfloat16, [BP // ROWS, ROWS, 64], tile)
            k = half * 64 + gl.arange(0, 64, gl.SliceLayout(0, flat))
            for c in range(BP // ROWS):
                r = c * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, flat))
                n = i_n * TN + r // (TS * TS)
                y, x = i_y * TS + r // TS % TS, i_x * TS + r % TS
                inside = (n < N)[:, None]
                b, v = n // V, n % V
                rb = c * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, gl.SliceLayout(2, byte)))
                nb = i_n * TN + rb // (TS * TS)
                kb = half * 8 + gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(2, byte)))
                o_byte = ((nb.to(gl.int64) * H + i_y * TS + rb // TS % TS) * W + i_x * TS + rb % TS) * (K // 8)
                p_byte = p_bits + o_byte[:, None] + kb[None, :]
                m_byte = (nb < N)[:, None]
                eight = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, byte)))[None, None, :]
                value = chunks.index(c).load(flat).to(gl.float32)
                if BACK:
                    if POOL:
                        t_y = _wrap(y + gl.load(p_to + 2 * v), H)
                        t_x = _wrap(x + gl.load(p_to + 2 * v + 1), W)
                        o = (((b * H + t_y) * W + t_x) * K)[:, None] + k[None, :]
                        arg = gl.load(p_arg + o, mask=inside, other=0).to(gl.int32)
                        pool = gl.load(p_pool + o, mask=inside, other=0.0).to(gl.float32)
                        value += gl.where(arg == v[:, None], pool, 0.0)
                    bits = gl.load(p_byte, mask=m_byte, other=0).to(gl.int32)
                    on = (gl.expand_dims(bits, 2) >> eight) & 1
                    on = gl.convert_layout(gl.reshape(on, [ROWS, 64]), flat)
                    value = gl.where(on != 0, value, 0.0)
                else:
                    a_y = _wrap(y + gl.load(p_at + 2 * v), H)
                    a_x = _wrap(x + gl.load(p_at + 2 * v + 1), W)
                    o = b.to(gl.int64) * s_b + v.to(gl.int64) * s_v + a_y * s_y + a_x * s_x
                    drive = gl.load(p_drive + o[:, None] + k[None, :], mask=inside, other=0.0)
                    value += drive.to(gl.float32)
                    value = gl.where(value <= 0, 0.0, value)
                low = value.to(gl.bfloat16)
                if not BACK:
                    on = gl.convert_layout(gl.reshape((low > 0).to(gl.int32), [ROWS, 8, 8]), byte)
                    gl.store(p_byte, gl.sum(on << eight, 2).to(gl.uint8), mask=m_byte)
                chunks.index(c).store(low)
                if BACK:
                    rp = c * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, right))
                    np_ = i_n * TN + rp // (TS * TS)
                    bp, vp = np_ // V, np_ % V
                    a_y = _wrap(i_y * TS + rp // TS % TS + gl.load(p_at + 2 * vp), H)
                    a_x = _wrap(i_x * TS + rp % TS + gl.load(p_at + 2 * vp + 1), W)
                    o = bp * s_b + a_y * s_y + a_x * s_x
                    patch = gl.load(p_patch + o[:, None] + gl.arange(0, P, gl.SliceLayout(0, right))[None, :], mask=(np_ < N)[:, None], other=0.0)
                    gl.thread_barrier()
                    g = chunks.index(c).permute((1, 0)).load(left)
                    if half == 0:
                        part_0 = mma_v2(g, patch, part_0)
                    else:
                        part_1 = mma_v2(g, patch, part_1)
            fence_async_shared()
            gl.thread_barrier()
            box = b_out.index(half)
            if not BACK:
                tma.async_copy_shared_to_global(d_out, [i_n * TN, i_y * TS, i_x * TS, half * 64], box)
            _store_halo(d_halo, box, i_n * TN, i_y, i_x, half * 64, H, W, TS, RY, RX)
            tma.store_wait(0)
            gl.thread_barrier()
            mbarrier.arrive(free.index(half))
        j += 1
    if BACK:
        rows = gl.arange(0, 64, gl.SliceLayout(1, mma))
        cols = gl.arange(0, P, gl.SliceLayout(0, mma))
        p = p_part + (gl.program_id(0) * K + rows[:, None]) * P + cols[None, :]
        gl.store(p, part_0)
        if K > 64:
            gl.store(p + 64 * P, part_1)

@gluon.jit
def step_kernel(
    d_in, d_weight, d_out, d_halo, p_drive, p_at, p_bits, p_patch, p_to, p_pool, p_arg, p_part, N, V, H, W, TILES,
    s_b, s_v, s_y, s_x,
    C: gl.constexpr, K: gl.constexpr, KX: gl.constexpr, TAPS: gl.constexpr, P: gl.constexpr, RY: gl.constexpr,
    RX: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr, BC: gl.constexpr, STAGES: gl.constexpr, BACK: gl.constexpr, POOL: gl.constexpr,
    REGS: gl.constexpr, num_warps: gl.constexpr = 4,
):
    BP: gl.constexpr = TN * TS * TS
    STEPS: gl.constexpr = TAPS * (C // BC)
    b_in = gl.allocate_shared_memory(gl.bfloat16, [STAGES] + d_in.block_type.shape, d_in.layout)
    b_w = gl.allocate_shared_memory(gl.bfloat16, [STAGES] + d_weight.block_type.shape, d_weight.layout)
    b_out = gl.allocate_shared_memory(gl.bfloat16, [2] + d_halo.block_type.shape, d_halo.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(free.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize([
        (_multiply, (b_in, b_w, b_out, full, empty, ready, free, TILES, STEPS, BP, BC, STAGES, 0)),
        (_multiply, (b_in, b_w, b_out, full, empty, ready, free, TILES, STEPS, BP, BC, STAGES, 1)),
        (_write, (b_out, ready, free, d_out, d_halo, p_drive, p_at, p_bits, p_patch, p_to, p_pool, p_arg, p_part, N, V, H, W, TILES,
                  s_b, s_v, s_y, s_x, K, P, RY, RX, TN, TS, BACK, POOL)),
        (_load, (d_in, d_weight, b_in, b_w, full, empty, H, W, TILES, C, KX, TAPS, TN, TS, BC, STAGES)),
    ], [4, 2, 1], [160, 168, 168])


def fits(halo: Tensor, weight: Tensor, like: Tensor) -> bool:
    """Whether one kernel does the step: whole tiles, whole slabs, half precision, Hopper.

    `like` is the state to be made, or its bits: one slice for every ν is convolved elsewhere, once.
    """
    (channels, source, ky, kx), (height, width) = weight.shape, like.shape[2:4]
    return (
        halo.dtype in (torch.float16, torch.bfloat16)
        and channels == _CHANNELS
        and source % _SLAB == 0
        and height % _SIDE == width % _SIDE == 0
        and min(height, width) >= 2 * _SIDE >= max(ky, kx)
        and halo.shape[1] == like.shape[1]
        and halo.is_cuda
        and torch.cuda.get_device_capability(halo.device) == (9, 0)
    )


def advance(
    halo: Tensor, weight: Tensor, drive: Tensor, at: Tensor, h: Tensor, new: Tensor, bits: Tensor
) -> None:
    """Fill h, its halo buffer and its bits; the drive is [B, H, W, K] or a bias [K]."""
    strides = drive.stride()[:3] if drive.ndim == 4 else (0, 0, 0)
    _launch(halo, weight, drive, strides, at, h, new, bits)


def retreat(
    halo: Tensor,
    adjoint: Tensor,
    pool: Pool | None,
    bits: Tensor,
    at: Tensor,
    patches: Tensor | None,
    new: Tensor,
) -> Tensor:
    """Fill G of one state from that of the next, and return Σ G·patches, [K, P].

    Without patches [B, H·W, P] they are one, then zeros: the first column is the bias's gradient.
    """
    if patches is None:
        patches = halo.new_zeros(_PATCH)
        patches[0] = 1
        strides = (0, 0, 0)
    else:
        strides = patches.stride(0), bits.shape[3] * patches.shape[2], patches.shape[2]
    sums = _launch(halo, adjoint, patches, strides, at, None, new, bits, pool)
    return sums.sum(0)
