"""The decoder on a GPU: run frame by frame, differentiated once over all frames.

Memory plan. Predictions are fed back without their gradient, so a frame's forward pass is all that
must happen in order. It runs outside autograd and writes what the backward pass needs, the states
between convolutions and the bits of their ReLU, to its place in buffers of all frames,
[layers, S, B, H, W, K]. `joined` then stands for the whole computation in autograd: its backward
pass does every layer for all frames at once, in cuDNN calls as large as those of the recurrence.
The last convolution has few outputs C: it is a product with columns [K, taps·C] whose taps are then
added up, and its gradient is the taps of the predictions' gradient times those columns, formed in
registers where it meets the bits. Biases are summed there too.
"""

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn.ops._launch import operator
from fernn.ops.comoving_step._passes import add_and_rectify, columns_of, rectified_gradient, taps
from fernn.ops.flow_step._cudnn import LAST, adjoint_of, convolve, correlate, kernel_of
from fernn.ops.flow_step._step import empty_bits


class Packed(NamedTuple):
    """A stack's weights and biases, as gradients reach them and as the passes read them.

    `low` are the weights in the precision and layout of the states, the last as the columns of its
    transpose; `offsets` are the biases.
    """

    weights: list[Tensor]
    biases: list[Tensor]
    low: list[Tensor]
    offsets: list[Tensor]

    @property
    def side(self) -> int:
        return self.weights[-1].shape[-1]


def pack(stack: nn.Sequential, dtype: torch.dtype) -> Packed:
    """Convolutions with biases, all of one kernel size, and ReLU between them."""
    convolutions = [layer for layer in stack if isinstance(layer, nn.Conv2d)]
    weights = [c.weight for c in convolutions]
    biases = [cast(Tensor, c.bias) for c in convolutions]
    low = [kernel_of(w.detach(), dtype) for w in weights[:-1]]
    low.append(_columns(weights[-1].detach()).to(dtype).contiguous())
    return Packed(weights, biases, low, [b.detach() for b in biases])


def _columns(weight: Tensor) -> Tensor:
    """The last kernel [C, K, k, k] → columns [taps, K] of the convolution's transpose."""
    return columns_of(weight.transpose(0, 1).flip(2, 3))


class Memory(NamedTuple):
    """What a stack remembers of S frames: states [layers, S, B, H, W, K] and bits."""

    states: Tensor
    bits: Tensor


def memory(seen: Tensor, layers: int, frames: int) -> Memory:
    """Room for `frames` frames of readouts like `seen` [B, H, W, K]; none at all for no frames."""
    states = seen.new_empty(layers, frames, *seen.shape)
    return Memory(states, empty_bits(states))


@operator("fernn::conv_stack", mutates=("states", "bits"))
def run(
    seen: Tensor, low: list[Tensor], biases: list[Tensor], side: int,
    states: Tensor, bits: Tensor, frame: int,
) -> Tensor:  # fmt: skip
    """A readout [B, H, W, K] → its image [B, C, H, W]; states and bits of it kept."""
    x = seen
    for layer, (weight, bias) in enumerate(zip(low[:-1], biases[:-1], strict=True)):
        conv = convolve(x, weight, side // 2)
        kept = states.shape[1] > 0
        x = states[layer, frame] if kept else conv
        place = bits[layer, frame] if kept else bits
        add_and_rectify(conv, None, bias, x, place, 0)
    batch, height, width, _ = seen.shape
    many = len(biases[-1]) * side * side
    parts = (x.flatten(0, 2) @ low[-1].T)[:, :many].float()
    parts = parts.reshape(batch, height * width, many).transpose(1, 2)
    image = F.fold(parts, (height, width), side, padding=side // 2)
    return (image + biases[-1][:, None, None].float()).to(seen.dtype)


@run.register_fake
def _(
    seen: Tensor, low: list[Tensor], biases: list[Tensor], side: int,
    states: Tensor, bits: Tensor, frame: int,
) -> Tensor:  # fmt: skip
    batch, height, width, _ = seen.shape
    return seen.new_empty(batch, len(biases[-1]), height, width)


def joined(packed: Packed, seen: Tensor, kept: Memory, images: Tensor) -> Tensor:
    """What `run` made of readouts [S·B, H, W, K], images [S·B, C, H, W], with their gradient."""
    out: Tensor = _join(seen, packed.weights, packed.biases, packed.low, *kept, images)
    return out


@operator("fernn::conv_stack_join")
def _join(
    seen: Tensor, weights: list[Tensor], biases: list[Tensor], low: list[Tensor],
    states: Tensor, bits: Tensor, images: Tensor,
) -> Tensor:  # fmt: skip
    return images.clone()


@_join.register_fake
def _(
    seen: Tensor, weights: list[Tensor], biases: list[Tensor], low: list[Tensor],
    states: Tensor, bits: Tensor, images: Tensor,
) -> Tensor:  # fmt: skip
    return torch.empty_like(images)


@operator("fernn::conv_stack_backward")
def _join_backward(
    grad: Tensor, seen: Tensor, low: list[Tensor], side: int, states: Tensor, bits: Tensor
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    channels = grad.shape[1]
    grad_bias = grad.float().sum((0, 2, 3))
    grad = grad.to(seen.dtype).contiguous()
    last = states[-1].flatten(0, 1) if len(low) > 1 else seen
    patches = taps(grad, side, len(low[-1]))  # [N·H·W, taps·C]
    columns = (patches.T @ last.flatten(0, 2)).float()[: channels * side * side]
    weight = columns.reshape(channels, side, side, -1).permute(0, 3, 1, 2).flip(2, 3)
    grad_weights, grad_biases = [weight.contiguous()], [grad_bias]
    if len(low) == 1:
        return (patches @ low[-1]).reshape(seen.shape), grad_weights, grad_biases
    above: Tensor | None = grad
    for layer in reversed(range(len(low) - 1)):
        g = torch.empty_like(seen)
        product = low[-1] if layer == len(low) - 2 else None
        mask = bits[layer].flatten(0, 1)
        grad_biases.append(rectified_gradient(above, product, None, mask, None, g, side))
        below = states[layer - 1].flatten(0, 1) if layer else seen
        gradient = correlate(g, below, low[layer], side // 2)
        grad_weights.append(gradient.to(torch.float32, memory_format=LAST))
        above = convolve(g, adjoint_of(low[layer], g.dtype), side // 2)
    assert above is not None
    return above, grad_weights[::-1], grad_biases[::-1]


@_join_backward.register_fake
def _(
    grad: Tensor, seen: Tensor, low: list[Tensor], side: int, states: Tensor, bits: Tensor
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    channels, wide = grad.shape[1], seen.shape[-1]
    weights = [torch.empty_like(w, dtype=torch.float32) for w in low[:-1]]
    biases = [seen.new_empty(wide, dtype=torch.float32) for _ in low[:-1]]
    weights.append(seen.new_empty(channels, wide, side, side, dtype=torch.float32))
    biases.append(seen.new_empty(channels, dtype=torch.float32))
    return torch.empty_like(seen), weights, biases


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    seen, weights, biases, low, states, bits, _ = inputs
    ctx.save_for_backward(seen, states, bits, *low)
    ctx.side, ctx.dtypes = weights[0].shape[-1], (weights[0].dtype, biases[0].dtype)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    seen, states, bits, *low = ctx.saved_tensors
    grad_seen, weights, biases = _join_backward(grad, seen, low, ctx.side, states, bits)
    return (
        grad_seen,
        [w.to(ctx.dtypes[0]) for w in weights],
        [b.to(ctx.dtypes[1]) for b in biases],
        [None] * len(low),
        None,
        None,
        None,
    )


_join.register_autograd(_backward, setup_context=_setup_context)
