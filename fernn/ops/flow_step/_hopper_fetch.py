"""The party that fetches, of the kernel in `_hopper_kernels.py`, with the same names."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

# Names that changed after Triton 3.6, the one that the kernel runs with; newer ones only import it.
_get = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
_memory = gl.shared_memory_descriptor
view = _memory._reinterpret if hasattr(_memory, "_reinterpret") else _memory.reinterpret


@gluon.jit
def _wrap(x, size):
    """x modulo size, for 0 ≤ x < 2·size."""
    return gl.where(x >= size, x - size, x)


@gluon.jit
def corner(i_t, H, W, TX: gl.constexpr):
    """Block of images, row and first column of a tile; neighbours share their images."""
    across = W // TX
    area = across * H
    i_n = i_t // area
    y = (i_t - i_n * area) // across
    return i_n, y, (i_t - i_n * area - y * across) * TX


@gluon.jit
def _fetch_rest(
    d_patch, d_bits, d_win, d_share, p_at, p_to, b_patch, b_bits, b_win, b_tile, ready,
    i_n, y, x, B, V, H, W,
    TN: gl.constexpr, TX: gl.constexpr, PB: gl.constexpr, BACK: gl.constexpr, POOL: gl.constexpr,
):  # fmt: skip
    """What the end of a tile needs: patches, and back also bits and the readout's share."""
    BOXES: gl.constexpr = TN // PB
    PATCHES: gl.constexpr = TX * BOXES * d_patch.block_type.nbytes
    if POOL:
        SHARES: gl.constexpr = 2 * TX * BOXES * d_share.block_type.nbytes
        mbarrier.expect(ready, PATCHES + SHARES + 2 * d_bits.block_type.nbytes)
        _get(d_win, [y, x, i_n * TN, 0], ready, b_win)
    elif BACK:
        mbarrier.expect(ready, PATCHES + d_bits.block_type.nbytes)
    else:
        mbarrier.expect(ready, PATCHES)
    if BACK:
        _get(d_bits, [y, x, i_n * TN, 0], ready, b_bits)
    for i_b in range(BOXES):
        n = i_n * TN + i_b * PB
        v = n // B
        b = n - v * B
        v = gl.where(v < V, v, 0)
        a_y, a_x = _wrap(y + gl.load(p_at + 2 * v), H), x + gl.load(p_at + 2 * v + 1)
        for i_x in gl.static_range(TX):
            box = [a_y, _wrap(a_x + i_x, W), b, 0]
            _get(d_patch, box, ready, b_patch.index(i_x * BOXES + i_b))
        if POOL:
            t_y, t_x = _wrap(y + gl.load(p_to + 2 * v), H), x + gl.load(p_to + 2 * v + 1)
            for i_k in gl.static_range(2):
                tile = b_tile.index(i_k)
                boxes = view(tile, tile.dtype, [TX * BOXES, 1, 1, PB, 64], d_share.layout)
                for i_x in gl.static_range(TX):
                    box = [t_y, _wrap(t_x + i_x, W), b, i_k * 64]
                    _get(d_share, box, ready, boxes.index(i_x * BOXES + i_b))


@gluon.jit
def fetch(
    d_in, d_rim, d_weight, d_patch, d_column, d_bits, d_win, d_share, p_at, p_to,
    b_in, b_weight, b_patch, b_column, b_bits, b_win, b_tile,
    full, empty, packed, used, extra, spent, free, B, V, H, W, TILES,
    C: gl.constexpr, TN: gl.constexpr, TX: gl.constexpr, PB: gl.constexpr, BC: gl.constexpr,
    BACK: gl.constexpr, POOL: gl.constexpr,
):  # fmt: skip
    """Columns and weights of every tile, stage by stage, and what its end needs."""
    SLABS: gl.constexpr = C // BC
    COLUMNS: gl.constexpr = TX + 2
    dtype: gl.constexpr = b_in.dtype
    if not BACK:
        mbarrier.expect(extra.index(1), d_column.block_type.nbytes)
        _get(d_column, [0, 0], extra.index(1), b_column)
    i = 0
    for i_t in range(gl.program_id(0), TILES, gl.num_programs(0)):
        i_n, y, x = corner(i_t, H, W, TX)
        turn = i_t // gl.num_programs(0) & 1
        for i_r in range(3 * SLABS):
            stage, row, slab = i & 1, i_r // SLABS, i_r % SLABS
            ready = full.index(stage)
            mbarrier.wait(empty.index(stage), (i // 2 & 1) ^ 1)
            mbarrier.expect(ready, d_in.block_type.nbytes + d_rim.block_type.nbytes)
            b_most, b_rest = b_in.index(stage * COLUMNS), b_in.index(stage * COLUMNS + TX)
            b_most = view(b_most, dtype, d_in.block_type.shape, d_in.layout)
            b_rest = view(b_rest, dtype, d_rim.block_type.shape, d_rim.layout)
            _get(d_in, [y + row, x, i_n * TN, slab * BC], ready, b_most)
            _get(d_rim, [y + row, x + TX, i_n * TN, slab * BC], ready, b_rest)
            for tap in gl.static_range(3):
                ready = packed.index(tap)
                mbarrier.wait(used.index(tap), (i & 1) ^ 1)
                mbarrier.expect(ready, d_weight.block_type.nbytes)
                k = ((row * 3 + tap) * SLABS + slab) * BC
                _get(d_weight, [0, k], ready, b_weight.index(tap))
            i += 1
        mbarrier.wait(spent, turn ^ 1)
        if POOL:
            mbarrier.wait(free.index(0), turn ^ 1)
            mbarrier.wait(free.index(1), turn ^ 1)
        _fetch_rest(
            d_patch, d_bits, d_win, d_share, p_at, p_to, b_patch, b_bits, b_win, b_tile,
            extra.index(0), i_n, y, x, B, V, H, W, TN, TX, PB, BACK, POOL,
        )  # fmt: skip
