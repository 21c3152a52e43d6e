"""Attention over time on a GPU: frames in, the output out, no key or value in memory.

Memory plan. Keys and values are convolutions of frames with few channels, k_s = U_k p_s and
v_s = U_v p_s for the taps p_s of frame s at a pixel. So for every head

    q·k_s = p_T · (U_qᵀ U_k) p_s,        Σ_s w_s v_s = U_v Σ_s w_s p_s:

two small matrices, taps by taps and taps by channels, stand for the projections of all frames.
A program owns a few pixels, gathers their taps from the frames, which the caches hold, and keeps
scores, softmax and the mixed taps of all heads in registers, one frame after the other. Only the
output is written, and nothing but the frames is kept. The backward pass does the same again, reads
the gradient and sums those of both matrices. autograd carries them on to the weights.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fernn.ops._backend import low_dtype
from fernn.ops._launch import device_of, operator
from fernn.ops.comoving_step._passes import columns_of
from fernn.ops.pixel_attention import _kernels

_PIXELS, _CHANNELS = 32, 128  # of a block, at most
_PROGRAMS = 1056  # that sum gradients, each over many blocks: eight for a processor


def pixel_attention(frames: Tensor, qkv: Tensor, heads: int, recency: bool) -> Tensor:
    dtype = low_dtype(frames)
    with torch.autocast(frames.device.type, enabled=False):
        scores, values = (x.to(dtype).contiguous() for x in _matrices(qkv, heads))
    out: Tensor = _attend(frames.contiguous(), scores, values, qkv.shape[-1], recency)
    return out.permute(0, 3, 1, 2)


def _matrices(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """U_qᵀ U_k/√d, [BT, heads·BT], and U_v, a block for each head, [heads·BT, K].

    Taps and heads are filled up to powers of two, with zeros.
    """
    taps = columns_of(qkv).unflatten(1, (3, heads, -1))  # [BT, 3, heads, d]
    query, key, value = taps.unbind(1)
    more = (1 << (heads - 1).bit_length()) - heads
    scores = torch.einsum("nhd,mhd->nhm", query, key) / math.sqrt(query.shape[2])
    own = torch.eye(heads, dtype=qkv.dtype, device=qkv.device)
    values = value.transpose(0, 1)[:, :, None] * own[:, None, :, None]  # [heads, BT, heads, d]
    return (
        F.pad(scores, (0, 0, 0, more)).flatten(1),
        F.pad(values.flatten(2), (0, 0, 0, 0, 0, more)).flatten(0, 1),
    )


@operator("fernn::pixel_attention")
def _attend(frames: Tensor, scores: Tensor, values: Tensor, side: int, recency: bool) -> Tensor:
    out = _output(frames, scores, values, side, recency)
    tiles, options = _plan(out, scores, side, recency)
    grid = tiles, -(-out.shape[3] // options["BK"])
    with device_of(out):
        _kernels.forward_kernel[grid](
            frames, scores, values, out, frames.shape[1], *out.shape[1:], frames.shape[2], **options
        )
    return out  # type: ignore[no-any-return]  # a decorator hides the type


@_attend.register_fake
def _output(frames: Tensor, scores: Tensor, values: Tensor, side: int, recency: bool) -> Tensor:
    images, canvas = frames.shape[0], frames.shape[3:]
    return values.new_empty(images, *canvas, values.shape[1])


@operator("fernn::pixel_attention_backward")
def _attend_backward(
    grad: Tensor, frames: Tensor, scores: Tensor, values: Tensor, side: int, recency: bool
) -> tuple[Tensor, Tensor]:
    tiles, options = _plan(grad, scores, side, recency)
    grid = min(tiles, _PROGRAMS), -(-grad.shape[3] // options["BK"])
    sum_scores, sum_values = (
        torch.empty(many, *x.shape, device=grad.device)
        for many, x in ((grid[0] * grid[1], scores), (grid[0], values))
    )
    with device_of(grad):
        _kernels.backward_kernel[grid](
            grad, frames, scores, values, sum_scores, sum_values,
            tiles, frames.shape[1], *grad.shape[1:], frames.shape[2], **options,
        )  # fmt: skip
    return sum_scores.sum(0).to(scores.dtype), sum_values.sum(0).to(values.dtype)


@_attend_backward.register_fake
def _(
    grad: Tensor, frames: Tensor, scores: Tensor, values: Tensor, side: int, recency: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores), torch.empty_like(values)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.side, ctx.recency = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _attend_backward(grad.contiguous(), *ctx.saved_tensors, ctx.side, ctx.recency)
    return None, *gradients, None, None


_attend.register_autograd(_backward, setup_context=_setup_context)


def _plan(out: Tensor, scores: Tensor, side: int, recency: bool) -> tuple[int, dict[str, int]]:
    """How many blocks of pixels there are, and what the kernels must know to be compiled."""
    images, height, width, channels = out.shape
    taps, mixed = scores.shape
    block = max(16, min(_CHANNELS, 1 << (channels - 1).bit_length()))
    shape = {"NH": mixed // taps, "BT": taps, "BP": _PIXELS, "BK": block, "SIDE": side}
    options = {"RECENCY": int(recency), "num_warps": 4 if block <= 64 else 8}
    return images * -(-height * width // _PIXELS), options | shape
