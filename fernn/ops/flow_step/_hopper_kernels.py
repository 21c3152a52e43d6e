"""The Gluon kernel of a whole step and its parties; `_hopper.py` has the memory plan.

Names as in `_kernels.py`, and descriptors of the memory engine are d_. b_ of the arguments is
shared memory. `full` and `empty` are barriers of its stages of columns, `packed` and `used` of the
weights, `extra` and `spent` of what only the end of a tile needs, `done` and `free` of the tile.
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

from fernn.ops.flow_step._hopper_fetch import corner, fetch, view

# Names that changed after Triton 3.6, the one that the kernel runs with; newer ones only import it.
_put = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
_together = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier


@gluon.jit
def _masked(acc, b_words, HALF: gl.constexpr, BP: gl.constexpr):
    """Whether the bits of sums [64, BP] are set, from words of 16 channels: [BP, 8]."""
    sums: gl.constexpr = acc.type.layout
    split: gl.constexpr = gl.DistributedLinearLayout(
        reg_bases=[
            [0, 0, 1],
            [0, 8, 0],
            [0, 0, 8],
            [0, 0, 16],
            [0, 0, 32],
            [0, 0, 64],
            [0, 0, 128],
        ],
        lane_bases=[[0, 0, 2], [0, 0, 4], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        warp_bases=[[1, 0, 0], [2, 0, 0]],
        block_bases=[],
        shape=[4, 16, 256],
    )
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    words = view(b_words, gl.int16, [BP, 8], plain).permute((1, 0)).slice(HALF * 4, 4)
    word = words.load(gl.SliceLayout(1, split)).to(gl.int32)
    bit = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(2, split)))
    on = (gl.expand_dims(word, 1) >> gl.expand_dims(gl.expand_dims(bit, 0), 2)) & 1
    return gl.convert_layout(gl.reshape(on, [64, BP]), sums) != 0


@gluon.jit
def _multiply(
    b_in, b_weight, b_patch, b_column, b_bits, b_win, b_tile,
    full, empty, packed, used, extra, spent, done, free, p_part, TILES,
    RUNS: gl.constexpr, BP: gl.constexpr, BC: gl.constexpr, P: gl.constexpr, K: gl.constexpr,
    COLUMNS: gl.constexpr, HALF: gl.constexpr, BACK: gl.constexpr, POOL: gl.constexpr,
):  # fmt: skip
    """64 output channels, of which HALF says, by BP pixels: all products, and ReLU or its mask."""
    rows: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    thin: gl.constexpr = gl.NVMMASharedLayout(2 * P, 16, 2)
    sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BP, 16])
    few: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, P, 16])
    dtype: gl.constexpr = b_in.dtype
    tile = view(b_tile.index(HALF), dtype, [BP, 64], rows)
    if BACK:
        part = gl.zeros((64, P), gl.float32, few)
    else:
        mbarrier.wait(extra.index(1), 0)
    i = 0
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        turn = i_t // gl.num_programs(0) & 1
        acc = gl.zeros((64, BP), gl.float32, sums)
        for i_r in range(RUNS):
            stage = i & 1
            mbarrier.wait(full.index(stage), i // 2 & 1)
            for tap in gl.static_range(3):
                mbarrier.wait(packed.index(tap), i & 1)
                a = b_weight.index(tap).slice(HALF * 64, 64)
                b = view(b_in.index(stage * COLUMNS + tap), dtype, [BP, BC], rows).permute((1, 0))
                token = warpgroup_mma(a, b, acc, use_acc=(i_r > 0) | (tap > 0), is_async=True)
                acc = warpgroup_mma_wait(1, deps=(token,))  # the products before these are made
                if tap > 0:
                    mbarrier.arrive(used.index(tap - 1))
                else:
                    mbarrier.arrive(used.index(2), pred=i_r > 0)
                    mbarrier.arrive(empty.index(stage ^ 1), pred=i_r > 0)
            i += 1
        last = (i + 1) & 1
        if BACK:
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(used.index(2))
            mbarrier.arrive(empty.index(last))
            mbarrier.wait(extra.index(0), turn)
            if POOL:
                share = tile.permute((1, 0)).load(sums).to(gl.float32)
                acc += gl.where(_masked(acc, b_win, HALF, BP), share, 0.0)
            value = gl.where(_masked(acc, b_bits, HALF, BP), acc, 0.0).to(dtype)
            if POOL:
                _together()
            else:
                mbarrier.wait(free.index(HALF), turn ^ 1)
            tile.permute((1, 0)).store(value)
            fence_async_shared()
            _together()
            mbarrier.arrive(done.index(HALF))
            token = warpgroup_mma(
                tile.permute((1, 0)), view(b_patch, dtype, [BP, P], thin), part, is_async=True
            )
            part = warpgroup_mma_wait(0, deps=(token,))
            mbarrier.arrive(spent)
            mbarrier.arrive(free.index(HALF))
        else:
            mbarrier.wait(extra.index(0), turn)
            b = view(b_patch, dtype, [BP, P], thin).permute((1, 0))
            token = warpgroup_mma(b_column.slice(HALF * 64, 64), b, acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=(token,))
            mbarrier.arrive(used.index(2))
            mbarrier.arrive(empty.index(last))
            mbarrier.arrive(spent)
            value = gl.where(acc <= 0, 0.0, acc).to(dtype)  # keeps NaN
            mbarrier.wait(free.index(HALF), turn ^ 1)
            tile.permute((1, 0)).store(value)
            fence_async_shared()
            _together()
            mbarrier.arrive(done.index(HALF))
    if BACK:
        r = gl.arange(0, 64, gl.SliceLayout(1, few))[:, None]
        c = gl.arange(0, P, gl.SliceLayout(0, few))[None, :]
        gl.store(p_part + ((gl.program_id(0) * K + HALF * 64 + r) * P + c), part)


@gluon.jit
def _store_bits(block, p_bits, i_n, y, x, i_k, i_r, N, H, W, K: gl.constexpr, TN: gl.constexpr):
    """The bits of BR pixels by 64 channels in shared memory."""
    BR: gl.constexpr = block.shape[0]
    flat: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [2, 1], [1, 0])
    byte: gl.constexpr = gl.BlockedLayout([1, 1, 8], [4, 8, 1], [2, 1, 1], [2, 1, 0])
    pairs: gl.constexpr = gl.SliceLayout(2, byte)
    b_h = block.load(flat)  # [BR, 64]
    b_r = i_r * BR + gl.arange(0, BR, gl.SliceLayout(1, pairs))
    n = i_n * TN + b_r % TN
    o_byte = ((n.to(gl.int64) * H + y) * W + x + b_r // TN) * (K // 8)
    b_k = i_k * 8 + gl.arange(0, 8, gl.SliceLayout(0, pairs))[None, :]
    eight = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, byte)))[None, None, :]
    b_on = gl.convert_layout(gl.reshape((b_h > 0).to(gl.int32), [BR, 8, 8]), byte)
    gl.store(
        p_bits + o_byte[:, None] + b_k, gl.sum(b_on << eight, 2).to(gl.uint8), mask=(n < N)[:, None]
    )


@gluon.jit
def _finish(
    b_tile, done, free, d_h, d_new, d_edge, p_bits, N, H, W, TILES,
    K: gl.constexpr, TN: gl.constexpr, TX: gl.constexpr, BR: gl.constexpr, BACK: gl.constexpr,
):  # fmt: skip
    """Store the tiles: the engine does, and what wraps around the torus once more."""
    BP: gl.constexpr = TN * TX
    rows: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    dtype: gl.constexpr = b_tile.dtype
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        i_n, y, x = corner(i_t, H, W, TX)
        for i_k in gl.static_range(K // 64):
            mbarrier.wait(done.index(i_k), i_t // gl.num_programs(0) & 1)
            tile = b_tile.index(i_k)
            n, k = i_n * TN, i_k * 64
            if not BACK:
                _put(d_h, [y, x, n, k], tile)
            _put(d_new, [y + 1, x + 1, n, k], tile)
            columns = view(tile, dtype, [TX, 1, 1, TN, 64], d_edge.layout)
            o_y = gl.where(y == 0, H + 1, 0)
            outer = (y == 0) | (y == H - 1)
            if outer:
                _put(d_new, [o_y, x + 1, n, k], tile)
            if x == 0:
                _put(d_edge, [y + 1, W + 1, n, k], columns.index(0))
                if outer:
                    _put(d_edge, [o_y, W + 1, n, k], columns.index(0))
            if x == W - TX:
                _put(d_edge, [y + 1, 0, n, k], columns.index(TX - 1))
                if outer:
                    _put(d_edge, [o_y, 0, n, k], columns.index(TX - 1))
            if not BACK:
                blocks = view(tile, dtype, [BP // BR, BR, 64], rows)
                for i_r in range(BP // BR):
                    _store_bits(blocks.index(i_r), p_bits, i_n, y, x, i_k, i_r, N, H, W, K, TN)
            tma.store_wait(0)
            _together()
            mbarrier.arrive(free.index(i_k))


@gluon.jit
def step_kernel(
    d_in, d_rim, d_weight, d_patch, d_column, d_bits, d_win, d_share, d_h, d_new, d_edge,
    p_at, p_to, p_bits, p_part, N, B, V, H, W, TILES,
    C: gl.constexpr, K: gl.constexpr, P: gl.constexpr, TN: gl.constexpr, TX: gl.constexpr,
    PB: gl.constexpr, BC: gl.constexpr, BR: gl.constexpr, BACK: gl.constexpr, POOL: gl.constexpr,
    MR: gl.constexpr, FR: gl.constexpr,
):  # fmt: skip
    RUNS: gl.constexpr = 3 * C // BC
    BP: gl.constexpr = TN * TX
    COLUMNS: gl.constexpr = TX + 2
    dtype: gl.constexpr = d_in.dtype
    barrier: gl.constexpr = mbarrier.MBarrierLayout()
    rows: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    b_in = gl.allocate_shared_memory(dtype, [2 * COLUMNS, TN, BC], rows)
    b_weight = gl.allocate_shared_memory(dtype, [3, K, BC], d_weight.layout)
    b_tile = gl.allocate_shared_memory(dtype, [2, 1, TX, TN, 64], d_new.layout)
    b_patch = gl.allocate_shared_memory(dtype, [BP // PB, 1, 1, PB, P], d_patch.layout)
    if BACK:
        b_column = b_patch
        b_bits = gl.allocate_shared_memory(gl.int16, [1, TX, TN, 8], d_bits.layout)
        if POOL:
            b_win = gl.allocate_shared_memory(gl.int16, [1, TX, TN, 8], d_win.layout)
        else:
            b_win = b_bits
    else:
        b_column = gl.allocate_shared_memory(dtype, [K, P], d_column.layout)
        b_bits = b_patch
        b_win = b_patch
    full = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    packed = gl.allocate_shared_memory(gl.int64, [3, 1], barrier)
    used = gl.allocate_shared_memory(gl.int64, [3, 1], barrier)
    extra = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    spent = gl.allocate_shared_memory(gl.int64, [1], barrier)
    done = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    free = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    FREED: gl.constexpr = 2 if BACK else 1
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
        mbarrier.init(extra.index(i), count=1)
        mbarrier.init(done.index(i), count=1)
        mbarrier.init(free.index(i), count=FREED)
    for i in gl.static_range(3):
        mbarrier.init(packed.index(i), count=1)
        mbarrier.init(used.index(i), count=2)
    mbarrier.init(spent, count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _multiply,
                (
                    b_in, b_weight, b_patch, b_column, b_bits, b_win, b_tile,
                    full, empty, packed, used, extra, spent, done, free, p_part, TILES,
                    RUNS, BP, BC, P, K, COLUMNS, 0, BACK, POOL,
                ),
            ),
            (
                _multiply,
                (
                    b_in, b_weight, b_patch, b_column, b_bits, b_win, b_tile,
                    full, empty, packed, used, extra, spent, done, free, p_part, TILES,
                    RUNS, BP, BC, P, K, COLUMNS, 1, BACK, POOL,
                ),
            ),
            (
                _finish,
                (
                    b_tile, done, free, d_h, d_new, d_edge, p_bits, N, H, W, TILES,
                    K, TN, TX, BR, BACK,
                ),
            ),
            (
                fetch,
                (
                    d_in, d_rim, d_weight, d_patch, d_column, d_bits, d_win, d_share, p_at, p_to,
                    b_in, b_weight, b_patch, b_column, b_bits, b_win, b_tile,
                    full, empty, packed, used, extra, spent, free, B, V, H, W, TILES,
                    C, TN, TX, PB, BC, BACK, POOL,
                ),
            ),
        ],
        [4, 2, 1],
        [MR, FR, FR],
    )  # fmt: skip
