"""The Gluon kernel of a whole step and its parties; `_hopper.py` has the memory plan.

Names as in `_kernels.py`, and descriptors of the memory engine are d_. b_ of the arguments is
shared memory; `full` and `empty` are barriers of its stages, `done` and `free` of its tile.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Names that changed after Triton 3.6.
_get = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_put = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
_together = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
_memory = gl.shared_memory_descriptor
_view = _memory._reinterpret if hasattr(_memory, "_reinterpret") else _memory.reinterpret


@gluon.jit
def _corner(i_t, H, W, TS: gl.constexpr):
    """Block of images, row and column of a tile; neighbours share their images."""
    across = gl.cdiv(W, TS)
    area = across * gl.cdiv(H, TS)
    i_n = i_t // area
    i_y = (i_t - i_n * area) // across
    return i_n, i_y, i_t - i_n * area - i_y * across


@gluon.jit
def _fetch(
    d_halo, d_weight, d_patch, d_column, p_at, b_halo, b_weight, b_patch, b_column,
    full, empty, patched, spent, V, H, W, TILES, s_b,
    SLABS: gl.constexpr, KX: gl.constexpr, TAPS: gl.constexpr,
    TN: gl.constexpr, TS: gl.constexpr, BC: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Boxes and slabs of every tile, stage by stage, and the patches that its images meet."""
    mbarrier.expect(patched.index(1), d_column.block_type.nbytes)
    _get(d_column, [0, 0], patched.index(1), b_column)
    i = 0
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        i_n, i_y, i_x = _corner(i_t, H, W, TS)
        for i_s in range(TAPS * SLABS):
            stage, tap = i % STAGES, i_s // SLABS
            ready = full.index(stage)
            mbarrier.wait(empty.index(stage), (i // STAGES & 1) ^ 1)
            mbarrier.expect(ready, d_halo.block_type.nbytes + d_weight.block_type.nbytes)
            corner = [i_n * TN, i_y * TS + tap // KX, i_x * TS + tap % KX, i_s % SLABS * BC]
            _get(d_halo, corner, ready, b_halo.index(stage))
            _get(d_weight, [0, i_s * BC], ready, b_weight.index(stage))
            i += 1
        ready = patched.index(0)
        mbarrier.wait(spent, (i_t // gl.num_programs(0) & 1) ^ 1)
        mbarrier.expect(ready, TN * d_patch.block_type.nbytes)
        for i_i in range(TN):
            b, v = (i_n * TN + i_i) // V, (i_n * TN + i_i) % V
            y, x = i_y * TS + gl.load(p_at + 2 * v), i_x * TS + gl.load(p_at + 2 * v + 1)
            _get(d_patch, [b * s_b, y, x, 0], ready, b_patch.index(i_i))


@gluon.jit
def _multiply(
    b_halo, b_weight, b_patch, b_column, b_tile, full, empty, patched, spent, done, free, TILES,
    STEPS: gl.constexpr, BP: gl.constexpr, BC: gl.constexpr, P: gl.constexpr,
    STAGES: gl.constexpr, HALF: gl.constexpr,
):  # fmt: skip
    """64 output channels, of which HALF says, by BP pixels: all products, and ReLU."""
    rows: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    thin: gl.constexpr = gl.NVMMASharedLayout(2 * P, 16, 2)
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BP, 16])
    dtype: gl.constexpr = b_halo.dtype
    mbarrier.wait(patched.index(1), 0)
    i = 0
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        turn = i_t // gl.num_programs(0) & 1
        acc = gl.zeros((64, BP), gl.float32, sums)
        for i_s in range(STEPS):
            stage = i % STAGES
            mbarrier.wait(full.index(stage), i // STAGES & 1)
            a = b_weight.index(stage).slice(HALF * 64, 64)
            b = _view(b_halo.index(stage), dtype, [BP, BC], rows).permute((1, 0))
            token = warpgroup_mma(a, b, acc, use_acc=i_s > 0, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))  # the products before these are made
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), pred=i_s > 0)
            i += 1
        mbarrier.wait(patched.index(0), turn)
        b = _view(b_patch, dtype, [BP, P], thin).permute((1, 0))
        token = warpgroup_mma(b_column.slice(HALF * 64, 64), b, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES))
        mbarrier.arrive(spent)
        value = gl.where(acc <= 0, 0.0, acc).to(dtype)  # keeps NaN
        mbarrier.wait(free.index(HALF), turn ^ 1)
        _view(b_tile.index(HALF), dtype, [BP, 64], rows).permute((1, 0)).store(value)
        fence_async_shared()
        _together()
        mbarrier.arrive(done.index(HALF))


@gluon.jit
def _pixels(b_r, i_n, i_y, i_x, TN: gl.constexpr, TS: gl.constexpr):
    """Image, row and column of the pixels of a tile."""
    return i_n * TN + b_r // (TS * TS), i_y * TS + b_r // TS % TS, i_x * TS + b_r % TS


@gluon.jit
def _store_wrapped(
    b_h, p_new, i_n, i_y, i_x, i_k, i_r, N, H, W,
    K: gl.constexpr, RY: gl.constexpr, RX: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr,
):  # fmt: skip
    """Values [BR, 64] at the border of an image, where the torus wraps them to in its halo."""
    flat: gl.constexpr = b_h.type.layout
    BR: gl.constexpr = b_h.shape[0]
    row = W + 2 * RX
    b_k = i_k * 64 + gl.arange(0, 64, gl.SliceLayout(0, flat))[None, :]
    b_r = i_r * BR + gl.arange(0, BR, gl.SliceLayout(1, flat))
    n, y, x = _pixels(b_r, i_n, i_y, i_x, TN, TS)
    m_y = ((n < N) & ((y < RY) | (y >= H - RY)))[:, None]
    m_x = ((n < N) & ((x < RX) | (x >= W - RX)))[:, None]
    o_y = (gl.where(y < RY, y + H, y - H) + RY) * row
    o_x = gl.where(x < RX, x + W, x - W) + RX
    p_image = p_new + (n.to(gl.int64) * ((H + 2 * RY) * row * K))[:, None] + b_k
    gl.store(p_image + ((o_y + x + RX) * K)[:, None], b_h, mask=m_y)
    gl.store(p_image + (((y + RY) * row + o_x) * K)[:, None], b_h, mask=m_x)
    gl.store(p_image + ((o_y + o_x) * K)[:, None], b_h, mask=m_x & m_y)


@gluon.jit
def _finish_block(
    block, p_new, p_bits, i_n, i_y, i_x, i_k, i_r, N, H, W,
    K: gl.constexpr, RY: gl.constexpr, RX: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr,
):  # fmt: skip
    """The bits of BR pixels by 64 channels in shared memory, and the copies that wrap."""
    BR: gl.constexpr = block.shape[0]
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [2, 1], [1, 0])
    byte: gl.constexpr = gl.BlockedLayout([1, 1, 8], [4, 8, 1], [2, 1, 1], [2, 1, 0])
    pairs: gl.constexpr = gl.SliceLayout(2, byte)
    b_h = block.load(flat)  # [BR, 64]
    b_r = i_r * BR + gl.arange(0, BR, gl.SliceLayout(1, pairs))
    n, y, x = _pixels(b_r, i_n, i_y, i_x, TN, TS)
    o_byte = ((n.to(gl.int64) * H + y) * W + x) * (K // 8) + i_k * 8
    p_byte = p_bits + o_byte[:, None] + gl.arange(0, 8, gl.SliceLayout(0, pairs))[None, :]
    eight = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, byte)))[None, None, :]
    b_on = gl.convert_layout(gl.reshape((b_h > 0).to(gl.int32), [BR, 8, 8]), byte)
    gl.store(p_byte, gl.sum(b_on << eight, 2).to(gl.uint8), mask=(n < N)[:, None])
    if (i_y == 0) | (i_x == 0) | (i_y * TS + TS >= H) | (i_x * TS + TS >= W):
        _store_wrapped(b_h, p_new, i_n, i_y, i_x, i_k, i_r, N, H, W, K, RY, RX, TN, TS)


@gluon.jit
def _finish(
    b_tile, done, free, d_h, d_new, p_new, p_bits, N, H, W, TILES,
    K: gl.constexpr, RY: gl.constexpr, RX: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr,
    BR: gl.constexpr,
):  # fmt: skip
    """Store the tiles: the engine their insides, these warps the rest."""
    BP: gl.constexpr = TN * TS * TS
    rows: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        i_n, i_y, i_x = _corner(i_t, H, W, TS)
        for i_k in gl.static_range(K // 64):
            mbarrier.wait(done.index(i_k), i_t // gl.num_programs(0) & 1)
            tile = b_tile.index(i_k)
            _put(d_h, [i_n * TN, i_y * TS, i_x * TS, i_k * 64], tile)
            _put(d_new, [i_n * TN, i_y * TS + RY, i_x * TS + RX, i_k * 64], tile)
            blocks = _view(tile, tile.dtype, [BP // BR, BR, 64], rows)
            for i_r in range(BP // BR):
                _finish_block(
                    blocks.index(i_r), p_new, p_bits, i_n, i_y, i_x, i_k, i_r, N, H, W,
                    K, RY, RX, TN, TS,
                )  # fmt: skip
            tma.store_wait(0)
            _together()
            mbarrier.arrive(free.index(i_k))


@gluon.jit
def step_kernel(
    d_halo, d_weight, d_patch, d_column, d_h, d_new, p_new, p_at, p_bits, N, V, H, W, TILES, s_b,
    C: gl.constexpr, K: gl.constexpr, KX: gl.constexpr, TAPS: gl.constexpr, P: gl.constexpr,
    RY: gl.constexpr, RX: gl.constexpr, TN: gl.constexpr, TS: gl.constexpr, BC: gl.constexpr,
    BR: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Halo buffer [N, H + 2RY, W + 2RX, C] → state [N, H, W, K], its buffer, bits; N = B·V."""
    SLABS: gl.constexpr = C // BC
    STEPS: gl.constexpr = TAPS * SLABS
    BP: gl.constexpr = TN * TS * TS
    dtype: gl.constexpr = d_halo.dtype
    barrier: gl.constexpr = mbarrier.MBarrierLayout()
    b_halo = gl.allocate_shared_memory(dtype, [STAGES, TN, TS, TS, BC], d_halo.layout)
    b_weight = gl.allocate_shared_memory(dtype, [STAGES, K, BC], d_weight.layout)
    b_tile = gl.allocate_shared_memory(dtype, [2, TN, TS, TS, 64], d_new.layout)
    b_patch = gl.allocate_shared_memory(dtype, [TN, 1, TS, TS, P], d_patch.layout)
    b_column = gl.allocate_shared_memory(dtype, [K, P], d_column.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    patched = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    spent = gl.allocate_shared_memory(gl.int64, [1], barrier)
    done = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    free = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(patched.index(i), count=1)
        mbarrier.init(done.index(i), count=1)
        mbarrier.init(free.index(i), count=1)
    mbarrier.init(spent, count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _multiply,
                (
                    b_halo, b_weight, b_patch, b_column, b_tile, full, empty, patched, spent,
                    done, free, TILES, STEPS, BP, BC, P, STAGES, 0,
                ),
            ),
            (
                _multiply,
                (
                    b_halo, b_weight, b_patch, b_column, b_tile, full, empty, patched, spent,
                    done, free, TILES, STEPS, BP, BC, P, STAGES, 1,
                ),
            ),
            (
                _finish,
                (
                    b_tile, done, free, d_h, d_new, p_new, p_bits, N, H, W, TILES,
                    K, RY, RX, TN, TS, BR,
                ),
            ),
            (
                _fetch,
                (
                    d_halo, d_weight, d_patch, d_column, p_at, b_halo, b_weight, b_patch, b_column,
                    full, empty, patched, spent, V, H, W, TILES, s_b,
                    SLABS, KX, TAPS, TN, TS, BC, STAGES,
                ),
            ),
        ],
        [4, 2, 1],
        [160, 168, 168],
    )  # fmt: skip
