"""The whole step in one kernel, for Hopper's matrix units and tensor memory engine.

Memory plan. A persistent program walks over tiles of 4×4 pixels of 16 images. It fetches each tap
of a tile from the halo buffer as one box, [16, 4, 4, 64 channels], by the memory engine, multiplies
it with a slab of the weights on the matrix units, and keeps the sums of all output channels in
registers. Then it adds the drive, applies σ and writes the state, its halo buffer and the bits to
where ψ_1(ν) moves them: the convolution's output never goes to memory.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from fernn.ops._launch import device_of, wrap

_IMAGES, _SIDE, _SLAB = 16, 4, 64


@triton.jit
def step_kernel(
    d_halo, d_weight, p_drive, p_shift, p_h, p_out, p_bits, N, V, H, W, TILES,
    s_db, s_dv, s_dk, s_dy, s_dx,
    C: tl.constexpr, K: tl.constexpr, KX: tl.constexpr, TAPS: tl.constexpr, RY: tl.constexpr,
    RX: tl.constexpr, ACT: tl.constexpr, TN: tl.constexpr, TS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Halo buffer [N, H + 2RY, W + 2RX, C] → state [N, H, W, K], its buffer, bits; N = B·V."""
    BP: tl.constexpr = TN * TS * TS
    SLABS: tl.constexpr = C // BC
    b_k, b_r = tl.arange(0, K), tl.arange(0, BP)
    across = tl.cdiv(W, TS)
    area = across * tl.cdiv(H, TS)
    for i_t in tl.range(tl.program_id(0), TILES, tl.num_programs(0), flatten=True,
                        warp_specialize=True):  # fmt: skip
        i_n = i_t // area
        i_y = (i_t - i_n * area) // across
        i_x = i_t - i_n * area - i_y * across
        b_sum = tl.zeros((K, BP), tl.float32)
        for i_s in range(TAPS * SLABS):
            tap = i_s // SLABS
            corner = [i_n * TN, i_y * TS + tap // KX, i_x * TS + tap % KX, i_s % SLABS * BC]
            b_h = d_halo.load(corner).reshape(BP, BC)
            b_sum = tl.dot(d_weight.load([0, i_s * BC]), tl.trans(b_h), b_sum)
        n = i_n * TN + b_r // (TS * TS)
        y, x = i_y * TS + b_r // TS % TS, i_x * TS + b_r % TS
        b_mask = (n < N) & (y < H) & (x < W)
        b, v = n // V, n % V
        y = wrap(y + tl.load(p_shift + 2 * v), H)
        x = wrap(x + tl.load(p_shift + 2 * v + 1), W)
        o_drive = b.to(tl.int64) * s_db + v.to(tl.int64) * s_dv + y * s_dy + x * s_dx
        p_tile = p_drive + o_drive[:, None] + (b_k * s_dk)[None, :]
        b_drive = tl.load(p_tile, mask=b_mask[:, None], other=0.0)  # [BP, K]
        b_h = tl.trans(b_sum.to(p_h.dtype.element_ty)).to(tl.float32) + b_drive.to(tl.float32)
        if ACT == 0:
            b_h = tl.where(b_h <= 0, 0.0, b_h)
        if ACT == 1:
            b_e = tl.exp(-2 * tl.abs(b_h))
            b_t = (1 - b_e) / (1 + b_e)
            b_h = tl.where(b_h < 0, -b_t, b_t)
        b_o = b_h.to(p_h.dtype.element_ty)
        o_h = n.to(tl.int64) * H * W + y * W + x
        tl.store(p_h + (o_h * K)[:, None] + b_k[None, :], b_o, mask=b_mask[:, None])
        if ACT == 0:
            b_on = tl.reshape((b_o > 0).to(tl.int32), (BP, K // 8, 8))
            b_byte = tl.sum(b_on << tl.arange(0, 8)[None, None, :], 2).to(tl.uint8)
            p_byte = p_bits + (o_h * (K // 8))[:, None] + tl.arange(0, K // 8)[None, :]
            tl.store(p_byte, b_byte, mask=b_mask[:, None])
        row = W + 2 * RX
        o_row = n.to(tl.int64) * (H + 2 * RY) * row
        m_y = b_mask & ((y < RY) | (y >= H - RY))
        m_x = b_mask & ((x < RX) | (x >= W - RX))
        o_y, o_x = o_row + (y + RY) * row, x + RX
        o_yy, o_xx = (
            tl.where(y < RY, o_y + H * row, o_y - H * row),
            tl.where(x < RX, o_x + W, o_x - W),
        )
        tl.store(p_out + ((o_y + o_x) * K)[:, None] + b_k[None, :], b_o, mask=b_mask[:, None])
        tl.store(p_out + ((o_y + o_xx) * K)[:, None] + b_k[None, :], b_o, mask=m_x[:, None])
        tl.store(p_out + ((o_yy + o_x) * K)[:, None] + b_k[None, :], b_o, mask=m_y[:, None])
        tl.store(
            p_out + ((o_yy + o_xx) * K)[:, None] + b_k[None, :], b_o, mask=(m_x & m_y)[:, None]
        )


def fits(halo: Tensor, weight: Tensor, shift: Tensor) -> bool:
    """Whether one kernel does the step: whole tiles, whole slabs, half precision, the engine.

    Its launch takes longer on the CPU, so a step of one velocity uses it in CUDA graphs alone.
    """
    (channels, source, ky, kx), (height, width) = weight.shape, halo.shape[2:4]
    return (
        halo.dtype in (torch.float16, torch.bfloat16)
        and channels in (64, 128)
        and source % _SLAB == 0
        and (height - ky + 1) % _SIDE == (width - kx + 1) % _SIDE == 0
        and halo.shape[1] == len(shift)  # one slice for every ν is convolved once, elsewhere
        and halo.is_cuda
        and torch.cuda.get_device_capability(halo.device) == (9, 0)
        and (len(shift) > 1 or torch.cuda.is_current_stream_capturing())
    )


def launch(
    halo: Tensor,
    weight: Tensor,
    drive: Tensor,
    strides: list[int],
    shift: Tensor,
    activation: int,
    out: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Fill `out`: the state, its halo buffer, the bits."""
    (channels, source, ky, kx), (batch, velocities, *_) = weight.shape, halo.shape
    height, width = out[0].shape[2:4]
    images, slabs = halo.flatten(0, 1), weight.permute(0, 2, 3, 1).flatten(1)
    box = [_IMAGES, _SIDE, _SIDE, _SLAB]
    tiles = -(-batch * velocities // _IMAGES) * -(-height // _SIDE) * -(-width // _SIDE)
    with device_of(halo):
        step_kernel[(min(tiles, _programs(halo)),)](
            TensorDescriptor(images, list(images.shape), list(images.stride()), box),
            TensorDescriptor(slabs, list(slabs.shape), list(slabs.stride()), [channels, _SLAB]),
            drive, shift, *out, batch * velocities, velocities, height, width, tiles, *strides,
            C=source, K=channels, KX=kx, TAPS=ky * kx, RY=ky // 2, RX=kx // 2, ACT=activation,
            TN=_IMAGES, TS=_SIDE, BC=_SLAB, num_warps=8, num_stages=3,
        )  # fmt: skip


def _programs(x: Tensor) -> int:
    """One program a multiprocessor; a few in the interpreter."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
